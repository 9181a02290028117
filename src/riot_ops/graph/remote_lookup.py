"""Keyed steps that Spark asks about the words of a text, so that the text itself need not cross to them.

Such a step only returns its state of each word (:meth:`~riot_ops.core.operator.KeyedOperator.is_lookup_only`). So
only the distinct words are sent to it. The texts go straight to the stage that reads its output, which joins both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from riot_ops.core.operator import KeyedOperator, operator_clocks
from riot_ops.graph.lowering import Step
from riot_ops.ingest.step import IngestStep

__all__ = ["RemoteLookup", "find_remote_lookups"]


class _Stage(Protocol):
    index: int
    partition: tuple[str, ...]
    steps: list[Step]
    entries: dict[str, set[str]]


@dataclass(frozen=True)
class RemoteLookup:
    """A keyed step that may be asked about words.

    Parameters
    ----------
    step : Step
        The step that answers.
    stage : int
        Its stage, in which it is the only step.
    reader : int
        The stage that reads its output.
    """

    step: Step
    stage: int
    reader: int


def find_remote_lookups(stages: Sequence[_Stage], ending: Set[str], merging: str) -> dict[str, RemoteLookup]:
    """Return the step that may be asked, for each such stream that leaves stage 0.

    A piece of a stream is asked about in one request, so nothing that the step learns from may have a message number
    between those of a piece: each of its streams has one source, and these sources follow one another.

    Parameters
    ----------
    ending : set of str
        Streams that end in a sink.
    merging : str
        How the messages of several sources are merged.
    """
    found: dict[str, RemoteLookup] = {}
    above = {step.id: step for step in stages[0].steps}
    for stage in stages[1:]:
        if len(stage.steps) != 1:
            continue
        (step,) = stage.steps
        readers = {other.index for other in stages if step.id in other.entries}
        sources = [source for stream in step.inputs for source in _sources(stream, above)]
        apart = len({*sources}) == len(sources) and (len(sources) == 1 or merging == "sequence")
        if not apart or len(readers) != 1 or step.id in ending or not _may_answer(step, stage):
            continue
        for stream in step.inputs:
            if stream in above and stream not in ending and _reading(stream, stages) == {step.id}:
                found[stream] = RemoteLookup(step, stage.index, *readers)
    return found


def _may_answer(step: Step, stage: _Stage) -> bool:
    task = step.operator
    if (
        not isinstance(task, KeyedOperator)
        or type(task).is_lookup_only is KeyedOperator.is_lookup_only
        or task.pooled
        or task.needs_full_batch
    ):
        return False
    return len(step.key) == 1 and stage.partition == step.key and not step.numbered and not operator_clocks(task)


def _reading(stream: str, stages: Iterable[_Stage]) -> set[str]:
    """Return the steps of any stage that read a stream."""
    return {step.id for stage in stages for step in stage.steps if stream in step.inputs}


def _sources(stream: str, steps: Mapping[str, Step]) -> list[str]:
    """Return the sources of a stream; a source that reaches it by several paths occurs once for each."""
    step = steps.get(stream)
    if step is None or isinstance(step.operator, IngestStep):
        return [stream]
    return [source for one in step.inputs for source in _sources(one, steps)]
