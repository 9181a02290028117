"""Fingerprints of dataflows: what must agree for a checkpoint to be continued."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from riot_ops.core.errors import excerpt
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Edge, Node
from riot_ops.runtime.snapshot import stable_repr, task_identity

__all__ = ["StepContract", "describe_difference", "fingerprint"]


class StepContract(msgspec.Struct):
    """What identifies the state of a step.

    Attributes
    ----------
    identity : dict
        See :func:`riot_ops.runtime.snapshot.state_identity`.
    key : list of str
        Fields of the key.
    input : dict of str to str
        Types of the fields that the step reads.
    time : dict
        What moves its stream time.
    spread : list
        How records are spread over instances, if that is part of the key.
    """

    identity: dict[str, Any]
    key: list[str]
    input: dict[str, str]
    time: dict[str, Any]
    spread: list[Any]


def fingerprint(flow: Graph) -> dict[str, Any]:
    """Return the parts of a dataflow by name, as JSON-able data; the dataflow's own name is not included.

    Functions are represented by name, so a change of a function's body does not show.

    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("any")
    >>> sink = flow.sink("out", flow.source("readings", schema={"value": "double"}))
    >>> list(fingerprint(flow))
    ["source 'readings'", "sink 'out'", "edge 'readings' -> 'out'"]
    """
    steps = {f"{'step' if n.kind == 'task' else n.kind} {n.id!r}": _step(n) for n in flow.nodes.values()}
    merging = {} if flow.merging == "arrival" else {"merging": {"of sources": flow.merging}}
    ordinals: dict[str, Any] = {"option ordinals=True": {}} if flow.ordinals else {}
    found = merging | ordinals | steps | {f"edge {e.source!r} -> {e.target!r}": _edge(e) for e in flow.edges}
    plain: dict[str, Any] = json.loads(json.dumps(found))  # with the types that a stored one has
    return plain


def _step(node: Node) -> dict[str, Any]:
    if node.task is not None:
        known = task_identity(node.task)
        return {**known.pop("parameters"), **known}
    return {} if node.schema is None else {f.name: str(f.type) for f in node.schema}


def _edge(edge: Edge) -> dict[str, Any]:
    spread = edge.distribution
    router = None if spread.router is None else stable_repr(spread.router)
    return {"kind": spread.kind, "fields": list(spread.fields), "parallelism": spread.parallelism, "router": router}


def describe_difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe how two fingerprints differ; empty if they do not.

    >>> describe_difference({"step 'a'": {"window": 5}}, {"step 'a'": {"window": 7}, "step 'b'": {}})
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
                if json.dumps(old.get(n)) != json.dumps(new.get(n))  # where NaN equals NaN
            ]
            found += [f"{part}: {', '.join(values)}"] if values else []
    return "; ".join(found)
