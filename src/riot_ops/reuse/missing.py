"""Dataflows after a restart, and what stands for sources, sinks and tasks that are not there any more."""

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
from riot_ops.reuse.errors import FailedBeforeError, told
from riot_ops.reuse.identity import Piece
from riot_ops.reuse.submission import Reads, Submission, submitted
from riot_ops.task import StatelessTask

__all__ = ["MissingSource", "MissingTask", "Rebind", "made_again", "missing_steps"]

#: Gives sources and sinks to a dataflow that is taken up again: what was passed to ``submit``.
Rebind = Callable[[str, Dataflow], tuple[Any, Any]]

_log = logging.getLogger("riot_ops")


class MissingSource(Source):
    """A source that tells why it is not there as soon as it is read."""

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


class MissingSink(Sink):
    """A sink that tells why it is not there before it is written to; what it has got stays."""

    def __init__(self, why: str) -> None:
        self._why = why

    def writer(self, batch_id: int, partition: int) -> Writer:
        raise StateError(self._why)


@dataclass(frozen=True, kw_only=True)
class MissingTask(StatelessTask):
    """A task of a dataflow that cannot be made again; tells why when it is to run."""

    why: str

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> NoReturn:
        raise FailedBeforeError(self.why)


def missing_steps(steps: Iterable[Step]) -> dict[str, str]:
    """By step that stands for one that cannot be made again, why."""
    return {step.id: step.operator.why for step in steps if isinstance(step.operator, MissingTask)}


def made_again(
    what: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
    rebind: Rebind | None,
    reads: Reads,
    whole: bool,
    choices: Mapping[str, Any],
) -> tuple[Submission, dict[str, Piece]]:
    """A dataflow that ran before, with the ends that it is given.

    Where there are none it has such as tell why, if not the ``whole`` is asked for; so it does where a task cannot be
    made, as its table or model is not there.
    """
    name = what["name"]
    try:
        flow = Dataflow.from_dict(what["flow"], functions)
    except Exception as error:  # a user's task, whatever it raises, is nobody else's matter
        if whole:
            raise
        why = f"a task of it cannot be made again: {told(error)}"
        stand = _without_tasks(load(what["flow"], functions, Dataflow, lambda task: MissingTask(why=why)))
        _log.warning("the dataflow %r is taken up, but gets nothing: %s", name, why)
        sources, sinks = _missing(stand, why) if reads else (None, None)
        return submitted(name, stand, sources, sinks, reads, **choices, descriptor=what["flow"])
    if rebind is None:
        return submitted(name, flow, None, None, reads, **choices)
    try:
        return submitted(name, flow, *rebind(name, flow), reads, **choices)
    except Exception as error:  # as of a task
        if whole:
            raise
        _log.warning("the dataflow %r is taken up, but gets nothing: %s", name, exception_text(error))
        why = f"what it reads and writes cannot be opened again: {told(error)}"
        return submitted(name, flow, *_missing(flow, why), reads, **choices)


def _without_tasks(flow: Dataflow) -> Dataflow:
    """A dataflow whose nodes hang together in the same way, but that knows of no fields."""
    stand = Dataflow(flow.name)
    for node in flow.nodes.values():
        stand.place(source_node(node.id) if node.kind == "source" else node)
    for edge in flow.edges:
        stand.connect(edge.source, edge.target)
    return stand


def _missing(flow: Dataflow, why: str) -> tuple[dict[str, Source], dict[str, Sink]]:
    sources: dict[str, Source] = {}
    for node in flow.kind("source"):
        assert node.schema is not None
        sources[node.id] = MissingSource(node.schema, why)
    sink = MissingSink(why)
    return sources, dict.fromkeys((node.id for node in flow.kind("sink")), sink)
