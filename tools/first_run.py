"""Run STATS in this process and on local Spark, compare their records, and say where to look next: ``make run``."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from riot_ops.cli.job import Job
from riot_ops.core.errors import RiotError
from riot_ops.measure.metrics import Summary

#: What orders the records of a stream.
ORDER = ("seq", "obs_type")

#: What to look at next; the first word of a command of riot-ops depends on where its environment is.
NEXT = {
    "{command}": "what to try, such as a file of yours",
    "{command} run --list": "the other applications",
    "{command} new my-project": "a project of yours, with tests",
    "{command} tasks": "all operators",
    "make docs-serve": "the documentation",
    "ls examples": "programs to read and run",
}


@dataclass(frozen=True)
class Run:
    """One run: what it is called, where its results are, its counts, and the seconds from its start to its end."""

    name: str
    folder: Path
    summary: Summary
    seconds: float


def run(runner: str, messages: int, sensors: int, folder: Path, console: Console) -> Run:
    """Run STATS over generated messages."""
    name = "on local Spark" if runner == "spark" else "in this process"
    job = Job(
        "stats", messages=messages, sensors=sensors, runner=runner, out=folder, overwrite=True, plot=runner == "local"
    )
    start = time.monotonic()
    with console.status(f"running {name} …"):
        job.run(Console(quiet=True))
    return Run(name, folder, job.summary, time.monotonic() - start)


def records(folder: Path) -> dict[str, pa.Table]:
    """Return the records of each stream, in the order of the messages."""
    tables = {}
    for stream in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = sorted(stream.glob("*.parquet"))
        if files:
            table = pa.concat_tables([pq.read_table(file) for file in files])
            tables[stream.name] = table.sort_by([(c, "ascending") for c in ORDER if c in table.column_names])
    return tables


def compare(one: Path, other: Path) -> tuple[int, list[str]]:
    """Return how many records two runs have given, and the streams in which they differ."""
    first, second = records(one), records(other)
    differing = [name for name in sorted({*first, *second}) if not _equal(first.get(name), second.get(name))]
    return sum(table.num_rows for table in first.values()), differing


def _equal(one: pa.Table | None, other: pa.Table | None) -> bool:
    if one is None or other is None:
        return (one or other).num_rows == 0
    return set(one.column_names) <= set(other.column_names) and other.select(one.column_names).equals(one)


def describe(one: Run) -> str:
    """Describe a run in a line.

    >>> print(describe(Run("in this process", Path(), Summary(messages=4000, seconds=0.5), 1.25)))
    in this process       8,000 messages/s    4,000 messages in 0.5 s, 1.2 s in all
    """
    s = one.summary
    rate = f"{s.throughput:,.0f} messages/s"
    return f"{one.name:16}{rate:>21}    {s.messages:,} messages in {s.seconds:.1f} s, {one.seconds:.1f} s in all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both, and print what they gave; 1 if their records differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--sensors", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("out/first"))
    parser.add_argument("--without-spark", action="store_true", help="run in this process alone")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    print("STATS: averages, predictions and distinct counts of the sensors of a city")
    given = options.messages, options.sensors
    runs = [run("local", *given, options.out / "local", console)]
    print(describe(runs[0]))
    picture = runs[0].folder / "stats.png"
    if picture.is_file():
        print(f"picture: {picture}\n  a sensor as it was read, smoothed, and predicted; impossible readings left out")
    sys.stdout.flush()
    failed = False
    if not options.without_spark and importlib.util.find_spec("pyspark") is not None:
        try:
            runs.append(run("spark", *given, options.out / "spark", console))
        except (RiotError, OSError, RuntimeError) as error:
            print(f"Spark does not run here: {error}\n  → {_command()} doctor")
            failed = True
        else:
            print(describe(runs[1]))
            n, differing = compare(runs[0].folder, runs[1].folder)
            failed = bool(differing)
            print(f"they differ in {', '.join(differing)}" if failed else f"both gave the same {n:,} records")
    print("\nnext")
    for command, purpose in NEXT.items():
        print(f"  {command.format(command=_command()):38} {purpose}")
    return int(failed)


def _command() -> str:
    """Return how the command of this environment is called from here."""
    path = Path(sys.executable).parent / "riot-ops"
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return "riot-ops"


if __name__ == "__main__":
    sys.exit(main())
