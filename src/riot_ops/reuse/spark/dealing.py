"""What a topic has for several dataflows: each file is read once, whoever wants what is in it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.spark.bookmark import Bookmark
from riot_ops.reuse.spark.recipient import Recipient, Taken
from riot_ops.reuse.topic import Marker, Topic
from riot_ops.reuse.topic_source import read_file

__all__ = ["bounded", "dealt", "due", "gathered", "skip", "waiting"]

#: About so many bytes go to the sinks in one epoch.
EPOCH_BYTES = 32 << 20

Own = list[tuple[Recipient, str]]


def dealt(
    name: str, topic: Topic, markers: Iterable[tuple[int, Marker]], recipients: Sequence[Recipient]
) -> Iterator[tuple[Recipient, str, pa.RecordBatch]]:
    """The records of some batches of a fragment's topic: for whom, by which of its own names.

    Those who want what cannot be read fail; what these do not get is not counted here.
    """
    streams: dict[str, Own] = {}
    labels: dict[str, Own] = {}
    for one in recipients:
        if (wanted := one.topics.get(name)) is not None and not one.over:
            _invert(one, wanted.streams, streams)
            _invert(one, wanted.labels, labels)
    rejected = [own for found in labels.values() for own in found]
    for number, marker in markers:
        mapped: dict[str, pa.Buffer] = {}
        for file in marker.files:
            found = rejected if file.stream == ERRORS_STREAM else streams.get(file.stream, [])
            asking = {one for one, _ in found if one.takes(name, number) and not one.over}
            if not asking:
                continue
            try:
                batches = read_file(topic, file, mapped)
            except RiotError as error:
                for one in asking:
                    one.fail(error)
                continue
            for batch in batches:
                if file.stream == ERRORS_STREAM:
                    yield from _rejected(batch, labels, asking)
                else:
                    yield from ((one, own, batch) for one, own in found if one in asking)


def due(mark: Bookmark, recipients: Sequence[Recipient], most: int | None) -> dict[str, list[tuple[int, Marker]]]:
    """By topic, the batches whose turn it is: what has replaced a topic comes behind what there is in that."""
    later = {name for one in recipients for name in [*one.topics][1:] if one.progress.before}
    found: dict[str, list[tuple[int, Marker]]] = {}
    size = 0
    for name, topic in mark.topics.items():
        if name in later:
            continue
        wanted = _streams(name, recipients)
        limit = min((one.limit[name] for one in recipients if name in one.limit), default=None)
        for number, marker in bounded(name, topic, list(topic.left(mark.at[name])), recipients, wanted, most):
            if (size and size + marker.size > EPOCH_BYTES) or number == limit:
                break
            size += bytes_of(marker, wanted)
            found.setdefault(name, []).append((number, marker))
    return found


def gathered(
    topics: Mapping[str, Topic], found: Mapping[str, list[tuple[int, Marker]]], recipients: Sequence[Recipient]
) -> dict[str, Taken]:
    """The records of some batches, by dataflow and by its own names; those who take nothing do not get them."""
    given: dict[str, Taken] = {one.name: [] for one in recipients}
    for name, markers in found.items():
        for one, own, batch in dealt(name, topics[name], markers, recipients):
            given[one.name].append((own, batch))
    for name, markers in found.items():
        count_dropped(name, topics[name], markers, [one for one in recipients if one.over])
    return given


def skip(mark: Bookmark, recipients: Sequence[Recipient]) -> None:
    """What there is is not for these any more."""
    for name, topic, at in mark.each():
        if markers := list(topic.left(at)):
            count_dropped(name, topic, markers, recipients)
            mark.read({name: markers[-1][0] + 1})


def waiting(mark: Bookmark, recipients: Sequence[Recipient]) -> dict[str, int]:
    """By dataflow, the bytes that wait for it."""
    found: dict[str, int] = {}
    for name, topic, at in mark.each():
        markers = topic.there(at)
        for one in recipients:
            if name in one.topics and not one.over:
                wanted = _streams(name, [one])
                found[one.name] = found.get(one.name, 0) + sum(bytes_of(marker, wanted) for marker in markers)
    return found


def _streams(name: str, recipients: Iterable[Recipient]) -> set[str]:
    """What somebody wants of a topic."""
    wanted = (one.topics.get(name) for one in recipients)
    return {ERRORS_STREAM}.union(*(one.streams for one in wanted if one is not None))


def bytes_of(marker: Marker, streams: Set[str]) -> int:
    """How many bytes a batch has of some streams."""
    return sum(file.size for file in marker.files if file.stream in streams)


def bounded(
    name: str,
    topic: Topic,
    markers: list[tuple[int, Marker]],
    recipients: Sequence[Recipient],
    streams: Set[str],
    most: int | None,
) -> list[tuple[int, Marker]]:
    """Batches of a fragment's topic that wait; without the oldest where more than so many bytes of the streams do.

    Raises
    ------
    ConnectorError
        Where so much waits for dataflows of which none may be dropped.
    """
    if most is None:
        return markers
    waiting = sum(bytes_of(marker, streams) for _, marker in markers)
    while len(markers) > 1 and waiting > most:
        if any(one.submission.on_slow != "drop_oldest" for one in recipients):
            raise ConnectorError(f"its sinks are {waiting:,} bytes behind")
        oldest = markers.pop(0)
        waiting -= bytes_of(oldest[1], streams)
        count_dropped(name, topic, [oldest], recipients)
    return markers


def count_dropped(
    name: str, topic: Topic, markers: Iterable[tuple[int, Marker]], recipients: Iterable[Recipient]
) -> None:
    """Count records of some batches of a fragment's topic that do not come to who wants them."""
    for number, marker in markers:
        rejected: Counter[str] | None = None
        for one in recipients:
            if (wanted := one.topics.get(name)) is None or not one.takes(name, number):
                continue
            for file in marker.files:
                for own in wanted.streams.get(file.stream, ()):
                    one.dropped[own] += file.rows
            if one.submission.routes.get(ERRORS_STREAM):
                rejected = _rejecting(topic, marker) if rejected is None else rejected
                rows = sum(rejected[step] * len(labels) for step, labels in wanted.labels.items())
                one.dropped += Counter({ERRORS_STREAM: rows})


def _rejecting(topic: Topic, marker: Marker) -> Counter[str]:
    """How many records each step has rejected in a batch, as far as that can be read."""
    found: Counter[str] = Counter()
    for file in marker.files:
        if file.stream == ERRORS_STREAM:
            with contextlib.suppress(RiotError):
                for batch in read_file(topic, file, {}):
                    for step in pc.value_counts(batch["task"]):
                        found[step["values"].as_py()] += step["counts"].as_py()
    return found


def _invert(one: Recipient, wanted: Mapping[str, Iterable[str]], found: dict[str, Own]) -> None:
    for there, names in wanted.items():
        found.setdefault(there, []).extend((one, own) for own in names)


def _rejected(
    batch: pa.RecordBatch, labels: Mapping[str, Own], asking: set[Recipient]
) -> Iterator[tuple[Recipient, str, pa.RecordBatch]]:
    """Rejected records, each for those who have its step, under their name for it."""
    place = batch.schema.get_field_index("task")
    tasks = batch.column(place)
    for step in pc.unique(tasks).to_pylist():
        own = [(one, label) for one, label in labels.get(step, ()) if one in asking]
        if not own:
            continue
        part = batch.filter(pc.equal(tasks, step))
        for one, label in own:
            names = pa.array([label] * part.num_rows, pa.string())
            yield one, ERRORS_STREAM, part.set_column(place, batch.schema.field(place), names)
