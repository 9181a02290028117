"""The same programs on other engines of Python, where these are installed: how fast, and that the results are the same.

``scripts/opponents.sh`` installs each in an environment of its own; none of them is a dependency.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import riot_ops
from riot_ops import streams
from riot_ops.bench.data import Discard, block_stats, needs, write_city
from riot_ops.bench.dspbench_lines import write_lines
from riot_ops.bench.experiment import Experiment, Figure
from riot_ops.bench.measure import Measure, median, one_core, seconds
from riot_ops.bench.opponents.engines.programs import Checksum
from riot_ops.bench.sparks import folder
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import application

__all__ = ["ENGINES", "EXPERIMENTS", "PROGRAMS", "checksum", "environments", "measures", "on_engine"]

#: Engines, and the modules that run the programs on them.
_ROOM = "riot_ops.bench.opponents.engines"
ENGINES = {name: f"{_ROOM}.{name}_engine" for name in ("bytewax", "flink", "pathway")}
#: Programs, and by result stream the fields that are compared; of STATS the name of the stream is the first.
PROGRAMS: dict[str, dict[str, tuple[str, ...]]] = {
    "wc": {"counts": ("word", "count")},
    "fd": {"outliers": ("entity_id", "score", "states")},
    "stats": {
        "avg": ("sensor_id", "obs_type", "value"),
        "slr": ("sensor_id", "obs_type", "value"),
        "dac": ("obs_type", "value"),
    },
}
FOLDER = "RIOT_OPS_ENGINES"


def environments() -> dict[str, Path]:
    """The Python of each engine that is installed."""
    base = Path(os.environ.get(FOLDER) or Path.home() / ".cache" / "riot_ops" / "engines")
    found = {name: base / name / "bin" / "python" for name in ENGINES}
    return {name: python for name, python in found.items() if python.exists()}


def measures(quick: bool = False, *, program: Sequence[str] = ()) -> Iterator[Measure]:
    """The suite; engines that are not installed have no rows.

    Parameters
    ----------
    program : sequence of str, default all
        Of :data:`PROGRAMS`.
    """
    for one in program:
        if one not in PROGRAMS:
            raise ConfigError(f"--program must be one of {', '.join(PROGRAMS)}, got {one!r}")
    needs("this benchmark", "bench", "orjson")
    lines, repetitions = (20_000, 3) if quick else (400_000, 5)
    for one in program or PROGRAMS:
        with folder() as base, one_core():
            flow, files = _given(one, base, lines)
            yield from _of(f"engines/{one}", one, flow, files, lines, repetitions)


def _given(program: str, base: Path, lines: int) -> tuple[Dataflow, list[Path]]:
    if program == "stats":
        flow, parts = block_stats(), sorted(write_city(base / "city", lines, 1).glob("*.txt"))
    else:
        one = application(program)
        flow, (parts,) = one.builder(), write_lines(one, base / "lines", lines, lines).files.values()
    whole = base / "all.txt"  # of several files some engines read any first
    whole.write_bytes(b"".join(path.read_bytes() for path in parts))
    return flow, [whole]


def _of(
    at: str, program: str, flow: Dataflow, files: Sequence[Path], lines: int, repetitions: int
) -> Iterator[Measure]:
    def ours() -> None:
        flow.run(streams.replay(files), sinks=Discard(), cores=1)

    wanted = checksum(program, flow, files)
    took: dict[str, list[float]] = {name: [] for name in ("riot_ops", *environments())}
    for _ in range(repetitions):  # by turns
        took["riot_ops"].append(seconds(ours, 1, warm=0))
        for name, python in environments().items():
            found, spent = on_engine(python, name, program, files)
            if not found.like(wanted):
                raise RiotError(f"the results of {program} differ on {name}: {found}, here {wanted}")
            took[name].append(spent)
    how = f"{lines:,} lines from files, one core, nothing written, {wanted.count:,} results"
    for name, times in took.items():
        rates = [lines / t for t in times]
        yield Measure(f"{at}/{name}", median(rates), "lines/s", how, values=tuple(rates))
    for name in list(took)[1:]:
        ratios = tuple(b / a for a, b in zip(took["riot_ops"], took[name], strict=True))
        yield Measure(f"{at}/vs-{name}", median(ratios), "ratio", "riot_ops in process against it", values=ratios)


def checksum(program: str, flow: Dataflow, files: Sequence[Path]) -> Checksum:
    """What the results of a dataflow come to."""
    result = flow.run(streams.replay(files))
    made = Checksum()
    for stream, fields in PROGRAMS[program].items():
        label = (stream,) if program == "stats" else ()
        table = result[stream].select(list(fields))
        for row in _rows(table):
            made.add((*label, *row))
    return made


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)


def on_engine(python: Path, engine: str, program: str, files: Sequence[Path]) -> tuple[Checksum, float]:
    """Run a program on an engine: what its results come to, and the seconds that it took once Python was there."""
    command = [str(python), "-m", ENGINES[engine], program, *map(str, files)]
    paths = {**os.environ, "PYTHONPATH": str(Path(riot_ops.__file__).parents[1])}
    done = subprocess.run(command, env=paths, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RiotError(f"{engine} failed with {program}: {done.stderr.strip()[-500:] or done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Checksum(found["count"], found["exact"], found["total"]), float(found["seconds"])


EXPERIMENTS = (
    Experiment(
        "engines",
        "Other engines of Python",
        measures,
        "Word count, fraud detection and STATS as the engines' users write them: a function per record, state per "
        "key. A checksum shows that all give the same results. Engines that are not installed have no rows.",
        (Figure("rate", "Throughput", r"engines/(?P<x>wc|fd|stats)/(?P<series>\w+)", "program", "lines/s", log="y"),),
        (60, 900),
    ),
)
