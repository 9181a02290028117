"""The watermark of a task: merges the watermarks of its inputs into the moves of stream time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import AGREEING, NEVER, WATERMARKS, StepClock, Ticks
from riot_ops.core.order import TIMER_OFFSET
from riot_ops.ingest.watermarks import generate_watermarks
from riot_ops.kernels.arrays.arrow import int_column, readonly
from riot_ops.kernels.arrays.ordering import are_sorted
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.kernels.jit import kernel

__all__ = ["Watermark"]

Numbers = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@kernel
def _moves(
    seq: Any, times: Any, beats: Any, state: Any, shown: Any, last: Any, cell: Any, ahead: Any, behind: Any,
    at_once: Any, once: Any, base: Any, lag: Any, period: Any, moved: Any, until: Any, before: Any,
) -> Any:  # fmt: skip
    """Find the messages whose watermarks move stream time; returns ``(number of moves, stream time, last message)``.

    The watermarks are in order, and the rules are those of :mod:`riot_ops.core.clock`: a time agrees with another if
    its cell is at most ``ahead`` after and ``behind`` before the other's; if these are negative, all do. With
    ``at_once`` a time ahead moves stream time without a vote.

    ``state`` is ``(time, support, votes, largest vote, sure)``, where ``sure`` is the last time with full support.
    With ``at_once`` stream time is not before ``sure``. ``before`` gets ``sure`` before each move.

    With ``once`` a message moves time once, to where its last watermark leaves it, as each heartbeat (``beats``) before
    it does. With a ``period`` > 0 only the first move is reported, those back, and those by which stream time less
    ``lag`` passes a multiple of it, counted from ``base``, or from the first time where ``base`` is NEVER.
    """
    now, support, votes, rival, sure = state[0], state[1], state[2], state[3], state[4]
    n = 0
    mover = 0  # the heartbeat of the last move, 0 if it was a record
    due = shown
    if period > 0 and shown != NEVER:
        due = shown + period - (shown - lag - base) % period
    for i in range(times.size):
        t = times[i]
        rest = sure
        if ahead < 0:
            if now != NEVER and t <= now:
                continue
            now = t
        elif now == NEVER:
            now = t
            support = 1
        else:
            away = t // cell - now // cell
            if -behind <= away <= ahead:
                votes = 0
                support = min(support + 1, AGREEING)
                now = max(now, t)
            elif at_once and away > 0:
                now = t
                support = 1
                votes = 0
            else:
                apart = t // cell - rival // cell
                if votes > 0 and -behind <= apart <= ahead:
                    votes += 1
                    rival = max(rival, t)
                else:
                    votes = 1
                    rival = t
                if votes >= support:
                    now = rival
                    support = votes
                    votes = 0
            if support >= AGREEING:
                sure = now
        seen = max(now, sure) if at_once else now
        if seen == shown:
            continue
        back = seen < shown
        shown = seen
        last = seq[i]
        if period > 0 and seen < due and not back:
            continue
        if period > 0:
            base = seen if base == NEVER else base
            due = seen + period - (seen - lag - base) % period
        if not once or n == 0 or moved[n - 1] != seq[i] or mover != beats[i]:
            before[n] = rest
            n += 1
        mover = beats[i]
        moved[n - 1] = seq[i]
        until[n - 1] = seen
    state[0], state[1], state[2], state[3], state[4] = now, support, votes, rival, sure
    return n, shown, last


@kernel
def _place_between(
    numbers: Any, places: Any, begin: Any, moved: Any, until: Any, now: Any, rows: Any, times: Any, seq: Any
) -> Any:  # fmt: skip
    """Place the moves of stream time between rows, by message number; returns the number of moves.

    A move precedes the first record of its message, and so follows the timer output that earlier tasks emitted for
    that message, whose ``places`` are negative (the array is empty if there is none). Each such row was due at its own
    time, which is its place plus ``begin``: at that row stream time has only come to just before that time.
    """
    n = 0
    low = 0
    shown = now
    for m in range(moved.size):
        back = until[m] < shown  # output of the earlier time is first
        shown = until[m]
        high = numbers.size
        step = 1  # gallop: the message's first row is mostly near
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
            if t >= until[m] and not back:
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


class Watermark:
    """The stream time of one task and bucket of keys, merged from the watermarks that it receives.

    Spark's watermark is one value per query that advances between micro-batches; this one belongs to a task and
    advances between two records, so it does not depend on how the stream is cut into batches.

    Attributes
    ----------
    now : int
        Stream time in microseconds, before ``lag`` is subtracted; :data:`NEVER` before the first watermark.
    seq : int
        The message that moved it there.
    first : int
        The first event time; :data:`NEVER` before the first watermark.
    ending : bool
        Whether the stream ends: stream time then also follows the timer output of earlier tasks, up to its last due
        time.
    """

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock
        self.now = self.first = NEVER
        self.seq = 0
        self.ending = False
        self._before_end: tuple[int, int, Numbers] | None = None
        #: Time, support, votes, the largest vote and the sure time, see :func:`_moves`.
        self._votes = np.array([NEVER, 0, 0, NEVER, NEVER])
        self._cell = cell = clock.cell
        self._cells_ahead = self._cells_behind = -1  # in cells
        if cell:
            self._cells_ahead = max(1, (clock.max_ahead or 0) // cell)
            self._cells_behind = max(self._cells_ahead, -(-clock.max_lag // cell))

    @property
    def sure(self) -> int:
        """The stream time before which a key's age counts for good: keys that were too old by it are dropped."""
        return int(self._votes[4]) if self._cell else self.now

    def ticks(
        self,
        batch: pa.RecordBatch | None,
        watermarks: Sequence[pa.RecordBatch],
        first: str = "seq",
    ) -> Ticks:
        """Return how stream time moves over the rows of a batch, by the watermarks beside it.

        For a task outside a dataflow these are the watermarks of the rows themselves. ``first`` is the field that
        orders rows and watermarks. A batch without ``seq`` is numbered by its rows. In order of event time, the
        watermarks in order of their messages decide where stream time ends, and going back comes before the first row;
        it then passes each event time up to there, also those of the rows, not only each new maximum.
        """
        clock, own = self.clock, None
        if batch is not None and (not clock.streams or first != "seq"):
            own = generate_watermarks(batch, clock.resolution, self._cell, clock.votes_per_run, clock.lag)
            if not clock.streams:
                watermarks, own = [own], None
        seq, times, beats = (
            np.concatenate([_NONE, *(int_column(m.column(name)) for m in watermarks)])
            if len(watermarks) != 1
            else int_column(watermarks[0].column(name))
            for name in WATERMARKS.names
        )
        if not are_sorted([seq, beats], seq.size):
            order = np.lexsort([beats, seq])
            seq, times, beats = seq[order], times[order], beats[order]
        before = self.now
        moved, until, sure = (np.empty(seq.size, np.int64) for _ in range(3))
        n, now, last = _moves(
            readonly(seq), readonly(times), readonly(beats), self._votes, before, self.seq, max(self._cell, 1),
            self._cells_ahead, self._cells_behind, clock.max_ahead is None, first == "seq", self.origin,
            clock.lag, clock.period if first == "seq" else 0, moved, until, sure,
        )  # fmt: skip
        self.now, self.seq = int(now), int(last)
        self.first = int(until[0]) if before == NEVER < self.now else self.first
        sure = sure[:n]
        if first == "seq":
            seq, times = moved[:n], until[:n]
        else:
            if own is not None:
                more, seen = int_column(own.column("seq")), int_column(own.column("event_time"))
                seq, times = np.append(seq, more), np.append(times, seen)
                if self.ending and seen.size and self.now < (end := int(seen.max())):
                    self._before_end = self.now, self.seq, self._votes.copy()
                    self.now, self.seq = end, int(more[-1])
            seq, times = self._passed(seq, times, before)
            sure = np.full(times.size, sure[0] if n else NEVER)
        if self.ending and first == "seq" and batch is not None and (end := _last_due_time(batch)) > self.now > NEVER:
            self._before_end = self.now, self.seq, self._votes.copy()
            self.now, self.seq = end, int(int_column(batch.column("seq"))[-1])
            if n and seq[-1] == self.seq:
                times[-1] = end
            else:
                seq, times, sure = np.append(seq, self.seq), np.append(times, end), np.append(sure, NEVER)
        lag = clock.lag
        earlier = np.concatenate([[before], times[:-1]]) if self._cell else times
        reversals = np.flatnonzero(times < earlier)
        if clock.max_ahead is not None:  # then all stream time counts for good
            sure = earlier
        found = [(int(seq[m]), int(sure[m]) - lag if sure[m] != NEVER else NEVER) for m in reversals]
        if batch is None or not batch.num_rows:
            rows = np.zeros(times.size, np.int64)
        elif first != "seq":
            rows = np.searchsorted(microseconds(batch.column(first))[0], times - lag)
            rows[: reversals[-1] + 1 if reversals.size else 0] = 0
        else:
            rows, times, seq = _place_moves(batch, before, times, seq)
        start = before if before == NEVER else before - lag
        return Ticks(start, rows, times - lag, seq, clock.resolution, lag, self.origin, tuple(found))

    def _passed(self, seq: Numbers, times: Numbers, before: int) -> tuple[Numbers, Numbers]:
        """Return the moves in order of event time: back, where time is earlier now, and up to each watermark."""
        low = before if self.now >= before else (self.now // self._cell - self._cells_behind) * self._cell
        reach = (times > low) & (times <= self.now)
        seq, times = seq[reach], times[reach]
        if self.now != before:
            seq, times = np.append(seq, self.seq), np.append(times, self.now)
        order = np.lexsort([seq, times])
        return seq[order], times[order]

    def advance(self, time: int) -> Ticks | None:
        """Move stream time to a given time; returns None if it is there already."""
        time = time // self.clock.resolution * self.clock.resolution
        if time <= self.now:
            return None
        before, self.now = self.now, time
        self._votes[:] = time, AGREEING, 0, time, time
        self.first = time if before == NEVER else self.first
        lag = self.clock.lag
        moved = np.array([time - lag])
        start = before if before == NEVER else before - lag
        return Ticks(start, np.zeros(1, np.int64), moved, np.array([self.seq]), self.clock.resolution, lag, self.origin)

    def reset_end(self) -> None:
        """Undo the moves of the end of the stream, so that a continued stream follows its records again."""
        self.ending = False
        if self._before_end is not None:
            (self.now, self.seq, self._votes), self._before_end = self._before_end, None

    @property
    def origin(self) -> int:
        """The time from which the task's periods are counted."""
        return self.first if self.clock.from_first else 0

    def snapshot(self) -> list[int]:
        """Return the values that a snapshot of the task's state keeps."""
        first = [self.first] if self.clock.from_first else []
        votes = self._votes.tolist() if self._cell else []
        return [self.now, self.seq, self.clock.lag, *first, *votes]

    def restore(self, saved: list[int]) -> None:
        """Continue from the values of :meth:`snapshot`."""
        self.now, self.seq, _, *rest = saved
        self.first = rest.pop(0) if self.clock.from_first else self.now  # unused where periods do not count from it
        self._votes[:] = rest or (self.now, 0 if self.now == NEVER else AGREEING, 0, self.now, self.now)


def _last_due_time(batch: pa.RecordBatch) -> int:
    """Return the due time of the last row of timer output in a batch; NEVER if it has none."""
    first = int_column(batch.column("ordinal")) if "ordinal" in batch.schema.names else _NONE
    first = first[first < 0]
    return int(first.max()) + TIMER_OFFSET if first.size else NEVER


def _place_moves(batch: pa.RecordBatch, now: int, times: Numbers, seq: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return ``(rows, times, messages)`` of the moves of stream time over the rows of a batch."""
    numbers = int_column(batch.column("seq")) if "seq" in batch.schema.names else np.arange(batch.num_rows)
    places = int_column(batch.column("ordinal")) if times.size and "ordinal" in batch.schema.names else _NONE
    room = times.size + places.size
    found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    n = _place_between(readonly(numbers), readonly(places), TIMER_OFFSET, readonly(seq), readonly(times), now, *found)
    rows, times, seq = (one[:n] for one in found)
    return rows, times, seq
