"""Stream time: the progress of event time in a stream, and the clocks by which it calls tasks.

The *stream time* at a message is the largest event time of all messages up to it, in the order of their numbers, as
far as these times agree (:data:`AGREEING`). It depends on nothing else: neither on how the stream is cut into batches,
splits or micro-batches, nor on the bucket of keys. The engine calls a task with a :class:`Clock` when stream time
passes a multiple of its period, between two records and for all keys of the task, including those without new records.

The reader of a range of messages emits *watermarks* where stream time may move. They go to every bucket beside the
records (:mod:`riot_ops.ingest.watermarks`), are merged in order, and become the :class:`Ticks` of a batch.

Where times disagree, stream time *t* with support *c* (the number of records in a row that agreed with it, at most
*k* = :data:`AGREEING`) follows these rules for a record of event time *e*. If ``t - b <= e <= t + a``, it agrees: ``t
= max(t, e)``, and *c* grows. Otherwise it is a vote against *t*; consecutive votes that agree with the largest of
them are counted, and once they are *c*, *t* becomes the largest of them and *c* their number. *a* is the clock's
``max_ahead``, *b* the longer of it and the lateness that the dataflow allows; without ``max_ahead``, *t* is the plain
maximum. The ``ttl`` of a task without a clock has *a* = *b* = a day (or the ttl, if that is longer), and later times
need no votes: they move *t* at once, until the next record takes that back. A heartbeat counts as a record, just before
the message that it precedes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import as_timedelta
from riot_ops.core.schema import TIMESTAMP

__all__ = [
    "AGREEING",
    "END",
    "FIRST_HEARTBEAT",
    "HEARTBEATS_OF_SOURCE",
    "MAX_PLACE",
    "NEVER",
    "WATERMARKS",
    "Clock",
    "StepClock",
    "Ticks",
    "aging_cell",
    "common_resolution",
    "to_microseconds",
    "whole_periods_us",
]

#: A watermark: the number of a message, the stream time that it may have moved to, rounded down, and 0. A heartbeat
#: before that message has a negative number in place of the 0, by which the heartbeats before one message are ordered.
WATERMARKS = pa.schema([("seq", pa.int64()), ("event_time", TIMESTAMP), ("heartbeat", pa.int64())])
#: The number of the first heartbeat that a worker reads in one part of a stream. Sources that are read as one log have
#: this many numbers each, up to a maximum place.
FIRST_HEARTBEAT = -(1 << 62)
HEARTBEATS_OF_SOURCE, MAX_PLACE = 1 << 52, 1023

#: The stream time before the first event time, in microseconds.
NEVER = int(np.iinfo(np.int64).min)
#: The stream time at the end of a bounded stream, in microseconds: later than any event time.
END = 1 << 61
#: Number of consecutive records with similar event times that move stream time to them, however far away they are;
#: fewer if stream time itself rests on fewer.
AGREEING = 3
#: Event times of neighbouring days (or of a longer time to live) agree for tasks that only remove keys by age.
DAY = timedelta(days=1)


def to_microseconds(time: timedelta | str) -> int:
    """Convert a duration to microseconds."""
    return as_timedelta(time) // timedelta(microseconds=1)


@dataclass(frozen=True)
class Clock:
    """When stream time calls a keyed task.

    Parameters
    ----------
    period : timedelta > 0
        The engine calls the task when stream time, less ``allowed_lateness``, passes a multiple of it.
    allowed_lateness : timedelta >= 0, default 0
        How far a record may lag behind stream time. The output of the task is late by as much.
    max_ahead : timedelta > 0, optional
        How far an event time may be ahead of stream time and still advance it; by default any distance. Stream time
        moves to event times farther away, ahead or behind, once :data:`AGREEING` consecutive records agree on them.
    from_first : bool, default False
        Whether periods count from the first event time of the stream instead of from 1970. Watermarks are then exact to
        the microsecond, one for each record that advances stream time.
    whole_periods : bool, default False
        Whether only the number of passed periods matters to the task, which then has no ``allowed_lateness``: the ticks
        contain only the moves of stream time that pass a multiple of the period. The ``ttl`` of its keys counts by
        these moves, too.

    Examples
    --------
    >>> from datetime import timedelta
    >>> Clock(timedelta(minutes=1), allowed_lateness=timedelta(seconds=5)).period
    datetime.timedelta(seconds=60)
    >>> Clock(timedelta(0))
    Traceback (most recent call last):
        ...
    riot_ops.core.errors.ConfigError: period must be longer than 0, got datetime.timedelta(0)
    """

    period: timedelta
    allowed_lateness: timedelta = timedelta(0)
    max_ahead: timedelta | None = None
    from_first: bool = False
    whole_periods: bool = False

    def __post_init__(self) -> None:
        for name in ("period", "max_ahead"):
            value = getattr(self, name)
            if value is not None and value <= timedelta(0):
                raise ConfigError(f"{name} must be longer than 0, got {value!r}")
        if self.allowed_lateness < timedelta(0):
            raise ConfigError(f"allowed_lateness must not be negative, got {self.allowed_lateness!r}")
        if self.whole_periods and self.allowed_lateness:
            raise ConfigError(f"whole periods have no allowed_lateness, got {self.allowed_lateness!r}")


@dataclass(frozen=True)
class StepClock:
    """The clock of one step of a dataflow.

    Attributes
    ----------
    streams : tuple of str
        Streams of watermarks; the latest of them is stream time.
    resolution : int
        Watermarks are multiples of it, in microseconds. It divides every duration of the dataflow's clocks.
    lag : int
        By how many microseconds the upstream tasks delay their output: stream time here is earlier by it.
    max_ahead : int or None
        The smallest ``max_ahead`` of the task and its upstream tasks, in microseconds.
    from_first : bool
        Whether the task's periods count from the first event time.
    period : int
        The ticks contain only moves of stream time that pass a multiple of it, in microseconds; 0: all moves.
    max_lag : int
        By how many microseconds a record may lag anywhere in the dataflow: such a time agrees with stream time.
    aging : int
        For a task without a clock of its own, whose keys have a time to live: event times in the same cell of this
        length, or in neighbouring ones, agree; 0: the task has a clock.
    """

    streams: tuple[str, ...]
    resolution: int
    lag: int = 0
    max_ahead: int | None = None
    from_first: bool = False
    period: int = 0
    max_lag: int = 0
    aging: int = 0

    @functools.cached_property
    def cell(self) -> int:
        """The length of the cells by which times agree, in microseconds; 0: all times do."""
        return self.aging if self.max_ahead is None else self.resolution

    @property
    def votes_per_run(self) -> int:
        """How many watermarks of a run of records in one cell matter, besides new maxima."""
        return AGREEING if self.cell else 1


def common_resolution(clocks: Iterable[Clock]) -> int:
    """The largest number of microseconds that divides all durations of the clocks; 1 if one counts from the first time.

    >>> common_resolution([Clock(timedelta(minutes=1), allowed_lateness=timedelta(seconds=45))]) // 1_000_000
    15
    """
    clocks = tuple(clocks)
    if any(clock.from_first for clock in clocks):
        return 1
    return math.gcd(
        *(
            to_microseconds(time)
            for clock in clocks
            for time in (clock.period, clock.allowed_lateness, clock.max_ahead)
            if time is not None and time
        )
    )


def aging_cell(resolution: int, ttls: Iterable[timedelta]) -> int:
    """The length of the cells of :attr:`StepClock.aging`: a day or the longest time to live, in whole resolutions.

    >>> aging_cell(7_000_000, [timedelta(seconds=112)]) // 1_000_000 - 86_400
    1
    """
    return -(-to_microseconds(max(DAY, *ttls)) // resolution) * resolution


def whole_periods_us(clocks: Iterable[Clock]) -> int:
    """Return the period in microseconds if a task has a single clock that counts whole periods; otherwise 0.

    >>> period = timedelta(seconds=2)
    >>> whole_periods_us([Clock(period, whole_periods=True)]), whole_periods_us([Clock(period)])
    (2000000, 0)
    """
    clocks = tuple(clocks)
    return to_microseconds(clocks[0].period) if len(clocks) == 1 and clocks[0].whole_periods else 0


@dataclass(frozen=True)
class Ticks:
    """How stream time moves over the rows of a batch: before row ``rows[i]`` it advances to ``times[i]``.

    Attributes
    ----------
    start : int
        Stream time before the first row, in microseconds; :data:`NEVER` before the first event time.
    rows, times, seq : arrays of int64, shape (n,)
        Row (the number of rows: after the last), stream time, and the number of the message that moved it.
    resolution : int
        Stream time is rounded down to a multiple of it, in microseconds.
    lag : int
        By how much stream time is delayed here, see :class:`StepClock`.
    origin : int
        Where the task's periods start to count, in microseconds; :data:`NEVER` if that is the first event time and
        there is none yet.
    reversals : tuple of (int, int)
        By move to an earlier time, in order: the message, and the time that was sure before, by which keys have aged
        for good.
    """

    start: int
    rows: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    seq: npt.NDArray[np.int64]
    resolution: int = 1
    lag: int = 0
    origin: int = 0
    reversals: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        """Stream time after the last row."""
        return int(self.times[-1]) if self.times.size else self.start

    @property
    def moments(self) -> npt.NDArray[np.int64]:
        """Stream time before the first row and after each move."""
        return np.concatenate([[self.start], self.times])

    def at_rows(self, n: int, values: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """Stream time at each of the n rows; or the element of ``values``, which has one per item of :attr:`moments`.

        >>> Ticks(NEVER, np.array([1, 3]), np.array([10, 20]), np.array([7, 9])).at_rows(4)[1:].tolist()
        [10, 10, 20]
        """
        edges = np.concatenate([[0], self.rows, [n]])
        return np.repeat(self.moments if values is None else values, np.diff(edges))
