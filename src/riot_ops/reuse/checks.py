"""Whether a dataflow may be submitted: everything is looked at before anything changes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

from riot_ops.core.errors import did_you_mean, excerpt
from riot_ops.graph.graph import Graph
from riot_ops.reuse.errors import (
    BoundaryError,
    CycleError,
    DanglingStreamError,
    DisconnectedError,
    DuplicateStreamError,
    EmptyDataflowError,
    NotDeduplicatedError,
)
from riot_ops.reuse.identity import Piece

__all__ = ["check_graph", "check_twins"]


def check_graph(flow: Graph) -> None:
    """Raise what is wrong with the form of a dataflow; then, as anywhere, whether its schemas fit."""
    where = f"the dataflow {flow.name!r}"
    if not flow.nodes:
        raise EmptyDataflowError(f"{where} has no steps")
    for edge in flow.edges:
        for end in (edge.source, edge.target):
            if end not in flow.nodes:
                raise DanglingStreamError(
                    f"{where}: edge {edge.source} -> {edge.target}: no node {end!r}{did_you_mean(end, flow.nodes)}"
                )
    for (source, target), times in Counter((e.source, e.target) for e in flow.edges).items():
        if times > 1:
            raise DuplicateStreamError(f"{where}: edge {source} -> {target} stands twice")
    if cycle := _cycle(flow):
        raise CycleError(f"{where} has a cycle: {' -> '.join(cycle)}")
    read, fed = {e.source for e in flow.edges}, {e.target for e in flow.edges}
    wrong = [f"{n.id}: a source has no inputs" for n in flow.kind("source") if n.id in fed]
    wrong += [f"{n.id}: a sink has no outputs" for n in flow.kind("sink") if n.id in read]
    wrong += [f"{n.id}: it has no input" for n in flow.nodes.values() if n.kind != "source" and n.id not in fed]
    wrong += [f"{n.id}: its output goes nowhere" for n in flow.nodes.values() if n.kind != "sink" and n.id not in read]
    if wrong:
        raise BoundaryError(f"{where} must begin with sources and end in sinks: {'; '.join(wrong)}")
    parts = _parts(flow)
    if len(parts) > 1:
        raise DisconnectedError(
            f"{where} is in {len(parts)} parts, which nothing connects: submit each by itself: "
            + "; ".join(excerpt(", ".join(part), 60) for part in parts)
        )
    flow.validate()


def _cycle(flow: Graph) -> list[str]:
    """The nodes of one cycle, the first again at the end; none where there is none."""
    missing = Counter(e.target for e in flow.edges)
    onward: dict[str, list[str]] = {}
    for edge in flow.edges:
        onward.setdefault(edge.source, []).append(edge.target)
    ready = [id for id in flow.nodes if not missing[id]]
    for id in ready:
        for target in onward.get(id, ()):
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    left = set(flow.nodes) - set(ready)
    if not left:
        return []
    above = {e.target: e.source for e in flow.edges if e.source in left and e.target in left}
    path = [min(left)]
    while path[-1] not in path[:-1]:  # each that is left has one above it that is left
        path.append(above[path[-1]])
    return path[path.index(path[-1]) :][::-1]


def _parts(flow: Graph) -> list[list[str]]:
    beside: dict[str, list[str]] = {id: [] for id in flow.nodes}
    for edge in flow.edges:
        beside[edge.source].append(edge.target)
        beside[edge.target].append(edge.source)
    seen: set[str] = set()
    parts = []
    for id in flow.nodes:
        if id in seen:
            continue
        part = [id]
        seen.add(id)
        for one in part:
            for other in beside[one]:
                if other not in seen:
                    seen.add(other)
                    part.append(other)
        parts.append(part)
    return parts


def check_twins(flow: Graph, pieces: Mapping[str, Piece], fold: bool) -> None:
    """Raise where steps of one dataflow do the same; with ``fold`` only where one could not stand for both."""
    same: dict[str, list[str]] = {}
    for node, piece in pieces.items():
        same.setdefault(piece.signature, []).append(node)
    twins = [nodes for nodes in same.values() if len(nodes) > 1]
    if not twins:
        return
    if not fold:
        pairs = ", ".join(" = ".join(nodes) for nodes in twins)
        raise NotDeduplicatedError(
            f"the dataflow {flow.name!r} has steps that do the same: {pairs}; leave out all but one of each, or "
            "submit it with fold=True"
        )
    readers: dict[str, set[str]] = {}
    for edge in flow.edges:
        readers.setdefault(edge.source, set()).add(edge.target)
    for nodes in twins:
        for one, other in itertools.combinations(nodes, 2):
            if both := readers.get(one, set()) & readers.get(other, set()):
                raise NotDeduplicatedError(
                    f"the dataflow {flow.name!r}: {one} and {other} do the same, and {min(both)} reads both: one in "
                    "their place would halve what it gets"
                )
