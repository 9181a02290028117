"""A newcomer's records that rest on nothing from before it came, told from the others.

A step :class:`~riot_ops.tasks.FlagWarmUp` of the newcomer's own stands before its sinks. How long it has to wait follows
from how far back the steps above reach: messages of a key, and spans of event time, add up along the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import KeyedOperator
from riot_ops.dataflow import Dataflow
from riot_ops.graph.nodes import Edge, Node
from riot_ops.tasks.window.flag_warm_up import FlagWarmUp

__all__ = ["WARM", "check_past", "flagged"]

#: Ends the names of streams with the flag.
WARM = ".warm"


@dataclass(frozen=True)
class _Wait:
    """What has to pass before records of a stream rest on nothing from before; ``by`` is the key of the messages."""

    records: int = 0
    span: timedelta = timedelta(0)
    by: tuple[str, ...] = ()


def flagged(flow: Dataflow, name: str) -> Dataflow:
    """A valid dataflow with a step before its sinks that adds the flag.

    Raises
    ------
    ConfigError
        Where it cannot be told how long a stream has to wait, or a node has the name of a stream with the flag.
    """
    schemas = flow.schemas()
    waits: dict[str, _Wait] = {}
    for node in flow.order():
        edges = flow.inputs(node.id)
        if node.kind == "source":
            waits[node.id] = _Wait()
        elif node.kind == "task":
            waits[node.id] = _behind(node, edges, [waits[edge.source] for edge in edges])
    made = Dataflow(flow.name, merging=flow.merging)
    made.nodes, made.edges = dict(flow.nodes), []
    sinks = {node.id for node in flow.kind("sink")}
    for edge in flow.edges:
        end = edge.source + WARM
        if edge.target in sinks:
            if end in flow.nodes:
                raise ConfigError(
                    f"flag_warm: the stream {edge.source!r} with its flag is to be named {end!r}, as a node of the "
                    "dataflow is already; give that another name"
                )
            if end not in made.nodes:
                task = _flag(edge.source, waits[edge.source], schemas[edge.source], name)
                made.place(Node(end, "task", task))
                made.connect(edge.source, end)
            edge = replace(edge, source=end)
        made.edges.append(edge)
    made.validate()
    return made


def _flag(stream: str, wait: _Wait, schema: pa.Schema, name: str) -> FlagWarmUp:
    missing = [field for field in wait.by if field not in schema.names]
    if missing:
        raise _untold(stream, f"{missing[0]!r}, a key of the steps above it, is not among its fields")
    return FlagWarmUp(records=wait.records, span=wait.span, by=wait.by, label=name)


def _behind(node: Node, edges: list[Edge], above: list[_Wait]) -> _Wait:
    """What has to pass behind a task."""
    task = node.task
    assert task is not None
    before = replace(max(above, key=lambda wait: wait.records), span=max(wait.span for wait in above))
    lookback = task.lookback()
    keyed = isinstance(task, KeyedOperator) and task.without_state() is None
    if len(above) > 1 and before.records:
        raise _untold(node.id, "it merges streams, and windows by count above it are full at different times")
    if keyed and before.records and (lookback is None or not lookback.records):
        raise _untold(node.id, f"{task.name()} is behind windows by count, whose results it does not give one by one")
    if keyed and before.span and lookback == Lookback():
        raise _untold(node.id, f"{task.name()} is behind windows of time, whose results it does not give one by one")
    written = task.writes()
    kept = {*before.by, *(("event_time",) if before.span else ())}
    if not keyed and kept and (written is None or written & kept):
        lost = ", ".join(sorted(kept if written is None else written & kept))
        raise _untold(node.id, f"{task.name()} may change {lost}, by which windows above it are told")
    if lookback is None or lookback == Lookback():
        return before
    by = task.by if isinstance(task, KeyedOperator) else ()
    if lookback.records:
        spread = {edge.distribution.kind for edge in edges} - {"forward", "one"}
        if spread:
            raise _untold(node.id, f"its records are spread ({min(spread)}) over instances with windows of their own")
        if not {*before.by} <= {*by}:
            raise _untold(node.id, f"its key ({', '.join(by)}) is not as fine as that of the windows above it")
    return _Wait(before.records + lookback.records, before.span + lookback.span, by if lookback.records else before.by)


def _untold(where: str, why: str) -> ConfigError:
    return ConfigError(
        f"flag_warm: {where}: when all windows are full cannot be told: {why}; submit the dataflow without flag_warm"
    )


def check_past(flow: Dataflow, reused: Mapping[str, str], fresh: Callable[[str], bool]) -> None:
    """Raise where a step remembers for ever what came before the newcomer: nothing of it would ever be warm.

    Parameters
    ----------
    reused : mapping of str to str
        By node, the running step that it shares.
    fresh : function
        Whether a running step has seen no record yet.
    """
    past: dict[str, str] = {}  # by node, the step above it that has a history
    for node in flow.order():
        above = next((past[edge.source] for edge in flow.inputs(node.id) if edge.source in past), None)
        lookback = Lookback() if node.task is None else node.task.lookback()
        if lookback != Lookback() and node.id in reused and not fresh(reused[node.id]):
            above = node.id
        if above is None:
            continue
        if lookback is None:
            raise ConfigError(
                f"flag_warm: {node.id}: its results rest on all that ever came to it, and {above} runs already, so "
                "that none of them is ever warm; use a manager with another policy ('bounded_warm' shares no such "
                "step, 'stateless' none with a history), or submit the dataflow without flag_warm"
            )
        past[node.id] = above
