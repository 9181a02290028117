"""The same programs on other Python engines that are installed: throughput, and equality of the results.

``tools/baseline_engines.sh`` installs each engine in its own environment; none of them is a dependency.
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

import riot_bench
import riot_ops
from riot_bench.baselines.engines.programs import PROGRAMS, Checksum
from riot_bench.harness.data import write_city
from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.input_lines import write_input_lines
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.timing import median
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.dataflows.applications import application

__all__ = ["ENGINES", "EXPERIMENTS", "PROGRAMS", "find_engines", "measures", "run_on_engine"]

_PACKAGE = "riot_bench.baselines.engines"
RIOT_OPS_ENGINE = f"{_PACKAGE}.riot_ops_engine"
#: Engines, and the modules that run the programs on them.
ENGINES = {name: f"{_PACKAGE}.{name}_engine" for name in ("bytewax", "flink", "pathway")}
#: Packages whose name differs from the engine's.
PACKAGES = {"flink": "pyflink"}
#: Work that only this engine's time includes.
STARTUP_NOTE = {"flink": "; includes the start of its cluster and worker, which each job repeats"}
FOLDER_VARIABLE = "RIOT_OPS_ENGINES"
#: Lines and repetitions.
QUICK, FULL = (20_000, 3), (400_000, 5)
#: Program that exits with 0 if a package is installed.
FIND_PACKAGE = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"

_log = logging.getLogger("riot_ops")


def find_engines() -> dict[str, Path]:
    """Return the Python of each installed engine; warn about environments that lack their engine and skip them."""
    base = Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".cache" / "riot_ops" / "engines")
    found = {}
    for name in ENGINES:
        if not (python := base / name / "bin" / "python").exists():
            continue
        look = [str(python), "-c", FIND_PACKAGE, PACKAGES.get(name, name)]
        if subprocess.run(look, capture_output=True, check=False).returncode:  # noqa: S603
            _log.warning("%s is left out: its package is not in %s", name, base / name)
        else:
            found[name] = python
    return found


def measures(quick: bool = False, *, program: Sequence[str] = ()) -> Iterator[Measure]:
    """Run the suite; engines that are not installed have no rows.

    Parameters
    ----------
    quick : bool, default False
    program : sequence of str, default all
        Names in :data:`PROGRAMS`.
    """
    for one in program:
        if one not in PROGRAMS:
            raise ConfigError(f"--program must be one of {', '.join(PROGRAMS)}, got {one!r}")
    require_extra("this benchmark", "bench", "orjson")
    lines, repetitions = QUICK if quick else FULL
    for one in program or PROGRAMS:
        with temporary_folder() as base, pinned_to_one_core():
            yield from _compare_engines(f"engines/{one}", one, _write_input(one, base, lines), lines, repetitions)


def _write_input(program: str, base: Path, lines: int) -> list[Path]:
    if program == "stats":
        parts = sorted(write_city(base / "city", lines, 1).glob("*.txt"))
    else:
        (parts,) = write_input_lines(application(program), base / "lines", lines, lines).files.values()
    whole = base / "all.txt"  # some engines read several files in any order
    whole.write_bytes(b"".join(path.read_bytes() for path in parts))
    return [whole]


def _compare_engines(at: str, program: str, files: Sequence[Path], lines: int, repetitions: int) -> Iterator[Measure]:
    pythons = {"riot_ops": Path(sys.executable), **find_engines()}
    took: dict[str, list[float]] = {name: [] for name in pythons}
    wanted: Checksum | None = None
    for _ in range(repetitions):  # the engines alternate
        for name, python in pythons.items():
            found, spent = run_on_engine(python, name, program, files)
            wanted = wanted or found
            if not found.like(wanted):
                raise RiotError(f"the results of {program} differ on {name}: {found}, here {wanted}")
            took[name].append(spent)
    assert wanted is not None
    how = f"{lines:,} lines from files, one core, second run in its process, {wanted.count:,} results counted"
    for name, times in took.items():
        rates = [lines / t for t in times]
        yield Measure(f"{at}/{name}", median(rates), "lines/s", how + STARTUP_NOTE.get(name, ""), values=tuple(rates))
    for name in list(took)[1:]:
        ratios = tuple(b / a for a, b in zip(took["riot_ops"], took[name], strict=True))
        against = f"riot_ops in process against {name}" + STARTUP_NOTE.get(name, "")
        yield Measure(f"{at}/vs-{name}", median(ratios), "ratio", against, values=ratios)


def run_on_engine(python: Path, engine: str, program: str, files: Sequence[Path]) -> tuple[Checksum, float]:
    """Run a program twice on an engine; return the checksum of its results and the seconds of the second run."""
    command = [str(python), "-m", {"riot_ops": RIOT_OPS_ENGINE, **ENGINES}[engine], program, *map(str, files)]
    packages = [Path(module.__file__ or "").parent for module in (riot_ops, riot_bench)]
    own = os.pathsep.join(str(package.parent) for package in packages)
    with tempfile.TemporaryDirectory() as alone:  # the folder of riot_ops may have packages that the engine has, too
        for package in packages:
            (Path(alone) / package.name).symlink_to(package)
        paths = {**os.environ, "PYTHONPATH": own if engine == "riot_ops" else alone}
        done = subprocess.run(command, env=paths, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RiotError(f"{engine} failed with {program}: {done.stderr.strip()[-500:] or done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Checksum(found["count"], found["exact"], found["total"]), float(found["seconds"])


EXPERIMENTS = (
    Experiment(
        "engines",
        "Other Python engines",
        measures,
        "Word count, fraud detection and STATS as users of the engines write them: a function per record and state per "
        "key. Each runs twice in its own process: the first run is the warm-up and shows by a checksum that all "
        "engines "
        "give the same results; the second run is timed and only counts them. Engines that are not installed have no "
        "rows.",
        (Figure("rate", "Throughput", r"engines/(?P<x>wc|fd|stats)/(?P<series>\w+)", "program", "lines/s", log="y"),),
        (60, 1800),
    ),
)
