"""Warm-up of new dataflows: which of their records do not depend on records from before they were submitted.

A step :class:`~riot_ops.tasks.FlagWarmUp` of the new dataflow precedes its sinks. Its waiting time follows from
the lookback of the steps upstream: numbers of messages per key, and spans of event time, add up along the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.parameters import as_names
from riot_ops.dataflow import Dataflow
from riot_ops.graph.nodes import Edge, Node
from riot_ops.tasks.window.flag_warm_up import FlagWarmUp

__all__ = ["WARM", "add_warm_flags", "check_warmable"]

#: Suffix of the streams with the flag.
WARM = ".warm"


@dataclass(frozen=True)
class _WarmUp:
    """What must pass before a stream's records depend on nothing earlier; ``by`` is the key of the messages."""

    records: int = 0
    span: timedelta = timedelta(0)
    by: tuple[str, ...] = ()


def add_warm_flags(flow: Dataflow, name: str) -> Dataflow:
    """Add a step that adds the flag before each sink of a valid dataflow.

    Raises
    ------
    ConfigError
        If the waiting time of a stream cannot be determined, or a node has the name of a stream with the flag.
    """
    schemas = flow.schemas()
    warm_ups: dict[str, _WarmUp] = {}
    for node in flow.topological_order():
        edges = flow.inputs(node.id)
        if node.kind == "source":
            warm_ups[node.id] = _WarmUp()
        elif node.kind == "task":
            warm_ups[node.id] = _warm_up_after(node, edges, [warm_ups[edge.source] for edge in edges])
    flagged = Dataflow(flow.name, merging=flow.merging, ordinals=flow.ordinals)
    flagged.nodes, flagged.edges = dict(flow.nodes), []
    sinks = {node.id for node in flow.nodes_of_kind("sink")}
    for edge in flow.edges:
        end = edge.source + WARM
        if edge.target in sinks:
            if end in flow.nodes:
                raise ConfigError(
                    f"flag_warm: the stream {edge.source!r} with its flag would be named {end!r}, as a node of the "
                    "dataflow is already; give that node another name"
                )
            if end not in flagged.nodes:
                task = _flag(edge.source, warm_ups[edge.source], schemas[edge.source], name)
                flagged.add_node(Node(end, "task", task))
                flagged.connect(edge.source, end)
            edge = replace(edge, source=end)
        flagged.edges.append(edge)
    flagged.validate()
    return flagged


def _flag(stream: str, warm_up: _WarmUp, schema: pa.Schema, name: str) -> FlagWarmUp:
    missing = [field for field in warm_up.by if field not in schema.names]
    if missing:
        raise _undetermined(stream, f"{missing[0]!r}, a key of the steps upstream, is not among its fields")
    return FlagWarmUp(records=warm_up.records, duration=warm_up.span, by=warm_up.by, label=name)


def _warm_up_after(node: Node, edges: list[Edge], upstream: list[_WarmUp]) -> _WarmUp:
    """What must pass before the output of a task depends on nothing earlier."""
    task = node.task
    assert task is not None
    before = replace(max(upstream, key=lambda one: one.records), span=max(one.span for one in upstream))
    lookback = task.lookback()
    keyed = isinstance(task, KeyedOperator) and task.stateless_equivalent() is None
    if len(upstream) > 1 and before.records:
        raise _undetermined(node.id, "it merges streams, and count windows upstream fill at different times")
    if keyed and before.records and (lookback is None or not lookback.records):
        raise _undetermined(node.id, f"{task.name()} reads count windows, but gives no result for each of theirs")
    if keyed and before.span and lookback == Lookback():
        raise _undetermined(node.id, f"{task.name()} reads time windows, but gives no result for each of theirs")
    written = task.writes()
    kept = {*before.by, *(("event_time",) if before.span else ())}
    if not keyed and kept and (written is None or written & kept):
        lost = ", ".join(sorted(kept if written is None else written & kept))
        raise _undetermined(node.id, f"{task.name()} may change {lost}, which windows upstream are based on")
    if lookback is None or lookback == Lookback():
        return before
    by = as_names(task.by) if isinstance(task, KeyedOperator) else ()
    if lookback.records:
        spread = {edge.distribution.kind for edge in edges} - {"forward", "one"}
        if spread:
            raise _undetermined(node.id, f"its records are spread ({min(spread)}) over instances with own windows")
        if not {*before.by} <= {*by}:
            raise _undetermined(node.id, f"its key ({', '.join(by)}) is coarser than that of the windows upstream")
    records, span = before.records + lookback.records, before.span + lookback.span
    return _WarmUp(records, span, by if lookback.records else before.by)


def _undetermined(where: str, why: str) -> ConfigError:
    return ConfigError(
        f"flag_warm: {where}: cannot determine when all windows are full: {why}; submit the dataflow without flag_warm"
    )


def check_warmable(flow: Dataflow, reused: Mapping[str, str], fresh: Callable[[str], bool]) -> None:
    """Raise if a shared step depends on all earlier records, so that no record would ever be warm.

    Parameters
    ----------
    reused : mapping of str to str
        By node, the running step that it shares.
    fresh : function
        Whether a running step has seen no record yet.
    """
    history: dict[str, str] = {}  # by node, the step upstream that has a history
    for node in flow.topological_order():
        above = next((history[edge.source] for edge in flow.inputs(node.id) if edge.source in history), None)
        lookback = Lookback() if node.task is None else node.task.lookback()
        if lookback != Lookback() and node.id in reused and not fresh(reused[node.id]):
            above = node.id
        if above is None:
            continue
        if lookback is None:
            raise ConfigError(
                f"flag_warm: {node.id}: its results depend on all earlier records, and {above} runs already, so that "
                "no record would ever be warm; use a manager with another policy ('bounded_warm' shares no such "
                "step, 'stateless' none with a history), or submit the dataflow without flag_warm"
            )
        history[node.id] = above
