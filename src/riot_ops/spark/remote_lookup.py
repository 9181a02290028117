"""Texts and questions about their words on their way across Spark; see :mod:`riot_ops.graph.asking`.

A piece of texts goes by three kinds of blocks: *questions*, the words of a bucket, to who is asked; *answers*, what is
told of these, to each bucket of who reads it; *texts* straight to that bucket. All are of one micro-batch. A block's
stream says its kind, the number of the piece's first message, by which the three find each other, and a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.payload import decode, encode
from riot_ops.graph.asking import Asking
from riot_ops.graph.plan import Plan
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.derived import Derived
from riot_ops.spark.buckets import by_bucket

__all__ = ["ANSWER", "QUESTION", "TEXTS", "answer", "heard", "named", "pack", "questions", "unpack"]

#: What the stream of a block begins with.
QUESTION, ANSWER, TEXTS = "?", "!", "="
#: The column of an answer with the numbers of the words.
NUMBER = ""


class Parcel(msgspec.Struct, array_like=True):
    """A :class:`Derived` but for what is told."""

    schema: bytes
    parts: list[bytes]
    word: str
    place: str
    headed: bool
    first: tuple[str, ...]


def pack(rows: Derived, buffering: Buffering) -> bytes:
    """Records of texts as bytes: what they share once for each text, words as numbers, numbers in few bytes."""
    given = [pa.array(rows.codes), *rows.own.values()]
    records = pa.record_batch([_narrow(column) for column in given], [rows.word, *rows.own])
    words, times = (pa.record_batch([one], [NUMBER]) for one in (rows.words, _narrow(pa.array(rows.times))))
    parts = [encode([one], buffering) for one in (rows.of, times, records, words)]
    schema = rows.schema.serialize().to_pybytes()
    return msgspec.msgpack.encode(Parcel(schema, parts, rows.word, rows.place, rows.headed, rows.first))


def unpack(payload: Any) -> Derived:
    """The records in such bytes."""
    parcel = msgspec.msgpack.decode(payload, type=Parcel)
    schema = pa.ipc.read_schema(pa.py_buffer(parcel.schema))
    of, times, records, words = (decode(part)[0] for part in parcel.parts)
    own = {name: records.column(name).cast(schema.field(name).type) for name in records.schema.names[1:]}
    counts, codes = _numbers(times.column(0), np.int64), _numbers(records.column(0), np.int32)
    return Derived(
        schema, of, counts, codes, words.column(0), parcel.word, parcel.place, own, parcel.headed, parcel.first
    )


def _narrow(column: pa.Array) -> pa.Array:
    """Whole numbers that are not below 0 in as few bytes as the largest needs."""
    if not pa.types.is_integer(column.type) or column.null_count or not len(column):
        return column
    values = column.to_numpy()
    return column if values.min() < 0 else pa.array(values.astype(np.min_scalar_type(values.max())))


def _numbers(column: pa.Array, kind: Any) -> npt.NDArray[Any]:
    return column.to_numpy().astype(kind)  # type: ignore[no-any-return]


def named(stream: str) -> tuple[str, int, str]:
    """The kind of a block, the first message of its piece, and a stream.

    >>> named("?12:words")
    ('?', 12, 'words')
    """
    first, _, name = stream[1:].partition(":")
    return stream[:1], int(first), name


def questions(
    rows: Derived, stream: str, asking: Asking, plan: Plan, labels: Mapping[int, list[int]], buffering: Buffering
) -> list[tuple[int, int, str, int, bytes]]:
    """What crosses in place of some records: stage, bucket, stream, records and payload of each block.

    Nothing where who would be asked has more to do with them, or all answers would be more than the records.
    """
    task, reader = asking.step.operator, plan.stages[asking.reader]
    shared = [rows.shared(name) for name in reader.partition]
    ask, read = labels[asking.stage], labels[asking.reader]
    assert isinstance(task, KeyedOperator)
    if rows.word != asking.step.key[0] or not rows.rises() or any(column is None for column in shared):
        return []
    if len(rows.words) * len(read) > rows.num_rows or not task.only_tells(rows):
        return []
    first = int(int_column(rows.of.column("seq"))[0])
    found = []
    keys = rows.keys()
    for label, part in _parts([keys], len(keys), ask):
        if part.size:
            payload = pack(rows.question(part), buffering)
            found.append((asking.stage, label, f"{QUESTION}{first}:{stream}", int(part.size), _with(part, payload)))
    for label, texts in _parts(shared, rows.times.size, read):
        if (some := rows if texts.size == rows.times.size else rows.some(texts)).num_rows:
            name = f"{TEXTS}{first}:{asking.step.id}"
            found.append((asking.reader, label, name, some.num_rows, pack(some, buffering)))
    return found


def _parts(columns: Any, size: int, labels: list[int]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Row numbers by bucket."""
    if len(labels) == 1:
        yield labels[0], np.arange(size)
        return
    rows, starts = by_bucket(columns, size, len(labels))
    for i, label in enumerate(labels):
        yield label, rows[starts[i] : starts[i + 1]]


def _with(numbers: npt.NDArray[np.int64], payload: bytes) -> bytes:
    """A question, and the numbers of its words in the piece."""
    return msgspec.msgpack.encode((numbers.astype("<i4").tobytes(), payload))


def answer(payload: Any, process: Any, stream: str, step: str, buffering: Buffering) -> bytes:
    """What a stage says of the words in a question."""
    numbers, question = msgspec.msgpack.decode(payload, type=tuple[bytes, bytes])
    (told,) = process({stream: [unpack(question)]})[step]
    assert isinstance(told, Derived)  # as only_tells() has promised
    given = {NUMBER: np.frombuffer(numbers, "<i4"), **told.told}
    return encode([pa.record_batch({name: pa.array(values) for name, values in given.items()})], buffering)


def heard(blocks: Iterable[Any], asking: Mapping[str, Asking]) -> Iterator[tuple[str, Derived]]:
    """What the steps that were asked would have made of texts, stream by stream in order, from texts and answers."""
    steps = {one.step.id: one.step.operator for one in asking.values()}
    pieces: dict[tuple[int, str], dict[str, list[Any]]] = {}
    for block in blocks:
        kind, first, stream = named(block.stream)
        pieces.setdefault((first, stream), {TEXTS: [], ANSWER: []})[kind].append(block.payload)
    for (_, stream), piece in sorted(pieces.items(), key=lambda item: item[0]):
        for texts in piece[TEXTS]:  # none, where no text of the piece is of this bucket
            yield stream, _told(steps[stream], unpack(texts), piece[ANSWER])


def _told(task: Any, rows: Derived, answers: Iterable[Any]) -> Derived:
    told: dict[str, npt.NDArray[np.int64]] = {}
    for payload in answers:
        (given,) = decode(payload)
        numbers = given.column(NUMBER).to_numpy()
        for name in given.schema.names[1:]:
            every = told.setdefault(name, np.zeros(len(rows.words) + rows.headed, np.int64))
            every[numbers] = int_column(given.column(name))
    return rows.telling(task.output_schema(rows.schema), told)
