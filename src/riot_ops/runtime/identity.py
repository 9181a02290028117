"""What must agree for a checkpoint to be continued: the dataflow that wrote it, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from riot_ops.core.errors import excerpt
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Edge, Node
from riot_ops.runtime.snapshot import reference, task_identity

__all__ = ["difference", "identity"]


def identity(flow: Graph) -> dict[str, Any]:
    """The parts of a dataflow by name, JSON-able; its own name is none of them.

    Functions stand there by their names, so that a change within one does not show.

    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("any")
    >>> sink = flow.sink("out", flow.source("readings", schema={"value": "double"}))
    >>> list(identity(flow))
    ["source 'readings'", "sink 'out'", "edge 'readings' -> 'out'"]
    """
    steps = {f"{'step' if n.kind == 'task' else n.kind} {n.id!r}": _step(n) for n in flow.nodes.values()}
    merging = {} if flow.merging == "arrival" else {"merging": {"of sources": flow.merging}}
    found = merging | steps | {f"edge {e.source!r} -> {e.target!r}": _edge(e) for e in flow.edges}
    plain: dict[str, Any] = json.loads(json.dumps(found))  # as it will be read
    return plain


def _step(node: Node) -> dict[str, Any]:
    if node.task is not None:
        known = task_identity(node.task)
        return {**known.pop("parameters"), **known}
    return {} if node.schema is None else {f.name: str(f.type) for f in node.schema}


def _edge(edge: Edge) -> dict[str, Any]:
    spread = edge.distribution
    router = None if spread.router is None else reference(spread.router)
    return {"kind": spread.kind, "fields": list(spread.fields), "parallelism": spread.parallelism, "router": router}


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In what two identities differ, or nothing.

    >>> difference({"step 'a'": {"window": 5}}, {"step 'a'": {"window": 7}, "step 'b'": {}})
    "step 'a': window was 5 and is 7; there was no step 'b'"
    """
    found = []
    for part in {**then, **now}:
        if part not in now:
            found.append(f"there is no {part} any more")
        elif part not in then:
            found.append(f"there was no {part}")
        else:
            old, new = then[part], now[part]
            values = [
                f"{n} was {excerpt(repr(old.get(n)))} and is {excerpt(repr(new.get(n)))}"
                for n in {**old, **new}
                if json.dumps(old.get(n)) != json.dumps(new.get(n))  # by which NaN equals NaN
            ]
            found += [f"{part}: {', '.join(values)}"] if values else []
    return "; ".join(found)
