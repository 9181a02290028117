"""A fragment: some of the shared steps as one streaming query, which writes one topic."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.source import Source
from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, Step
from riot_ops.graph.plan import NoStageError, Plan, Stage, plan_steps
from riot_ops.ingest.step import IngestStep
from riot_ops.reuse.spark.control import Control, ControlVersions
from riot_ops.reuse.spark.failures import StepFailure, clear_errors, disabled, read_errors, write_failures
from riot_ops.reuse.spark.files import read_json, write_json
from riot_ops.reuse.spark.layout import Layout, LayoutStore
from riot_ops.reuse.spark.source import START, FragmentReader, StartPoint, TopicFeed
from riot_ops.reuse.spark.spec import FragmentSpec, StageSpec, input_streams, required_steps
from riot_ops.reuse.spark.stage import FragmentStage
from riot_ops.reuse.spark.topic_writer import FragmentSink, TopicOutput
from riot_ops.reuse.spark.trigger import Trigger
from riot_ops.reuse.topic import Head, Topic, UpstreamProgress
from riot_ops.reuse.topic_sink import TopicSink
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.spark.dataframe_transform import assign_labels

__all__ = [
    "SPEC",
    "Fragment",
    "QueryOptions",
    "RunningQuery",
    "remove_folder",
    "remove_other_readers",
    "retained_batches",
    "with_upstream",
]


SPEC = "fragment.json"


@dataclass(frozen=True)
class QueryOptions:
    """Options of queries; a query that resumes after a restart keeps its number of partitions."""

    partitions: int
    max_records: int | None
    max_queue_bytes: int
    every_s: float = 0.0


class RunningQuery(Protocol):
    """A query that was started."""

    @property
    def active(self) -> bool:
        """Whether it runs."""

    def stop(self) -> None:
        """Stop it; another query may resume from its checkpoint."""

    def failure(self) -> str | None:
        """Return why it does not run any more, if known."""


@dataclass
class Fragment:
    """A fragment and its query.

    Attributes
    ----------
    folder : path
        Holds all of it: definition, control, checkpoint and topic.
    spec : FragmentSpec
    steps : list of Step
    sources : mapping of str to Source
    failures : dict of str to StepFailure
        Its steps that have failed, and the streams that it reads and that have ended because of a failure.
    tries : int
        How often in a row its query was restarted without progress.
    failed_at : int
        The newest batch of its topic at the last failure of its query.
    failure : str, optional
        Why its query has failed for good.
    query : RunningQuery, optional
    layouts : LayoutStore, optional
    trigger : Trigger, optional
        What its query was started with.
    """

    folder: Path
    spec: FragmentSpec
    steps: list[Step]
    sources: Mapping[str, Source]
    failures: dict[str, StepFailure] = field(default_factory=dict)
    tries: int = 0
    failed_at: int = -1
    failure: str | None = None
    query: RunningQuery | None = field(default=None, repr=False)
    layouts: LayoutStore | None = field(default=None, repr=False)
    trigger: Trigger | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def topic(self) -> Topic:
        return Topic(self.folder / "topic")

    @property
    def controls(self) -> ControlVersions:
        return ControlVersions(self.folder / "control")

    def set_start(self, start: StartPoint, progress: UpstreamProgress, taken: Mapping[str, int] | None = None) -> None:
        """Set the start point and the progress there; a running query may be waiting for it."""
        batch = self.topic.head().batch
        roots = progress.roots | ({self.name: batch + 1} if self.spec.sources else {})
        start.over = progress.ended
        self.topic.write_head(Head(batch, 0, UpstreamProgress(roots, progress.next, progress.ended), {**(taken or {})}))
        write_json(self.folder / START, start)

    def start_at(self, batches: Mapping[str, tuple[int, UpstreamProgress]]) -> None:
        """Start at these batches of the topics that it reads, with the progress before each."""
        progress = UpstreamProgress()
        for name, read in self.spec.topics.items():
            read.batch, read.before = batches[name]
            progress.roots |= read.before.roots
            progress.next |= read.before.next
            progress.ended = sorted({*progress.ended, *read.before.ended})
        self.set_start(StartPoint(), progress)

    def save(self) -> None:
        """Write the definition; a restart then finds the fragment."""
        write_json(self.folder / SPEC, self.spec)

    def remove_steps(self, steps: Iterable[str]) -> None:
        """Remove steps that do not exist any more, or that never ran."""
        removed = {*steps}
        spec = self.spec
        spec.settled = sum(step not in removed for step in spec.steps[: spec.settled])
        spec.steps = [step for step in spec.steps if step not in removed]
        spec.nodes = [step for step in spec.nodes if step not in removed]
        spec.removed_steps = sorted({*spec.removed_steps, *removed})
        left = {
            source: {member: [step for step in steps if step not in removed] for member, steps in members.items()}
            for source, members in spec.sources.items()
        }
        spec.sources = {source: members for source, members in left.items() if any(members.values())}
        self.save()

    @staticmethod
    def load_spec(folder: Path) -> FragmentSpec:
        """Read the definition of the fragment in a folder."""
        return read_json(folder / SPEC, FragmentSpec)

    def hold(self) -> int:
        """Make the query stop reading and export what another resumes from; returns the version of the control."""
        held = msgspec.structs.replace(self.controls.read(self.controls.newest()), hold=True)
        version = self.controls.write(held)
        self.controls.expedite(version)
        return version

    def forward(self, wanted: set[str]) -> tuple[int, set[str]]:
        """Make the query forward exactly these streams.

        Returns the version of the control, and the streams of other fragments that it needs for them.
        """
        needed = required_steps(self.steps, wanted - self.disabled_streams.keys())
        idle = self._with_parts({step.id for step in self.steps} - needed)
        control = Control(tuple(sorted(wanted)), tuple(sorted(idle)), layout=self.spec.layout)
        return self.controls.write(control), self.external_inputs(needed)

    def stages_needed(self, wanted: set[str]) -> list[list[bool]]:
        """Return, by shuffle, for each stage after it whether one of these streams needs it."""
        needed = self._with_parts(required_steps(self.steps, wanted))
        return [[any(step.id in needed for step in stage.steps) for stage in row] for row in self.plan().shuffles]

    def external_inputs(self, steps: set[str]) -> set[str]:
        """Return the streams of other fragments that some of its steps read."""
        read = set[str]().union(*(input_streams(step) for step in self.steps if step.id in steps))
        return read - self._own_streams()

    def _with_parts(self, steps: Iterable[str]) -> set[str]:
        """Return steps and the parts in which they run."""
        whole = {*steps}
        return whole | {part for part, step in self.spec.parts.items() if step in whole}

    @property
    def disabled_streams(self) -> dict[str, StepFailure]:
        """Streams that have ended because of a failure, with their causes; those of downstream steps included."""
        return disabled(self.steps, self.failures)

    def disable(self, failures: Mapping[str, StepFailure]) -> None:
        """Disable steps or streams for good, also after a restart."""
        write_failures(self.folder, {**self.failures, **failures})
        self.failures.update(failures)

    def disable_failed(self, unread: bool = False) -> dict[str, StepFailure]:
        """Disable the steps that have raised since the last completed micro-batch; returns them.

        With ``unread``, disable those whose sources could not be read, provided that a wanted stream is left.
        """
        head = self.topic.head()
        errors = read_errors(self.folder, head.batch, unread)
        if unread:
            errors = {step: why for source, why in errors.items() for step in self._source_steps(source)}
        found = {
            self.spec.parts.get(step, step): StepFailure(why, head.batch + 1, head.place.roots)
            for step, why in errors.items()
        }
        fresh = {step: one for step, one in found.items() if step not in self.failures}
        wanted = {*self.controls.read(self.controls.newest()).forward}
        if unread and not wanted - disabled(self.steps, {**self.failures, **fresh}).keys():
            return {}
        if fresh:
            self.disable(fresh)
        return fresh

    def reads_source(self, source: str) -> bool:
        """Return whether it reads a shared source that can be read."""
        return bool(self._source_steps(source) - self.disabled_streams.keys())

    def _source_steps(self, source: str) -> set[str]:
        """Return the steps that take the records of a shared source."""
        return set().union(*self.spec.sources.get(source, {}).values())

    def _own_streams(self) -> set[str]:
        """Return the streams that its steps emit."""
        heartbeats = {s.id + HEARTBEAT_SUFFIX for s in self.steps if isinstance(s.operator, IngestStep)}
        return {s.id for s in self.steps} | heartbeats

    def extended_by(self, new: Fragment) -> Fragment | None:
        """Return a copy that also runs the steps of ``new``; None if it lacks an input or a stage for them."""
        stateful = {step.id for step in new.steps if not isinstance(step.operator, IngestStep)}
        if {*new.spec.steps} & {*self.spec.steps} or stateful & {*self.spec.removed_steps}:
            return None
        if not all(map(self.reads_source, new.spec.sources)):
            return None
        needed = {step.id for step in self.steps} - {*self.controls.read(self.controls.newest()).resting}
        available = self._own_streams() | self.external_inputs(needed)
        if not {stream for read in new.spec.topics.values() for stream in read.streams} <= available:
            return None
        spec = msgspec.structs.replace(
            self.spec,
            steps=[*self.spec.steps, *new.spec.steps],
            nodes=[*self.spec.nodes, *new.spec.nodes],
            sources={
                source: {
                    member: [*steps, *new.spec.sources.get(source, {}).get(member, ())]
                    for member, steps in members.items()
                }
                for source, members in self.spec.sources.items()
            },
            origins=self.spec.origins | new.spec.origins,
            since=self.spec.since | dict.fromkeys(new.spec.steps, self.controls.newest() + 1),
            layout=uuid.uuid4().hex,
        )
        extended = replace(self, spec=spec, steps=[*self.steps, *new.steps])
        try:
            extended.plan_stages(self.spec.fuse, self.spec.partitions)
        except NoStageError:
            return None
        return extended if _preserves_layout(self.plan(), extended.plan()) else None

    def undo_extension(self, extended: Fragment) -> Fragment:
        """Undo :meth:`extended_by`: keep the running query, drop the steps it had gained."""
        self.query, self.layouts, self.trigger = extended.query, extended.layouts, extended.trigger
        with suppress(ConnectorError):  # then the saved definition has unknown steps, which a restart removes
            self.remove_steps({*extended.spec.steps} - {*self.spec.steps})
        return self

    def plan_stages(self, fuse: Literal["exact", "coarse"], partitions: int) -> None:
        """Plan its stages so that every stream in it can be forwarded later."""
        self.spec.fuse, self.spec.partitions = fuse, partitions
        self.spec.settled = self.spec.settled or len(self.spec.steps)
        settled = sum(step.id in self.spec.steps[: self.spec.settled] for step in self.steps)
        sources = [step.id for step in self.steps if isinstance(step.operator, IngestStep)]
        heartbeats = [source + HEARTBEAT_SUFFIX for source in sources]
        streams = [*sources, *heartbeats, *(stream for read in self.spec.topics.values() for stream in read.streams)]
        outputs = {*heartbeats, *(step.id for step in self.steps)}
        plan = plan_steps(self.name, self.steps, streams, outputs, fuse, settled)
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
        """Return the plan_steps stages with the steps that still exist."""
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

    def bucket_labels(self, plan: Plan) -> dict[int, list[int]]:
        """Return, by stage, the labels of the buckets of its state."""
        return assign_labels(plan, self.spec.partitions)

    def query_parts(self, options: QueryOptions) -> tuple[FragmentReader, list[FragmentStage], FragmentSink]:
        """Make the parts of its query: the reader, the stages after each shuffle, and the sink."""
        plan = self.plan()
        self.layouts = LayoutStore.create(self.folder / "layouts", self.layout())
        labels = self.bucket_labels(plan)
        self.trigger = Trigger(options.every_s, self.folder / "stopping")
        self.trigger.stop_file.unlink(missing_ok=True)
        sink = TopicSink(self.topic)
        sink.recover(0)  # removes files that were never committed
        clear_errors(self.folder)  # a step that still fails records its error again
        output = TopicOutput(sink)
        run = uuid.uuid4().hex
        reader = FragmentReader(
            self.layouts,
            {name: self.sources[name] for name in self.spec.sources},
            {
                name: TopicFeed(self.folder.parent / name / "topic", self.name, r.streams, r.batch, r.before)
                for name, r in self.spec.topics.items()
            },
            self.controls,
            output,
            labels,
            ARRIVAL,
            options.max_records,
            self.spec.partitions,
            options.max_queue_bytes,
            self.folder,
            self.trigger,
        )
        processors = [
            FragmentStage(
                plan,
                number,
                labels,
                run,
                ARRIVAL,
                output.buffering,
                output=output,
                layouts=self.layouts,
                folder=self.folder,
            )
            for number in range(1, len(plan.shuffles) + 1)
        ]
        return reader, processors, FragmentSink(sink, self.name if self.spec.sources else None)

    def layout(self) -> Layout:
        """Return its steps as workers need them."""
        since = self.spec.since | {p: self.spec.since[w] for p, w in self.spec.parts.items() if w in self.spec.since}
        origins = {step: frozenset(above) for step, above in self.spec.origins.items()}
        return Layout(
            self.plan(), origins, since, self.spec.sources, frozenset(self._with_parts(self.disabled_streams))
        )

    def publish_layout(self) -> None:
        """Write the newest layout for the running query, which uses it once a version of the control names it."""
        if self.layouts is not None:
            self.layouts.add(self.spec.layout, self.layout())

    @property
    def active(self) -> bool:
        return self.query is not None and self.query.active

    @property
    def ended(self) -> bool:
        """Whether all sources of its active steps have ended, and all output is written."""
        idle = self.controls.read(self.controls.newest()).resting
        above = (self.spec.origins[step] for step in self.spec.steps if step not in idle)
        return set().union(*above) <= set(self.topic.head().place.ended)

    def stop(self) -> None:
        """Stop its query; it can be started again."""
        if self.query is not None:
            if self.trigger is not None:
                with suppress(OSError):  # a full disk must not prevent stopping
                    self.trigger.stop()
            self.query.stop()
        self.query = None

    def remove(self) -> None:
        """Stop its query and remove its folder."""
        self.stop()
        remove_folder(self.folder)


def remove_folder(folder: Path) -> None:
    """Remove a fragment's folder; its topic stays until its readers have left."""
    (folder / SPEC).unlink(missing_ok=True)  # first: a folder without a definition is no fragment
    topic = Topic(folder / "topic")
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and path != topic.folder:
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_file():
            path.unlink(missing_ok=True)
    topic.retire()


def _preserves_layout(before: Plan, after: Plan) -> bool:
    """Return whether all stages and steps of a plan are unchanged in another, after the same shuffles."""
    if [[s.index for s in row] for row in before.shuffles] != [[s.index for s in row] for row in after.shuffles]:
        return False
    return all(
        (a.partition, a.parallelism) == (b.partition, b.parallelism)
        and {s.id for s in a.steps} <= {s.id for s in b.steps}
        for a, b in zip(before.stages, after.stages, strict=True)
    )


def with_upstream(names: Iterable[str], fragments: Mapping[str, Fragment]) -> set[str]:
    """Return these fragments and all that they read, directly or through others."""
    found = {*names}
    for name, fragment in reversed([*fragments.items()]):  # each reads earlier ones
        if name in found:
            found.update(fragment.spec.topics)
    return found


@contextmanager
def retained_batches(names: Iterable[str], fragments: Mapping[str, Fragment]) -> Iterator[dict[str, int]]:
    """Keep new batches of fragments from being trimmed in this context; yields the first of each fragment."""
    reader = f"new-{uuid.uuid4().hex}"
    since = {name: _next_batch(fragments[name].topic) for name in names}
    try:
        for name, batch in since.items():
            fragments[name].topic.join(reader, batch)
        yield since
    finally:
        for name in since:
            with suppress(RiotError, OSError):  # still leave the other topics
                fragments[name].topic.leave(reader)


def remove_other_readers(readers: Set[str], fragments: Mapping[str, Fragment]) -> set[str]:
    """Remove all readers but these and the fragments that read topics; returns the readers kept."""
    kept = {*readers, *(name for name, one in fragments.items() if one.spec.topics)}
    for fragment in fragments.values():
        for reader in fragment.topic.readers().keys() - kept:
            fragment.topic.leave(reader)
    return kept


def _next_batch(topic: Topic) -> int:
    """Return the first batch that no reader can have read; a reader may read a batch before the head counts it."""
    return max([topic.head().batch + 1, *(n + 1 for n in topic.batch_numbers()), *topic.readers().values()])
