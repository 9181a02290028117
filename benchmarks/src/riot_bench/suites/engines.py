"""The same programs on other engines of Python, where these are installed: how fast, and that the results are the same.

``tools/opponents.sh`` installs each in an environment of its own; none of them is a dependency.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import riot_ops
from riot_bench.baselines.engines.programs import PROGRAMS, Checksum
from riot_bench.harness.data import needs, write_city
from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.measure import Measure, median, one_core
from riot_bench.harness.micro_batches import folder
from riot_bench.suites.dspbench.lines import write_lines
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.dataflows.applications import application

__all__ = ["ENGINES", "EXPERIMENTS", "PROGRAMS", "environments", "measures", "on_engine"]

#: Engines, and the modules that run the programs on them.
_ROOM = "riot_bench.baselines.engines"
OURS = f"{_ROOM}.riot_ops_engine"
ENGINES = {name: f"{_ROOM}.{name}_engine" for name in ("bytewax", "flink", "pathway")}
#: The packages of engines that have another name.
PACKAGES = {"flink": "pyflink"}
#: What is included in the time of an engine that another's does not have.
INCLUDED = {"flink": "; the start of its cluster and worker, which each job has, included"}
FOLDER = "RIOT_OPS_ENGINES"
#: Ends with 0 where a package is there.
LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"

_log = logging.getLogger("riot_ops")


def environments() -> dict[str, Path]:
    """The Python of each engine that is installed; what is there without its engine is told, and left out."""
    base = Path(os.environ.get(FOLDER) or Path.home() / ".cache" / "riot_ops" / "engines")
    found = {}
    for name in ENGINES:
        if not (python := base / name / "bin" / "python").exists():
            continue
        look = [str(python), "-c", LOOK, PACKAGES.get(name, name)]
        if subprocess.run(look, capture_output=True, check=False).returncode:  # noqa: S603
            _log.warning("%s is left out: its package is not in %s", name, base / name)
        else:
            found[name] = python
    return found


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
            yield from _of(f"engines/{one}", one, _given(one, base, lines), lines, repetitions)


def _given(program: str, base: Path, lines: int) -> list[Path]:
    if program == "stats":
        parts = sorted(write_city(base / "city", lines, 1).glob("*.txt"))
    else:
        (parts,) = write_lines(application(program), base / "lines", lines, lines).files.values()
    whole = base / "all.txt"  # of several files some engines read any first
    whole.write_bytes(b"".join(path.read_bytes() for path in parts))
    return [whole]


def _of(at: str, program: str, files: Sequence[Path], lines: int, repetitions: int) -> Iterator[Measure]:
    pythons = {"riot_ops": Path(sys.executable), **environments()}
    took: dict[str, list[float]] = {name: [] for name in pythons}
    wanted: Checksum | None = None
    for _ in range(repetitions):  # by turns
        for name, python in pythons.items():
            found, spent = on_engine(python, name, program, files)
            wanted = wanted or found
            if not found.like(wanted):
                raise RiotError(f"the results of {program} differ on {name}: {found}, here {wanted}")
            took[name].append(spent)
    assert wanted is not None
    how = f"{lines:,} lines from files, one core, second run in its process, {wanted.count:,} results counted"
    for name, times in took.items():
        rates = [lines / t for t in times]
        yield Measure(f"{at}/{name}", median(rates), "lines/s", how + INCLUDED.get(name, ""), values=tuple(rates))
    for name in list(took)[1:]:
        ratios = tuple(b / a for a, b in zip(took["riot_ops"], took[name], strict=True))
        against = "riot_ops in process against it" + INCLUDED.get(name, "")
        yield Measure(f"{at}/vs-{name}", median(ratios), "ratio", against, values=ratios)


def on_engine(python: Path, engine: str, program: str, files: Sequence[Path]) -> tuple[Checksum, float]:
    """Run a program twice on an engine: what its results come to, and the seconds of the second run."""
    command = [str(python), "-m", {"riot_ops": OURS, **ENGINES}[engine], program, *map(str, files)]
    package = Path(riot_ops.__file__).parent
    with tempfile.TemporaryDirectory() as alone:  # where riot_ops is, other packages may be, and the engine has its own
        (Path(alone) / package.name).symlink_to(package)
        paths = {**os.environ, "PYTHONPATH": str(package.parent) if engine == "riot_ops" else alone}
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
        "key. Each runs twice in a process of its own: the first run warms up and shows by a checksum that all give "
        "the same results; of the second, which is timed, the results are only counted. Engines that are not "
        "installed have no rows.",
        (Figure("rate", "Throughput", r"engines/(?P<x>wc|fd|stats)/(?P<series>\w+)", "program", "lines/s", log="y"),),
        (60, 1800),
    ),
)
