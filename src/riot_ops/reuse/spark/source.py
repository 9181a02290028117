"""What a fragment reads: sources, and topics of other fragments, as one source of Spark's.

As it is one, a micro-batch has one version of the control, and topics that belong together are cut together. Its offset
is ``{"at": by feed where it stands, "ended": the sources that have ended, "control": the version}``. A micro-batch in
which a source ends has no other records: what steps give then comes after all else.
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
from riot_ops.reuse.spark.broken import note_raised
from riot_ops.reuse.spark.control import Control, Controls, read_json, write_json
from riot_ops.reuse.spark.cuts import ends
from riot_ops.reuse.spark.layout import Layout, Layouts
from riot_ops.reuse.spark.outlet import FragmentOutlet
from riot_ops.reuse.spark.ticks import Ticks
from riot_ops.reuse.topic import Place, Topic
from riot_ops.reuse.topic_source import TopicSource
from riot_ops.spark.blocks import Block, Packer, blocks_to_batch
from riot_ops.spark.source import Part, Reader
from riot_ops.spark.stage import FLUSH, stage_zero

__all__ = ["BEGIN", "EXPORT", "OFFSET", "Begin", "FragmentReader", "Told", "TopicFeed", "held_by"]

Inputs = dict[str, list[pa.RecordBatch]]
Offset = dict[str, Any]

#: Begins the names of readers that the writer of a topic does not wait for.
APART = "apart-"
#: The file in which a fragment that is held leaves where its sources stand.
EXPORT, OFFSET = "export", "offset.json"
#: The file that says where a fragment begins; before it is there the query runs, and reads nothing.
BEGIN = "begin.json"
#: For how long it looks for that at once, and how often.
WAIT_SECONDS, POLL_SECONDS = 2.0, 0.02
WAITING: Offset = {"at": {}, "ended": [], "control": -2}


def held_by(reader: str) -> bool:
    """Whether a topic's writer waits for a reader of this name."""
    return not reader.startswith(APART)


class Begin(msgspec.Struct):
    """Where a fragment begins, by reading, and which of these had ended; ``over`` are the sources that had."""

    at: dict[str, Any] = {}
    ended: list[str] = []
    over: list[str] = []


class Told(msgspec.Struct):
    """What all parts of a micro-batch are told: the control, what ends with it, and how far it goes."""

    version: int
    control: Control
    ended: list[str]
    place: Place


@dataclass
class TopicFeed:
    """Streams of a topic that are read from a batch on, before which it stood there."""

    folder: Path
    reader: str
    streams: list[str]
    batch: int
    before: Place = field(default_factory=Place)

    @property
    def source(self) -> TopicSource:
        return TopicSource(Topic(self.folder), self.reader, dict.fromkeys(self.streams))

    def initial(self) -> Offset:
        """Where it begins; the place is a part of the offset, as the batches before it go when they are read."""
        return {"batch": self.batch, "place": msgspec.to_builtins(self.before)}


@dataclass
class FragmentReader(Reader):
    """What Spark asks the source of a fragment; see the module's text."""

    layouts: Layouts
    sources: dict[str, Source]
    topics: dict[str, TopicFeed]
    controls: Controls
    outlet: FragmentOutlet
    labels: dict[int, list[int]]
    order: tuple[str, ...]
    max_records: int | None
    splits: int
    most_unread: int
    folder: Path
    ticks: Ticks
    #: The batch of the one topic at which it has looked.
    _seen: int = -1

    def most(self) -> int | None:
        return None  # of each source; see below

    def initial_offset(self) -> Offset:
        return self._first() or dict(WAITING)

    def _first(self) -> Offset | None:
        """Where it begins, as soon as that is known."""
        if not (self.folder / BEGIN).exists():
            return None
        begin = read_json(self.folder / BEGIN, Begin)
        at: dict[str, Any] = dict.fromkeys(self.sources)
        for name, source in self._sound().items():
            with self._asking(name):
                at[name] = source.initial()
        at |= begin.at | {name: feed.initial() for name, feed in self.topics.items()}
        return {"at": at, "ended": begin.ended, "control": -1}

    def _sound(self) -> dict[str, Source]:
        """The sources that can be read, as far as is known when the query is started."""
        first = self.layouts.first
        return {name: source for name, source in self.sources.items() if not first.readers(name) <= first.silent}

    @contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """It is noted what a source raises: if it stays so, the query goes on without it."""
        try:
            yield
        except Exception as error:
            if name in self.sources:
                note_raised(self.folder, name, error, self.outlet.sink.topic.head().batch + 1)
            raise

    def _awaited(self) -> Offset | None:
        """The same; where others rest until it begins, from when that is known, and not from the next trigger on."""
        until = time.monotonic() + (WAIT_SECONDS if self.outlet.sink.topic.head().batch >= 0 else 0.0)
        while (first := self._first()) is None and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return first

    def latest_offset(self, start: Offset, limit: Any) -> Offset:
        if not start["at"] and not (start := self._awaited() or {}):
            return dict(WAITING)
        if not self.ticks.come(lambda: self._news(start)):
            return start
        version = self.controls.newest()
        found = {**start, "control": version}
        control = self.controls.read(version)
        if control.hold or self.outlet.sink.topic.unread(held_by) > self.most_unread:
            return found
        if start["control"] != version and self._over(found) != self._over(start):
            return found  # for a step that has come now its source ends with this
        layout = self.layouts.of(control)
        resting = layout.resting(version, control)
        moved: dict[str, Any] = {}
        over: list[str] = []
        for name, source in self.sources.items():
            if name in start["ended"] or layout.readers(name) <= resting:
                continue
            with self._asking(name):
                end = source.latest(start["at"][name], self.max_records)
                if end != start["at"][name]:
                    moved[name] = end
                elif source.finished(end):
                    over.append(name)
        if over:
            return {**found, "ended": sorted([*start["ended"], *over])}
        topics, ending = self._topics(start["at"])
        moved = topics if ending else moved | topics
        return {**found, "at": start["at"] | moved}

    def _news(self, start: Offset) -> bool:
        """Whether somebody waits until it does what it is told, or what it reads alone has gone on."""
        if self.controls.hurries(start["control"]):
            return True
        if self.sources or len(self.topics) != 1:
            return False
        [feed] = self.topics.values()
        seen, self._seen = self._seen, Topic(feed.folder).head().batch
        return self._seen != seen

    def _over(self, offset: Offset) -> set[str]:
        """The steps, as they are there, whose sources have ended."""
        version = offset["control"]
        layout = self.layouts.first if version < 0 else self.layouts.of(self.controls.read(version))
        steps = set[str]().union(*(layout.readers(name) for name in offset["ended"]))
        return {step for step in steps if layout.since.get(step, version) <= version}

    def _topics(self, at: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """How far the topics are read, and whether sources end with that."""
        before: dict[str, Place] = {}
        after: dict[str, list[Place]] = {}
        for name, feed in self.topics.items():
            topic = Topic(feed.folder)
            before[name] = _place(at[name])
            after[name] = [marker.after for _, marker in topic.left(at[name]["batch"])]
        taken = {name: n for name, n in ends(before, after).items() if n}
        ending = any(set(after[name][n - 1].ended) != set(before[name].ended) for name, n in taken.items())
        moved = {
            name: {"batch": at[name]["batch"] + n, "place": msgspec.to_builtins(after[name][n - 1])}
            for name, n in taken.items()
        }
        return moved, ending

    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        if start == end or not end["at"]:
            return []
        start = start if start["at"] else self._first() or {}
        place, over = Place(), self._over(end)
        own = over - self._over(start)
        cut: list[list[tuple[str, Split]]] = []
        for name, source in self._feeds().items():
            begin, until = start["at"][name], end["at"][name]
            if name in self.topics:
                after = _place(until)
                place.roots |= after.roots
                place.next |= after.next
                place.ended = sorted({*place.ended, *after.ended})
                own |= set(after.ended) - set(_place(begin).ended)
            if begin != until:
                with self._asking(name):
                    cut.append([(name, split) for split in source.splits(begin, until, self.splits)])
        place.ended = sorted({*place.ended, *over})
        control = self.controls.read(end["control"])
        if control.hold:
            write_json(
                self.folder / EXPORT / OFFSET, Begin({name: end["at"][name] for name in self.sources}, end["ended"])
            )
        told = Told(end["control"], control, sorted(own), place)
        tasks = [[one for one in row if one is not None] for row in itertools.zip_longest(*cut)] or [[]]
        sent = msgspec.msgpack.encode(told)
        return [Part({"told": sent, "reads": reads}, reads is tasks[-1]) for reads in tasks]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        told = msgspec.msgpack.decode(partition.split["told"], type=Told)
        writer = self.outlet.told(told.control.forward).writer(0, None)
        writer.note = {"control": told.version, "place": told.place}
        layout = self.layouts.of(told.control)
        packer = Packer(layout.plan, 0, self.labels, self.outlet.buffering, writer=writer)
        packer.left_over = bool(told.ended)
        inputs = self._inputs(partition.split["reads"], packer, told.place.next, layout)
        resting, failing = layout.resting(told.version, told.control), functools.partial(note_raised, self.folder)
        yield from stage_zero(layout.plan, inputs, self.order, packer, resting, failing)
        if partition.last and (blocks := self._told(partition.split["told"])):
            yield blocks_to_batch(blocks)

    def _inputs(
        self, reads: list[tuple[str, Split]], packer: Packer, seen: dict[str, int], layout: Layout
    ) -> Iterator[Mapping[str, list[pa.RecordBatch]]]:
        """The records of a part, by the running steps and streams that they are of."""
        now = time.time() * 1e6
        packer.stamp(now, now)
        for name, split in reads:
            packer.stamp(*split.get("due", (now, now)))
            members = layout.sources.get(name)
            if members is None:
                yield from self.topics[name].source.inputs(name, split)
                continue
            read = self.sources[name].inputs(next(iter(members)), split)  # of several each has its name
            while True:
                with self._asking(name):
                    inputs = next(read, None)
                if inputs is None:
                    break
                given: Inputs = {}
                for member, batches in inputs.items():
                    least = max((int(np.max(int_column(b["seq"]))) + 1 for b in batches if b.num_rows), default=0)
                    for step in members[member]:
                        seen[step] = max(least, seen.get(step, 0))
                        given[step] = batches
                yield given

    def _told(self, sent: bytes) -> list[Block]:
        """Every bucket gets to know what the micro-batch is about."""
        now = time.time() * 1e6
        return [Block(i, label, FLUSH, 0, now, now, sent) for i, labels in self.labels.items() for label in labels]

    def _feeds(self) -> dict[str, Source]:
        return {**self._sound(), **{name: feed.source for name, feed in self.topics.items()}}

    def commit(self, end: Offset) -> None:
        if end["at"]:
            for name, source in self._feeds().items():
                source.commit(end["at"][name])

    def stop(self) -> None:
        for source in self.sources.values():
            source.close()


def _place(offset: Offset) -> Place:
    return msgspec.convert(offset["place"], Place)
