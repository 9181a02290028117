"""Dataflow descriptors: dataflows as JSON-able data, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec
import pyarrow as pa

from riot_ops.core.errors import ConfigError, describe_validation_error, did_you_mean, excerpt, value_text
from riot_ops.core.operator import Operator
from riot_ops.core.schema import RAW, arrow_type
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Distribution, Edge, Node, source_node

__all__ = ["describe", "load"]

FORMAT = "riot_ops.dataflow/1"

#: The functions that a descriptor may name.
Functions = Mapping[str, Callable[..., Any]]
MakeTask = Callable[[Mapping[str, Any]], Operator]
G = TypeVar("G", bound=Graph)


def describe(flow: Graph) -> dict[str, Any]:
    """Describe a dataflow as JSON-able data."""
    return {
        "format": FORMAT,
        "name": flow.name,
        **({"merging": flow.merging} if flow.merging != "arrival" else {}),
        **({"ordinals": True} if flow.ordinals else {}),
        "nodes": [_node(n) for n in flow.nodes.values()],
        "edges": [_edge(e) for e in flow.edges],
    }


def _node(node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": node.id, "kind": node.kind}
    if node.task is not None:
        entry["task"] = node.task.to_dict()
    if node.schema is not None and node.schema != RAW:
        entry["schema"] = [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in node.schema]
    return entry


def _edge(edge: Edge) -> dict[str, Any]:
    entry: dict[str, Any] = {"from": edge.source, "to": edge.target}
    spread = edge.distribution
    if spread.router is not None:
        raise ConfigError(f"edge {edge.source} -> {edge.target} has a router function, which JSON cannot hold")
    if spread.kind != "forward":
        entry["distribution"] = spread.kind
    if spread.fields:
        entry["fields"] = list(spread.fields)
    if spread.parallelism is not None:
        entry["parallelism"] = spread.parallelism
    return entry


def load(data: Mapping[str, Any], functions: Functions, empty: Callable[..., G], task: MakeTask) -> G:
    """Build the dataflow of a descriptor; a descriptor never causes an import.

    Parameters
    ----------
    functions : mapping of str to function
        The functions that the descriptor may name.
    empty : function
        Makes a graph without nodes from a name, ``merging`` and ``ordinals``.
    task : function
        Makes a task from its description.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"not a dataflow descriptor: it must be an object, got {value_text(data)}")
    if data.get("format") != FORMAT:
        raise ConfigError(f"not a dataflow descriptor: format must be {FORMAT!r}, got {value_text(data.get('format'))}")
    place = ""
    try:
        _only(data, "dataflow", "format", "name", "merging", "ordinals", "nodes", "edges")
        for what in ("node", "edge"):
            entries = data.get(f"{what}s", ())
            for number, entry in enumerate(entries if isinstance(entries, (list, tuple)) else ()):
                place = f"{what}s[{number}]"
                if not isinstance(entry, Mapping):
                    raise ConfigError(f"must be an object with {', '.join(_KEYS[what])}, got {value_text(entry)}")
                _only(entry, what, *_KEYS[what])
        place = ""
        described = msgspec.convert(data, _Described)
        flow = empty(described.name, merging=described.merging, ordinals=described.ordinals)
        for number, node in enumerate(described.nodes):
            place = f"nodes[{number}]"
            flow.add_node(_loaded(node, functions, task))
        for number, edge in enumerate(described.edges):
            place = f"edges[{number}]"
            flow.connect(
                edge.source, edge.target, Distribution(edge.distribution, tuple(edge.fields), edge.parallelism)
            )
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        why = (
            describe_validation_error(error, data, _TEXTS) if isinstance(error, msgspec.ValidationError) else str(error)
        )
        where = f"{place}: " if place else ""
        raise ConfigError(
            f"the descriptor of {value_text(data.get('name', ''))} is not well formed: {where}{excerpt(why)}"
        ) from None
    return flow


def _loaded(node: _Node, functions: Functions, task: MakeTask) -> Node:
    if node.kind == "source":
        fields = node.schema
        return source_node(
            node.id,
            None if fields is None else pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in fields]),
        )
    if node.kind == "sink":
        return Node(node.id, "sink")
    data = dict(node.task)
    if "task" not in data:
        raise ConfigError(f"the task of {node.id!r} lacks its name: it must be an object such as {_TASK}")
    name = data.get("function")
    if name is not None:
        if name not in functions:
            raise ConfigError(
                f"node {node.id!r} needs the function {name!r}: pass it in functions={did_you_mean(name, functions)}"
            )
        data["function"] = functions[name]
    return Node(node.id, "task", task(data))


class _Field(msgspec.Struct):
    name: str
    type: str
    nullable: bool = True


_Kind = Literal["source", "task", "sink"]
_Spread = Literal["forward", "shuffle", "hash", "broadcast", "one", "custom"]
#: The allowed values of these fields.
_TEXTS = {"kind": get_args(_Kind), "distribution": get_args(_Spread)}
_TASK = '{"task": "kalman_filter"}'


class _Node(msgspec.Struct):
    id: str
    kind: _Kind
    task: dict[str, Any] = msgspec.field(default_factory=dict)
    schema: list[_Field] | None = None


class _Edge(msgspec.Struct):
    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    distribution: _Spread = "forward"
    fields: list[str] = msgspec.field(default_factory=list)
    parallelism: int | None = None


class _Described(msgspec.Struct):
    name: str = ""
    merging: str = "arrival"
    ordinals: bool = False
    nodes: list[_Node] = msgspec.field(default_factory=list)
    edges: list[_Edge] = msgspec.field(default_factory=list)


_KEYS = {
    "node": ("id", "kind", "task", "schema"),
    "edge": ("from", "to", "distribution", "fields", "parallelism"),
}


def _only(entry: Mapping[str, Any], what: str, *known: str) -> None:
    for name in entry:
        if name not in known:
            raise ConfigError(
                f"unknown key {name!r} of a {what}; known are {', '.join(known)}{did_you_mean(name, known)}"
            )
