"""Fan-out of stateless steps: they run after a shuffle if that lets one stream cross it instead of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from riot_ops.core.operator import Operator
from riot_ops.graph.lowering import Step

__all__ = ["move_downstream"]

#: Number of streams with a common root from which on the root crosses instead: each has about as many records.
MIN_FAN_OUT = 4


class _Stage(Protocol):
    steps: list[Step]
    partition: tuple[str, ...]
    entries: dict[str, set[str]]
    outputs: set[str]


def move_downstream(
    earlier: _Stage, later: _Stage, produced: Set[str], readers: Mapping[str, Set[str]], settled: Set[str]
) -> list[str]:
    """Move stateless steps into the one later stage that reads their output; returns the moved steps.

    Parameters
    ----------
    produced : set of str
        The streams that the earlier stage produces.
    readers : mapping of str to set of str
        The steps that read each stream.
    settled : set of str
        The steps that decide which streams cross; the others only follow.
    """
    steps = {step.id: step for step in earlier.steps}
    chains = {entry: found for entry in later.entries if (found := _chain(entry, steps, later, readers))}
    roots: dict[str, list[str]] = {}
    for entry, chain in chains.items():
        if chain[-1].id in settled and (root := chain[-1].inputs[0]) in produced:
            roots.setdefault(root, []).append(entry)
    crossing = {root for root, entries in roots.items() if len(entries) >= MIN_FAN_OUT}
    moved: dict[str, None] = {}
    for entry, chain in chains.items():
        root = chain[-1].inputs[0]
        if root in crossing:
            del later.entries[entry]
            earlier.outputs.discard(entry)
            earlier.outputs.add(root)
            later.entries.setdefault(root, set()).add(chain[-1].id)
            moved |= dict.fromkeys(step.id for step in chain)
    later.steps[:0] = [step for step in earlier.steps if step.id in moved]
    earlier.steps[:] = [step for step in earlier.steps if step.id not in moved]
    return list(moved)


def _chain(entry: str, steps: Mapping[str, Step], later: _Stage, readers: Mapping[str, Set[str]]) -> Sequence[Step]:
    """Return the steps upstream of a stream that may run in the later stage, the nearest first."""
    found: list[Step] = []
    allowed: Set[str] = {step.id for step in later.steps}
    stream = entry
    while (step := steps.get(stream)) is not None and readers[stream] <= allowed and _may_move(step, later):
        found.append(step)
        allowed, stream = {step.id}, step.inputs[0]
    return found


def _may_move(step: Step, later: _Stage) -> bool:
    """Whether a step gives the same output for records that arrive in buckets."""
    if not isinstance(step.operator, Operator) or step.keyed or len(step.inputs) != 1:
        return False
    writes = step.operator.writes()
    return writes is not None and not writes & {*later.partition}
