"""Expected number of records that a dataflow delivers, from what its tasks declare."""

from __future__ import annotations

import math

from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Edge, Node

__all__ = ["declared_selectivity"]


def declared_selectivity(flow: Graph) -> dict[str, float]:
    """Return the records that reach the sinks for each record of a source; NaN where a task does not declare it.

    A task declares a ratio by a ``selectivity`` such as ``1:1``; windows, filters and parsers leave it
    open.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("both")
    >>> values = flow.source("values", schema={"value": "double"})
    >>> smooth = values >> ro.tasks.KalmanFilter()
    >>> declared_selectivity(flow.sink("out", smooth, smooth >> ro.tasks.Variance()))
    {'values': 2.0}
    >>> declared_selectivity(flow.sink("means", smooth >> ro.tasks.MovingAverage()))
    {'values': nan}
    """
    downstream: dict[str, float] = {}
    for node in reversed(flow.topological_order()):
        deliveries = sum((_copies(e) * downstream[e.target] for e in flow.outputs(node.id)), 0.0)
        downstream[node.id] = 1.0 if node.kind == "sink" else _ratio(node) * deliveries
    return {node.id: downstream[node.id] for node in flow.nodes_of_kind("source")}


def _ratio(node: Node) -> float:
    """Return a node's outputs per input."""
    if node.task is None:
        return 1.0
    inputs, _, outputs = node.task.selectivity.partition(":")
    return int(outputs) / int(inputs) if inputs.isdigit() and outputs.isdigit() else math.nan


def _copies(edge: Edge) -> float:
    spread = edge.distribution
    return float(spread.parallelism or 1) if spread.kind == "broadcast" else 1.0
