"""The suites by name, and how to run one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from riot_ops.bench.measure import Measure, machine, table
from riot_ops.errors import ConfigError, did_you_mean

__all__ = ["SUITES", "describe", "run", "suite"]

#: Suites by name, and what they measure.
SUITES: dict[str, str] = {
    "kernels": "throughput of single tasks on one core, and of SenML parsing",
    "keyed": "a keyed task on Spark, against per-key state and against a bare pass",
    "stats": "the STATS application, against PySpark and plain Python",
    "latency": "time from source to sink at 7,000 messages per second",
    "growth": "cost, state and memory as the number of keys grows",
}


def suite(name: str) -> Callable[[bool], Iterator[Measure]]:
    """The function ``measures(quick)`` of a suite.

    >>> callable(suite("kernels"))
    True
    """
    if name not in SUITES:
        raise ConfigError(f"unknown benchmark {name!r}; known are {', '.join(SUITES)}{did_you_mean(name, SUITES)}")
    measures: Callable[[bool], Iterator[Measure]] = importlib.import_module(f"riot_ops.bench.{name}").measures
    return measures


def describe() -> dict[str, str]:
    """The suites by name, and what they measure.

    >>> list(describe())
    ['kernels', 'keyed', 'stats', 'latency', 'growth']
    """
    return dict(SUITES)


def run(name: str, as_json: bool = False, quick: bool = False) -> list[Measure]:
    """Run a suite and print what it finds.

    Parameters
    ----------
    name : str
        One of :data:`SUITES`.
    as_json : bool, default False
        Print a JSON object per measure and line as it is found, instead of a table at the end.
    quick : bool, default False
        Small data and few repetitions: for trying out, not for figures.
    """
    from rich.console import Console

    console = Console()
    where = machine()
    found: list[Measure] = []
    for measure in suite(name)(quick):
        found.append(replace(measure, machine=where))
        if as_json:
            print(found[-1].to_json(), flush=True)
    if not as_json:
        console.print(table(found))
        console.print(f"{where}{' (quick)' if quick else ''}", style="dim")
    return found
