"""What a fragment writes: its topic, and nothing else; committed with the micro-batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.sink import Fan, Message
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.topic import Head, Marker, Place
from riot_ops.reuse.topic_sink import TopicSink
from riot_ops.spark.sink import STAGE_WRITERS, Writer, batch_number, part_number

__all__ = ["FragmentOutlet", "FragmentSink", "TopicWriter"]

TOPIC = "topic"


class TopicWriter(Fan):
    """Writes the streams that are forwarded, and notes what the micro-batch was about."""

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
class FragmentOutlet:
    """The topic of a fragment, as a stage sees it."""

    sink: TopicSink
    buffering: Buffering = field(default_factory=Buffering)
    forward: Collection[str] = field(default=())

    def told(self, forward: Collection[str]) -> FragmentOutlet:
        """The same for a micro-batch that forwards these streams."""
        return FragmentOutlet(self.sink, self.buffering, (*forward, ERRORS_STREAM))

    def writer(self, stage: int, place: int | None) -> TopicWriter:
        """A writer for one bucket of a stage, or for this part of a source, in the micro-batch that runs."""
        number = stage * STAGE_WRITERS + (part_number() if place is None else place)
        return TopicWriter(self.forward, self.sink, batch_number(), number)


class FragmentSink(Writer):
    """Spark's end of a fragment: makes a batch of the topic of what the stages wrote."""

    def __init__(self, sink: TopicSink, root: str | None) -> None:
        self._sink = sink
        self._root = root

    def commit(self, messages: Sequence[Any], batch_id: int) -> None:
        written = self.told(messages)
        files = [m["sinks"][TOPIC] for m in written]
        topic = self._sink.topic
        head = topic.head()
        if batch_id in topic.numbers():
            self._sink.commit(batch_id, files)  # of which the first counts
            self._stand(head, batch_id, topic.marker(batch_id))
        elif head.batch >= batch_id:  # all have read it
            self._sink.drop(files)
        else:
            told = self._told(head, batch_id, written)
            self._sink.commit(batch_id, files, **told)
            self._stand(head, batch_id, Marker([], **told))

    def _told(self, head: Head, batch_id: int, written: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What the marker of a micro-batch tells."""
        before = head.place
        after = Place(dict(before.roots), dict(before.next), list(before.ended))
        control, taken = head.control, dict[str, int]()
        for message in written:
            for step, (n, _) in message["steps"].items():
                taken[step] = taken.get(step, 0) + n
            if message["note"] is not None:
                place = msgspec.convert(message["note"]["place"], Place)
                after.roots |= place.roots
                after.next |= {source: max(n, after.next.get(source, 0)) for source, n in place.next.items()}
                after.ended = sorted({*after.ended, *place.ended})
                control = max(control, message["note"]["control"])
        if self._root is not None:
            after.roots[self._root] = batch_id + 1
        return {"control": control, "before": before, "after": after, "taken": taken}

    def _stand(self, head: Head, batch_id: int, marker: Marker) -> None:
        """Note where the topic stands, as its newest batch says; the batch itself is trimmed some day."""
        if head.batch < batch_id:
            taken = {s: head.taken.get(s, 0) + marker.taken.get(s, 0) for s in {*head.taken, *marker.taken}}
            self._sink.topic.stand(Head(batch_id, marker.control, marker.after, taken))
