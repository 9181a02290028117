"""One that forgets every state."""

from collections.abc import Callable

from riot_bench.baselines.engines.programs import PROGRAMS, Count, lines_of, main


def build(name: str, files: list[str], into: Count) -> Callable[[], None]:
    program = PROGRAMS[name]

    def run() -> None:
        for line in lines_of(files):
            for _, value in program.expand(line):
                for row in program.step(None, value)[1]:
                    into.add(row)

    return run


if __name__ == "__main__":
    main(build)
