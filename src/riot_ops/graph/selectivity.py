"""How many records a dataflow should deliver, as far as its tasks declare it."""

from __future__ import annotations

import math

from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Edge, Node

__all__ = ["declared"]


def declared(flow: Graph) -> dict[str, float]:
    """Records that reach the sinks for each record of a source; NaN where a task on the way does not say it.

    A task says it whose selectivity is a pair of numbers, such as ``1:1``; windows, filters and
    parsers leave it open.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("both")
    >>> values = flow.source("values", schema={"value": "double"})
    >>> smooth = values >> ro.tasks.KalmanFilter()
    >>> declared(flow.sink("out", smooth, smooth >> ro.tasks.Variance()))
    {'values': 2.0}
    >>> declared(flow.sink("means", smooth >> ro.tasks.MovingAverage()))
    {'values': nan}
    """
    behind: dict[str, float] = {}
    for node in reversed(flow.order()):
        onwards = sum((_copies(e) * behind[e.target] for e in flow.outputs(node.id)), 0.0)
        behind[node.id] = 1.0 if node.kind == "sink" else _ratio(node) * onwards
    return {node.id: behind[node.id] for node in flow.kind("source")}


def _ratio(node: Node) -> float:
    """Outputs per input."""
    if node.task is None:
        return 1.0
    inputs, _, outputs = node.task.selectivity.partition(":")
    return int(outputs) / int(inputs) if inputs.isdigit() and outputs.isdigit() else math.nan


def _copies(edge: Edge) -> float:
    spread = edge.distribution
    return float(spread.parallelism or 1) if spread.kind == "broadcast" else 1.0
