"""What a fragment is, as it is kept in its folder."""

from __future__ import annotations

from typing import Literal

import msgspec

from riot_ops.reuse.topic import Place

__all__ = ["FragmentSpec", "Reads", "StageSpec"]


class Reads(msgspec.Struct):
    """Streams of another fragment's topic, from a batch on, and where that stood before it."""

    streams: list[str]
    batch: int = 0
    before: Place = msgspec.field(default_factory=Place)


class StageSpec(msgspec.Struct):
    """A stage as it was planned; its steps with the streams that they read there."""

    partition: list[str]
    parallelism: int | None
    steps: list[tuple[str, list[str]]]
    entries: dict[str, list[str]]
    outputs: list[str]


class FragmentSpec(msgspec.Struct):
    """What a fragment is, as it is kept in its folder.

    Attributes
    ----------
    steps : list of str
        The steps of its engines, each after its inputs.
    nodes : list of str
        Those of them that the manager knows.
    sources : dict of str to dict
        By reading, the steps that take the records of each source in it.
    topics : dict of str to Reads
        By fragment, what it reads of that.
    origins : dict of str to list of str
        By step, the sources above it.
    stages : list of StageSpec
        How it was planned: its state lies so, also when steps of it have gone.
    parts : dict of str to str
        See :class:`~riot_ops.graph.plan.Plan`.
    fuse : "exact" or "coarse"
        See :func:`~riot_ops.graph.plan.plan`.
    partitions : int
        Of its stages: its state lies in buckets by that number.
    settled : int
        So many of its steps settled its stages; the others have joined.
    since : dict of str to int
        By step that has joined, the version of the control with which it came: before that it rests.
    gone : list of str
        Steps that were there once, of which there may be state.
    layout : str
        The name of its newest layout, see :class:`~riot_ops.reuse.spark.layout.Layouts`.
    replaces : list of str
        The fragments whose work it goes on with, ``together`` with others: they go.
    """

    name: str
    steps: list[str]
    nodes: list[str]
    sources: dict[str, dict[str, list[str]]]
    topics: dict[str, Reads]
    origins: dict[str, list[str]]
    stages: list[StageSpec] = []
    parts: dict[str, str] = {}
    fuse: Literal["exact", "coarse"] = "exact"
    partitions: int = 0
    settled: int = 0
    since: dict[str, int] = {}
    gone: list[str] = []
    layout: str = ""
    replaces: list[str] = []
    together: list[str] = []
