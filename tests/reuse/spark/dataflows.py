"""Dataflows of filters over one source, and helpers for tests of queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import ReuseManager

__all__ = ["ALL", "ROWS", "check_complete", "dataflow", "until", "values"]

ROWS = [{"value": float(i)} for i in range(200)]
ALL = [row["value"] for row in ROWS]


def dataflow(name: str, *bounds: tuple[float, float]) -> ro.Dataflow:
    """Make a dataflow with one filter after the other."""
    flow = ro.Dataflow(name)
    stream = flow.source("in", schema={"value": "double"})
    for place, (low, high) in enumerate(bounds):
        stream = stream.to(t.RangeFilter(bounds={"value": (low, high)}, by=None), id=f"t{place}")
    return flow.sink("out", stream)


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition does not hold in time"
        time.sleep(0.01)


def values(sink: Any, stream: str) -> list[float]:
    """Return the values that a sink has of a stream."""
    table = sink.table(stream)
    return table["value"].to_pylist() if table.num_columns else []


def check_complete(manager: ReuseManager, sinks: Mapping[str, Any]) -> None:
    """Check that the sinks of the fixture ``two_queries`` have all records, and that nothing has failed."""
    assert manager.backend.wait("20s")  # type: ignore[attr-defined]
    assert manager.stats()["failed"] == manager.stats()["restarts"] == {}
    assert values(sinks["ada"], "t0") == values(sinks["bob"], "t1") == ALL
