"""Texts, and lookup requests for their words, as they cross Spark; see :mod:`riot_ops.graph.remote_lookup`.

A piece of texts crosses in three kinds of blocks of one micro-batch: a *request* with the words of a bucket goes to the
stage that is asked, its *reply* to each bucket of the reading stage, and the *texts* straight to their bucket of that
stage. The stream name of a block holds the kind, the number of the piece's first message, by which the three are
joined, and the name of a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.ipc import decode, encode
from riot_ops.core.operator import KeyedOperator
from riot_ops.graph.plan import Plan
from riot_ops.graph.remote_lookup import RemoteLookup
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.derived import DerivedRecords
from riot_ops.spark.buckets import group_by_bucket

__all__ = [
    "REPLY",
    "REQUEST",
    "TEXTS",
    "answer_request",
    "decode_rows",
    "encode_rows",
    "join_replies",
    "pack_requests",
    "parse_stream",
]

#: First character of a block's stream name, by kind.
REQUEST, REPLY, TEXTS = "?", "!", "="
#: Column of a reply with the numbers of the words.
NUMBER = ""


class EncodedRows(msgspec.Struct, array_like=True):
    """The serialized form of a :class:`~riot_ops.kernels.arrays.derived.DerivedRecords`, without looked-up values."""

    schema: bytes
    parts: list[bytes]
    word: str
    place: str
    has_text_records: bool
    first: tuple[str, ...]


def encode_rows(rows: DerivedRecords, buffering: Buffering) -> bytes:
    """Serialize records of texts: shared fields once per text, words as codes, integers in few bytes."""
    given = [pa.array(rows.codes), *rows.own.values()]
    records = pa.record_batch([_narrow(column) for column in given], [rows.word, *rows.own])
    words, times = (pa.record_batch([one], [NUMBER]) for one in (rows.words, _narrow(pa.array(rows.times))))
    parts = [encode([one], buffering) for one in (rows.of, times, records, words)]
    schema = rows.schema.serialize().to_pybytes()
    return msgspec.msgpack.encode(EncodedRows(schema, parts, rows.word, rows.place, rows.has_text_records, rows.first))


def decode_rows(payload: Any) -> DerivedRecords:
    """Deserialize records of :func:`encode_rows`."""
    parcel = msgspec.msgpack.decode(payload, type=EncodedRows)
    schema = pa.ipc.read_schema(pa.py_buffer(parcel.schema))
    of, times, records, words = (decode(part)[0] for part in parcel.parts)
    own = {name: records.column(name).cast(schema.field(name).type) for name in records.schema.names[1:]}
    counts, codes = _numbers(times.column(0), np.int64), _numbers(records.column(0), np.int32)
    return DerivedRecords(
        schema,
        of,
        counts,
        codes,
        words.column(0),
        parcel.word,
        parcel.place,
        own,
        parcel.has_text_records,
        parcel.first,
    )


def _narrow(column: pa.Array) -> pa.Array:
    """Narrow non-negative integers to the type that their maximum needs."""
    if not pa.types.is_integer(column.type) or column.null_count or not len(column):
        return column
    values = column.to_numpy()
    return column if values.min() < 0 else pa.array(values.astype(np.min_scalar_type(values.max())))


def _numbers(column: pa.Array, kind: Any) -> npt.NDArray[Any]:
    return column.to_numpy().astype(kind)  # type: ignore[no-any-return]


def parse_stream(stream: str) -> tuple[str, int, str]:
    """Parse a block's stream name into its kind, the first message of its piece, and a stream.

    >>> parse_stream("?12:words")
    ('?', 12, 'words')
    """
    first, _, name = stream[1:].partition(":")
    return stream[:1], int(first), name


def pack_requests(
    rows: DerivedRecords,
    stream: str,
    lookup: RemoteLookup,
    plan: Plan,
    labels: Mapping[int, list[int]],
    buffering: Buffering,
) -> list[tuple[int, int, str, int, bytes]]:
    """Return stage, bucket, stream, records and payload of each block to send in place of some records.

    Empty if the step does more than look up, or if all replies would be larger than the records.
    """
    task, reader = lookup.step.operator, plan.stages[lookup.reader]
    shared = [rows.shared_column(name) for name in reader.partition]
    ask, read = labels[lookup.stage], labels[lookup.reader]
    assert isinstance(task, KeyedOperator)
    if rows.word != lookup.step.key[0] or not rows.is_ascending() or any(column is None for column in shared):
        return []
    if len(rows.words) * len(read) > rows.num_rows or not task.is_lookup_only(rows):
        return []
    first = int(int_column(rows.of.column("seq"))[0])
    found = []
    keys = rows.keys()
    for label, part in _parts([keys], len(keys), ask):
        if part.size:
            payload = encode_rows(rows.lookup_request(part), buffering)
            found.append((lookup.stage, label, f"{REQUEST}{first}:{stream}", int(part.size), _with(part, payload)))
    for label, texts in _parts(shared, rows.times.size, read):
        if (some := rows if texts.size == rows.times.size else rows.select_texts(texts)).num_rows:
            name = f"{TEXTS}{first}:{lookup.step.id}"
            found.append((lookup.reader, label, name, some.num_rows, encode_rows(some, buffering)))
    return found


def _parts(columns: Any, size: int, labels: list[int]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield the row numbers of each bucket."""
    if len(labels) == 1:
        yield labels[0], np.arange(size)
        return
    rows, starts = group_by_bucket(columns, size, len(labels))
    for i, label in enumerate(labels):
        yield label, rows[starts[i] : starts[i + 1]]


def _with(numbers: npt.NDArray[np.int64], payload: bytes) -> bytes:
    """Combine a request with the numbers of its words in the piece."""
    return msgspec.msgpack.encode((numbers.astype("<i4").tobytes(), payload))


def answer_request(payload: Any, process: Any, stream: str, step: str, buffering: Buffering) -> bytes:
    """Look up the words of a request in a stage, and return the reply."""
    numbers, question = msgspec.msgpack.decode(payload, type=tuple[bytes, bytes])
    (looked_up,) = process({stream: [decode_rows(question)]})[step]
    assert isinstance(looked_up, DerivedRecords)  # as is_lookup_only() has promised
    given = {NUMBER: np.frombuffer(numbers, "<i4"), **looked_up.word_values}
    return encode([pa.record_batch({name: pa.array(values) for name, values in given.items()})], buffering)


def join_replies(blocks: Iterable[Any], lookups: Mapping[str, RemoteLookup]) -> Iterator[tuple[str, DerivedRecords]]:
    """Join texts and replies to the output that the lookup steps would have had, stream by stream in order."""
    steps = {one.step.id: one.step.operator for one in lookups.values()}
    pieces: dict[tuple[int, str], dict[str, list[Any]]] = {}
    for block in blocks:
        kind, first, stream = parse_stream(block.stream)
        pieces.setdefault((first, stream), {TEXTS: [], REPLY: []})[kind].append(block.payload)
    for (_, stream), piece in sorted(pieces.items(), key=lambda item: item[0]):
        for texts in piece[TEXTS]:  # empty if no text of the piece is of this bucket
            yield stream, _with_replies(steps[stream], decode_rows(texts), piece[REPLY])


def _with_replies(task: Any, rows: DerivedRecords, replies: Iterable[Any]) -> DerivedRecords:
    looked_up: dict[str, npt.NDArray[np.int64]] = {}
    for payload in replies:
        (given,) = decode(payload)
        numbers = given.column(NUMBER).to_numpy()
        for name in given.schema.names[1:]:
            every = looked_up.setdefault(name, np.zeros(len(rows.words) + rows.has_text_records, np.int64))
            every[numbers] = int_column(given.column(name))
    return rows.with_word_values(task.output_schema(rows.schema), looked_up)
