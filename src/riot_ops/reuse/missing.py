"""Dataflows after a restart, and what stands for sources, sinks and tasks that are not there any more."""

from __future__ import annotations

import json
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
from riot_ops.reuse.errors import FailedBeforeError
from riot_ops.reuse.identity import Piece
from riot_ops.reuse.submission import Reads, Submission, submitted
from riot_ops.task import StatelessTask

__all__ = ["MissingSource", "MissingTask", "Rebind", "bound_again", "is_missing", "made_again", "missing_steps"]

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
    """A task that cannot be made again, as its table or model is not there, and tells why when it is to run.

    Parameters
    ----------
    described : str
        What was there, as JSON.
    why : str
    """

    described: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.described)
        return found

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> NoReturn:
        raise FailedBeforeError(self.why)


def made_again(
    name: str, described: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]], whole: bool
) -> Dataflow:
    """A dataflow that ran before; where a task of it cannot be made, with such alone as tell why, unless ``whole``."""
    try:
        return Dataflow.from_dict(described, functions)
    except Exception as error:  # of a user's task, whatever it raises
        if whole:
            raise
        why = f"a task of it cannot be made again: {exception_text(error)}"
    names: Any = {name: name for name in functions}
    found = load(described, names, Dataflow, lambda task: MissingTask(described=json.dumps(dict(task)), why=why))
    _log.warning("the dataflow %r is taken up, but gets nothing: %s", name, why)
    return found


def missing_steps(steps: Iterable[Step]) -> dict[str, str]:
    """By step that cannot be made again, why."""
    return {step.id: step.operator.why for step in steps if isinstance(step.operator, MissingTask)}


def is_missing(flow: Dataflow) -> bool:
    """Whether tasks of a dataflow could not be made again."""
    return any(isinstance(node.task, MissingTask) for node in flow.kind("task"))


def bound_again(
    name: str, flow: Dataflow, rebind: Rebind | None, reads: Reads, whole: bool, **choices: Any
) -> tuple[Submission, dict[str, Piece]]:
    """A dataflow that ran before, with the ends that it is given.

    Where there are none it has such as tell why, if not the ``whole`` is asked for.
    """
    if rebind is None:
        return submitted(name, flow, None, None, reads, **choices)
    try:
        return submitted(name, flow, *rebind(name, flow), reads, **choices)
    except Exception as error:  # a user's source or sink, whatever it raises, is nobody else's matter
        if whole:
            raise
        _log.warning("the dataflow %r is taken up, but gets nothing: %s", name, exception_text(error))
        return submitted(name, flow, *_missing(flow, error), reads, **choices)


def _missing(flow: Dataflow, error: Exception) -> tuple[dict[str, Source], dict[str, Sink]]:
    why = f"what it reads and writes cannot be opened again: {type(error).__name__}: {exception_text(error)}"
    sources: dict[str, Source] = {}
    for node in flow.kind("source"):
        assert node.schema is not None
        sources[node.id] = MissingSource(node.schema, why)
    sink = MissingSink(why)
    return sources, dict.fromkeys((node.id for node in flow.kind("sink")), sink)
