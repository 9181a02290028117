"""Unread batches of topics: which ones sinks get next, their records by dataflow, and those that are dropped."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.reuse.spark.progress import TopicCursor
from riot_ops.reuse.spark.subscriber import Records, Subscriber
from riot_ops.reuse.topic import Marker, Topic
from riot_ops.reuse.topic_source import read_topic_file

__all__ = ["collect_records", "count_dropped", "pending_bytes", "select_batches"]

#: About how many bytes the sinks get in one epoch.
EPOCH_BYTES = 32 << 20

#: Subscribers of a stream or step, each with its own name for it.
Targets = list[tuple[Subscriber, str]]


def select_batches(
    cursor: TopicCursor, subscribers: Sequence[Subscriber], max_bytes: int | None
) -> dict[str, list[tuple[int, Marker]]]:
    """Return, by topic, the next batches, for about one epoch; a topic follows those that it has replaced."""
    waiting = {name for one in subscribers for name in [*one.topics][1:] if one.progress.before}
    found: dict[str, list[tuple[int, Marker]]] = {}
    size = 0
    for name, topic in cursor.topics.items():
        if name in waiting:
            continue
        streams = _subscribed_streams(name, subscribers)
        limit = min((one.limits[name] for one in subscribers if name in one.limits), default=None)
        unread = list(topic.pending(cursor.at[name]))
        for number, marker in _limit_backlog(name, topic, unread, subscribers, streams, max_bytes):
            if (size and size + marker.size > EPOCH_BYTES) or number == limit:
                break
            size += _stream_bytes(marker, streams)
            found.setdefault(name, []).append((number, marker))
    return found


def _limit_backlog(
    name: str,
    topic: Topic,
    markers: list[tuple[int, Marker]],
    subscribers: Sequence[Subscriber],
    streams: Set[str],
    max_bytes: int | None,
) -> list[tuple[int, Marker]]:
    """Drop the oldest unread batches of a topic until at most ``max_bytes`` of the streams are left.

    Raises
    ------
    ConnectorError
        If there are more bytes, and a subscriber does not allow records to be dropped.
    """
    if max_bytes is None:
        return markers
    backlog = sum(_stream_bytes(marker, streams) for _, marker in markers)
    while len(markers) > 1 and backlog > max_bytes:
        if any(one.submission.on_slow != "drop_oldest" for one in subscribers):
            raise ConnectorError(f"its sinks lag by {backlog:,} bytes")
        oldest = markers.pop(0)
        backlog -= _stream_bytes(oldest[1], streams)
        count_dropped(name, topic, [oldest], subscribers)
    return markers


def _subscribed_streams(name: str, subscribers: Iterable[Subscriber]) -> set[str]:
    """Return the streams of a topic that some subscriber wants."""
    subscriptions = (one.topics.get(name) for one in subscribers)
    return {ERRORS_STREAM}.union(*(one.streams for one in subscriptions if one is not None))


def _stream_bytes(marker: Marker, streams: Set[str]) -> int:
    return sum(file.size for file in marker.files if file.stream in streams)


def collect_records(
    topics: Mapping[str, Topic], found: Mapping[str, list[tuple[int, Marker]]], subscribers: Sequence[Subscriber]
) -> dict[str, Records]:
    """Return the records of some batches by dataflow, and count those for closed subscribers as dropped."""
    records: dict[str, Records] = {one.name: [] for one in subscribers}
    for name, markers in found.items():
        for one, own, batch in _read_records(name, topics[name], markers, subscribers):
            records[one.name].append((own, batch))
    for name, markers in found.items():
        count_dropped(name, topics[name], markers, [one for one in subscribers if one.closed])
    return records


def _read_records(
    name: str, topic: Topic, markers: Iterable[tuple[int, Marker]], subscribers: Sequence[Subscriber]
) -> Iterator[tuple[Subscriber, str, pa.RecordBatch]]:
    """Yield the records of some batches of a topic, for each subscriber by its own names; each file is read once.

    A file that cannot be read fails its subscribers; the records that they lose by that are not counted here.
    """
    streams: dict[str, Targets] = {}
    labels: dict[str, Targets] = {}
    for one in subscribers:
        if (subscription := one.topics.get(name)) is not None and not one.closed:
            _add_targets(one, subscription.streams, streams)
            _add_targets(one, subscription.labels, labels)
    rejected = [target for found in labels.values() for target in found]
    for number, marker in markers:
        mapped: dict[str, pa.Buffer] = {}
        for file in marker.files:
            targets = rejected if file.stream == ERRORS_STREAM else streams.get(file.stream, [])
            takers = {one for one, _ in targets if one.accepts(name, number) and not one.closed}
            if not takers:
                continue
            try:
                batches = read_topic_file(topic, file, mapped)
            except RiotError as error:
                for one in takers:
                    one.fail(error)
                continue
            for batch in batches:
                if file.stream == ERRORS_STREAM:
                    yield from _rejected_records(batch, labels, takers)
                else:
                    yield from ((one, own, batch) for one, own in targets if one in takers)


def _add_targets(one: Subscriber, names: Mapping[str, Iterable[str]], targets: dict[str, Targets]) -> None:
    for stream, own_names in names.items():
        targets.setdefault(stream, []).extend((one, own) for own in own_names)


def _rejected_records(
    batch: pa.RecordBatch, labels: Mapping[str, Targets], takers: set[Subscriber]
) -> Iterator[tuple[Subscriber, str, pa.RecordBatch]]:
    """Yield rejected records for the subscribers of their steps, under each subscriber's name of the step."""
    place = batch.schema.get_field_index("task")
    tasks = batch.column(place)
    for step in pc.unique(tasks).to_pylist():
        targets = [(one, label) for one, label in labels.get(step, ()) if one in takers]
        if not targets:
            continue
        part = batch.filter(pc.equal(tasks, step))
        for one, label in targets:
            names = pa.array([label] * part.num_rows, pa.string())
            yield one, ERRORS_STREAM, part.set_column(place, batch.schema.field(place), names)


def pending_bytes(cursor: TopicCursor, subscribers: Sequence[Subscriber]) -> dict[str, int]:
    """Return the bytes by dataflow that are not delivered yet."""
    found: dict[str, int] = {}
    for name, topic, at in cursor.positions():
        markers = topic.available(at)
        for one in subscribers:
            if name in one.topics and not one.closed:
                streams = _subscribed_streams(name, [one])
                found[one.name] = found.get(one.name, 0) + sum(_stream_bytes(marker, streams) for marker in markers)
    return found


def count_dropped(
    name: str, topic: Topic, markers: Iterable[tuple[int, Marker]], subscribers: Iterable[Subscriber]
) -> None:
    """Count the records of some batches as dropped for these subscribers."""
    for number, marker in markers:
        rejected: Counter[str] | None = None
        for one in subscribers:
            if (subscription := one.topics.get(name)) is None or not one.accepts(name, number):
                continue
            for file in marker.files:
                for own in subscription.streams.get(file.stream, ()):
                    one.dropped[own] += file.rows
            if one.submission.routes.get(ERRORS_STREAM):
                rejected = _rejected_counts(topic, marker) if rejected is None else rejected
                rows = sum(rejected[step] * len(labels) for step, labels in subscription.labels.items())
                one.dropped += Counter({ERRORS_STREAM: rows})


def _rejected_counts(topic: Topic, marker: Marker) -> Counter[str]:
    """Return how many records each step has rejected in a batch, without those in unreadable files."""
    found: Counter[str] = Counter()
    for file in marker.files:
        if file.stream == ERRORS_STREAM:
            with contextlib.suppress(RiotError):
                for batch in read_topic_file(topic, file, {}):
                    for step in pc.value_counts(batch["task"]):
                        found[step["values"].as_py()] += step["counts"].as_py()
    return found
