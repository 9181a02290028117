"""Where stream time may move: the step that tells it of the records that it sees, and how several tell it together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import MARKS, NEVER, StepClock, Ticks
from riot_ops.core.order import due, ordinals
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import int_column, readonly
from riot_ops.kernels.arrays.ordering import are_sorted
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.timestamps import from_microseconds, microseconds

__all__ = ["Marks", "StreamTime", "marks_of"]

Numbers = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Marks:
    """Tells where the stream time of the records that it sees may move.

    It has no state: each batch is looked at as if nothing had come before, so that whoever reads a part of a stream
    tells enough of it.

    Parameters
    ----------
    resolution : int
        Stream time is rounded down to a multiple of so many microseconds.
    guarded : bool
        Whether a time may be too far ahead to move stream time.
    """

    resolution: int
    guarded: bool

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The marks of a batch."""
        return marks_of(batch, self.resolution, self.guarded)


def marks_of(batch: pa.RecordBatch, resolution: int, guarded: bool, lag: int = 0) -> pa.RecordBatch:
    """The marks of a batch whose rows are in order; where there is no ``seq``, by the numbers of its rows.

    ``lag`` is by how much the rows are late, see :class:`~riot_ops.core.clock.StepClock`.
    """
    times, present = microseconds(batch.column("event_time"))
    rows, floors = np.empty(times.size, np.int64), np.empty(times.size, np.int64)
    n = _mark(times, present, resolution, guarded, np.empty(times.size, np.int64), rows, floors)
    found = rows[:n]
    if "seq" in batch.schema.names:
        found = int_column(batch.column("seq"))[found]
    return pa.RecordBatch.from_arrays([pa.array(found), from_microseconds(floors[:n] + lag, TIMESTAMP)], schema=MARKS)


@kernel
def _mark(times: Any, present: Any, resolution: Any, guarded: Any, stack: Any, rows: Any, floors: Any) -> Any:
    """Rows at which stream time may move, and where to; returns how many.

    That is where the largest time so far grows. But where a time may be too far ahead, what came before the batch
    decides: then one is passed over only if it has been marked and no smaller one since. For if it was too far ahead
    then, it still is, and else it has moved stream time. (``stack`` has those, in ascending order.)
    """
    top = 0
    n = 0
    for i in range(times.size):
        if not present[i]:
            continue
        if top > 0 and times[i] < stack[top - 1] + resolution and (not guarded or times[i] >= stack[top - 1]):
            continue
        floor = times[i] // resolution * resolution
        if guarded:
            while top > 0 and stack[top - 1] > floor:
                top -= 1
        if top > 0 and stack[top - 1] >= floor:
            continue
        if guarded or top == 0:
            top += 1
        stack[top - 1] = floor
        rows[n] = i
        floors[n] = floor
        n += 1
    return n


@kernel
def _moves(
    seq: Any, times: Any, now: Any, last: Any, ahead: Any, once: Any, base: Any, lag: Any, period: Any, moved: Any,
    until: Any,
) -> Any:  # fmt: skip
    """Messages that move stream time, of marks in order, and where to; ``(how many, stream time, last of them)``.

    ``ahead`` is how far one may, -1 for any. With ``once`` a message moves it once, as far as any mark of it says. Of a
    ``period``, which counts from ``base`` on or, where that is NEVER, from the first time, only those moves are told by
    which time less the ``lag`` passes a multiple, and the first; of 0 all.
    """
    n = 0
    due = now
    if period > 0 and now != NEVER:
        due = now + period - (now - lag - base) % period
    for i in range(times.size):
        t = times[i]
        if now == NEVER or (t > now and (ahead < 0 or t - now <= ahead)):
            now = t
            last = seq[i]
            if t < due:
                continue
            if period > 0:
                base = t if base == NEVER else base
                due = t + period - (t - lag - base) % period
            if not once or n == 0 or moved[n - 1] != seq[i]:
                n += 1
            moved[n - 1] = seq[i]
            until[n - 1] = t
    return n, now, last


@kernel
def _among(
    numbers: Any, places: Any, begin: Any, moved: Any, until: Any, now: Any, rows: Any, times: Any, seq: Any
) -> Any:  # fmt: skip
    """Moves of stream time among rows, which have the numbers of messages, in order; returns how many.

    A move comes before the first record of its message, and so behind what tasks above gave because of it, whose
    ``places`` (of none: empty) are negative. But each of these was due at a time of its own, its place and ``begin``
    together: until then stream time has only come to just before that.
    """
    n = 0
    low = 0
    for m in range(moved.size):
        high = numbers.size
        step = 1  # the first row of the message or behind it, which is mostly not far
        while low + step < high:
            if numbers[low + step] >= moved[m]:
                high = low + step
            else:
                low += step
                step *= 2
        while low < high:
            middle = (low + high) >> 1
            if numbers[middle] < moved[m]:
                low = middle + 1
            else:
                high = middle
        while low < numbers.size and numbers[low] == moved[m] and places.size > 0 and places[low] < 0:
            t = places[low] + begin - 1
            if t >= until[m]:
                break
            k = n
            while k > 0 and rows[k - 1] == low and times[k - 1] > t:
                k -= 1
            if t > (times[k - 1] if k > 0 else now):
                for j in range(n, k, -1):
                    rows[j], times[j], seq[j] = rows[j - 1], times[j - 1], seq[j - 1]
                rows[k], times[k], seq[k] = low, t, moved[m]
                n += 1
            low += 1
        rows[n], times[n], seq[n] = low, until[m], moved[m]
        n += 1
    return n


class StreamTime:
    """The stream time of one task (and bucket of keys), from the marks that come to it.

    Attributes
    ----------
    now : int
        Stream time in microseconds, nothing taken from it; :data:`NEVER` before the first mark.
    seq : int
        The message that moved it there.
    first : int
        The first event time; :data:`NEVER` before the first mark.
    """

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock
        self.now = self.first = NEVER
        self.seq = 0
        #: Whether the stream ends: then time follows what tasks above release, up to when the last of it was due.
        self.ending = False
        self._before_end: tuple[int, int] | None = None

    def ticks(self, batch: pa.RecordBatch | None, marks: Sequence[pa.RecordBatch], first: str = "seq") -> Ticks:
        """How stream time moves over the rows of a batch in order, by the marks that came with it.

        ``first`` is the field that orders rows and marks. Rows of a batch without ``seq`` have the numbers of their
        places.
        """
        seq, times = (_end_to_end([int_column(m.column(name)) for m in marks]) for name in MARKS.names)
        by = [seq] if first == "seq" else [times, seq]
        if not are_sorted(by, seq.size):
            order = np.lexsort(by[::-1])
            seq, times = seq[order], times[order]
        ahead = -1 if self.clock.max_ahead is None else self.clock.max_ahead
        before = self.now
        moved, until = np.empty(seq.size, np.int64), np.empty(seq.size, np.int64)
        n, now, last = _moves(
            readonly(seq), readonly(times), before, self.seq, ahead, first == "seq", self.origin, self.clock.lag,
            self.clock.period, moved, until,
        )  # fmt: skip
        self.now, self.seq = int(now), int(last)
        self.first = int(times[0]) if before == NEVER < self.now else self.first
        seq, times = moved[:n], until[:n]
        if self.ending and first == "seq" and batch is not None and (end := _last_due(batch)) > self.now > NEVER:
            self._before_end = self.now, self.seq
            self.now, self.seq = end, int(int_column(batch.column("seq"))[-1])
            if n and seq[-1] == self.seq:
                times[-1] = end
            else:
                seq, times = np.append(seq, self.seq), np.append(times, end)
        if batch is None or not batch.num_rows:
            rows = np.zeros(times.size, np.int64)
        elif first != "seq":
            rows = np.searchsorted(int_column(batch.column(first)), times - self.clock.lag)
        else:
            rows, times, seq = _placed(batch, before, times, seq)
        lag = self.clock.lag
        start = before if before == NEVER else before - lag
        return Ticks(start, rows, times - lag, seq, self.clock.resolution, lag, self.origin)

    def advance(self, time: int) -> Ticks | None:
        """Stream time as somebody knows it; None where it has come so far already."""
        time = time // self.clock.resolution * self.clock.resolution
        if time <= self.now:
            return None
        before, self.now = self.now, time
        self.first = time if before == NEVER else self.first
        lag = self.clock.lag
        moved = np.array([time - lag])
        start = before if before == NEVER else before - lag
        return Ticks(start, np.zeros(1, np.int64), moved, np.array([self.seq]), self.clock.resolution, lag, self.origin)

    def ended(self) -> None:
        """The stream has ended: should it go on, its time is what records have told."""
        self.ending = False
        if self._before_end is not None:
            (self.now, self.seq), self._before_end = self._before_end, None

    @property
    def origin(self) -> int:
        """From where the task's periods count."""
        return self.first if self.clock.from_first else 0

    def saved(self) -> list[int]:
        """What a snapshot keeps."""
        first = [self.first] if self.clock.from_first else []
        return [self.now, self.seq, self.clock.lag, *first]

    def restore(self, saved: list[int]) -> None:
        """Go on from what was saved."""
        self.now, self.seq, _, *first = saved
        self.first = first[0] if first else self.now  # of no use then


def _end_to_end(arrays: list[Numbers]) -> Numbers:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [_NONE])


def _last_due(batch: pa.RecordBatch) -> int:
    """When the last of the records was due that tasks above gave because time had come; NEVER where none is such."""
    places = ordinals(batch.schema.names)
    first = int_column(batch.column(places[0])) if places else _NONE
    first = first[first < 0]
    return int(due(first).max()) if first.size else NEVER


def _placed(batch: pa.RecordBatch, now: int, times: Numbers, seq: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """``(rows, times, messages)`` of moves of stream time among the rows of a batch."""
    numbers = int_column(batch.column("seq")) if "seq" in batch.schema.names else np.arange(batch.num_rows)
    names = ordinals(batch.schema.names)
    places = int_column(batch.column(names[0])) if names and times.size else _NONE
    room = times.size + places.size
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    n = _among(readonly(numbers), readonly(places), due(0), readonly(seq), readonly(times), now, *found)
    rows, times, seq = (one[:n] for one in found)
    return rows, times, seq
