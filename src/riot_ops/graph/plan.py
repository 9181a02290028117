"""The planner: from a DAG to a linear chain of stages, with the source read once.

Stage 0 runs at the source and holds the stateless steps that no keyed step precedes. Each later stage
begins with a shuffle by its partition fields. It holds every keyed step that those fields suit, the
stateless steps downstream of them, and those before them that fan out, where one stream then crosses the shuffle
instead of many. Stages that do not read each other's output share a shuffle. Records are addressed to the
stage that reads them; stages in between pass them on unchanged.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal

from riot_ops.core.display import html_display, html_table
from riot_ops.core.errors import ConfigError, escape_control
from riot_ops.core.operator import Operator, emits_per_batch
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.graph.graph import Graph
from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, INSTANCE_FIELD, Route, Step, lower
from riot_ops.ingest.renumber import Renumber
from riot_ops.ingest.step import IngestStep
from riot_ops.ingest.watermarks import WatermarkGenerator

__all__ = ["NoStageError", "Plan", "Stage", "plan", "plan_steps"]


#: Stands for no limit of instances.
UNLIMITED = sys.maxsize
#: Number of streams with a common root from which on the root crosses instead: each has about as many records.
MIN_FAN_OUT = 4


class NoStageError(Exception):
    """A step does not fit into the given stages."""


@dataclass
class Stage:
    """The steps that run in one Python pass.

    Attributes
    ----------
    index : int
        Place in the chain; 0 is at the source.
    partition : tuple of str
        Fields that decide the bucket of a record; empty: one bucket for all.
    steps : list of Step
        In the order in which they run.
    entries : dict of stream to step ids
        Streams from earlier stages, and the steps that read them here.
    outputs : set of str
        Streams that leave for later stages or sinks.
    parallelism : int or None
        Maximum number of buckets.
    """

    index: int
    partition: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)
    entries: dict[str, set[str]] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    parallelism: int | None = None

    @functools.cached_property
    def needs_whole_batch(self) -> bool:
        """Whether all records of a micro-batch come at once; read when the stage is complete.

        The output of a step that emits per batch depends on them, and the numbers of records that are renumbered here
        do not say which watermarks precede them.
        """
        return any(isinstance(step.operator, Renumber) or emits_per_batch(step.operator) for step in self.steps)


@dataclass(repr=False)
class Plan:
    """The stages of a dataflow and the target of each stream.

    Attributes
    ----------
    stages : list of Stage
    sinks : set of str
        Streams that end in a sink, ``errors`` included.
    parts : dict of str to str
        By part, the whole stream: a stateless step that merges streams from several stages has an
        output in parts.
    """

    name: str
    stages: list[Stage]
    sinks: set[str]
    parts: dict[str, str] = field(default_factory=dict)

    def readers(self, stream: str, produced_in: int) -> list[Stage]:
        """Return the later stages that read a stream."""
        return [s for s in self.stages[produced_in + 1 :] if stream in s.entries]

    @property
    def shuffles(self) -> list[list[Stage]]:
        """The stages after each shuffle; stages that do not read each other's output share one."""
        level = {0: 0}
        found: list[list[Stage]] = []
        for stage in self.stages[1:]:
            above = (s.index for s in self.stages[: stage.index] if s.outputs & stage.entries.keys())
            level[stage.index] = place = 1 + max((level[i] for i in above), default=0)
            if place > len(found):
                found.append([])
            found[place - 1].append(stage)
        return found

    def __repr__(self) -> str:
        lines = [self._title()]
        for stage in self.stages:
            lines.append(f"stage {stage.index} ({_place(stage)})")
            for step in _shown_steps(stage):
                lines.append(f"  {step.id} <- {_inputs(step)}  [{_kind(step)}]")
            if to_sinks := self._to_sinks(stage):
                lines.append(f"  => sink: {', '.join(to_sinks)}")
        return "\n".join(map(escape_control, lines))

    def _repr_html_(self) -> str:
        rows = []
        for stage in self.stages:
            found = [[step.id, _inputs(step), _kind(step)] for step in _shown_steps(stage)]
            if to_sinks := self._to_sinks(stage):
                found.append(["to sinks", ", ".join(to_sinks), ""])
            place = f"{stage.index}: {_place(stage)}"
            rows += [[place if not i else "", *row] for i, row in enumerate(found or [["", "", ""]])]
        return html_display(self._title(), html_table(rows, ["stage", "step", "reads", ""]))

    def _title(self) -> str:
        return f"dataflow {self.name!r}: {len(self.stages)} stages, {len(self.shuffles)} shuffles"

    def _to_sinks(self, stage: Stage) -> list[str]:
        return sorted({self.parts.get(s, s) for s in stage.outputs} & self.sinks)


def _place(stage: Stage) -> str:
    by = "by " + ", ".join(stage.partition) if stage.partition else "in one bucket"
    limit = f", at most {stage.parallelism} buckets" if stage.parallelism else ""
    return ("at the source" if stage.index == 0 else by) + limit


def _shown_steps(stage: Stage) -> list[Step]:
    """Return the steps of a stage without those that belong to a source, or to their readers."""
    return [step for step in stage.steps if not isinstance(step.operator, (IngestStep, Renumber, WatermarkGenerator))]


def _inputs(step: Step) -> str:
    return ", ".join(stream.partition("@")[0] for stream in step.inputs)


def _kind(step: Step) -> str:
    return "keyed by " + (", ".join(step.key) or "nothing") if step.keyed else "stateless"


def plan(flow: Graph, fuse: Literal["exact", "coarse"] = "exact") -> Plan:
    """Group the steps of a dataflow into stages.

    Parameters
    ----------
    fuse : "exact" or "coarse"
        Which keyed steps may share a shuffle. "exact": those with the same key. "coarse": also those whose keys have a
        field in common, and those that read the output of a step without a key. That needs fewer shuffles, but the
        common fields bound the parallelism.

    Examples
    --------
    >>> from riot_ops import dataflows
    >>> [stage.partition for stage in dataflows.stats().plan().stages]
    [(), ('sensor_id', 'obs_type'), ('obs_type',)]
    """
    if fuse not in ("exact", "coarse"):
        raise ConfigError(f"fuse must be 'exact' or 'coarse', got {fuse!r}")
    streams = [stream for n in flow.nodes_of_kind("source") for stream in (n.id, n.id + HEARTBEAT_SUFFIX)]
    sinks = {e.source for n in flow.nodes_of_kind("sink") for e in flow.inputs(n.id)}
    return plan_steps(flow.name, lower(flow), streams, sinks, fuse)


def plan_steps(
    name: str,
    steps: Sequence[Step],
    streams: Iterable[str],
    sinks: Set[str],
    fuse: Literal["exact", "coarse"],
    settled: int | None = None,
) -> Plan:
    """Plan steps that read ``streams`` from outside and write to ``sinks``; see :func:`plan`.

    With ``settled``, only that many first steps decide the stages and their fields; the others must fit into them, or
    :class:`NoStageError` is raised.
    """
    return _Planner(steps, streams, fuse == "coarse", len(steps) if settled is None else settled).run(name, sinks)


class _Planner:
    def __init__(self, steps: Sequence[Step], streams: Iterable[str], coarse: bool, settled: int) -> None:
        self.coarse = coarse
        self.steps = steps
        self.settling, self.settled = settled, False
        self.stages = [Stage(0)]
        #: stream -> its parts, in the order of the inputs they belong to
        self.parts: dict[str, tuple[str, ...]] = {}
        #: stream -> stages that produce it -> fields changed since the records entered that stage
        self.produced: dict[str, dict[int, frozenset[str] | None]] = {stream: {0: frozenset()} for stream in streams}

    def run(self, name: str, sinks: Set[str]) -> Plan:
        for place, unplaced in enumerate(self.steps):
            self.settled = place >= self.settling
            if isinstance(unplaced.operator, IngestStep):
                self.stages[0].steps.append(unplaced)
                continue
            step = replace(unplaced, inputs=tuple(p for s in unplaced.inputs for p in self.parts.get(s, (s,))))
            if step.partition is None:
                self._place_stateless(step)
            else:
                self._place_keyed(step)
        for stage in self.stages:
            for step in stage.steps:
                self._connect(step, stage)
        self._fan_out()
        for stage in self.stages:
            stage.outputs |= {p for s in sinks for p in self.parts.get(s, (s,)) if stage.index in self.produced[p]}
        parts = {part: stream for stream, found in self.parts.items() for part in found}
        return Plan(name, self.stages, {*sinks, ERRORS_STREAM}, parts)

    def _fan_out(self) -> None:
        """Let one stream cross to a stage in place of many that are derived from it."""
        if len(self.stages) == 1:
            return
        readers: dict[str, set[str]] = {}
        for step in (step for stage in self.stages for step in stage.steps):
            for stream in (*step.inputs, *(step.clock.streams if step.clock is not None else ())):
                readers.setdefault(stream, set()).add(step.id)
        settled = {step.id for step in self.steps[: self.settling]}
        for place, earlier in enumerate(self.stages):
            for later in self.stages[place + 1 :]:
                produced = {stream for stream, found in self.produced.items() if earlier.index in found}
                for moved in _move_downstream(earlier, later, produced, readers, settled):
                    self.produced[moved] = {later.index: self.produced[moved][earlier.index]}

    def _place_stateless(self, step: Step) -> None:
        # a stateless step runs where its inputs are produced and needs no shuffle; where several stages produce
        # them, each input gets a step of its own, and the readers restore the order
        if len({stage for stream in step.inputs for stage in self.produced[stream]}) > 1:
            ids = tuple(f"{step.id}#{i}" for i in range(len(step.inputs)))
            for part, stream in zip(ids, step.inputs, strict=True):
                self._place_stateless(replace(step, id=part, inputs=(stream,), label=step.name))
            self.parts[step.id] = ids
            return
        (stage,) = self.produced[step.inputs[0]]
        changed: frozenset[str] | None = _writes(step)
        for stream in step.inputs:
            changed = _union(changed, self.produced[stream][stage])
        self.stages[stage].steps.append(step)
        self.produced[step.id] = {stage: changed}

    def _place_keyed(self, step: Step) -> None:
        assert step.partition is not None
        stage = next((s for s in self.stages[1:] if self._fits(step, s)), None)
        if stage is None:
            if self.settled:
                raise NoStageError(step.id)
            stage = Stage(len(self.stages), step.partition, parallelism=step.parallelism)
            self.stages.append(stage)
        elif step.parallelism:
            stage.parallelism = min(stage.parallelism or step.parallelism, step.parallelism)
        stage.partition = self._common(step, stage) or stage.partition
        stage.steps.append(step)
        self.produced[step.id] = {stage.index: self._changed(step, stage.index)}

    def _fits(self, step: Step, stage: Stage) -> bool:
        common = self._common(step, stage)
        if common is None:
            return False
        if self.settled and (
            common != stage.partition or (step.parallelism or UNLIMITED) < (stage.parallelism or UNLIMITED)
        ):
            return False
        for stream in step.inputs:
            for index, changed in self.produced[stream].items():
                if index > stage.index:
                    return False
                if index == stage.index and common and (changed is None or changed & set(common)):
                    return False
        return True

    def _common(self, step: Step, stage: Stage) -> tuple[str, ...] | None:
        """Return the partition fields that suit both, or None."""
        assert step.partition is not None
        if set(step.partition) == set(stage.partition):
            return stage.partition
        common = tuple(f for f in stage.partition if f in step.partition)
        # a stage with one bucket for all records: another shuffle would move a part of them elsewhere
        above = not stage.partition and any(stage.index in self.produced[stream] for stream in step.inputs)
        if self.settled and {*stage.partition} <= {*step.partition} and (common or above):
            return stage.partition
        return common if self.coarse and (common or above) else None

    def _changed(self, step: Step, stage: int) -> frozenset[str] | None:
        changed: frozenset[str] | None = frozenset()
        for stream in step.inputs:
            changed = _union(changed, self.produced[stream].get(stage, frozenset()))
        return _union(changed, _writes(step))

    def _connect(self, step: Step, stage: Stage) -> None:
        """Make earlier stages send the streams that a keyed step reads."""
        if step.partition is None:
            return
        for stream in (*step.inputs, *(step.clock.streams if step.clock is not None else ())):
            earlier = [i for i in self.produced[stream] if i < stage.index]
            for index in earlier:
                self.stages[index].outputs.add(stream)
            if earlier:
                stage.entries.setdefault(stream, set()).add(step.id)


def _writes(step: Step) -> frozenset[str] | None:
    if isinstance(step.operator, Route):
        return frozenset({INSTANCE_FIELD})
    if isinstance(step.operator, Renumber):
        return frozenset({"seq"})
    if isinstance(step.operator, WatermarkGenerator):
        return frozenset()
    assert isinstance(step.operator, Operator)
    return step.operator.writes()


def _union(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    return None if a is None or b is None else a | b


def _move_downstream(
    earlier: Stage, later: Stage, produced: Set[str], readers: Mapping[str, Set[str]], settled: Set[str]
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


def _chain(entry: str, steps: Mapping[str, Step], later: Stage, readers: Mapping[str, Set[str]]) -> Sequence[Step]:
    """Return the steps upstream of a stream that may run in the later stage, the nearest first."""
    found: list[Step] = []
    allowed: Set[str] = {step.id for step in later.steps}
    stream = entry
    while (step := steps.get(stream)) is not None and readers[stream] <= allowed and _may_move(step, later):
        found.append(step)
        allowed, stream = {step.id}, step.inputs[0]
    return found


def _may_move(step: Step, later: Stage) -> bool:
    """Whether a step gives the same output for records that arrive in buckets."""
    if not isinstance(step.operator, Operator) or step.keyed or len(step.inputs) != 1:
        return False
    writes = step.operator.writes()
    return writes is not None and not writes & {*later.partition}
