"""Keyed steps that are asked about words where a text's words would cross to them only to go on to another shuffle.

Such a step gives what it knows of each word (:meth:`~riot_ops.core.operator.KeyedOperator.only_tells`). So the
different words alone go to it, and the texts straight to the stage that reads what it gives, which puts both together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from riot_ops.core.operator import KeyedOperator, clocks
from riot_ops.graph.lowering import Step
from riot_ops.ingest.step import Intake

__all__ = ["Asking", "asking"]


class _Stage(Protocol):
    index: int
    partition: tuple[str, ...]
    steps: list[Step]
    entries: dict[str, set[str]]


@dataclass(frozen=True)
class Asking:
    """A step that is asked.

    Parameters
    ----------
    step : Step
        Who is asked.
    stage : int
        Where it runs, alone.
    reader : int
        The stage that reads what it gives.
    """

    step: Step
    stage: int
    reader: int


def asking(stages: Sequence[_Stage], ending: Set[str], merging: str) -> dict[str, Asking]:
    """By stream that leaves stage 0, the step that may be asked about it.

    A piece of a stream is asked about at once. So nothing that the step learns from may have a number between those of
    a piece: its streams are of one source each, and these come one after the other.

    Parameters
    ----------
    ending : set of str
        Streams that end in a sink.
    merging : str
        How sources come together.
    """
    found: dict[str, Asking] = {}
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
                found[stream] = Asking(step, stage.index, *readers)
    return found


def _may_answer(step: Step, stage: _Stage) -> bool:
    task = step.operator
    if (
        not isinstance(task, KeyedOperator)
        or type(task).only_tells is KeyedOperator.only_tells
        or task.pooled
        or task.needs_full_batch
    ):
        return False
    return len(step.key) == 1 and stage.partition == step.key and not step.numbered and not clocks(task)


def _reading(stream: str, stages: Iterable[_Stage]) -> set[str]:
    """The steps that read a stream, wherever they are."""
    return {step.id for stage in stages for step in stage.steps if stream in step.inputs}


def _sources(stream: str, steps: Mapping[str, Step]) -> list[str]:
    """The sources of a stream, one as often as there are ways from it."""
    step = steps.get(stream)
    if step is None or isinstance(step.operator, Intake):
        return [stream]
    return [source for one in step.inputs for source in _sources(one, steps)]
