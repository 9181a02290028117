"""One that forgets every state."""

from riot_ops.bench.opponents.engines.programs import Checksum, Program, lines_of, main


def run(program: Program, files: list[str]) -> Checksum:
    pairs = (pair for line in lines_of(files) for pair in program.expand(line))
    return Checksum.of(row for _, value in pairs for row in program.step(None, value)[1])


if __name__ == "__main__":
    main(run)
