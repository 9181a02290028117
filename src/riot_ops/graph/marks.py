"""Where stream time may move: the step that tells it of the records that it sees, and how several tell it together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import MARKS, NEVER, StepClock, Ticks
from riot_ops.core.order import due, subs
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrow import int_column, readonly
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.timestamps import microseconds

__all__ = ["Marks", "StreamTime", "marks_of"]


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
    return pa.RecordBatch.from_arrays([pa.array(found), pa.array(floors[:n] + lag).cast(TIMESTAMP)], schema=MARKS)


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
def _moves(times: Any, now: Any, ahead: Any, moves: Any) -> Any:
    """Which marks, in order, move stream time; ``ahead`` is how far one may, -1 for any. Returns how many."""
    n = 0
    for i in range(times.size):
        t = times[i]
        moves[i] = now == NEVER or (t > now and (ahead < 0 or t - now <= ahead))
        if moves[i]:
            now = t
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
        seq, times = (np.concatenate([int_column(m.column(name)) for m in marks] or [_NONE]) for name in MARKS.names)
        order = np.argsort(seq, kind="stable") if first == "seq" else np.lexsort((seq, times))
        seq, times = seq[order], times[order]
        moves = np.empty(times.size, np.bool_)
        ahead = -1 if self.clock.max_ahead is None else self.clock.max_ahead
        before = self.now
        if _moves(readonly(times), before, ahead, moves):
            seq, times = seq[moves], times[moves]
            self.first = int(times[0]) if before == NEVER else self.first
            self.now, self.seq = int(times[-1]), int(seq[-1])
        else:
            seq, times = _NONE, _NONE
        if self.ending and first == "seq" and batch is not None and (end := _last_due(batch)) > self.now > NEVER:
            self._before_end = self.now, self.seq
            self.now, self.seq = end, int(int_column(batch.column("seq"))[-1])
            seq, times = np.append(seq, self.seq), np.append(times, end)
        if first == "seq" and times.size:  # a message moves it once, before the first of its records
            last = np.append(seq[1:] != seq[:-1], True)
            seq, times = seq[last], times[last]
        if batch is None or not batch.num_rows:
            rows = np.zeros(times.size, np.int64)
        elif first != "seq":
            rows = np.searchsorted(int_column(batch.column(first)), times - self.clock.lag)
        else:
            rows, times, seq = _among(batch, before, times, seq)
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


def _last_due(batch: pa.RecordBatch) -> int:
    """When the last of the records was due that tasks above gave because time had come; NEVER where none is such."""
    places = subs(batch.schema.names)
    first = int_column(batch.column(places[0])) if places else _NONE
    first = first[first < 0]
    return int(due(first).max()) if first.size else NEVER


_NONE = np.empty(0, np.int64)
Numbers = npt.NDArray[np.int64]


def _among(batch: pa.RecordBatch, now: int, times: Numbers, seq: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """``(rows, times, messages)`` of moves of stream time in the order of messages.

    A move comes before the first record of its message, and so behind what tasks above gave because of it. But
    each of these was due at a time of its own: until then stream time has only come to just before that.
    """
    numbers = int_column(batch.column("seq")) if "seq" in batch.schema.names else np.arange(batch.num_rows)
    rows = np.searchsorted(numbers, seq)
    places = subs(batch.schema.names)
    if not places or not times.size:
        return rows, times, seq
    first = int_column(batch.column(places[0]))
    early = np.flatnonzero(first < 0)
    move = np.searchsorted(seq, numbers[early], side="right") - 1
    until = due(first[early]) - 1
    sooner = (move >= 0) & (seq[move] == numbers[early]) & (until < times[move])
    early, move, until = early[sooner], move[sooner], until[sooner]
    np.maximum.at(rows, move, early + 1)
    rows, times, seq = (np.concatenate(pair) for pair in ((rows, early), (times, until), (seq, seq[move])))
    order = np.lexsort((times, rows))
    rows, times, seq = rows[order], times[order], seq[order]
    grows = times > np.maximum.accumulate(np.append(now, times[:-1]))
    return rows[grows], times[grows], seq[grows]
