"""What lies between the thread that reads and the steps: batches that grow by bytes, bounded by two marks."""

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
from riot_ops.kernels.arrays.arrow import size_of

__all__ = ["WAKE", "Arrival", "Inbound", "fitting"]

#: What :meth:`Inbound.get` gives where nothing came, but somebody called or the time is over.
WAKE = object()
#: So many batches may come while a range is half done; then batches end where a range does, so that the run can commit.
UNCOMMITTED = 8

#: From so many bytes on, what was read at once is not copied to be one with what came before and after it: each batch
#: has a price of its own, but here copying has a greater one.
LARGE = 8 << 20

#: Memory of the C library, which keeps what a batch leaves for the next, see :mod:`riot_ops.runtime.memory`.
KEPT = pa.system_memory_pool()

Inputs = dict[str, list[pa.RecordBatch]]


@dataclass
class Arrival:
    """Records from a source, by the streams that they go into, and the offset behind them."""

    source: str
    inputs: Inputs
    offset: Offset | None  # None: more of the same range follows
    first_us: float = 0.0
    last_us: float = 0.0
    full: bool = False  # more came than it has room for: the steps are behind the source
    rows: int = field(init=False)
    size: int = field(init=False)  # bytes

    def __post_init__(self) -> None:
        self.rows = self.size = 0
        for batches in self.inputs.values():
            for batch in batches:
                self.rows += batch.num_rows
                self.size += size_of(batch)

    def join(self, other: Arrival) -> None:
        """Add what follows, by the same streams."""
        for stream, batches in other.inputs.items():
            self.inputs[stream] += batches
        self.offset, self.last_us = other.offset, other.last_us
        self.rows += other.rows
        self.size += other.size

    def parted(self, rows: int) -> tuple[Arrival, Arrival] | None:
        """The first so many records and the others; None where they cannot be parted."""
        if len(self.inputs) != 1:
            return None
        ((stream, batches),) = self.inputs.items()
        if not 0 < rows < self.rows or not all(batch.num_rows for batch in batches):
            return None
        before, behind, left = list[pa.RecordBatch](), list[pa.RecordBatch](), rows
        for batch in batches:
            n = min(left, batch.num_rows)
            before += [batch.slice(0, n)] if n else []
            behind += [batch.slice(n)] if n < batch.num_rows else []
            left -= n
        times = self.first_us, self.last_us
        first = Arrival(self.source, {stream: before}, None, *times, self.full)
        return first, Arrival(self.source, {stream: behind}, self.offset, *times, self.full)


class Inbound:
    """The batches that wait for the steps; who puts more is held back between the marks ``high`` and ``low``.

    Of each source one batch is open. It goes on when it is full, or else, once the time from its first record is over,
    as soon as the steps are free: they take it themselves, so that no reading that takes long delays it.

    Parameters
    ----------
    buffering : Buffering
    batch_size : int
        Most records in a batch.
    """

    def __init__(self, buffering: Buffering, batch_size: int) -> None:
        self._capacity = buffering.capacity
        self._flush_s = buffering.flush_ms / 1e3
        self._rows = batch_size
        self._high = buffering.high * buffering.room
        self._low = buffering.low * buffering.room
        self._full: deque[Arrival] = deque()
        self._waiting: Counter[str] = Counter()  # full batches by source
        self._open: dict[str, tuple[Arrival, float]] = {}  # with the time at which it is due
        self._changed = threading.Condition()
        self._closed = self._ended = self._called = False
        self._error: BaseException | None = None
        self._halfway: set[str] = set()  # sources whose last batch ended within a range
        self._within = 0  # batches in a row behind which there were such
        self.stopped = threading.Event()
        #: Bytes that wait, and the most that did.
        self.size = self.most = 0

    # -- for who reads -------------------------------------------------------------------------------

    def put(self, arrival: Arrival) -> bool:
        """Add records, cut where a batch is full; waits while the source is held back. False once stopped."""
        left: Arrival | None = arrival
        while left is not None:
            with self._changed:
                while self._closed and not self.stopped.is_set():
                    self._changed.wait()
                if self.stopped.is_set():
                    return False
                left = self._add(left)
                self._closed = self._closed or self.size >= self._high
                self._changed.notify_all()
        return True

    def left(self, source: str) -> tuple[int, int]:
        """Bytes and records that the open batch of a source has room for."""
        with self._changed:
            held = self._open.get(source)
            return (self._capacity, self._rows) if held is None else self._left(held[0])

    def rest(self, seconds: float | None) -> None:
        """Wait until nothing waits here, or so long."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._full or self._open) or self.stopped.is_set(), seconds)

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes; an error is raised for who takes, behind what came before."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    # -- for who takes -------------------------------------------------------------------------------

    def get(self, timeout: float | None = None, rows: int = 0) -> Any:
        """The next batch, None at the end, or :data:`WAKE`; one that still grows only once it has so many records."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                if self._called:
                    self._called = False
                    return WAKE
                if (arrival := self._due(rows)) is not None:
                    self.size -= arrival.size
                    if self.size <= self._low:
                        self._closed = False
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
        return _joined(arrival)

    def wake(self) -> None:
        """Have :meth:`get` give :data:`WAKE`."""
        with self._changed:
            self._called = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing more is taken: who waits to put something is woken."""
        with self._changed:
            self.stopped.set()
            self._changed.notify_all()

    # -- the lock is held ----------------------------------------------------------------------------

    def _add(self, arrival: Arrival) -> Arrival | None:
        """Take what fits into the open batch; gives the rest."""
        name, rest = arrival.source, None
        if name in self._open and self._open[name][0].inputs.keys() != arrival.inputs.keys():
            self._close(name)  # sources that are read in sequence meet in no batch
        held = self._open[name][0] if name in self._open else None
        size, rows = (self._capacity, self._rows) if held is None else self._left(held)
        if arrival.size > size or arrival.rows > rows:
            n = _cut(arrival, size, rows)
            if n == 0 and held is not None and held.rows:
                self._close(name, full=True)
                return arrival
            if n is not None and (parts := arrival.parted(max(n, 1))) is not None:
                arrival, rest = parts
        self.size += arrival.size
        self.most = max(self.most, self.size)
        if held is None:
            held = arrival
            self._open[name] = held, time.monotonic() + self._flush_s
        else:
            held.join(arrival)
        size, rows = self._left(held)
        # one that has no room for a record like those in it is full
        if rest is not None or rows <= 0 or size <= 0 or size * held.rows < held.size:
            self._close(name, full=True)
        if self._within >= UNCOMMITTED and arrival.offset is not None:
            for other in list(self._open):
                self._close(other)
        return rest

    def _left(self, held: Arrival) -> tuple[int, int]:
        return self._capacity - held.size, self._rows - held.rows

    def _close(self, name: str, *, full: bool = False) -> None:
        arrival, _ = self._open.pop(name)
        arrival.full = full
        (self._halfway.discard if arrival.offset is not None else self._halfway.add)(name)
        self._within = self._within + 1 if self._halfway else 0
        self._full.append(arrival)
        self._waiting[name] += 1

    def _due(self, rows: int) -> Arrival | None:
        now = time.monotonic()
        for name, (held, due) in list(self._open.items()):
            # behind a full one of its own source it may go on growing, behind those of others it must not stay
            if not self._waiting[name] and (self._closed or self._ended or (now >= due and held.rows >= rows)):
                self._close(name, full=self._closed)
        if not self._full:
            return None
        arrival = self._full.popleft()
        self._waiting[arrival.source] -= 1
        return arrival


def fitting(batch: pa.RecordBatch, most: int) -> int:
    """How many of the first records have so many bytes together.

    >>> fitting(pa.record_batch({"value": [1.0, 2.0, 3.0]}), 20)
    2
    """
    if size_of(batch) <= most:
        return int(batch.num_rows)
    if size_of(batch.slice(0, 1)) > most:  # as where a batch is as good as full
        return 0
    return bisect_right(range(1, batch.num_rows + 1), most, key=lambda n: size_of(batch.slice(0, n)))


def _cut(arrival: Arrival, size: int, rows: int) -> int | None:
    """How many of the first records fit; None where they cannot be parted."""
    if len(arrival.inputs) != 1:
        return None
    (batches,) = arrival.inputs.values()
    if len(batches) != 1 or not arrival.rows:
        return None
    return fitting(batches[0].slice(0, max(rows, 0)), size) if size > 0 else 0


def _joined(arrival: Arrival) -> Arrival:
    """With one batch of what is small and has one schema; heartbeats, which have no records, stay what they are."""
    for stream, batches in arrival.inputs.items():
        if len(batches) > 1:
            arrival.inputs[stream] = []
            for (small, _), alike in groupby(batches, key=lambda b: (b.num_rows > 0 and b.nbytes < LARGE, b.schema)):
                run = list(alike)
                arrival.inputs[stream] += [pa.concat_batches(run, KEPT)] if small and len(run) > 1 else run
    return arrival
