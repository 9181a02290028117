"""The suites by name, and a function that runs one."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

from riot_bench.harness.experiment import Experiment
from riot_bench.harness.machine import describe_machine, load_average
from riot_bench.harness.measure import Measure
from riot_bench.harness.measure_table import measure_table
from riot_ops.core.errors import ConfigError, did_you_mean

__all__ = ["SUITES", "describe_suites", "find_experiments", "find_suite", "run_suite"]

#: Suites by name, with a description.
SUITES: dict[str, str] = {
    "kernels": "throughput of single tasks on one core, and of SenML and XML parsing",
    "keyed": "a keyed task on Spark, against per-key state and against a bare pass",
    "stats": "the STATS application, against PySpark and plain Python",
    "windows": "event-time windows, against plain Python and Spark's own aggregation",
    "latency": "time from source to sink at 7,000 messages per second",
    "growth": "cost, state and memory as the number of keys grows",
    "operators": "cost per record of each task as the number of keys and the window length grow",
    "models": "predictions by stored models, against scikit-learn message by message",
    "micro": "each task alone: peak rate, latency, jitter, CPU and memory, with the RIoTBench paper's values",
    "app": "the same for each application, over the streams of RIoTBench",
    "scalability": "load capacity by cores, and the cores that a load demands, under an objective",
    "dspbench": "the applications of DSPBench, against plain Python and plain PySpark",
    "streambench": "StreamBench's programs and suites, against plain PySpark in several forms",
    "neptune": "message relay, compression, back-pressure and scaling, with the values of the thesis on Neptune",
    "engines": "word count, fraud detection and STATS on other Python engines that are installed",
    "threat": "threat detection: accuracy, throughput by cores, and recovery from failures",
    "reuse": "dataflows that are submitted and removed, run separately and with shared steps",
    "first-use": "import, first result, memory and the start on Spark of a new process",
    "edges": "sources and sinks, against bare clients of the same systems",
    "mqtt": "publishing and receiving through a broker, against paho-mqtt",
}


#: Modules of the suites that are packages.
_MODULES = {
    "stats": "stats.suite",
    "micro": "riotbench.micro",
    "app": "riotbench.applications",
    "first-use": "first_use",
    **{name: f"{name}.suite" for name in ("dspbench", "edges", "neptune", "streambench", "threat", "reuse")},
}


def _import_suite(name: str) -> ModuleType:
    return importlib.import_module(f"riot_bench.suites.{_MODULES.get(name, name)}")


def find_suite(name: str) -> Callable[..., Iterator[Measure]]:
    """Return the function ``measures(quick)`` of a suite; it may have further keyword options.

    >>> callable(find_suite("kernels"))
    True
    """
    if name not in SUITES:
        raise ConfigError(f"unknown benchmark {name!r}; known are {', '.join(SUITES)}{did_you_mean(name, SUITES)}")
    measures: Callable[..., Iterator[Measure]] = _import_suite(name).measures
    return measures


def find_experiments(name: str) -> tuple[Experiment, ...]:
    """Return the experiments of a suite: ``EXPERIMENTS`` of its module, or the whole suite as one.

    >>> [one.key for one in find_experiments("kernels")]
    ['kernels']
    """
    measures = find_suite(name)
    whole = (Experiment(name, SUITES[name].capitalize(), measures),)
    found: tuple[Experiment, ...] = getattr(_import_suite(name), "EXPERIMENTS", whole)
    return found


def describe_suites() -> dict[str, str]:
    """Return the suites by name, with a description.

    >>> describe_suites()["keyed"]
    'a keyed task on Spark, against per-key state and against a bare pass'
    """
    return dict(SUITES)


def run_suite(
    name: str, /, as_json: bool = False, quick: bool = False, repeat: int = 1, **options: Any
) -> list[Measure]:
    """Run a suite and print its measures.

    Parameters
    ----------
    name : str
        One of :data:`SUITES`.
    as_json : bool, default False
        Print one JSON object per measure and line instead of a table; for a single run, as soon as it is known.
    quick : bool, default False
        Small data and few repetitions: for trying out, not for quoting.
    repeat : int, >= 1, default 1
        Runs of the whole suite: each measure is then their median, with all values.
    **options
        Options of the suite.
    """
    if repeat < 1:
        raise ConfigError(f"repeat must be >= 1, got {repeat}")
    from rich.console import Console

    console = Console()
    # suites measure machine code; a process that first-use starts has its own setting
    os.environ.setdefault("RIOT_OPS_COMPILE", "immediate")
    where = describe_machine()
    measures = find_suite(name)
    known = inspect.signature(measures).parameters
    for option in options:
        if option not in known:
            raise ConfigError(f"the benchmark {name!r} has no option --{option}")
    runs: dict[str, list[Measure]] = {}
    for _ in range(repeat):
        before = load_average()
        for measure in measures(quick, **options):
            one = replace(measure, machine=where, load=((before, load_average()),))
            runs.setdefault(one.measure, []).append(one)
            if as_json and repeat == 1:
                print(one.to_json(), flush=True)
    found = [Measure.of_runs(of_one) for of_one in runs.values()]
    if as_json and repeat > 1:
        for one in found:
            print(one.to_json())
    if not as_json:
        console.print(getattr(_import_suite(name), "table", measure_table)(found))
        loads = [pair for one in found for pair in one.load]
        most = (
            f"load {max(a for a, _ in loads):g} before, up to {max(b for _, b in loads):g} meanwhile" if loads else ""
        )
        console.print(f"{where}; {most}{' (quick)' if quick else ''}", style="dim")
    return found
