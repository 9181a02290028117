"""Messages of Kafka as record batches."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.connectors.kafka.offsets import SLOTS, Slots
from riot_ops.core.errors import escape_surrogates
from riot_ops.core.rejection import REJECTED, REJECTION
from riot_ops.core.schema import RAW, TIMESTAMP

__all__ = ["MESSAGES", "SCHEMA_ID", "Chunk", "chunk", "to_batch"]

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
#: The schema of the messages.
MESSAGES = pa.schema(
    [
        *RAW,
        pa.field("key", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp_type", pa.string()),
        pa.field("headers", pa.list_(HEADER)),
    ]
)
#: Number of the schema in a registry, which the framing of a message holds.
SCHEMA_ID = pa.field("schema_id", pa.int32())
#: The framing: a byte 0, and the number of the schema.
FRAME = struct.Struct(">bi")
#: Text of each type of time stamp.
TIME_TYPES = pa.array([None, "create", "log_append"], pa.string())

#: Why a payload is rejected.
UNFRAMED = "the payload has no framing of a schema registry: a byte 0 and the schema's number"

Numbers = npt.NDArray[np.int64]


class Chunk(NamedTuple):
    """Messages as they were consumed, with the place of each."""

    messages: list[Any]
    topics: tuple[str, ...]  # the topics of the source
    topic: Numbers | int  # index in ``topics``, of each or of all
    partition: Numbers
    offset: Numbers

    def of(self, topic: str, partition: int) -> npt.NDArray[np.bool_]:
        """Return which messages are of a partition."""
        found: npt.NDArray[np.bool_] = self.partition == partition
        return found if isinstance(self.topic, int) else found & (self.topic == self.topics.index(topic))

    def take(self, rows: Numbers) -> Chunk:
        """Return the messages with these positions, in this order."""
        found = self.messages
        topic = self.topic if isinstance(self.topic, int) else self.topic[rows]
        return Chunk([found[i] for i in rows.tolist()], self.topics, topic, self.partition[rows], self.offset[rows])


def chunk(messages: list[Any], topics: Sequence[str], message: type[Any]) -> Chunk:
    """Return messages with their places; ``message`` is their class."""
    n = len(messages)
    topic: Numbers | int = 0
    if len(topics) > 1:
        index = {name: i for i, name in enumerate(topics)}
        topic = np.fromiter((index[name] for name in map(message.topic, messages)), np.int64, n)
    partition = np.fromiter(map(message.partition, messages), np.int64, n)
    offset = np.fromiter(map(message.offset, messages), np.int64, n)
    return Chunk(messages, tuple(topics), topic, partition, offset)


def to_batch(found: Chunk, schema: pa.Schema, slots: Slots, message: type[Any], *, framed: bool) -> pa.RecordBatch:
    """Return messages as a batch in the order of their numbers.

    Parameters
    ----------
    found : Chunk
    schema : pyarrow.Schema
        Fields to make, of :data:`MESSAGES` and :data:`SCHEMA_ID`.
    slots : Slots
        Numbers the messages.
    message : type
        Their class.
    framed : bool
        Whether payloads begin with the framing of a schema registry.
    """
    seq = found.offset * SLOTS + _places(found, slots)
    if seq.size > 1 and not bool((seq[1:] > seq[:-1]).all()):
        order = np.argsort(seq, kind="stable")
        found, seq = found.take(order), seq[order]
    payload: pa.Array | None = None
    schema_id: pa.Array | None = None
    values: list[Any] = []
    bad: list[int] = []
    if framed or "payload" in schema.names:
        values = list(map(message.value, found.messages))
        if framed:
            payload, schema_id, bad = unframed(values)
        else:
            payload = pa.array(values, pa.binary())
    columns = []
    for field in schema:
        if field.name == "seq":
            columns.append(pa.array(seq))
        elif field.name == "payload":
            columns.append(payload)
        elif field.name == SCHEMA_ID.name:
            columns.append(schema_id)
        else:
            columns.append(_column(field.name, found, message))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not bad:
        return batch
    notes: list[dict[str, str] | None] = [None] * batch.num_rows
    for row in bad:
        raw = escape_surrogates(values[row].decode("utf-8", "surrogateescape"))
        notes[row] = {"reason": "malformed", "message": UNFRAMED, "raw": raw}
    return batch.append_column(REJECTED, pa.array(notes, REJECTION))


def _places(found: Chunk, slots: Slots) -> Numbers:
    if isinstance(found.topic, int) and found.partition.size and found.partition[0] == found.partition[-1]:
        first = int(found.partition[0])
        if bool((found.partition == first).all()):
            return np.full(found.partition.size, slots.place(found.topics[found.topic], first))
    topic = np.broadcast_to(np.asarray(found.topic, np.int64), found.partition.shape)
    pairs = topic << 32 | found.partition
    unique, inverse = np.unique(pairs, return_inverse=True)
    places = {int(u): slots.place(found.topics[int(u) >> 32], int(u) & 0xFFFFFFFF) for u in unique}
    return np.array([places[int(u)] for u in unique], np.int64)[inverse]


def _column(name: str, found: Chunk, message: type[Any]) -> pa.Array:
    n = len(found.messages)
    if name == "key":
        return pa.array(list(map(message.key, found.messages)), pa.binary())
    if name == "topic":
        if isinstance(found.topic, int):
            return pa.repeat(pa.scalar(found.topics[found.topic], pa.string()), n)
        return pa.array(found.topics, pa.string()).take(pa.array(found.topic))
    if name == "partition":
        return pa.array(found.partition.astype(np.int32))
    if name == "offset":
        return pa.array(found.offset)
    if name == "headers":
        return _headers(list(map(message.headers, found.messages)))
    # without a list of the pairs, which takes three times as long
    pairs = chain.from_iterable(map(message.timestamp, found.messages))
    times = np.fromiter(pairs, np.int64, 2 * n).reshape(n, 2)
    if name == "timestamp_type":
        return TIME_TYPES.take(pa.array(times[:, 0]))
    return pa.array(times[:, 1] * 1000, mask=(times[:, 0] == 0) | (times[:, 1] < 0)).cast(TIMESTAMP)


def _headers(found: list[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    if not any(found):
        return pa.nulls(len(found), pa.list_(HEADER))
    lengths = np.array([0 if one is None else len(one) for one in found])
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    flat = [pair for one in found if one for pair in one]
    values = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(HEADER),
    )
    return pa.ListArray.from_arrays(pa.array(ends), values, mask=pa.array([not one for one in found]))


def unframed(payloads: list[bytes | None]) -> tuple[pa.Array, pa.Array, list[int]]:
    r"""Split payloads into the message, and the number of its schema; give the rows that have no such framing.

    >>> message, number, bad = unframed([b"\x00\x00\x00\x00\x07{}", None, b"{}"])
    >>> message.to_pylist(), number.to_pylist(), bad
    ([b'{}', None, b'{}'], [7, None, None], [2])
    """
    bad = [
        row for row, payload in enumerate(payloads) if payload is not None and (len(payload) < FRAME.size or payload[0])
    ]
    skipped = set(bad)
    rows = [None if payload is None or row in skipped else payload for row, payload in enumerate(payloads)]
    numbers = [None if one is None else FRAME.unpack_from(one)[1] for one in rows]
    texts = [whole if one is None else one[FRAME.size :] for one, whole in zip(rows, payloads, strict=True)]
    return pa.array(texts, pa.binary()), pa.array(numbers, pa.int32()), bad
