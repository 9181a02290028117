"""Dataflows of keyed tasks over one source, and the rows that they emit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import riot_ops as ro
from riot_ops import tasks as t

__all__ = ["ROWS", "SCHEMA", "Got", "N", "alone", "below", "dataflow", "kalman", "ordered", "rows"]

N = 600
ROWS = [{"device": "abc"[i % 3], "kind": "xy"[i % 2], "value": float(i % 17)} for i in range(N)]
SCHEMA = {"device": "string", "kind": "string", "value": "double"}


def dataflow(name: str, *tasks: Any) -> ro.Dataflow:
    """Make a dataflow with one task after the other."""
    flow = ro.Dataflow(name)
    stream = flow.source("in", schema=SCHEMA)
    for place, task in enumerate(tasks):
        stream = stream.to(task, id=f"t{place}")
    return flow.sink("out", stream)


def kalman(noise: float = 0.5) -> t.KalmanFilter:
    """Make a Kalman filter by device."""
    return t.KalmanFilter(by=("device",), process_noise=noise)


def below(high: float) -> t.RangeFilter:
    """Make a filter for values up to a bound."""
    return t.RangeFilter(bounds={"value": (0, high)}, by=None)


def ordered(found: Iterable[Any]) -> list[str]:
    """Return things as sorted text, to compare them in any order."""
    return sorted(map(str, found))


class Got:
    """The streams of a sink, by name like those of a result."""

    def __init__(self, sink: Any) -> None:
        self.sink = sink

    def __getitem__(self, stream: str) -> Any:
        return self.sink.table(stream)


def rows(table: Any, stream: str, first: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a stream from a message on."""
    return [row for row in table[stream].to_pylist() if row["seq"] >= first]


def alone(flow: ro.Dataflow, stream: str, first: int) -> list[dict[str, Any]]:
    """Return the output of a separate run of a dataflow over :data:`ROWS` from a message on."""
    found = flow.run(ro.MemorySource(ROWS[first:]))[stream].to_pylist()
    return [{**row, "seq": row["seq"] + first} for row in found]
