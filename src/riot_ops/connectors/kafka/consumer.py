"""Consumers: one that follows partitions as messages arrive, and one that reads ranges again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from riot_ops.connectors.kafka.connection import Client, confluent_kafka
from riot_ops.connectors.kafka.messages import Chunk, chunk
from riot_ops.connectors.kafka.offsets import Part, Positions
from riot_ops.core.errors import ConnectorError

__all__ = ["Follower", "RangeReaders"]

#: Most messages that are consumed at once.
BATCH = 10_000
#: Longest wait in the library, in seconds, so that a signal and the end of a run are noticed.
WAIT_S = 0.1
#: Idle consumers of ranges that a process keeps for the next ones.
MAX_IDLE = 2

#: Called with a client, a partition and an error of its offset; returns where to read on.
Missing = Callable[[Client, str, int, Any], int]


def _is_missing_offset(error: Any) -> bool:
    return error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")


#: Errors of partitions after which librdkafka goes on by itself.
PASSING = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "LEADER_NOT_AVAILABLE",
           "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE",
           "KAFKA_STORAGE_ERROR", "_MAX_POLL_EXCEEDED"}  # fmt: skip


class Follower:
    """Consumes partitions in the order in which messages arrive, and holds them until they are taken.

    It asks the broker for nothing else: where a partition ends is where its messages end. Fetching pauses while
    ``queued.max.messages.kbytes`` wait in the library, so a slow reader bounds memory.

    Parameters
    ----------
    client : Client
    topics : sequence of str
        The topics of the source.
    at : Positions
        The position that was asked for.
    start : Positions
        Where to begin; other than ``at`` for partitions in ``first``, whose messages there are gone.
    first : Positions
    until : Positions or None
        Where partitions end; messages from there on are dropped.
    missing : function
        Called where messages are gone.
    """

    def __init__(
        self,
        client: Client,
        topics: Sequence[str],
        at: Positions,
        *,
        start: Positions,
        first: Positions,
        until: Positions | None,
        missing: Missing,
    ) -> None:
        self.client = client
        self._topics = list(topics)
        self._missing = missing
        self._until = until
        self._module = confluent_kafka()
        self._chunks: list[Chunk] = []
        self._at = dict(at)  # before the chunks
        self._ends = dict(start)  # after them
        self.first = dict(first)  # where partitions begin that came later, or whose messages were gone
        self.partitions = set(start)
        self._offered, self._offered_end = 0, dict(start)  # chunks, and the position after them
        client.raw.assign([self._module.TopicPartition(t, p, n) for (t, p), n in start.items()])

    def add(self, topics: Sequence[str], start: Positions) -> None:
        """Follow further partitions."""
        self._topics = list(topics)
        self.client.raw.incremental_assign([self._module.TopicPartition(t, p, n) for (t, p), n in start.items()])
        self._ends |= start
        self.first |= start
        self.partitions |= set(start)

    def is_at(self, start: Positions) -> bool:
        """Whether the messages that it holds begin at a position."""
        return start == self._at

    def fill(self, limit: int, wait_s: float = 0.0) -> int:
        """Consume what has arrived until it holds ``limit`` messages; return how many it holds."""
        held = sum(len(one.messages) for one in self._chunks)
        while held < limit:
            found = self.client.raw.consume(min(limit - held, BATCH), wait_s)
            if not found:
                break
            wait_s = 0.0
            if messages := self._checked(found):
                one = chunk(messages, self._topics, self._module.Message)
                ends = _ends(one)
                if self._until is not None and any(n > self._until.get(place, 0) for place, n in ends.items()):
                    one, ends = self._bounded(one, ends, self._until)
                self._ends |= ends
                if one.messages:
                    self._chunks.append(one)
                    held += len(one.messages)
        return held

    def _bounded(self, one: Chunk, ends: Positions, until: Positions) -> tuple[Chunk, Positions]:
        """Drop what lies after the end."""
        keep = np.ones(one.offset.size, bool)
        for place in ends:
            keep &= (one.offset < until.get(place, 0)) | ~one.of(*place)
        return one.take(np.flatnonzero(keep)), {place: min(n, until.get(place, 0)) for place, n in ends.items()}

    def _checked(self, found: list[Any]) -> list[Any]:
        """Return the messages without events; move on at the end of a partition, which may lie after its messages."""
        if not any(map(self._module.Message.error, found)):
            return found
        messages, ends = [], {}
        for message in found:
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.name() == "_PARTITION_EOF":
                ends[(message.topic(), message.partition())] = message.offset()
            elif _is_missing_offset(error):
                self._skip(message.topic(), message.partition(), error)
            elif error.name() not in PASSING:
                raise self.client.error(f"the topic {message.topic()!r} cannot be read", error)
        for place, offset in ends.items():
            if place in self._ends:
                end = offset if self._until is None else min(offset, self._until.get(place, 0))
                self._ends[place] = max(self._ends[place], end)
        return messages

    def _skip(self, topic: str, partition: int, error: Any) -> None:
        offset = self._missing(self.client, topic, partition, error)
        self.first[topic, partition] = offset
        self._ends[topic, partition] = offset
        self.client.raw.seek(self._module.TopicPartition(topic, partition, offset))

    def offer(self, limit: int) -> Positions:
        """Return the position after the first ``limit`` messages that it holds, for :meth:`take`."""
        held = 0
        for i, one in enumerate(self._chunks):
            size = len(one.messages)
            if held + size > limit:
                rows = np.arange(size)
                self._chunks[i : i + 1] = one.take(rows[: limit - held]), one.take(rows[limit - held :])
                self._offered, found = i + 1, dict(self._at)
                for earlier in self._chunks[: i + 1]:
                    found |= _ends(earlier)
                self._offered_end = found
                return found
            held += size
        self._offered = len(self._chunks)
        # a new partition is part of the position from its first message on
        self._offered_end = {p: n for p, n in self._ends.items() if p in self._at or n > self.first.get(p, 0)}
        return dict(self._offered_end)

    def take(self) -> list[Chunk]:
        """Return the messages that were offered last, and drop them."""
        found = self._chunks[: self._offered]
        del self._chunks[: self._offered]
        self._at, self._offered = dict(self._offered_end), 0
        self.first = {place: n for place, n in self.first.items() if place not in self._at}
        return found

    def close(self) -> None:
        """Close the consumer."""
        self.client.raw.close()


def _ends(one: Chunk) -> Positions:
    """Return the position after the last message of each partition."""
    found: Positions = {}
    size = one.offset.size
    topics = [one.topic] if isinstance(one.topic, int) else np.unique(one.topic).tolist()
    for topic in topics:
        within = slice(None) if isinstance(one.topic, int) else one.topic == topic
        partitions, offsets = one.partition[within], one.offset[within]
        for partition in np.unique(partitions).tolist() if size else ():
            found[one.topics[topic], partition] = int(offsets[partitions == partition].max()) + 1
    return found


class RangeReaders:
    """Consumers that read ranges of offsets; a process keeps idle ones, since connecting takes its time.

    Parameters
    ----------
    make : function
        Creates a consumer.
    timeout_s : float
        How long to wait for the next message of a range.
    missing : function
        Called where the offsets of a range are gone.
    """

    def __init__(self, make: Callable[[], Client], timeout_s: float, missing: Missing) -> None:
        self._make = make
        self._timeout_s = timeout_s
        self._missing = missing
        self._module = confluent_kafka()
        self._idle: list[Client] = []
        self._lock = threading.Lock()

    def read(self, ranges: Sequence[Part], topics: Sequence[str]) -> Iterator[Chunk]:
        """Read the messages of ranges: up to the end of each, whatever gaps they have."""
        with self._lock:
            client = self._idle.pop() if self._idle else None
        client = client or self._make()
        try:
            yield from self._read(client, ranges, topics)
        except BaseException:
            client.raw.close()
            raise
        client.raw.unassign()
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(client)
                return
        client.raw.close()

    def _read(self, client: Client, ranges: Sequence[Part], topics: Sequence[str]) -> Iterator[Chunk]:
        partition = self._module.TopicPartition
        open_ranges = {(part.topic, part.partition): part for part in ranges}
        client.raw.assign([partition(part.topic, part.partition, part.start) for part in ranges])
        heard = time.monotonic()
        while open_ranges:
            found = self._some(client)
            if not found:
                if time.monotonic() - heard > self._timeout_s:
                    raise self._silent(client, list(open_ranges.values()))
                continue
            messages = []
            for message in found:
                error = message.error()
                if error is None:
                    messages.append(message)
                    continue
                place = message.topic(), message.partition()
                if error.name() == "_PARTITION_EOF":
                    if place in open_ranges and message.offset() >= open_ranges[place].end:
                        self._close(client, open_ranges, place)
                elif _is_missing_offset(error):
                    if place in open_ranges:
                        offset = self._missing(client, *place, error)
                        if offset >= open_ranges[place].end:
                            self._close(client, open_ranges, place)
                        else:
                            client.raw.seek(partition(*place, offset))
                elif error.name() not in PASSING:
                    raise client.error(f"the topic {message.topic()!r} cannot be read", error)
            if messages:
                heard = time.monotonic()
                one = chunk(messages, topics, self._module.Message)
                if (one := self._within(client, open_ranges, one)).messages:
                    yield one

    def _some(self, client: Client) -> list[Any]:
        """Return what has arrived, and wait only for the first message."""
        found: list[Any] = client.raw.consume(BATCH, 0)
        return found or client.raw.consume(1, WAIT_S)

    def _within(self, client: Client, open_ranges: dict[tuple[str, int], Part], one: Chunk) -> Chunk:
        """Drop what lies after the ends of the ranges, and close the ranges that are complete."""
        keep = np.zeros(one.offset.size, bool)
        for place, part in list(open_ranges.items()):
            here = one.of(*place)
            offsets = one.offset[here]
            keep |= here & (one.offset < part.end)
            if offsets.size and int(offsets[-1]) >= part.end - 1:
                self._close(client, open_ranges, place)
        return one if keep.all() else one.take(np.flatnonzero(keep))

    def _close(self, client: Client, open_ranges: dict[tuple[str, int], Part], place: tuple[str, int]) -> None:
        del open_ranges[place]
        client.raw.incremental_unassign([self._module.TopicPartition(*place)])

    def _silent(self, client: Client, open_ranges: Sequence[Part]) -> ConnectorError:
        part = open_ranges[0]
        cause = client.log.text()
        return ConnectorError(
            f"Kafka at {client.connection.address}: the messages of the topic {part.topic!r}, partition "
            f"{part.partition}, before the offset {part.end} do not arrive within {self._timeout_s:g} s"
            f"{f': {cause}' if cause else ''}; is a broker with this partition running, and has the topic not been "
            "created again?",
            retryable=True,
        )

    def close(self) -> None:
        """Close the idle consumers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for client in idle:
            client.raw.close()
