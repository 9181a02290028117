"""An engine for the tests: a dictionary of states, in this Python."""

from collections.abc import Callable

from riot_bench.baselines.engines.programs import PROGRAMS, Count, lines_of, main


def build(name: str, files: list[str], into: Count) -> Callable[[], None]:
    program, states = PROGRAMS[name], dict[str, object]()

    def run() -> None:
        for line in lines_of(files):
            for key, value in program.expand(line):
                states[key], rows = program.step(states.get(key), value)
                for row in rows:
                    into.add(row)

    return run


if __name__ == "__main__":
    main(build)
