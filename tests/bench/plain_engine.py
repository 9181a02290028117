"""An engine for the tests: a dictionary of states, in this Python."""

from riot_ops.bench.opponents.engines.programs import Checksum, Program, lines_of, main


def run(program: Program, files: list[str]) -> Checksum:
    states: dict[str, object] = {}
    found = Checksum()
    for line in lines_of(files):
        for key, value in program.expand(line):
            states[key], rows = program.step(states.get(key), value)
            for row in rows:
                found.add(row)
    return found


if __name__ == "__main__":
    main(run)
