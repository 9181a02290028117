"""Packed blocks: how records cross Spark.

A block is one row of a Spark DataFrame that holds many records as Arrow IPC bytes, addressed to the
stage that reads it and to a bucket of that stage's keys. What ends in a sink is written where it
arises; only the writer's message about it crosses, in a block addressed to the sinks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import mmh3
import msgspec
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.payload import decode, encode
from riot_ops.core.sink import Fan
from riot_ops.graph.asking import Asking
from riot_ops.graph.lowering import AT_TIME
from riot_ops.graph.plan import Plan, Stage
from riot_ops.kernels.arrays.arrow import size_of
from riot_ops.kernels.arrays.codes import decoded
from riot_ops.kernels.arrays.derived import Derived
from riot_ops.kernels.arrays.index import key_numbers
from riot_ops.kernels.arrays.selection import whole
from riot_ops.runtime.batches import aligned, merged
from riot_ops.spark.buckets import by_bucket
from riot_ops.spark.remote_lookup import questions

__all__ = [
    "BLOCKS",
    "BLOCKS_DDL",
    "LEFT_OVER",
    "SINK",
    "Block",
    "Packer",
    "blocks_of",
    "blocks_to_batch",
    "blocks_to_frame",
    "bucket_labels",
    "by_stream",
    "parted",
]

#: Stage number of blocks that go to the sinks.
SINK = -1

#: A batch that is larger than a block is cut, but not into less than so many bytes, whatever a block is to have.
LEAST_PART = 1 << 16

#: Records that stand for others are kept back for the next ones, up to so many and so many bytes.
MOST_KEPT, MOST_KEPT_BYTES = 1 << 16, 1 << 24

#: Begins the stream of blocks that hold what was left at the end: it comes after all other records.
LEFT_OVER = "+"

BLOCKS = pa.schema(
    [
        ("stage", pa.int32()),
        ("bucket", pa.int32()),
        ("stream", pa.string()),
        ("rows", pa.int64()),
        ("first_us", pa.float64()),
        ("last_us", pa.float64()),
        ("payload", pa.binary()),
    ]
)
BLOCKS_DDL = "stage int, bucket int, stream string, rows long, first_us double, last_us double, payload binary"


@dataclass
class Block:
    """Records on their way. ``bucket`` is the label of the bucket, see :func:`bucket_labels`."""

    stage: int
    bucket: int
    stream: str
    rows: int
    first_us: float
    last_us: float
    payload: bytes


def blocks_to_batch(blocks: list[Block]) -> pa.RecordBatch:
    """Blocks as the rows of a Spark batch."""
    return pa.RecordBatch.from_arrays(
        [pa.array([getattr(b, f.name) for b in blocks], f.type) for f in BLOCKS], schema=BLOCKS
    )


def blocks_to_frame(blocks: list[Block]) -> Any:
    """Blocks as the rows of a pandas frame, as a stage hands them on."""
    return blocks_to_batch(blocks).to_pandas(use_threads=False)  # for a few rows threads take longer


def blocks_of(rows: Any) -> list[Block]:
    """Blocks from the rows of a table, a batch or a pandas frame."""
    return [Block(*values) for values in zip(*(_values(rows[name]) for name in BLOCKS.names), strict=True)]


def _values(column: Any) -> list[Any]:
    return column.to_pylist() if isinstance(column, (pa.Array, pa.ChunkedArray)) else list(column)


def parted(blocks: Iterable[Block], stages: Set[int]) -> tuple[list[Block], list[Block]]:
    """Blocks that some stages read, and those that they hand on as they are."""
    here: list[Block] = []
    passing: list[Block] = []
    for block in blocks:
        (here if block.stage in stages else passing).append(block)
    return here, passing


def by_stream(blocks: Iterable[Block]) -> dict[str, list[pa.RecordBatch]]:
    """The records in blocks, by the stream that they belong to."""
    found: dict[str, list[pa.RecordBatch]] = {}
    for block in blocks:
        found.setdefault(block.stream, []).extend(decode(block.payload))
    return found


def bucket_labels(n: int, partitions: int) -> list[int]:
    """Numbers for n buckets that Spark's hash partitioning spreads evenly over its partitions.

    Spark places a row by ``pmod(murmur3_x86_32(bucket, seed 42), partitions)``; arbitrary numbers
    would leave some partitions with several buckets and others with none.

    >>> len(set(bucket_labels(4, 2)))
    4
    """
    labels: list[int] = []
    candidate = 0
    while len(labels) < n:
        place = mmh3.hash(candidate.to_bytes(4, "little"), 42, signed=True) % partitions
        if place == len(labels) % partitions:
            labels.append(candidate)
        candidate += 1
    return labels


class _Kept:
    """Records for a keyed task that stand for others: they are kept back, as those of the next batch may join them."""

    def __init__(self, stage: Stage, key: Sequence[str], task: KeyedOperator) -> None:
        self.stage = stage
        self._key, self._task = key, task
        self._batches: list[pa.RecordBatch] = []
        self._stay = False  # whether records stay as they are

    def take(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take records; returns what is not kept any longer: all, where so many are left that it is not worth it."""
        made = None if self._stay or not batch.num_rows else self._condensed(batch)
        if made is None:
            return [batch]
        self._batches.append(decoded(made))
        worth = 2 * made.num_rows <= batch.num_rows
        rows, size = self._kept()
        if worth and (rows > MOST_KEPT or size > MOST_KEPT_BYTES):
            self._batches = self.rest()
            left, size = self._kept()
            worth = 2 * left <= rows and size <= MOST_KEPT_BYTES
        if worth:
            return []
        found, self._batches = self._batches, []
        return found

    def rest(self) -> list[pa.RecordBatch]:
        """What is kept, as one batch if there is any."""
        if len(self._batches) < 2:
            return self._batches
        one = merged(self._batches)
        made = self._condensed(one)
        return [one if made is None else made]

    def _kept(self) -> tuple[int, int]:
        """Records, and their bytes."""
        return sum(one.num_rows for one in self._batches), sum(one.get_total_buffer_size() for one in self._batches)

    def _condensed(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        slots = key_numbers([batch.column(name) for name in self._key], batch.num_rows)
        made = self._task.condensed(batch, slots, int(slots.max(initial=-1)) + 1)
        self._stay = made is None
        return made


class Packer:
    """Collects what a stage puts out: packs it into blocks of a good size, or writes it.

    Without a ``writer`` what ends in a sink is packed like the rest.
    """

    def __init__(
        self,
        plan: Plan,
        produced_in: int,
        labels: dict[int, list[int]],
        buffering: Buffering,
        bucket: int | None = None,
        writer: Fan | None = None,
    ) -> None:
        self._plan = plan
        self._stage = produced_in
        self._labels = labels
        self._buffering = buffering
        self._bucket = bucket  # whose label blocks for the sinks carry
        self._writer = writer
        self.left_over = False  # whether what comes now is what was left at the end
        self.condensing = False  # whether records come in the order in which they are handled
        self.asking: Mapping[str, Asking] = {}  # who may be asked in place of being handed the records of a stream
        self._kept: dict[tuple[int, str], _Kept] = {}  # by stage and stream
        self._held: dict[tuple[int, int, str], list[pa.RecordBatch]] = {}
        self._bytes: dict[tuple[int, int, str], int] = {}
        self._first = float("inf")
        self._last = 0.0
        self._turn = 0

    def stamp(self, first_us: float, last_us: float) -> None:
        """Note when the records that follow arrived at the source."""
        self._first = min(self._first, first_us)
        self._last = max(self._last, last_us)

    def add(self, outputs: Mapping[str, list[Any]]) -> Iterator[Block]:
        """Take the output of a stage; yields the blocks that are full."""
        for stream, batches in outputs.items():
            for given in batches:
                if isinstance(given, Derived) and (found := self._questions(stream, given)):
                    yield from found
                    continue
                batch = self._learned(stream, given) if isinstance(given, Derived) else whole(given)
                for stage in self._plan.readers(stream, self._stage):
                    yield from self._fewer(stage, stream, batch)
                sink = self._plan.parts.get(stream, stream)
                if sink in self._plan.sinks:
                    if self._writer is None:
                        yield from self._hold(SINK, self._sink_bucket(), sink, batch)
                    else:
                        self._writer.write(sink, batch)

    def count(self, steps: Mapping[str, tuple[int, int]]) -> None:
        """Note how many records each step took and rejected."""
        if self._writer is not None:
            self._writer.count(steps)

    def close(self) -> Iterator[Block]:
        """The blocks that are not full, and the writer's message."""
        for (_, name), kept in self._kept.items():
            for batch in kept.rest():
                yield from self._spread(kept.stage, name, batch)
        for key in list(self._held):
            yield self._block(*key)
        if self._writer is not None:
            message = msgspec.msgpack.encode(self._writer.finish())
            rows = sum(self._writer.rows.values())
            yield Block(SINK, self._sink_bucket(), "", rows, self._first, self._last, message)

    def abort(self) -> None:
        """Throw away what was written."""
        if self._writer is not None:
            self._writer.abort()

    def _questions(self, stream: str, rows: Derived) -> list[Block]:
        """The blocks in which a question about the words crosses; none where the records have to."""
        if (asking := self.asking.get(stream)) is None:
            return []
        found = questions(rows, stream, asking, self._plan, self._labels, self._buffering)
        return [Block(to, at, name, n, self._first, self._last, data) for to, at, name, n, data in found]

    def _learned(self, stream: str, rows: Derived) -> pa.RecordBatch:
        """A batch of the records, or of fewer that leave the same, where nothing comes between two of them."""
        if (asking := self.asking.get(stream)) is not None and asking.step.key == (rows.word,) and rows.rises():
            task = asking.step.operator
            if isinstance(task, KeyedOperator) and (made := task.condensed_derived(rows)) is not None:
                return made
        return rows.whole()

    def answer(self, asking: Asking, stream: str, payload: bytes) -> list[Block]:
        """What is told of words, for all buckets that read it."""
        labels = self._labels[asking.reader]
        return [Block(asking.reader, label, stream, 0, self._first, self._last, payload) for label in labels]

    def _fewer(self, stage: Stage, stream: str, batch: pa.RecordBatch) -> Iterator[Block]:
        """Records that cross to a stage: fewer, where what reads them there can do with these."""
        name = LEFT_OVER + stream if self.left_over else stream
        kept = self._kept.get((stage.index, name))
        if kept is None and self.condensing and not stream.endswith(AT_TIME) and len(stage.entries[stream]) == 1:
            (step,) = (step for step in stage.steps if step.id in stage.entries[stream])
            task = step.operator
            if isinstance(task, KeyedOperator) and type(task).condensed is not KeyedOperator.condensed:
                kept = self._kept[stage.index, name] = _Kept(stage, step.key, task)
        for one in [batch] if kept is None else kept.take(batch):
            yield from self._spread(stage, name, one)

    def _sink_bucket(self) -> int:
        if self._bucket is not None:
            return self._bucket
        labels = next(iter(self._labels.values()), [0])
        self._turn += 1
        return labels[self._turn % len(labels)]

    def _spread(self, stage: Stage, stream: str, batch: pa.RecordBatch) -> Iterator[Block]:
        labels = self._labels[stage.index]
        if stream.endswith(AT_TIME):  # stream time moves for all keys
            for label in labels:
                yield from self._hold(stage.index, label, stream, batch)
            return
        if len(labels) == 1:
            yield from self._hold(stage.index, labels[0], stream, batch)
            return
        columns = [batch.column(name) for name in stage.partition]
        rows, starts = by_bucket(columns, batch.num_rows, len(labels))
        grouped = decoded(batch.take(pa.array(rows)))
        size = grouped.get_total_buffer_size()  # of all: to measure each slice would take forty times as long
        for i, label in enumerate(labels):
            n = int(starts[i + 1] - starts[i])
            if n:
                part = grouped.slice(int(starts[i]), n)
                yield from self._hold(stage.index, label, stream, part, size * n // batch.num_rows)

    def _hold(
        self, stage: int, bucket: int, stream: str, batch: pa.RecordBatch, size: int | None = None
    ) -> Iterator[Block]:
        key = (stage, bucket, stream)
        batch = decoded(batch)  # each block would have the words of all
        size = batch.get_total_buffer_size() if size is None else size
        capacity, parts = self._buffering.capacity, 1
        if size > (most := max(capacity, LEAST_PART)):
            size = size_of(batch)  # less where it is a slice of much
            parts = max(1, min(batch.num_rows, size // most))
        for first, end in itertools.pairwise(batch.num_rows * i // parts for i in range(parts + 1)):
            self._held.setdefault(key, []).append(batch.slice(first, end - first))
            self._bytes[key] = self._bytes.get(key, 0) + size // parts
            if self._bytes[key] >= capacity:
                yield self._block(*key)

    def _block(self, stage: int, bucket: int, stream: str) -> Block:
        batches = self._held.pop((stage, bucket, stream))
        self._bytes.pop((stage, bucket, stream))
        return Block(
            stage,
            bucket,
            stream,
            sum(b.num_rows for b in batches),
            self._first,
            self._last,
            encode(aligned(batches), self._buffering),
        )
