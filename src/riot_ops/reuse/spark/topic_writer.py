"""Writers of a fragment's topic, the only output of its query; a batch is committed with the micro-batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.sink import FanOutWriter, Message
from riot_ops.reuse.topic import Head, Marker, UpstreamProgress
from riot_ops.reuse.topic_sink import TopicSink
from riot_ops.spark.sink import STAGE_WRITERS, SinkCommitter, batch_number, part_number

__all__ = ["FragmentSink", "TopicOutput", "TopicWriter"]

TOPIC = "topic"


class TopicWriter(FanOutWriter):
    """Writes the forwarded streams of one part of a micro-batch, and a note on the micro-batch for the driver."""

    def __init__(self, forward: Iterable[str], sink: TopicSink, batch_id: int, partition: int) -> None:
        super().__init__({stream: [TOPIC] for stream in forward}, {TOPIC: sink}, batch_id, partition)
        self._forward = {*forward}
        self.note: dict[str, Any] | None = None

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        if stream in self._forward:
            super().write(stream, batch)

    def finish(self) -> Message:
        note = None if self.note is None else msgspec.to_builtins(self.note)
        return {**super().finish(), "note": note}


@dataclass(frozen=True)
class TopicOutput:
    """Makes the writers of a fragment's topic for its stages."""

    sink: TopicSink
    buffering: Buffering = field(default_factory=Buffering)
    forward: Collection[str] = field(default=())

    def forwarding(self, streams: Collection[str]) -> TopicOutput:
        """Return a copy for a micro-batch that forwards these streams."""
        return TopicOutput(self.sink, self.buffering, (*streams, ERRORS_STREAM))

    def writer(self, stage: int, place: int | None) -> TopicWriter:
        """Return a writer for the current micro-batch: of bucket ``place`` of a stage, or of this part of a source."""
        number = stage * STAGE_WRITERS + (part_number() if place is None else place)
        return TopicWriter(self.forward, self.sink, batch_number(), number)


class FragmentSink(SinkCommitter):
    """Spark's sink of a fragment: commits the files that the stages wrote as a batch of the topic."""

    def __init__(self, sink: TopicSink, root: str | None) -> None:
        self._sink = sink
        self._root = root

    def commit(self, messages: Sequence[Any], batch_id: int) -> None:
        written = self.stage_messages(messages)
        files = [m["sinks"][TOPIC] for m in written]
        topic = self._sink.topic
        head = topic.head()
        if batch_id in topic.batch_numbers():
            self._sink.commit(batch_id, files)  # the topic keeps its first version of the batch
            self._advance_head(head, batch_id, topic.marker(batch_id))
        elif head.batch >= batch_id:  # trimmed, as all readers have read it
            self._sink.drop(files)
        else:
            fields = self._marker_fields(head, batch_id, written)
            self._sink.commit(batch_id, files, **fields)
            self._advance_head(head, batch_id, Marker([], **fields))

    def abort(self, batch_id: int) -> None:
        self._sink.abort(batch_id)

    def _marker_fields(self, head: Head, batch_id: int, written: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the control, progress and record counts of a micro-batch for its marker."""
        before = head.place
        after = UpstreamProgress(dict(before.roots), dict(before.next), list(before.ended))
        control, taken = head.control, dict[str, int]()
        for message in written:
            for step, (n, _) in message["steps"].items():
                taken[step] = taken.get(step, 0) + n
            if message["note"] is not None:
                place = msgspec.convert(message["note"]["place"], UpstreamProgress)
                after.roots |= place.roots
                after.next |= {source: max(n, after.next.get(source, 0)) for source, n in place.next.items()}
                after.ended = sorted({*after.ended, *place.ended})
                control = max(control, message["note"]["control"])
        if self._root is not None:
            after.roots[self._root] = batch_id + 1
        return {"control": control, "before": before, "after": after, "taken": taken}

    def _advance_head(self, head: Head, batch_id: int, marker: Marker) -> None:
        """Write the head from the newest batch's marker; the head outlives the batch."""
        if head.batch < batch_id:
            taken = {s: head.taken.get(s, 0) + marker.taken.get(s, 0) for s in {*head.taken, *marker.taken}}
            self._sink.topic.write_head(Head(batch_id, marker.control, marker.after, taken))
