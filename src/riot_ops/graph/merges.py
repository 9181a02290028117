"""Where streams merge: by which sources the messages of a stream are numbered, and in which order inputs are taken.

A step may read several streams. Their order in the dataflow has no meaning: inputs are taken in an order that follows
from what they are. Only records with equal numbers and ordinals depend on it, which come from one message by several
ways.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from riot_ops.core.operator import Operator
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Edge
from riot_ops.ingest.renumber import Renumber

__all__ = ["Merges", "numbered_as"]


class Merges:
    """The sources of each stream of a dataflow, and its merges.

    Parameters
    ----------
    flow : Graph
        A valid one.
    ranks : mapping of str to int, optional
        A number for each source node, which orders sources that merge by arrival; equal numbers mean the same source.
        By default the order of declaration.

    Attributes
    ----------
    sources : dict of str to tuple of int
        By node, the ranks of the sources of its records, in their order.
    """

    def __init__(self, flow: Graph, ranks: Mapping[str, int] | None = None) -> None:
        self._flow = flow
        self._into = flow.edges_by_target()
        if ranks is None or flow.merging != "arrival":
            ranks = {node.id: place for place, node in enumerate(flow.nodes_of_kind("source"))}
        self.sources: dict[str, tuple[int, ...]] = {}
        #: By node, the number of steps before it, on the longest way from a source.
        self._depths: dict[str, int] = {}
        for node in flow.topological_order():
            above = [edge.source for edge in self._into[node.id]]
            own = {ranks[node.id]} if node.kind == "source" else {one for id in above for one in self.sources[id]}
            self.sources[node.id] = tuple(sorted(own))
            self._depths[node.id] = max((1 + self._depths[id] for id in above), default=0)
        self._numbering = flow.numbering()
        self._shapes: dict[str, str] = {}

    def count(self, node: str) -> int:
        """Return the number of sources by which the messages of a node's stream are numbered."""
        if self._flow.merging == "arrival":
            return len(self.sources[node])
        while above := self._into[node]:
            node = above[0].source
        return self._numbering[node][1]

    def renumber(self, sources: tuple[int, ...], into: tuple[int, ...], rejects: bool = True) -> Renumber | None:
        """Return the step between streams of these sources and those of more sources; None if numbers stay."""
        if sources == into or self._flow.merging != "arrival":
            return None
        return Renumber(tuple(map(into.index, sources)), len(into), rejects)

    def inputs(self, node: str) -> list[Edge]:
        """Return the edges into a node, in the order in which it takes their records."""
        edges = self._into[node]
        if len(edges) < 2:
            return edges
        if not self._overlap(edges):
            return sorted(edges, key=lambda edge: self.sources[edge.source])
        return sorted(edges, key=self._rank)

    def indistinct(self, node: str) -> list[Edge]:
        """Return the inputs with the same message by ways that differ in unnamed functions only, in the given order."""
        edges = self._into[node]
        if len(edges) < 2 or not self._overlap(edges):
            return []
        ranks = [*map(self._rank, edges)]
        return [edge for edge, rank in zip(edges, ranks, strict=True) if ranks.count(rank) > 1]

    def _overlap(self, edges: Sequence[Edge]) -> bool:
        ranks = [rank for edge in edges for rank in self.sources[edge.source]]
        return len({*ranks}) < len(ranks)

    def _rank(self, edge: Edge) -> tuple[int, str, tuple[int, ...]]:
        """Return the place of an edge among those that may have the same message: first the longest way."""
        return -self._depths[edge.source], self._edge_shape(edge), self.sources[edge.source]

    def _edge_shape(self, edge: Edge) -> str:
        spread = edge.distribution
        return f"{spread.kind} {spread.fields} {spread.parallelism} {self._shape(edge.source)}"

    def _shape(self, node: str) -> str:
        """Return a digest of the steps from the sources to a node, without names and sources."""
        waiting = [node]
        while waiting:
            one = waiting[-1]
            above = [edge.source for edge in self._into[one] if edge.source not in self._shapes]
            if above:
                waiting += above
                continue
            task = self._flow.nodes[waiting.pop()].task
            parts = [*_describe(task), *sorted(map(self._edge_shape, self._into[one]))]
            text = json.dumps(parts).encode("utf-8", "surrogatepass")
            self._shapes[one] = hashlib.sha256(text).hexdigest()
        return self._shapes[node]


def numbered_as(step: str) -> str:
    """Return the node whose numbers the records that a step has rejected have.

    >>> numbered_as("a"), numbered_as("a->b")
    ('a', 'b')
    """
    return step.rpartition("->")[2]


def _describe(task: Operator | None) -> Iterator[str]:
    """Describe a task in the same way in each process, and for each function of the same label and revision."""
    if task is None:
        return
    yield f"{task.name()} {task.version}"
    parameters = task.__getstate__()
    if not callable(parameters.get("function")):
        with contextlib.suppress(ValueError):  # of a parameter that JSON cannot hold
            parameters = task.to_dict()
    yield from (f"{name}={_text(parameters[name])}" for name in sorted(parameters) if name != "function")


def _text(value: Any) -> str:
    text = repr(value)
    return text if " at 0x" not in text else type(value).__qualname__
