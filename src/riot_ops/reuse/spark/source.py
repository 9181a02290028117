"""The input of a fragment: sources, and topics of other fragments, as one Spark source.

With a single source, a micro-batch has one version of the control, and related topics are cut at the same
micro-batches. Its offset is ``{"at": position by input, "ended": the sources that have ended, "control": version}``. A
micro-batch in which a source ends has no other records: output of the end follows all other records.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from riot_ops.core.source import Source, Split
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.reuse.spark.alignment import aligned_ends
from riot_ops.reuse.spark.control import Control, ControlVersions
from riot_ops.reuse.spark.failures import record_error
from riot_ops.reuse.spark.files import read_json, write_json
from riot_ops.reuse.spark.layout import Layout, LayoutStore
from riot_ops.reuse.spark.topic_writer import TopicOutput
from riot_ops.reuse.spark.trigger import Trigger
from riot_ops.reuse.topic import Topic, UpstreamProgress
from riot_ops.reuse.topic_source import TopicSource
from riot_ops.spark.blocks import Block, Packer, blocks_to_batch
from riot_ops.spark.source import Part, Reader
from riot_ops.spark.stage import SOURCE_END, run_stage_zero

__all__ = [
    "EXPORT",
    "NON_BLOCKING",
    "OFFSET",
    "START",
    "BatchInfo",
    "FragmentReader",
    "StartPoint",
    "TopicFeed",
    "blocks_writer",
]

Inputs = dict[str, list[pa.RecordBatch]]
Offset = dict[str, Any]

#: Prefix of the names of readers that the writer of a topic does not wait for.
NON_BLOCKING = "apart-"
#: The folder and the file in which a fragment on hold exports the positions of its sources.
EXPORT, OFFSET = "export", "offset.json"
#: The file with the fragment's start point; until it exists, the query runs but reads nothing.
START = "begin.json"
#: How long and how often the query polls for the start point.
WAIT_SECONDS, POLL_SECONDS = 2.0, 0.02
NOT_STARTED: Offset = {"at": {}, "ended": [], "control": -2}


def blocks_writer(reader: str) -> bool:
    """Return whether a topic's writer waits for the reader of this name."""
    return not reader.startswith(NON_BLOCKING)


class StartPoint(msgspec.Struct):
    """Where a fragment starts.

    Attributes
    ----------
    at : dict of str to offset
        By shared source, its position.
    ended : list of str
        The shared sources that have ended.
    over : list of str
        The source steps upstream that have ended.
    """

    at: dict[str, Any] = {}
    ended: list[str] = []
    over: list[str] = []


class BatchInfo(msgspec.Struct):
    """What all parts of a micro-batch know of it: the control, the sources that end with it, and its progress."""

    version: int
    control: Control
    ended: list[str]
    place: UpstreamProgress


@dataclass
class TopicFeed:
    """Streams of a topic that are read from a batch on; ``before`` is the topic's progress before that batch."""

    folder: Path
    reader: str
    streams: list[str]
    batch: int
    before: UpstreamProgress = field(default_factory=UpstreamProgress)

    @property
    def source(self) -> TopicSource:
        return TopicSource(Topic(self.folder), self.reader, dict.fromkeys(self.streams))

    def initial(self) -> Offset:
        """Return the first offset; it includes the progress, as batches are trimmed once they are read."""
        return {"batch": self.batch, "place": msgspec.to_builtins(self.before)}


@dataclass
class FragmentReader(Reader):
    """Spark's reader of a fragment's input; see the module's text."""

    layouts: LayoutStore
    sources: dict[str, Source]
    topics: dict[str, TopicFeed]
    controls: ControlVersions
    output: TopicOutput
    labels: dict[int, list[int]]
    order: tuple[str, ...]
    max_source_records: int | None
    splits: int
    max_unread: int
    folder: Path
    trigger: Trigger
    #: The newest batch seen of the only topic that it reads.
    _seen: int = -1

    def max_records(self) -> int | None:
        return None  # for all sources; latest_offset() limits each

    def initial_offset(self) -> Offset:
        return self._start_offset() or dict(NOT_STARTED)

    def _start_offset(self) -> Offset | None:
        """Return the first offset, or None until the start point is written."""
        if not (self.folder / START).exists():
            return None
        start = read_json(self.folder / START, StartPoint)
        at: dict[str, Any] = dict.fromkeys(self.sources)
        for name, source in self._readable_sources().items():
            with self._recording_errors(name):
                at[name] = source.initial()
        at |= start.at | {name: feed.initial() for name, feed in self.topics.items()}
        return {"at": at, "ended": start.ended, "control": -1}

    def _readable_sources(self) -> dict[str, Source]:
        """Return the sources without those that were disabled when the query was started."""
        first = self.layouts.first
        return {name: source for name, source in self.sources.items() if not first.source_steps(name) <= first.disabled}

    @contextmanager
    def _recording_errors(self, name: str) -> Iterator[None]:
        """Record an error of a source: if it persists, the query restarts without the source."""
        try:
            yield
        except Exception as error:
            if name in self.sources:
                record_error(self.folder, name, error, self.output.sink.topic.head().batch + 1)
            raise

    def _await_start(self) -> Offset | None:
        """Wait for the start point, so that replaced fragments are idle only briefly and not until the next trigger."""
        until = time.monotonic() + (WAIT_SECONDS if self.output.sink.topic.head().batch >= 0 else 0.0)
        while (first := self._start_offset()) is None and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return first

    def latest_offset(self, start: Offset, limit: Any) -> Offset:
        if not start["at"] and not (start := self._await_start() or {}):
            return dict(NOT_STARTED)
        if not self.trigger.wait(lambda: self._has_news(start)):
            return start
        version = self.controls.newest()
        found = {**start, "control": version}
        control = self.controls.read(version)
        if control.hold or self.output.sink.topic.unread_bytes(blocks_writer) > self.max_unread:
            return found
        if start["control"] != version and self._ended_steps(found) != self._ended_steps(start):
            return found  # the source of a step that has just joined ends with this micro-batch
        layout = self.layouts.get(control)
        idle = layout.idle_steps(version, control)
        moved: dict[str, Any] = {}
        ended: list[str] = []
        for name, source in self.sources.items():
            if name in start["ended"] or layout.source_steps(name) <= idle:
                continue
            with self._recording_errors(name):
                end = source.latest(start["at"][name], self.max_source_records)
                if end != start["at"][name]:
                    moved[name] = end
                elif source.finished(end):
                    ended.append(name)
        if ended:
            return {**found, "ended": sorted([*start["ended"], *ended])}
        topics, ending = self._topic_ends(start["at"])
        moved = topics if ending else moved | topics
        return {**found, "at": start["at"] | moved}

    def _has_news(self, start: Offset) -> bool:
        """Return whether a control version is expedited, or the only topic that it reads has a new batch."""
        if self.controls.has_expedited(start["control"]):
            return True
        if self.sources or len(self.topics) != 1:
            return False
        [feed] = self.topics.values()
        seen, self._seen = self._seen, Topic(feed.folder).head().batch
        return self._seen != seen

    def _ended_steps(self, offset: Offset) -> set[str]:
        """Return the steps, of those running at this offset, whose sources have ended."""
        version = offset["control"]
        layout = self.layouts.first if version < 0 else self.layouts.get(self.controls.read(version))
        steps = set[str]().union(*(layout.source_steps(name) for name in offset["ended"]))
        return {step for step in steps if layout.since.get(step, version) <= version}

    def _topic_ends(self, at: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """Return the offsets up to which topics are read next, and whether a source ends there."""
        before: dict[str, UpstreamProgress] = {}
        after: dict[str, list[UpstreamProgress]] = {}
        for name, feed in self.topics.items():
            topic = Topic(feed.folder)
            before[name] = _progress(at[name])
            after[name] = [marker.after for _, marker in topic.pending(at[name]["batch"])]
        taken = {name: n for name, n in aligned_ends(before, after).items() if n}
        ending = any(set(after[name][n - 1].ended) != set(before[name].ended) for name, n in taken.items())
        moved = {
            name: {"batch": at[name]["batch"] + n, "place": msgspec.to_builtins(after[name][n - 1])}
            for name, n in taken.items()
        }
        return moved, ending

    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        if start == end or not end["at"]:
            return []
        start = start if start["at"] else self._start_offset() or {}
        place, ended = UpstreamProgress(), self._ended_steps(end)
        ending = ended - self._ended_steps(start)
        splits: list[list[tuple[str, Split]]] = []
        for name, source in self._inputs_by_name().items():
            begin, until = start["at"][name], end["at"][name]
            if name in self.topics:
                after = _progress(until)
                place.roots |= after.roots
                place.next |= after.next
                place.ended = sorted({*place.ended, *after.ended})
                ending |= set(after.ended) - set(_progress(begin).ended)
            if begin != until:
                with self._recording_errors(name):
                    splits.append([(name, split) for split in source.splits(begin, until, self.splits)])
        place.ended = sorted({*place.ended, *ended})
        control = self.controls.read(end["control"])
        if control.hold:
            exported = StartPoint({name: end["at"][name] for name in self.sources}, end["ended"])
            write_json(self.folder / EXPORT / OFFSET, exported)
        tasks = [[one for one in row if one is not None] for row in itertools.zip_longest(*splits)] or [[]]
        info = msgspec.msgpack.encode(BatchInfo(end["control"], control, sorted(ending), place))
        now = time.time() * 1e6
        return [
            Part({"info": info, "reads": reads, "part": i}, reads is tasks[-1], now) for i, reads in enumerate(tasks)
        ]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        info = msgspec.msgpack.decode(partition.split["info"], type=BatchInfo)
        writer = self.output.forwarding(info.control.forward).writer(0, None)
        writer.note = {"control": info.version, "place": info.place}
        layout = self.layouts.get(info.control)
        packer = Packer(layout.plan, 0, self.labels, self.output.buffering, writer=writer)
        packer.flushing = bool(info.ended)
        packer.stamp(partition.planned_us, partition.planned_us)
        inputs = self._step_inputs(partition.split["reads"], packer, info.place.next, layout)
        idle, failing = layout.idle_steps(info.version, info.control), functools.partial(record_error, self.folder)
        yield from run_stage_zero(layout.plan, inputs, self.order, packer, idle, failing, partition.split["part"])
        if partition.last and (blocks := self._info_blocks(partition.split["info"], partition.planned_us)):
            yield blocks_to_batch(blocks)

    def _step_inputs(
        self, reads: list[tuple[str, Split]], packer: Packer, seen: dict[str, int], layout: Layout
    ) -> Iterator[Mapping[str, list[pa.RecordBatch]]]:
        """Yield the records of a part by source step and stream, and advance ``seen`` past their numbers."""
        for name, split in reads:
            if "due" in split:
                packer.stamp(*split["due"])
            members = layout.sources.get(name)
            if members is None:
                yield from self.topics[name].source.read_inputs(name, split)
                continue
            read = self.sources[name].read_inputs(next(iter(members)), split)  # a source of several members names each
            while True:
                with self._recording_errors(name):
                    inputs = next(read, None)
                if inputs is None:
                    break
                found: Inputs = {}
                for member, batches in inputs.items():
                    next_seq = max((int(np.max(int_column(b["seq"]))) + 1 for b in batches if b.num_rows), default=0)
                    for step in members[member]:
                        seen[step] = max(next_seq, seen.get(step, 0))
                        found[step] = batches
                yield found

    def _info_blocks(self, info: bytes, planned_us: float) -> list[Block]:
        """Return a block for every bucket, with the micro-batch's :class:`BatchInfo`."""
        return [
            Block(i, label, SOURCE_END, 0, planned_us, planned_us, info)
            for i, labels in self.labels.items()
            for label in labels
        ]

    def _inputs_by_name(self) -> dict[str, Source]:
        return {**self._readable_sources(), **{name: feed.source for name, feed in self.topics.items()}}

    def commit(self, end: Offset) -> None:
        if end["at"]:
            for name, source in self._inputs_by_name().items():
                source.commit(end["at"][name])

    def stop(self) -> None:
        for source in self.sources.values():
            source.close()


def _progress(offset: Offset) -> UpstreamProgress:
    return msgspec.convert(offset["place"], UpstreamProgress)
