"""Sharing of dataflows, computed naively from the definitions over sets of nodes and edges.

A graph here is ``{node: (what, inputs)}`` with what a step is, without its inputs, and the nodes that it reads.
"""

from __future__ import annotations

import json
from typing import Any

import riot_ops as ro

Graph = dict[str, tuple[Any, tuple[str, ...]]]


def plain(flow: ro.Dataflow) -> Graph:
    """Return a dataflow as such a graph; the order of inputs does not matter."""
    found: Graph = {}
    for node in flow.nodes.values():
        inputs = tuple(e.source for e in flow.edges if e.target == node.id)
        spreads = sorted((e.distribution.kind, e.distribution.fields) for e in flow.edges if e.target == node.id)
        if node.kind == "source":
            found[node.id] = (("source", node.id), ())
        elif node.kind == "sink":
            found[node.id] = (("sink", node.id), inputs)
        else:
            assert node.task is not None
            found[node.id] = (("task", json.dumps(node.task.to_dict(), sort_keys=True), str(spreads)), inputs)
    return found


def ancestors(graph: Graph, node: str) -> frozenset[Any]:
    """Return the ancestor graph of a node: the node, its ancestors, and the edges between them."""
    found: set[Any] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        found.add(one)
        for above in graph[one][1]:
            found.add((above, one))
            waiting.append(above)
    return frozenset(found)


def equivalent(one: Graph, u: str, other: Graph, v: str) -> bool:
    """Return whether two steps are config-similar and their parents can be paired as equivalent."""
    (a, above), (b, beside) = one[u], other[v]
    if a != b or len(above) != len(beside):
        return False
    left = list(beside)
    for p in above:
        twin = next((q for q in left if equivalent(one, p, other, q)), None)
        if twin is None:
            return False
        left.remove(twin)
    return True


def maximal(graphs: set[frozenset[Any]]) -> set[frozenset[Any]]:
    """Return the graphs that are not part of another graph."""
    return {a for a in graphs if not any(a < b for b in graphs)}


class Sharing:
    """Running graphs and the dataflows in them."""

    def __init__(self) -> None:
        self.running: list[Graph] = []
        self.images: dict[str, dict[str, str]] = {}
        self._count = 0

    def submit(self, name: str, flow: ro.Dataflow) -> set[str]:
        """Add a dataflow; return the new nodes."""
        graph = plain(flow)
        heads = {what for what, inputs in graph.values() if not inputs}
        over = [r for r in self.running if heads & {what for what, inputs in r.values() if not inputs}]
        union: Graph = {}
        for r in over:
            union |= r
        twins = {u: v for u in graph for v in union if equivalent(graph, u, union, v)}
        tops = maximal({ancestors(graph, u) for u in twins})
        reused = {x for top in tops for x in top if isinstance(x, str)}
        image = {u: twins[u] for u in reused}
        for u in graph:
            if u not in reused:
                image[u] = f"{u}#{self._count}"
                self._count += 1
        for u, (what, inputs) in graph.items():
            if u not in reused:
                union[image[u]] = (what, tuple(image[p] for p in inputs))
        shared = [r for r in over if set(r) & set(image.values())]
        merged = {i: s for i, s in union.items() if any(i in r for r in shared) or i in image.values()}
        self.running = [r for r in self.running if r not in shared] + [merged]
        self.images[name] = image
        return set(graph) - reused

    def remove(self, name: str) -> None:
        image = self.images.pop(name)
        at = next(r for r in self.running if set(image.values()) <= set(r))
        others = [i for i in self.images.values() if set(i.values()) <= set(at)]
        ends = {s for i in others for s in i.values() if at[s][0][0] == "sink"}
        keep = {x for s in ends for x in ancestors(at, s) if isinstance(x, str)}
        left = {s: at[s] for s in at if s in keep}
        self.running.remove(at)
        while left:
            part = {next(iter(left))}
            while True:
                more = {s for s in left if s in part or part & set(left[s][1])} | {p for s in part for p in left[s][1]}
                if more == part:
                    break
                part = more
            self.running.append({s: left.pop(s) for s in part})

    def users(self) -> dict[str, frozenset[str]]:
        """Return the dataflows that use each running step."""
        found: dict[str, set[str]] = {s: set() for r in self.running for s in r}
        for name, image in self.images.items():
            for s in image.values():
                found[s].add(name)
        return {s: frozenset(names) for s, names in found.items()}

    def shape(self) -> Any:
        """Return, without ids: each step with its ancestors, the dataflows that use it, and the groups of dataflows."""

        def spelt(graph: Graph, s: str) -> Any:
            what, inputs = graph[s]
            return [list(map(str, what)), sorted(spelt(graph, p) for p in inputs)]

        users = self.users()
        steps = sorted((json.dumps(spelt(r, s)), sorted(users[s])) for r in self.running for s in r)
        groups = sorted(sorted({n for s in r for n in users[s]}) for r in self.running)
        return steps, groups
