"""Packed blocks: how records cross Spark.

A block is one row of a Spark DataFrame that holds many records as Arrow IPC bytes, addressed to the
stage that reads it and to a bucket of that stage's keys. Records for a sink are written by the stage that
emits them; only the writer's message crosses, in a block addressed to the sinks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mmh3
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.ipc import CompressionTrial, encode
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.sink import FanOutWriter
from riot_ops.graph.lowering import WATERMARK_SUFFIX
from riot_ops.graph.plan import Plan, Stage
from riot_ops.kernels.arrays.arrow import batch_bytes
from riot_ops.kernels.arrays.dictionaries import decode_dictionaries
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.kernels.arrays.index import key_numbers
from riot_ops.kernels.arrays.lazy_rows import take_columns
from riot_ops.kernels.jit import kernel
from riot_ops.runtime.batches import concatenate, unify_schemas

__all__ = [
    "BLOCKS",
    "BLOCKS_DDL",
    "FLUSHED_PREFIX",
    "METRICS",
    "METRICS_STAGE",
    "SINK_STAGE",
    "Block",
    "Labels",
    "Packer",
    "PrecombineBuffer",
    "blocks_to_batch",
    "blocks_to_frame",
    "bucket_labels",
    "group_by_bucket",
]

#: The labels of the buckets of each stage, see :func:`bucket_labels`.
Labels = Mapping[int, list[int]]

#: Stage number of blocks for the sinks.
SINK_STAGE = -1

#: For the few records of a sample.
UNCOMPRESSED = Buffering(codec=None)
#: Stage number of blocks that only count, in ``rows``, what their ``stream`` names: the metrics of a query.
METRICS_STAGE = -2
#: In this order: records read from the sources, rejected ones and the late ones of them, records written to
#: sinks, and keys with state in the buckets that had records.
METRICS = ("records", "rejected", "late", "written", "state_keys")

#: End of the counted reasons of late records.
LATE = ": late"

#: A batch larger than a block is cut, but into parts of at least this many bytes, at any capacity of a block.
MIN_PART_BYTES = 1 << 16

#: Limits of a :class:`PrecombineBuffer`, in records and bytes.
MAX_BUFFERED_ROWS, MAX_BUFFERED_BYTES = 1 << 16, 1 << 24

#: Prefix of the stream name of blocks with records flushed at the end: they follow all other records.
FLUSHED_PREFIX = "+"

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
    """Records in transit. ``bucket`` is the label of the bucket, see :func:`bucket_labels`."""

    stage: int
    bucket: int
    stream: str
    rows: int
    first_us: float
    last_us: float
    payload: bytes


def blocks_to_batch(blocks: list[Block]) -> pa.RecordBatch:
    """Return blocks as the rows of a Spark batch."""
    return pa.RecordBatch.from_arrays(
        [pa.array([getattr(b, f.name) for b in blocks], f.type) for f in BLOCKS], schema=BLOCKS
    )


def blocks_to_frame(blocks: list[Block]) -> Any:
    """Return blocks as the rows of a pandas frame, the output of a stage."""
    return blocks_to_batch(blocks).to_pandas(use_threads=False)  # threads are slower for a few rows


def bucket_labels(n: int, partitions: int) -> list[int]:
    """Return labels for n buckets that Spark's hash partitioning spreads evenly over its partitions.

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


class PrecombineBuffer:
    """Holds pre-combined records for a keyed task, to combine them with those of later batches."""

    def __init__(self, stage: Stage, key: Sequence[str], task: KeyedOperator) -> None:
        self.stage = stage
        self._key, self._task = key, task
        self._batches: list[pa.RecordBatch] = []
        self._stay = False  # whether the task left the last batch unchanged

    def take(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Add records; returns all that are released, which happens when combining saves too little."""
        made = None if self._stay or not batch.num_rows else self._precombine(batch)
        if made is None:
            return [batch]
        self._batches.append(decode_dictionaries(made))
        worth = 2 * made.num_rows <= batch.num_rows
        rows, size = self._size()
        if worth and (rows > MAX_BUFFERED_ROWS or size > MAX_BUFFERED_BYTES):
            self._batches = self.drain()
            left, size = self._size()
            worth = 2 * left <= rows and size <= MAX_BUFFERED_BYTES
        if worth:
            return []
        found, self._batches = self._batches, []
        return found

    def drain(self) -> list[pa.RecordBatch]:
        """Return the buffered records, as one batch if there are any."""
        if len(self._batches) < 2:
            return self._batches
        one = concatenate(self._batches)
        made = self._precombine(one)
        return [one if made is None else made]

    def _size(self) -> tuple[int, int]:
        """Return the number of buffered records and their bytes."""
        return sum(one.num_rows for one in self._batches), sum(one.get_total_buffer_size() for one in self._batches)

    def _precombine(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        slots = key_numbers([batch.column(name) for name in self._key], batch.num_rows)
        made = self._task.precombine(batch, slots, int(slots.max(initial=-1)) + 1)
        self._stay = made is None
        return made


class Packer:
    """Collects the output of a stage: packs it into blocks of a good size, or writes it to sinks.

    Without a ``writer`` the records for sinks are packed as well.
    """

    def __init__(
        self,
        plan: Plan,
        produced_in: int,
        labels: Labels,
        buffering: Buffering,
        bucket: int | None = None,
        writer: FanOutWriter | None = None,
    ) -> None:
        self._plan = plan
        self._stage = produced_in
        self._labels = labels
        self._buffering = buffering
        self._trials: dict[str, CompressionTrial] = {}
        self._bucket = bucket  # whose label the blocks for sinks carry
        self._writer = writer
        self.flushing = False  # whether the records that follow were flushed at the end
        self.precombining = False  # whether records arrive in the order of processing, which combining needs
        self._buffers: dict[tuple[int, str], PrecombineBuffer] = {}  # by stage and stream
        self._held: dict[tuple[int, int, str], list[pa.RecordBatch]] = {}
        self._bytes: dict[tuple[int, int, str], int] = {}
        self.first_us = float("inf")
        self.last_us = 0.0
        self._turn = 0

    def stamp(self, first_us: float, last_us: float) -> None:
        """Note when the records that follow arrived at the source."""
        self.first_us = min(self.first_us, first_us)
        self.last_us = max(self.last_us, last_us)

    def add(self, outputs: Mapping[str, list[pa.RecordBatch]]) -> Iterator[Block]:
        """Add the output of a stage; yields the full blocks."""
        for stream, batches in outputs.items():
            readers, sink = self._plan.readers(stream, self._stage), self._plan.parts.get(stream, stream)
            for batch in batches:
                for stage in readers:
                    yield from self._send(stage, stream, batch)
                if sink in self._plan.sinks:
                    if self._writer is None:
                        yield from self._hold(SINK_STAGE, self._sink_bucket(), sink, batch)
                    else:
                        self._writer.write(sink, batch)

    def close(
        self, steps: Mapping[str, tuple[int, int]] | None = None, records: int = 0, state_keys: int = 0
    ) -> Iterator[Block]:
        """Yield the blocks that are not full, and the writer's message.

        ``steps`` are the records that each step processed and rejected, ``records`` those of sources, and
        ``state_keys`` the keys with state.
        """
        for (_, name), buffer in self._buffers.items():
            for batch in buffer.drain():
                yield from self._spread(buffer.stage, name, batch)
        for key in list(self._held):
            yield self._block(*key)
        if self._writer is not None:
            bucket = self._sink_bucket()
            self._writer.count(steps or {})
            newest = {stream: encode([batch], UNCOMPRESSED) for stream, batch in self._writer.newest.items()}
            message = msgspec.msgpack.encode({**self._writer.finish(), "newest": newest})
            rows = sum(self._writer.rows.values())
            yield Block(SINK_STAGE, bucket, "", rows, self.first_us, self.last_us, message)
            errors = self._writer.rows.get(ERRORS_STREAM, 0)
            late = sum(n for reason, n in self._writer.reasons.items() if reason.endswith(LATE))
            counts = (records, errors, late, rows - errors, state_keys)
            for name, n in zip(METRICS, counts, strict=True):
                if n:
                    yield Block(METRICS_STAGE, bucket, name, n, self.first_us, self.last_us, b"")

    def abort(self) -> None:
        """Discard the written blocks."""
        if self._writer is not None:
            self._writer.abort()

    def _send(self, stage: Stage, stream: str, batch: pa.RecordBatch) -> Iterator[Block]:
        """Send records to a stage, through a buffer if the task there can pre-combine them."""
        name = FLUSHED_PREFIX + stream if self.flushing else stream
        buffer = self._buffers.get((stage.index, name))
        if (
            buffer is None
            and self.precombining
            and not stream.endswith(WATERMARK_SUFFIX)
            and len(stage.entries[stream]) == 1
        ):
            (step,) = (step for step in stage.steps if step.id in stage.entries[stream])
            task = step.operator
            if isinstance(task, KeyedOperator) and type(task).precombine is not KeyedOperator.precombine:
                buffer = self._buffers[stage.index, name] = PrecombineBuffer(stage, step.key, task)
        for one in [batch] if buffer is None else buffer.take(batch):
            yield from self._spread(stage, name, one)

    def _sink_bucket(self) -> int:
        if self._bucket is not None:
            return self._bucket
        labels = next(iter(self._labels.values()), [0])
        self._turn += 1
        return labels[self._turn % len(labels)]

    def _spread(self, stage: Stage, stream: str, batch: pa.RecordBatch) -> Iterator[Block]:
        labels = self._labels[stage.index]
        if stream.endswith(WATERMARK_SUFFIX):  # stream time moves for all keys
            for label in labels:
                yield from self._hold(stage.index, label, stream, batch)
            return
        if len(labels) == 1:
            yield from self._hold(stage.index, labels[0], stream, batch)
            return
        columns = [batch.column(name) for name in stage.partition]
        rows, starts = group_by_bucket(columns, batch.num_rows, len(labels))
        grouped = decode_dictionaries(take_columns(batch, rows))
        size = grouped.get_total_buffer_size()  # in total: measuring each slice would take forty times as long
        for i, label in enumerate(labels):
            n = int(starts[i + 1] - starts[i])
            if n:
                part = grouped.slice(int(starts[i]), n)
                yield from self._hold(stage.index, label, stream, part, size * n // batch.num_rows)

    def _hold(
        self, stage: int, bucket: int, stream: str, batch: pa.RecordBatch, size: int | None = None
    ) -> Iterator[Block]:
        key = (stage, bucket, stream)
        batch = decode_dictionaries(batch)  # else each block would hold the whole dictionary
        size = batch.get_total_buffer_size() if size is None else size
        capacity, parts = self._buffering.capacity, 1
        if size > (max_bytes := max(capacity, MIN_PART_BYTES)):
            size = batch_bytes(batch)  # smaller for a slice of a large batch
            parts = max(1, min(batch.num_rows, size // max_bytes))
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
            self.first_us,
            self.last_us,
            encode(unify_schemas(batches), self._buffering, self._trials.setdefault(stream, CompressionTrial())),
        )


@kernel
def _group_by_bucket(h1: Any, n: Any, rows: Any, starts: Any, place: Any) -> None:
    """Group row numbers by bucket (a stable counting sort); ``place`` has one element per bucket."""
    for i in range(h1.size):
        starts[h1[i] % n + np.uint64(1)] += 1
    for b in range(1, starts.size):
        starts[b] += starts[b - 1]
    for b in range(place.size):
        place[b] = starts[b]
    for i in range(h1.size):
        b = h1[i] % n
        rows[place[b]] = i
        place[b] += 1


def group_by_bucket(
    columns: Sequence[pa.Array], size: int, buckets: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return ``(rows, starts)``: the row numbers by bucket; those of bucket b begin at ``starts[b]``.

    >>> rows, starts = group_by_bucket([pa.array(["a", "b", "a"])], 3, 1)
    >>> rows.tolist(), starts.tolist()
    ([0, 1, 2], [0, 3])
    """
    h1, _ = hash_columns(list(columns), size)
    rows, starts = np.empty(size, np.int64), np.zeros(buckets + 1, np.int64)
    # the low bits choose the slot in a bucket's hash table, the high ones the bucket
    _group_by_bucket(h1 >> np.uint64(32), np.uint64(buckets), rows, starts, np.empty(buckets, np.int64))
    return rows, starts
