"""Dataflows as JSON-able data, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from riot_ops.dataflow import Dataflow
from riot_ops.errors import ConfigError, did_you_mean
from riot_ops.graph import Distribution, Edge, Node
from riot_ops.schema import RAW, arrow_type
from riot_ops.task import Task

__all__ = ["describe", "load"]

FORMAT = "riot_ops.dataflow/1"

#: The functions that a descriptor may name.
Functions = Mapping[str, Callable[..., Any]]


def describe(flow: Dataflow) -> dict[str, Any]:
    """A dataflow as JSON-able data."""
    return {
        "format": FORMAT,
        "name": flow.name,
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


def load(data: Mapping[str, Any], functions: Functions) -> Dataflow:
    """The dataflow that was described; nothing is imported because a descriptor says so."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ConfigError(f"not a dataflow descriptor: format must be {FORMAT!r}")
    _only(data, "dataflow", "format", "name", "nodes", "edges")
    flow = Dataflow(data.get("name", ""))
    try:
        for entry in data.get("nodes", ()):
            _load_node(flow, entry, functions)
        for entry in data.get("edges", ()):
            _only(entry, "edge", "from", "to", "distribution", "fields", "parallelism")
            spread = Distribution(
                entry.get("distribution", "forward"), tuple(entry.get("fields", ())), entry.get("parallelism")
            )
            flow.connect(entry["from"], entry["to"], spread)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"the descriptor of {flow.name!r} is not well formed: {error!r}") from None
    return flow


def _load_node(flow: Dataflow, entry: Mapping[str, Any], functions: Functions) -> None:
    _only(entry, "node", "id", "kind", "task", "schema")
    if entry["kind"] == "source":
        fields = entry.get("schema")
        if fields is not None:
            fields = pa.schema([pa.field(f["name"], arrow_type(f["type"]), f.get("nullable", True)) for f in fields])
        flow.source(entry["id"], fields)
    elif entry["kind"] == "sink":
        flow.sink(entry["id"])
    elif entry["kind"] == "task":
        data = dict(entry["task"])
        name = data.get("function")
        if name is not None:
            if name not in functions:
                raise ConfigError(
                    f"node {entry['id']!r} needs the function {name!r}: pass it in functions="
                    f"{did_you_mean(name, functions)}"
                )
            data["function"] = functions[name]
        flow.add(Task.from_dict(data), id=entry["id"])
    else:
        raise ConfigError(f"node {entry['id']!r}: kind must be source, task or sink, got {entry['kind']!r}")


def _only(entry: Mapping[str, Any], what: str, *known: str) -> None:
    for name in entry:
        if name not in known:
            raise ConfigError(
                f"unknown key {name!r} of a {what}; known are {', '.join(known)}{did_you_mean(name, known)}"
            )
