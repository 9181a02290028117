"""The input buffer between the reader and the steps: batches up to a size, with back-pressure on the reader."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.source import Offset
from riot_ops.kernels.arrays.arrow import batch_bytes

__all__ = ["WAKE", "BufferedBatch", "InputBuffer", "rows_within"]

#: Result of :meth:`InputBuffer.get` after :meth:`InputBuffer.wake` or a timeout.
WAKE = object()
#: After this many batches in a row that end within a range, batches end where a range does, so that the run can commit.
MAX_UNCOMMITTED = 8

#: Batches of this size or more are not copied into one with their neighbours: the copy would cost more than the
#: overhead of a batch.
LARGE_BYTES = 8 << 20

#: The C library's heap, which retains what a batch frees for the next one, see :mod:`riot_ops.runtime.memory`.
MEMORY_POOL = pa.system_memory_pool()

Inputs = dict[str, list[pa.RecordBatch]]


@dataclass
class BufferedBatch:
    """Records of a source by stream, and the offset after them."""

    source: str
    inputs: Inputs
    offset: Offset | None  # None: more of the same range follows
    first_us: float = 0.0
    last_us: float = 0.0
    full: bool = False  # the source delivered more than fits: the steps lag behind it
    rows: int = field(init=False)
    size: int = field(init=False)  # bytes

    def __post_init__(self) -> None:
        self.rows = self.size = 0
        for batches in self.inputs.values():
            for batch in batches:
                self.rows += batch.num_rows
                self.size += batch_bytes(batch)

    def extend(self, other: BufferedBatch) -> None:
        """Append the records that follow, of the same streams."""
        for stream, batches in other.inputs.items():
            self.inputs[stream] += batches
        self.offset, self.last_us = other.offset, other.last_us
        self.rows += other.rows
        self.size += other.size

    def split(self, rows: int) -> tuple[BufferedBatch, BufferedBatch] | None:
        """Split after a number of rows; None if the batch cannot be split."""
        if len(self.inputs) != 1:
            return None
        ((stream, batches),) = self.inputs.items()
        if not 0 < rows < self.rows or not all(batch.num_rows for batch in batches):
            return None
        before, after, left = list[pa.RecordBatch](), list[pa.RecordBatch](), rows
        for batch in batches:
            n = min(left, batch.num_rows)
            before += [batch.slice(0, n)] if n else []
            after += [batch.slice(n)] if n < batch.num_rows else []
            left -= n
        times = self.first_us, self.last_us
        first = BufferedBatch(self.source, {stream: before}, None, *times, self.full)
        return first, BufferedBatch(self.source, {stream: after}, self.offset, *times, self.full)


class InputBuffer:
    """Batches that wait for the steps; a full buffer blocks the reader from ``high`` until it has drained to ``low``.

    Each source has one open batch. It is handed over when it is full, or, once its flush time is over, as soon as the
    steps are free. They take it from the buffer themselves, so a read that blocks does not delay it.

    Parameters
    ----------
    buffering : Buffering
    batch_size : int
        Maximum number of records in a batch.
    """

    def __init__(self, buffering: Buffering, batch_size: int) -> None:
        self._capacity = buffering.capacity
        self._flush_s = buffering.flush_seconds
        self._rows = batch_size
        self._high = buffering.high * buffering.room
        self._low = buffering.low * buffering.room
        self._full: deque[BufferedBatch] = deque()
        self._waiting: Counter[str] = Counter()  # full batches by source
        self._open: dict[str, tuple[BufferedBatch, float]] = {}  # with its flush time
        self._changed = threading.Condition()
        self.closed = self._ended = self._called = False
        self._error: BaseException | None = None
        self._partial_sources: set[str] = set()  # sources whose last batch ended within a range
        self._within = 0  # consecutive batches after which a source was within a range
        self.stopped = threading.Event()
        #: Bytes that wait now, and the maximum so far; bytes that wait by source.
        self.size = self.max_size = 0
        self.sizes: dict[str, int] = {}

    # -- for the reader ------------------------------------------------------------------------------

    def put(self, batch: BufferedBatch, alone: bool = False) -> bool:
        """Add records, cut where a batch is full; blocks while the buffer is full. Returns False once stopped.

        ``alone``: no other records will come within the flush time, so that they need not wait.
        """
        left: BufferedBatch | None = batch
        while left is not None:
            with self._changed:
                while self.closed and not self.stopped.is_set():
                    self._changed.wait()
                if self.stopped.is_set():
                    return False
                left = self._add(left)
                if alone and left is None and batch.source in self._open:
                    self._open[batch.source] = self._open[batch.source][0], 0.0
                self.closed = self.closed or self.size >= self._high
                self._changed.notify_all()
        return True

    def room_left(self, source: str) -> tuple[int, int]:
        """Return the bytes and records for which the open batch of a source has room."""
        with self._changed:
            held = self._open.get(source)
            return (self._capacity, self._rows) if held is None else self._room_left(held[0])

    def wait_until_empty(self, seconds: float | None) -> None:
        """Wait until the buffer is empty, or for ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._full or self._open) or self.stopped.is_set(), seconds)

    def end(self, error: BaseException | None = None) -> None:
        """End the input; :meth:`get` raises the error after the batches before it."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    # -- for the steps -------------------------------------------------------------------------------

    def get(self, timeout: float | None = None, rows: int = 0) -> Any:
        """Return the next batch, None at the end, or :data:`WAKE`; an open batch only if it has ``rows`` records."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                if self._called:
                    self._called = False
                    return WAKE
                if (batch := self._due(rows)) is not None:
                    self.size -= batch.size
                    self.sizes[batch.source] -= batch.size
                    if self.size <= self._low:
                        self.closed = False
                    self._changed.notify_all()
                    break
                if self._ended and not self._open:
                    if self._error is not None:
                        raise self._error
                    return None
                now = time.monotonic()
                if until is not None and now >= until:
                    return WAKE
                times = [due for held, due in self._open.values() if held.rows >= rows]
                times += [] if until is None else [until]
                self._changed.wait(max(min(times) - now, 0.0) if times else None)
        return _joined(batch)

    def wake(self) -> None:
        """Make :meth:`get` return :data:`WAKE`."""
        with self._changed:
            self._called = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the buffer, and wake a reader that waits in :meth:`put`."""
        with self._changed:
            self.stopped.set()
            self._changed.notify_all()

    # -- with the lock held --------------------------------------------------------------------------

    def _add(self, batch: BufferedBatch) -> BufferedBatch | None:
        """Add what fits into the open batch; returns the rest."""
        name, rest = batch.source, None
        if name in self._open and self._open[name][0].inputs.keys() != batch.inputs.keys():
            self._close(name)  # sources that are read in sequence share no batch
        held = self._open[name][0] if name in self._open else None
        size, rows = (self._capacity, self._rows) if held is None else self._room_left(held)
        if batch.size > size or batch.rows > rows:
            n = _cut(batch, size, rows)
            if n == 0 and held is not None and held.rows:
                self._close(name, full=True)
                return batch
            if n is not None and (parts := batch.split(max(n, 1))) is not None:
                batch, rest = parts
        self.size += batch.size
        self.sizes[name] = self.sizes.get(name, 0) + batch.size
        self.max_size = max(self.max_size, self.size)
        if held is None:
            held = batch
            self._open[name] = held, time.monotonic() + self._flush_s
        else:
            held.extend(batch)
        size, rows = self._room_left(held)
        # a batch without room for one more record of its average size is full
        if rest is not None or rows <= 0 or size <= 0 or size * held.rows < held.size:
            self._close(name, full=True)
        if self._within >= MAX_UNCOMMITTED and batch.offset is not None:
            for other in list(self._open):
                self._close(other)
        return rest

    def _room_left(self, held: BufferedBatch) -> tuple[int, int]:
        return self._capacity - held.size, self._rows - held.rows

    def _close(self, name: str, *, full: bool = False) -> None:
        batch, _ = self._open.pop(name)
        batch.full = full
        (self._partial_sources.discard if batch.offset is not None else self._partial_sources.add)(name)
        self._within = self._within + 1 if self._partial_sources else 0
        self._full.append(batch)
        self._waiting[name] += 1

    def _due(self, rows: int) -> BufferedBatch | None:
        now = time.monotonic()
        for name, (held, due) in list(self._open.items()):
            # while a full batch of the same source waits it may go on growing, but not while those of others wait
            if not self._waiting[name] and (self.closed or self._ended or (now >= due and held.rows >= rows)):
                self._close(name, full=self.closed)
        if not self._full:
            return None
        batch = self._full.popleft()
        self._waiting[batch.source] -= 1
        return batch


def rows_within(batch: pa.RecordBatch, max_bytes: int) -> int:
    """Return how many of the first records have at most ``max_bytes`` bytes together.

    >>> rows_within(pa.record_batch({"value": [1.0, 2.0, 3.0]}), 20)
    2
    """
    if batch_bytes(batch) <= max_bytes:
        return int(batch.num_rows)
    if batch_bytes(batch.slice(0, 1)) > max_bytes:  # common where a batch is almost full
        return 0
    return bisect_right(range(1, batch.num_rows + 1), max_bytes, key=lambda n: batch_bytes(batch.slice(0, n)))


def _cut(batch: BufferedBatch, size: int, rows: int) -> int | None:
    """Return how many of the first records fit; None if the batch cannot be split."""
    if len(batch.inputs) != 1:
        return None
    (batches,) = batch.inputs.values()
    if len(batches) != 1 or not batch.rows:
        return None
    return rows_within(batches[0].slice(0, max(rows, 0)), size) if size > 0 else 0


def _joined(batch: BufferedBatch) -> BufferedBatch:
    """Concatenate small batches of one schema; heartbeats, which have no records, stay separate."""
    for stream, batches in batch.inputs.items():
        if len(batches) > 1:
            batch.inputs[stream] = []
            for (small, _), alike in groupby(
                batches, key=lambda b: (b.num_rows > 0 and b.nbytes < LARGE_BYTES, b.schema)
            ):
                run = list(alike)
                batch.inputs[stream] += [pa.concat_batches(run, MEMORY_POOL)] if small and len(run) > 1 else run
    return batch
