"""An engine that forgets all state."""

from collections.abc import Callable

from riot_bench.baselines.engines.programs import PROGRAMS, RowCounter, main, read_lines


def build(name: str, files: list[str], into: RowCounter) -> Callable[[], None]:
    program = PROGRAMS[name]

    def run() -> None:
        for line in read_lines(files):
            for _, value in program.expand(line):
                for row in program.step(None, value)[1]:
                    into.add(row)

    return run


if __name__ == "__main__":
    main(build)
