"""The planner: from a DAG to a linear chain of stages, the source read once.

Stage 0 runs at the source: the stateless steps that no keyed step precedes. Each later stage begins
with a shuffle by its partition fields and holds every keyed step that those fields suit, with the
stateless steps behind them, and with such before them as fan out (:mod:`riot_ops.graph.fanout`).
Stages of which none reads what another gives have one shuffle together.
Records travel between stages addressed to the stage that reads them;
stages in between pass them on untouched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal

from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import Operator
from riot_ops.graph.asking import Asking, asking
from riot_ops.graph.fanout import moved_behind
from riot_ops.graph.graph import Graph
from riot_ops.graph.lowering import BEATS, INSTANCE, Route, Step, lower
from riot_ops.graph.marks import Marks
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.ingest.step import Intake

__all__ = ["NoStageError", "Plan", "Stage", "plan", "planned"]


#: More instances than any step may have.
MANY = sys.maxsize


class NoStageError(Exception):
    """A step does not fit into the stages that there are."""


@dataclass
class Stage:
    """Everything that runs in one Python pass.

    Attributes
    ----------
    index : int
        Place in the chain; 0 is at the source.
    partition : tuple of str
        Fields that decide which bucket a record goes to; empty: one bucket for all.
    steps : list of Step
        What runs here, in order.
    entries : dict of stream to step ids
        Streams that come from earlier stages, and who reads them here.
    outputs : set of str
        Streams that leave: to later stages or to sinks.
    parallelism : int or None
        Most buckets it may use.
    """

    index: int
    partition: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)
    entries: dict[str, set[str]] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    parallelism: int | None = None


@dataclass
class Plan:
    """The stages of a dataflow and where each stream goes.

    Attributes
    ----------
    stages : list of Stage
    sinks : set of str
        Streams that end in a sink, ``errors`` included.
    parts : dict of str to str
        Streams that are parts of another: of the output of a stateless step that merges streams
        from several stages.
    asking : dict of str to Asking
        Streams of stage 0 about whose words a step may be asked in place of being handed them.
    """

    name: str
    stages: list[Stage]
    sinks: set[str]
    parts: dict[str, str] = field(default_factory=dict)
    asking: dict[str, Asking] = field(default_factory=dict)

    def readers(self, stream: str, produced_in: int) -> list[Stage]:
        """The later stages that read a stream."""
        return [s for s in self.stages[produced_in + 1 :] if stream in s.entries]

    @property
    def shuffles(self) -> list[list[Stage]]:
        """The stages behind each shuffle: side by side, where none reads what another gives."""
        level = {0: 0}
        found: list[list[Stage]] = []
        for stage in self.stages[1:]:
            above = (s.index for s in self.stages[: stage.index] if s.outputs & stage.entries.keys())
            level[stage.index] = place = 1 + max((level[i] for i in above), default=0)
            if place > len(found):
                found.append([])
            found[place - 1].append(stage)
        return found

    def __str__(self) -> str:
        lines = [f"dataflow {self.name!r}: {len(self.stages)} stages, {len(self.shuffles)} shuffles"]
        for stage in self.stages:
            where = (
                "at the source"
                if stage.index == 0
                else ("by " + ", ".join(stage.partition) if stage.partition else "in one bucket")
            )
            limit = f", at most {stage.parallelism} buckets" if stage.parallelism else ""
            lines.append(f"stage {stage.index} ({where}{limit})")
            for step in stage.steps:
                if isinstance(step.operator, (Intake, Marks)):
                    continue  # a part of its source
                kind = "keyed by " + (", ".join(step.key) or "nothing") if step.keyed else "stateless"
                lines.append(f"  {step.id} <- {', '.join(step.inputs)}  [{kind}]")
            to_sinks = sorted({self.parts.get(s, s) for s in stage.outputs} & self.sinks)
            if to_sinks:
                lines.append(f"  => sink: {', '.join(to_sinks)}")
        return "\n".join(lines)


def plan(flow: Graph, fuse: Literal["exact", "coarse"] = "exact") -> Plan:
    """Group the steps of a dataflow into stages.

    Parameters
    ----------
    fuse : "exact" or "coarse"
        Which keyed steps may share a shuffle: those with the same key, or also those whose keys
        have a field in common, and those that read what comes of a step without a key (fewer shuffles, but the
        common fields bound the parallelism).

    Examples
    --------
    >>> from riot_ops import dataflows
    >>> [stage.partition for stage in dataflows.stats().plan().stages]
    [(), ('sensor_id', 'obs_type'), ('obs_type',)]
    """
    if fuse not in ("exact", "coarse"):
        raise ConfigError(f"fuse must be 'exact' or 'coarse', got {fuse!r}")
    streams = [stream for n in flow.kind("source") for stream in (n.id, n.id + BEATS)]
    sinks = {e.source for n in flow.kind("sink") for e in flow.inputs(n.id)}
    found = planned(flow.name, lower(flow), streams, sinks, fuse)
    ending = {*sinks, *(part for part, stream in found.parts.items() if stream in sinks)}
    found.asking = asking(found.stages, ending, flow.merging)
    return found


def planned(
    name: str,
    steps: Sequence[Step],
    streams: Iterable[str],
    sinks: Set[str],
    fuse: Literal["exact", "coarse"],
    settled: int | None = None,
) -> Plan:
    """The same for steps that read some ``streams`` from outside, and give others to sinks; see :func:`plan`.

    The first so many steps settle the stages and their fields, where ``settled`` is given; :class:`NoStageError` where
    one of the others does not fit.
    """
    return _Planner(steps, streams, fuse == "coarse", len(steps) if settled is None else settled).run(name, sinks)


class _Planner:
    def __init__(self, steps: Sequence[Step], streams: Iterable[str], coarse: bool, settled: int) -> None:
        self.coarse = coarse
        self.steps = steps
        self.settling, self.settled = settled, False
        self.stages = [Stage(0)]
        #: stream -> its parts, in the order of the inputs that they come from
        self.parts: dict[str, tuple[str, ...]] = {}
        #: stream -> stages that produce it -> fields changed since the records entered that stage
        self.made: dict[str, dict[int, frozenset[str] | None]] = {stream: {0: frozenset()} for stream in streams}

    def run(self, name: str, sinks: Set[str]) -> Plan:
        for place, whole in enumerate(self.steps):
            self.settled = place >= self.settling
            if isinstance(whole.operator, Intake):
                self.stages[0].steps.append(whole)
                continue
            step = replace(whole, inputs=tuple(p for s in whole.inputs for p in self.parts.get(s, (s,))))
            if step.partition is None:
                self._place_stateless(step)
            else:
                self._place_keyed(step)
        for stage in self.stages:
            for step in stage.steps:
                self._connect(step, stage)
        self._fan_out()
        for stage in self.stages:
            stage.outputs |= {p for s in sinks for p in self.parts.get(s, (s,)) if stage.index in self.made[p]}
        parts = {part: stream for stream, found in self.parts.items() for part in found}
        return Plan(name, self.stages, {*sinks, ERRORS_STREAM}, parts)

    def _fan_out(self) -> None:
        """Have one stream cross to a stage in place of many that are made of it."""
        if len(self.stages) == 1:
            return
        readers: dict[str, set[str]] = {}
        for step in (step for stage in self.stages for step in stage.steps):
            for stream in (*step.inputs, *(step.clock.streams if step.clock is not None else ())):
                readers.setdefault(stream, set()).add(step.id)
        settled = {step.id for step in self.steps[: self.settling]}
        for place, before in enumerate(self.stages):
            for behind in self.stages[place + 1 :]:
                made = {stream for stream, found in self.made.items() if before.index in found}
                for moved in moved_behind(before, behind, made, readers, settled):
                    self.made[moved] = {behind.index: self.made[moved][before.index]}

    def _place_stateless(self, step: Step) -> None:
        # a stateless step runs wherever its inputs come to be, which needs no shuffle; where they come to
        # be in several stages, each input has a step of its own: what reads them keeps them in order
        if len({stage for stream in step.inputs for stage in self.made[stream]}) > 1:
            ids = tuple(f"{step.id}#{i}" for i in range(len(step.inputs)))
            for part, stream in zip(ids, step.inputs, strict=True):
                self._place_stateless(replace(step, id=part, inputs=(stream,), label=step.name))
            self.parts[step.id] = ids
            return
        (stage,) = self.made[step.inputs[0]]
        changed: frozenset[str] | None = _writes(step)
        for stream in step.inputs:
            changed = _union(changed, self.made[stream][stage])
        self.stages[stage].steps.append(step)
        self.made[step.id] = {stage: changed}

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
        self.made[step.id] = {stage.index: self._changed(step, stage.index)}

    def _fits(self, step: Step, stage: Stage) -> bool:
        common = self._common(step, stage)
        if common is None:
            return False
        if self.settled and (common != stage.partition or (step.parallelism or MANY) < (stage.parallelism or MANY)):
            return False
        for stream in step.inputs:
            for index, changed in self.made[stream].items():
                if index > stage.index:
                    return False
                if index == stage.index and common and (changed is None or changed & set(common)):
                    return False
        return True

    def _common(self, step: Step, stage: Stage) -> tuple[str, ...] | None:
        """The partition fields that suit both, or None."""
        assert step.partition is not None
        if set(step.partition) == set(stage.partition):
            return stage.partition
        common = tuple(f for f in stage.partition if f in step.partition)
        # where all of its records are in one bucket, another shuffle would bring a part of them elsewhere
        above = not stage.partition and any(stage.index in self.made[stream] for stream in step.inputs)
        if self.settled and {*stage.partition} <= {*step.partition} and (common or above):
            return stage.partition
        return common if self.coarse and (common or above) else None

    def _changed(self, step: Step, stage: int) -> frozenset[str] | None:
        changed: frozenset[str] | None = frozenset()
        for stream in step.inputs:
            changed = _union(changed, self.made[stream].get(stage, frozenset()))
        return _union(changed, _writes(step))

    def _connect(self, step: Step, stage: Stage) -> None:
        """Have earlier stages send what a keyed step reads."""
        if step.partition is None:
            return
        for stream in (*step.inputs, *(step.clock.streams if step.clock is not None else ())):
            earlier = [i for i in self.made[stream] if i < stage.index]
            for index in earlier:
                self.stages[index].outputs.add(stream)
            if earlier:
                stage.entries.setdefault(stream, set()).add(step.id)


def _writes(step: Step) -> frozenset[str] | None:
    if isinstance(step.operator, Route):
        return frozenset({INSTANCE})
    if isinstance(step.operator, Marks):
        return frozenset()
    assert isinstance(step.operator, Operator)
    return step.operator.writes()


def _union(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    return None if a is None or b is None else a | b
