"""The suites by name, and how to run one."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

from riot_bench.harness.experiment import Experiment
from riot_bench.harness.measure import Measure, load, machine, table
from riot_ops.core.errors import ConfigError, did_you_mean

__all__ = ["SUITES", "describe", "experiments", "run", "suite"]

#: Suites by name, and what they measure.
SUITES: dict[str, str] = {
    "kernels": "throughput of single tasks on one core, and of SenML and XML parsing",
    "keyed": "a keyed task on Spark, against per-key state and against a bare pass",
    "stats": "the STATS application, against PySpark and plain Python",
    "windows": "windows of stream time, against plain Python and Spark's own aggregation",
    "latency": "time from source to sink at 7,000 messages per second",
    "growth": "cost, state and memory as the number of keys grows",
    "operators": "cost of a record as the number of keys and the length of windows grow, task by task",
    "models": "predictions by stored models, against scikit-learn message by message",
    "micro": "each task alone: peak rate, latency, jitter, CPU and memory, beside the RIoTBench paper",
    "app": "the same for each application, over the benchmark's streams",
    "scalability": "the load that cores carry, and the cores that a load demands, under an objective",
    "dspbench": "the applications of DSPBench, against plain Python and plain PySpark",
    "streambench": "StreamBench's programs and suites, against plain PySpark in several forms",
    "neptune": "message relay, compression, back-pressure and scaling, beside the thesis on Neptune",
    "engines": "word count, fraud detection and STATS on other engines of Python, where these are installed",
    "threat": "threat detection: how right it is, throughput by cores, and what a failure does",
    "reuse": "dataflows that come and go, each by itself and sharing their steps",
    "mqtt": "publishing and receiving through a broker, against paho-mqtt alone",
}


#: Where the suites are that are packages of their own.
PACKAGES = {
    "micro": "riotbench.micro",
    "app": "riotbench.applications",
    **{name: f"{name}.suite" for name in ("dspbench", "neptune", "streambench", "threat", "reuse")},
}


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"riot_bench.suites.{PACKAGES.get(name, name)}")


def suite(name: str) -> Callable[..., Iterator[Measure]]:
    """The function ``measures(quick)`` of a suite; it may have options of its own, by name.

    >>> callable(suite("kernels"))
    True
    """
    if name not in SUITES:
        raise ConfigError(f"unknown benchmark {name!r}; known are {', '.join(SUITES)}{did_you_mean(name, SUITES)}")
    measures: Callable[..., Iterator[Measure]] = _module(name).measures
    return measures


def experiments(name: str) -> tuple[Experiment, ...]:
    """The pieces of a suite: its module's ``EXPERIMENTS``, or all of it as one.

    >>> [one.key for one in experiments("kernels")]
    ['kernels']
    """
    measures = suite(name)
    whole = (Experiment(name, SUITES[name].capitalize(), measures),)
    found: tuple[Experiment, ...] = getattr(_module(name), "EXPERIMENTS", whole)
    return found


def describe() -> dict[str, str]:
    """The suites by name, and what they measure.

    >>> describe()["keyed"]
    'a keyed task on Spark, against per-key state and against a bare pass'
    """
    return dict(SUITES)


def run(name: str, /, as_json: bool = False, quick: bool = False, repeat: int = 1, **options: Any) -> list[Measure]:
    """Run a suite and print what it finds.

    Parameters
    ----------
    name : str
        One of :data:`SUITES`.
    as_json : bool, default False
        Print a JSON object per measure and line instead of a table; of a single run as it is found.
    quick : bool, default False
        Small data and few repetitions: for trying out, not for figures.
    repeat : int, >= 1, default 1
        Runs of the whole suite: each figure is then their median, with the values of all of them.
    **options
        Of the suite, where it has any.
    """
    if repeat < 1:
        raise ConfigError(f"repeat must be >= 1, got {repeat}")
    from rich.console import Console

    console = Console()
    where = machine()
    measures = suite(name)
    known = inspect.signature(measures).parameters
    for option in options:
        if option not in known:
            raise ConfigError(f"the benchmark {name!r} has no option --{option}")
    runs: dict[str, list[Measure]] = {}
    for _ in range(repeat):
        before = load()
        for measure in measures(quick, **options):
            one = replace(measure, machine=where, load=((before, load()),))
            runs.setdefault(one.measure, []).append(one)
            if as_json and repeat == 1:
                print(one.to_json(), flush=True)
    found = [Measure.of_runs(of_one) for of_one in runs.values()]
    if as_json and repeat > 1:
        for one in found:
            print(one.to_json())
    if not as_json:
        console.print(getattr(_module(name), "table", table)(found))
        loads = [pair for one in found for pair in one.load]
        most = (
            f"load {max(a for a, _ in loads):g} before, up to {max(b for _, b in loads):g} meanwhile" if loads else ""
        )
        console.print(f"{where}; {most}{' (quick)' if quick else ''}", style="dim")
    return found
