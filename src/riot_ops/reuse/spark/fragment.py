"""A fragment: some of the shared steps as one streaming query, which writes one topic."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.core.source import Source
from riot_ops.graph.lowering import BEATS, Step
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.graph.plan import NoStageError, Plan, Stage, planned
from riot_ops.ingest.step import Intake
from riot_ops.reuse.spark.broken import Broken, forget_raised, raised, silenced, write_broken
from riot_ops.reuse.spark.control import Control, Controls, awake, read_json, reads, write_json
from riot_ops.reuse.spark.layout import Layout, Layouts
from riot_ops.reuse.spark.outlet import FragmentOutlet, FragmentSink
from riot_ops.reuse.spark.source import BEGIN, Begin, FragmentReader, TopicFeed
from riot_ops.reuse.spark.spec import FragmentSpec, StageSpec
from riot_ops.reuse.spark.stage import FragmentStage
from riot_ops.reuse.spark.ticks import Ticks
from riot_ops.reuse.topic import Head, Place, Topic
from riot_ops.reuse.topic_sink import TopicSink
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.spark.dataframe_transform import labels_of

__all__ = ["SPEC", "Fragment", "Options", "Running", "clear"]

SPEC = "fragment.json"


@dataclass(frozen=True)
class Options:
    """How queries run; those that were there before keep the number of partitions that they have."""

    partitions: int
    max_records: int | None
    queue_bytes: int
    every_s: float = 0.0


class Running(Protocol):
    """A query that was started."""

    @property
    def active(self) -> bool:
        """Whether it runs."""

    def stop(self) -> None:
        """Stop it; another may go on from where it was."""

    def failure(self) -> str | None:
        """Why it does not run any more, where that is known."""


@dataclass
class Fragment:
    """A fragment and its query; ``folder`` holds all of it: what it is, its control, checkpoint and topic."""

    folder: Path
    spec: FragmentSpec
    steps: list[Step]
    sources: Mapping[str, Source]
    #: What gives nothing more: steps of it that have raised, and streams that it reads.
    broken: dict[str, Broken] = field(default_factory=dict)
    tries: int = 0
    failed_at: int = -1
    failure: str | None = None
    query: Running | None = field(default=None, repr=False)
    #: What its query was started with.
    layouts: Layouts | None = field(default=None, repr=False)
    ticks: Ticks | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def topic(self) -> Topic:
        return Topic(self.folder / "topic")

    @property
    def controls(self) -> Controls:
        return Controls(self.folder / "control")

    def begin(self, begin: Begin, place: Place, taken: Mapping[str, int] | None = None) -> None:
        """Have it begin there, at a place of those that it goes on with; it may run already, and wait for this."""
        batch = self.topic.head().batch
        roots = place.roots | ({self.name: batch + 1} if self.spec.sources else {})
        begin.over = place.ended
        self.topic.stand(Head(batch, 0, Place(roots, place.next, place.ended), {**(taken or {})}))
        write_json(self.folder / BEGIN, begin)

    def follow(self, begins: Mapping[str, tuple[int, Place]]) -> None:
        """Have it begin with these batches of the topics that it reads, and before them there."""
        place = Place()
        for name, read in self.spec.topics.items():
            read.batch, read.before = begins[name]
            place.roots |= read.before.roots
            place.next |= read.before.next
            place.ended = sorted({*place.ended, *read.before.ended})
        self.begin(Begin(), place)

    def save(self) -> None:
        """Keep what it is; from here on a restart knows of it."""
        write_json(self.folder / SPEC, self.spec)

    def forget(self, steps: Iterable[str]) -> None:
        """These are not there any more, or never came to be."""
        gone = {*steps}
        spec = self.spec
        spec.settled = sum(step not in gone for step in spec.steps[: spec.settled])
        spec.steps = [step for step in spec.steps if step not in gone]
        spec.nodes = [step for step in spec.nodes if step not in gone]
        spec.gone = sorted({*spec.gone, *gone})
        left = {
            reading: {member: [step for step in steps if step not in gone] for member, steps in members.items()}
            for reading, members in spec.sources.items()
        }
        spec.sources = {reading: members for reading, members in left.items() if any(members.values())}
        self.save()

    @staticmethod
    def saved(folder: Path) -> FragmentSpec:
        """What a fragment is, from its folder."""
        return read_json(folder / SPEC, FragmentSpec)

    def hold(self) -> int:
        """Have it read nothing more, and leave what another goes on from; the version in which that stands."""
        held = msgspec.structs.replace(self.controls.read(self.controls.newest()), hold=True)
        version = self.controls.write(held)
        self.controls.hurry(version)
        return version

    def tell(self, wanted: set[str]) -> tuple[int, set[str]]:
        """Have it forward these streams; the version in which that stands, and the streams of others that it needs."""
        needed = awake(self.steps, wanted - self.silent.keys())
        resting = self._with_parts({step.id for step in self.steps} - needed)
        control = Control(tuple(sorted(wanted)), tuple(sorted(resting)), layout=self.spec.layout)
        return self.controls.write(control), self.outside(needed)

    def stages_for(self, wanted: set[str]) -> list[list[bool]]:
        """By shuffle, of each stage behind it whether some of these streams need it."""
        needed = self._with_parts(awake(self.steps, wanted))
        return [[any(step.id in needed for step in stage.steps) for stage in row] for row in self.plan().shuffles]

    def outside(self, steps: set[str]) -> set[str]:
        """The streams of other fragments that some of its steps read."""
        return set().union(*(reads(step) for step in self.steps if step.id in steps)) - self._own()

    def _with_parts(self, steps: Iterable[str]) -> set[str]:
        """Steps, and the parts in which they run."""
        whole = {*steps}
        return whole | {part for part, step in self.spec.parts.items() if step in whole}

    @property
    def silent(self) -> dict[str, Broken]:
        """What gives nothing more, steps that need it included, and what has silenced it."""
        return silenced(self.steps, self.broken)

    def breaks(self, broken: Mapping[str, Broken]) -> None:
        """These give nothing more, also after a restart."""
        write_broken(self.folder, {**self.broken, **broken})
        self.broken.update(broken)

    def raised(self, unread: bool = False) -> dict[str, Broken]:
        """Go without the steps of its own that have raised; returns them.

        With ``unread`` those whose sources could not be read, if without them something is left that is wanted.
        """
        head = self.topic.head()
        noted = raised(self.folder, head.batch, unread)
        if unread:
            noted = {step: why for reading, why in noted.items() for step in self._readers(reading)}
        found = {
            self.spec.parts.get(step, step): Broken(why, head.batch + 1, head.place.roots)
            for step, why in noted.items()
        }
        fresh = {step: one for step, one in found.items() if step not in self.broken}
        wanted = {*self.controls.read(self.controls.newest()).forward}
        if unread and not wanted - silenced(self.steps, {**self.broken, **fresh}).keys():
            return {}
        if fresh:
            self.breaks(fresh)
        return fresh

    def reads(self, reading: str) -> bool:
        """Whether it has a source, and that can be read."""
        return bool(self._readers(reading) - self.silent.keys())

    def _readers(self, reading: str) -> set[str]:
        """The steps that take the records of a source."""
        return set().union(*self.spec.sources.get(reading, {}).values())

    def _own(self) -> set[str]:
        """The streams that come to be in it."""
        return {s.id for s in self.steps} | {s.id + BEATS for s in self.steps if isinstance(s.operator, Intake)}

    def taking_in(self, new: Fragment) -> Fragment | None:
        """As it is with the steps of a new one too; None where it has not all that these read, or no stage for them."""
        stateful = {step.id for step in new.steps if not isinstance(step.operator, Intake)}
        if {*new.spec.steps} & {*self.spec.steps} or stateful & {*self.spec.gone}:
            return None
        if not all(map(self.reads, new.spec.sources)):
            return None
        needed = {step.id for step in self.steps} - {*self.controls.read(self.controls.newest()).resting}
        there = self._own() | self.outside(needed)
        if not {stream for read in new.spec.topics.values() for stream in read.streams} <= there:
            return None
        spec = msgspec.structs.replace(
            self.spec,
            steps=[*self.spec.steps, *new.spec.steps],
            nodes=[*self.spec.nodes, *new.spec.nodes],
            sources={
                reading: {
                    member: [*steps, *new.spec.sources.get(reading, {}).get(member, ())]
                    for member, steps in members.items()
                }
                for reading, members in self.spec.sources.items()
            },
            origins=self.spec.origins | new.spec.origins,
            since=self.spec.since | dict.fromkeys(new.spec.steps, self.controls.newest() + 1),
            layout=uuid.uuid4().hex,
        )
        grown = replace(self, spec=spec, steps=[*self.steps, *new.steps])
        try:
            grown.lay_out(self.spec.fuse, self.spec.partitions)
        except NoStageError:
            return None
        return grown if _same_shape(self.plan(), grown.plan()) else None

    def without(self, grown: Fragment) -> Fragment:
        """Itself again, with the query of one that took more in, whose steps do not come after all."""
        self.query, self.layouts, self.ticks = grown.query, grown.layouts, grown.ticks
        with suppress(ConnectorError):  # then what is kept has steps that nobody knows of, and a restart forgets them
            self.forget({*grown.spec.steps} - {*self.spec.steps})
        return self

    def lay_out(self, fuse: Literal["exact", "coarse"], partitions: int) -> None:
        """Plan its stages; whatever comes to be in it may be forwarded some day."""
        self.spec.fuse, self.spec.partitions = fuse, partitions
        self.spec.settled = self.spec.settled or len(self.spec.steps)
        settled = sum(step.id in self.spec.steps[: self.spec.settled] for step in self.steps)
        intakes = [step.id for step in self.steps if isinstance(step.operator, Intake)]
        beats = [source + BEATS for source in intakes]
        streams = [*intakes, *beats, *(stream for reads in self.spec.topics.values() for stream in reads.streams)]
        plan = planned(self.name, self.steps, streams, {*beats, *(step.id for step in self.steps)}, fuse, settled)
        self.spec.stages = [
            StageSpec(
                list(stage.partition),
                stage.parallelism,
                [(step.id, list(step.inputs)) for step in stage.steps],
                {stream: sorted(steps) for stream, steps in stage.entries.items()},
                sorted(stage.outputs),
            )
            for stage in plan.stages
        ]
        self.spec.parts = plan.parts

    def plan(self) -> Plan:
        """The stages as they were laid out, of the steps that there still are."""
        known = {step.id: step for step in self.steps}
        stages = []
        for index, spec in enumerate(self.spec.stages):
            stage = Stage(index, tuple(spec.partition), parallelism=spec.parallelism, outputs={*spec.outputs})
            stage.entries = {stream: {*steps} for stream, steps in spec.entries.items()}
            for id, inputs in spec.steps:
                whole = known.get(id) or known.get(id.rpartition("#")[0])
                if whole is not None:
                    label = whole.label if id == whole.id else whole.name
                    stage.steps.append(replace(whole, id=id, inputs=tuple(inputs), label=label))
            stages.append(stage)
        ends = {self.spec.parts.get(stream, stream) for stage in stages for stream in stage.outputs}
        return Plan(self.name, stages, {*ends, ERRORS_STREAM}, self.spec.parts)

    def labels(self, plan: Plan) -> dict[int, list[int]]:
        """The labels of the buckets in which its state lies, by stage."""
        return labels_of(plan, self.spec.partitions)

    def parts(self, options: Options) -> tuple[FragmentReader, list[FragmentStage], FragmentSink]:
        """What its query is made of: what reads, the stages behind each shuffle, and what writes."""
        plan = self.plan()
        self.layouts = Layouts.begun(self.folder / "layouts", self.layout())
        labels = self.labels(plan)
        self.ticks = Ticks(options.every_s, self.folder / "leaving")
        self.ticks.leaving.unlink(missing_ok=True)
        sink = TopicSink(self.topic)
        sink.recover(0)  # what was never committed goes
        forget_raised(self.folder)  # and comes again, if need be
        outlet = FragmentOutlet(sink)
        run = uuid.uuid4().hex
        reader = FragmentReader(
            self.layouts,
            {name: self.sources[name] for name in self.spec.sources},
            {
                name: TopicFeed(self.folder.parent / name / "topic", self.name, r.streams, r.batch, r.before)
                for name, r in self.spec.topics.items()
            },
            self.controls,
            outlet,
            labels,
            ARRIVAL,
            options.max_records,
            self.spec.partitions,
            options.queue_bytes,
            self.folder,
            self.ticks,
        )
        processors = [
            FragmentStage(
                plan,
                number,
                labels,
                run,
                ARRIVAL,
                outlet.buffering,
                topic=outlet,
                layouts=self.layouts,
                folder=self.folder,
            )
            for number in range(1, len(plan.shuffles) + 1)
        ]
        return reader, processors, FragmentSink(sink, self.name if self.spec.sources else None)

    def layout(self) -> Layout:
        """Its steps as workers need them."""
        since = self.spec.since | {p: self.spec.since[w] for p, w in self.spec.parts.items() if w in self.spec.since}
        origins = {step: frozenset(above) for step, above in self.spec.origins.items()}
        return Layout(self.plan(), origins, since, self.spec.sources, frozenset(self._with_parts(self.silent)))

    def hand_out(self) -> None:
        """Let the query that runs have the newest layout; it uses it from the version of the control that names it."""
        if self.layouts is not None:
            self.layouts.add(self.spec.layout, self.layout())

    @property
    def active(self) -> bool:
        return self.query is not None and self.query.active

    @property
    def ended(self) -> bool:
        """Whether all has ended that steps read which do not rest, and been written."""
        resting = self.controls.read(self.controls.newest()).resting
        above = (self.spec.origins[step] for step in self.spec.steps if step not in resting)
        return set().union(*above) <= set(self.topic.head().place.ended)

    def stop(self) -> None:
        """Stop its query; it can be started again."""
        if self.query is not None:
            if self.ticks is not None:
                with suppress(OSError):  # a full disk keeps nobody from stopping
                    self.ticks.leave()
            self.query.stop()
        self.query = None

    def remove(self) -> None:
        """Stop it for good."""
        self.stop()
        clear(self.folder)


def clear(folder: Path) -> None:
    """Remove a fragment; its topic stays until its readers have left."""
    (folder / SPEC).unlink(missing_ok=True)  # first: what is half gone is no fragment
    topic = Topic(folder / "topic")
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and path != topic.folder:
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_file():
            path.unlink(missing_ok=True)
    topic.retire()


def _same_shape(before: Plan, after: Plan) -> bool:
    """Whether all that was in a plan is where it was, behind the same shuffles."""
    if [[s.index for s in row] for row in before.shuffles] != [[s.index for s in row] for row in after.shuffles]:
        return False
    return all(
        (a.partition, a.parallelism) == (b.partition, b.parallelism)
        and {s.id for s in a.steps} <= {s.id for s in b.steps}
        for a, b in zip(before.stages, after.stages, strict=True)
    )
