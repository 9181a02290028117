"""An engine for the tests: a dictionary of states, in this Python."""

from collections.abc import Callable

from riot_bench.baselines.engines.programs import PROGRAMS, RowCounter, main, read_lines


def build(name: str, files: list[str], into: RowCounter) -> Callable[[], None]:
    program, states = PROGRAMS[name], dict[str, object]()

    def run() -> None:
        for line in read_lines(files):
            for key, value in program.expand(line):
                states[key], rows = program.step(states.get(key), value)
                for row in rows:
                    into.add(row)

    return run


if __name__ == "__main__":
    main(build)
