"""Dependencies between the steps of a fragment."""

from __future__ import annotations

from collections.abc import Iterable, Set

from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, Step
from riot_ops.ingest.step import IngestStep

__all__ = ["input_streams", "required_steps"]


def input_streams(step: Step) -> set[str]:
    """Return the streams that a step reads, those of its watermarks included."""
    if isinstance(step.operator, IngestStep):
        return set()
    return {*step.inputs, *(step.clock.streams if step.clock is not None else ())}


def required_steps(steps: Iterable[Step], wanted: Set[str]) -> set[str]:
    """Return the ids of the steps that the wanted streams depend on; ``steps`` are in topological order."""
    found: set[str] = set()
    needed = set(wanted)
    for step in reversed(list(steps)):
        if step.id in needed or (isinstance(step.operator, IngestStep) and step.id + HEARTBEAT_SUFFIX in needed):
            found.add(step.id)
            needed.update(input_streams(step))
    return found
