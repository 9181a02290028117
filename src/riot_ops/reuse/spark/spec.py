"""The definition of a fragment, as kept in its folder, and the dependencies between its steps."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Literal

import msgspec

from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, Step
from riot_ops.ingest.step import IngestStep
from riot_ops.reuse.topic import UpstreamProgress

__all__ = ["FragmentSpec", "StageSpec", "TopicInput", "input_streams", "required_steps"]


class TopicInput(msgspec.Struct):
    """Streams that a fragment reads from another fragment's topic.

    ``batch`` is the first batch that it reads, ``before`` the progress of the topic before that batch.
    """

    streams: list[str]
    batch: int = 0
    before: UpstreamProgress = msgspec.field(default_factory=UpstreamProgress)


class StageSpec(msgspec.Struct):
    """A planned stage; ``steps`` are its steps with the streams that they read in it."""

    partition: list[str]
    parallelism: int | None
    steps: list[tuple[str, list[str]]]
    entries: dict[str, list[str]]
    outputs: list[str]


class FragmentSpec(msgspec.Struct):
    """The definition of a fragment, as kept in its folder.

    Attributes
    ----------
    steps : list of str
        The steps of its engines, each after its inputs.
    nodes : list of str
        Those of ``steps`` that the manager knows.
    sources : dict of str to dict
        By shared source, the steps that take the records of each member.
    topics : dict of str to TopicInput
        By fragment, the input from that fragment's topic.
    origins : dict of str to list of str
        By step, the sources upstream of it.
    stages : list of StageSpec
        Its plan. State is laid out accordingly, also after steps have been removed.
    parts : dict of str to str
        See :class:`~riot_ops.graph.plan.Plan`.
    fuse : "exact" or "coarse"
        See :func:`~riot_ops.graph.plan.plan`.
    partitions : int
        Number of partitions of its stages, and so of the buckets of its state.
    settled : int
        How many of its steps determined its stages; the others have joined later.
    since : dict of str to int
        By step that has joined, the version of the control from which on it runs.
    removed_steps : list of str
        Removed steps, whose state may still exist.
    layout : str
        The name of its newest layout, see :class:`~riot_ops.reuse.spark.layout.LayoutStore`.
    replaces : list of str
        The fragments whose work it continues, and which it removes.
    together : list of str
        The fragments that replace these with it.
    """

    name: str
    steps: list[str]
    nodes: list[str]
    sources: dict[str, dict[str, list[str]]]
    topics: dict[str, TopicInput]
    origins: dict[str, list[str]]
    stages: list[StageSpec] = []
    parts: dict[str, str] = {}
    fuse: Literal["exact", "coarse"] = "exact"
    partitions: int = 0
    settled: int = 0
    since: dict[str, int] = {}
    removed_steps: list[str] = []
    layout: str = ""
    replaces: list[str] = []
    together: list[str] = []


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
