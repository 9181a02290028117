"""The suites by name, and how to run one."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from riot_ops.bench.measure import Measure, machine, table
from riot_ops.errors import ConfigError, did_you_mean

__all__ = ["SUITES", "describe", "run", "suite"]

#: Suites by name, and what they measure.
SUITES: dict[str, str] = {
    "kernels": "throughput of single tasks on one core, and of SenML and XML parsing",
    "keyed": "a keyed task on Spark, against per-key state and against a bare pass",
    "stats": "the STATS application, against PySpark and plain Python",
    "latency": "time from source to sink at 7,000 messages per second",
    "growth": "cost, state and memory as the number of keys grows",
    "models": "predictions by stored models, against scikit-learn message by message",
    "micro": "each task alone: peak rate, latency, jitter, CPU and memory, beside the RIoTBench paper",
    "app": "the same for each application, over the benchmark's streams",
    "mqtt": "publishing and receiving through a broker, against paho-mqtt alone",
}


def suite(name: str) -> Callable[..., Iterator[Measure]]:
    """The function ``measures(quick)`` of a suite; it may have options of its own, by name.

    >>> callable(suite("kernels"))
    True
    """
    if name not in SUITES:
        raise ConfigError(f"unknown benchmark {name!r}; known are {', '.join(SUITES)}{did_you_mean(name, SUITES)}")
    measures: Callable[..., Iterator[Measure]] = importlib.import_module(f"riot_ops.bench.{name}").measures
    return measures


def describe() -> dict[str, str]:
    """The suites by name, and what they measure.

    >>> list(describe())
    ['kernels', 'keyed', 'stats', 'latency', 'growth', 'models', 'micro', 'app', 'mqtt']
    """
    return dict(SUITES)


def run(name: str, /, as_json: bool = False, quick: bool = False, **options: Any) -> list[Measure]:
    """Run a suite and print what it finds.

    Parameters
    ----------
    name : str
        One of :data:`SUITES`.
    as_json : bool, default False
        Print a JSON object per measure and line as it is found, instead of a table at the end.
    quick : bool, default False
        Small data and few repetitions: for trying out, not for figures.
    **options
        Of the suite, where it has any.
    """
    from rich.console import Console

    console = Console()
    where = machine()
    found: list[Measure] = []
    measures = suite(name)
    known = inspect.signature(measures).parameters
    for option in options:
        if option not in known:
            raise ConfigError(f"the benchmark {name!r} has no option --{option}")
    for measure in measures(quick, **options):
        found.append(replace(measure, machine=where))
        if as_json:
            print(found[-1].to_json(), flush=True)
    if not as_json:
        console.print(getattr(importlib.import_module(f"riot_ops.bench.{name}"), "table", table)(found))
        console.print(f"{where}{' (quick)' if quick else ''}", style="dim")
    return found
