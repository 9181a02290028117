"""Dataflows over several sources that merge by arrival, and what each should get, computed naively."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import riot_ops as ro
from riot_ops import tasks as t

__all__ = ["ROWS", "SCHEMA", "N", "apart", "expected", "got", "merged", "prefix", "sources"]

N = 60
SCHEMA = {"device": "string", "value": "double"}
#: By source, its records; no two sources have a device in common.
ROWS = {
    name: [{"device": f"{name}{i % 2}", "value": float((i * step) % 17)} for i in range(N)]
    for name, step in (("north", 3), ("south", 5), ("west", 7))
}
LOW, WINDOW = 12.0, 3


def sources(flow: ro.Dataflow) -> dict[str, Any]:
    """Return the sources of a dataflow."""
    return {node.id: ro.MemorySource(ROWS[node.id]) for node in flow.nodes_of_kind("source")}


def prefix(flow: ro.Dataflow, name: str, label: str = "") -> ro.Stream:
    """Add a source with a filter and a sum over the last values of each device: three steps."""
    stream = flow.source(name, schema=SCHEMA)
    stream = stream.to(t.RangeFilter(bounds={"value": (0, LOW)}, by=None), id=f"{label}{name}_low")
    return stream.to(t.SlidingSum(by=("device",), window=WINDOW), id=f"{label}{name}_sum")


def apart(name: str, source: str) -> ro.Dataflow:
    """Make a dataflow of one source."""
    flow = ro.Dataflow(name)
    return flow.sink(f"{source}_out", prefix(flow, source, f"{name}_"))


def merged(name: str, merging: Sequence[str], *, declared: Sequence[str] = (), high: float = 25.0) -> ro.Dataflow:
    """Make a dataflow that merges its sources in this order, whatever the order in which it declares them."""
    flow = ro.Dataflow(name)
    streams = {source: prefix(flow, source, f"{name}_") for source in declared or merging}
    both = ro.merge(*(streams[source] for source in merging))
    both = both.to(t.RangeFilter(bounds={"value": (0, high)}, by=None), id="both")
    return flow.sink("out", both, both.to(t.RunningCount(by=("device",)), id="counted"))


def _sums(source: str) -> list[tuple[int, str, float]]:
    """Return message, device and sum of each record after the steps of :func:`prefix`."""
    last: dict[str, list[float]] = defaultdict(list)
    found = []
    for message, row in enumerate(ROWS[source]):
        if row["value"] <= LOW:
            window = last[row["device"]] = [*last[row["device"]], row["value"]][-WINDOW:]
            found.append((message, row["device"], sum(window)))
    return found


def expected(flow: ro.Dataflow, high: float = 25.0) -> dict[str, Counter[Any]]:
    """Return the records of each stream that ends in a sink, in any order: alone, and shared with others."""
    names = [node.id for node in flow.nodes_of_kind("source")]
    ends = {e.source for node in flow.nodes_of_kind("sink") for e in flow.inputs(node.id)}
    if len(names) == 1:
        return {end: Counter(_sums(names[0])) for end in ends}
    both, counted, seen = Counter[Any](), Counter[Any](), Counter[str]()
    for place, name in enumerate(names):
        for message, device, value in _sums(name):
            if value <= high:
                number = len(names) * message + place
                both[number, device, value] += 1
                seen[device] += 1
                counted[number, device, value, seen[device]] += 1
    return {"both": both, "counted": counted}


def got(result: Any, flow: ro.Dataflow) -> dict[str, Counter[Any]]:
    """Return the records of a result in the same form."""
    found = {}
    for node in flow.nodes_of_kind("sink"):
        for edge in flow.inputs(node.id):
            table = result[edge.source]
            fields = ["seq", "device", "value", *(["count"] if edge.source == "counted" else [])]
            records = table.select(fields).to_pylist() if table.num_columns else []
            found[edge.source] = Counter(tuple(row.values()) for row in records)
    return found
