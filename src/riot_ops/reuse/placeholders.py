"""Placeholders for sources, sinks and tasks that cannot be created again after a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import StateError, exception_text
from riot_ops.core.sink import Sink, Writer
from riot_ops.core.source import Offset, Source, Split
from riot_ops.dataflow import Dataflow
from riot_ops.graph.descriptor import load
from riot_ops.graph.lowering import Step
from riot_ops.graph.nodes import source_node
from riot_ops.reuse.errors import FailedBeforeError, describe_error
from riot_ops.reuse.signature import StepIdentity
from riot_ops.reuse.submission import ReadMode, Submission, build_submission
from riot_ops.task import StatelessTask

__all__ = ["PlaceholderSource", "PlaceholderTask", "Rebind", "placeholder_reasons", "recreate_submission"]

#: Returns the sources and sinks of a dataflow that resumes, as passed to ``submit``.
Rebind = Callable[[str, Dataflow], tuple[Any, Any]]

_log = logging.getLogger("riot_ops")


class PlaceholderSource(Source):
    """A source that cannot be opened again: raises the reason when it is read."""

    def __init__(self, schema: pa.Schema, why: str) -> None:
        self._schema, self._why = schema, why

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def _raise(self) -> NoReturn:
        raise StateError(self._why)

    def initial(self) -> Offset:
        self._raise()

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        self._raise()

    def finished(self, offset: Offset) -> bool:
        return False

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        self._raise()

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        self._raise()

    def waits(self) -> bool:
        return True


class PlaceholderSink(Sink):
    """A sink that cannot be opened again: raises the reason before a write; its earlier output stays."""

    def __init__(self, why: str) -> None:
        self._why = why

    def writer(self, batch_id: int, partition: int) -> Writer:
        raise StateError(self._why)


@dataclass(frozen=True, kw_only=True)
class PlaceholderTask(StatelessTask):
    """A task that cannot be created again: raises the reason when it runs."""

    why: str

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> NoReturn:
        raise FailedBeforeError(self.why)


def placeholder_reasons(steps: Iterable[Step]) -> dict[str, str]:
    """By placeholder step, why it cannot be created again."""
    return {step.id: step.operator.why for step in steps if isinstance(step.operator, PlaceholderTask)}


def recreate_submission(
    what: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
    rebind: Rebind | None,
    reads: ReadMode,
    strict: bool,
    options: Mapping[str, Any],
) -> tuple[Submission, dict[str, StepIdentity]]:
    """Build the submission of a dataflow that ran before a restart.

    If its sources and sinks cannot be opened, or a task cannot be created because its table or model is missing, the
    dataflow gets placeholders; with ``strict`` the error is raised.
    """
    name = what["name"]
    try:
        flow = Dataflow.from_dict(what["flow"], functions)
    except Exception as error:  # whatever a user's task raises concerns its dataflow alone
        if strict:
            raise
        why = f"a task cannot be created again: {describe_error(error)}"
        stand_in = _without_tasks(load(what["flow"], functions, Dataflow, lambda task: PlaceholderTask(why=why)))
        _log.warning("the dataflow %r resumes, but gets nothing: %s", name, why)
        sources, sinks = _placeholders(stand_in, why) if reads else (None, None)
        return build_submission(name, stand_in, sources, sinks, reads, **options, descriptor=what["flow"])
    if rebind is None:
        return build_submission(name, flow, None, None, reads, **options)
    try:
        return build_submission(name, flow, *rebind(name, flow), reads, **options)
    except Exception as error:  # as for a task
        if strict:
            raise
        _log.warning("the dataflow %r resumes, but gets nothing: %s", name, exception_text(error))
        why = f"its sources and sinks cannot be opened again: {describe_error(error)}"
        return build_submission(name, flow, *_placeholders(flow, why), reads, **options)


def _without_tasks(flow: Dataflow) -> Dataflow:
    """Return a dataflow with the same nodes and edges, but without fields."""
    stand_in = Dataflow(flow.name)
    for node in flow.nodes.values():
        stand_in.add_node(source_node(node.id) if node.kind == "source" else node)
    for edge in flow.edges:
        stand_in.connect(edge.source, edge.target)
    return stand_in


def _placeholders(flow: Dataflow, why: str) -> tuple[dict[str, Source], dict[str, Sink]]:
    sources: dict[str, Source] = {}
    for node in flow.nodes_of_kind("source"):
        assert node.schema is not None
        sources[node.id] = PlaceholderSource(node.schema, why)
    sink = PlaceholderSink(why)
    return sources, dict.fromkeys((node.id for node in flow.nodes_of_kind("sink")), sink)
