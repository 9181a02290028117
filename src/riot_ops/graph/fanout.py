"""Steps without state that fan out before a shuffle run behind it: so one stream crosses in place of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from riot_ops.core.operator import Operator
from riot_ops.graph.lowering import Step

__all__ = ["moved_behind"]

#: Where so many streams, all made of one, would cross to a stage, that one crosses: they have about as many records.
FAN = 4


class _Stage(Protocol):
    steps: list[Step]
    partition: tuple[str, ...]
    entries: dict[str, set[str]]
    outputs: set[str]


def moved_behind(
    before: _Stage, behind: _Stage, made: Set[str], readers: Mapping[str, Set[str]], settled: Set[str]
) -> list[str]:
    """Have steps of a stage run in a later one that alone reads what they give; returns those steps.

    Parameters
    ----------
    made : set of str
        The streams that come to be in the earlier stage.
    readers : mapping of str to set of str
        By stream, the steps that read it.
    settled : set of str
        The steps that decide which streams cross; the others move where theirs does.
    """
    steps = {step.id: step for step in before.steps}
    chains = {entry: found for entry in behind.entries if (found := _chain(entry, steps, behind, readers))}
    roots: dict[str, list[str]] = {}
    for entry, chain in chains.items():
        if chain[-1].id in settled and (root := chain[-1].inputs[0]) in made:
            roots.setdefault(root, []).append(entry)
    crossing = {root for root, entries in roots.items() if len(entries) >= FAN}
    moved: dict[str, None] = {}
    for entry, chain in chains.items():
        root = chain[-1].inputs[0]
        if root in crossing:
            del behind.entries[entry]
            before.outputs.discard(entry)
            before.outputs.add(root)
            behind.entries.setdefault(root, set()).add(chain[-1].id)
            moved |= dict.fromkeys(step.id for step in chain)
    behind.steps[:0] = [step for step in before.steps if step.id in moved]
    before.steps[:] = [step for step in before.steps if step.id not in moved]
    return list(moved)


def _chain(entry: str, steps: Mapping[str, Step], behind: _Stage, readers: Mapping[str, Set[str]]) -> Sequence[Step]:
    """The steps above a stream that may run in the later stage, the lowest first."""
    found: list[Step] = []
    allowed: Set[str] = {step.id for step in behind.steps}
    stream = entry
    while (step := steps.get(stream)) is not None and readers[stream] <= allowed and _may_move(step, behind):
        found.append(step)
        allowed, stream = {step.id}, step.inputs[0]
    return found


def _may_move(step: Step, behind: _Stage) -> bool:
    """Whether it does the same where its records come in buckets."""
    if not isinstance(step.operator, Operator) or step.keyed or len(step.inputs) != 1:
        return False
    writes = step.operator.writes()
    return writes is not None and not writes & {*behind.partition}
