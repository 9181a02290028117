"""Stream time: how far the event times of a stream have come, and when a task is called because of it.

The *stream time* at a message is the largest event time of all messages up to it, in the order of their numbers. It
depends on nothing else: neither on how the stream is cut into batches, splits or micro-batches, nor on which bucket of
keys looks. A task with a :class:`Clock` is told when stream time passes a multiple of its period, between two records
and for all of its keys, silent ones included.

Whoever reads a range of messages tells where in it stream time may move: these *marks* go to every bucket beside the
records (:mod:`riot_ops.graph.marks`), are merged in order, and become the :class:`Ticks` of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP

__all__ = ["END", "MARKS", "NEVER", "Clock", "StepClock", "Ticks", "common_resolution", "in_us", "whole_period"]

#: A mark: a message, and the stream time that it may have moved to, rounded down.
MARKS = pa.schema([("seq", pa.int64()), ("event_time", TIMESTAMP)])

#: The stream time before the first event time, in microseconds.
NEVER = int(np.iinfo(np.int64).min)
#: Later than any event time.
END = 1 << 61


def in_us(time: timedelta) -> int:
    """A duration in microseconds."""
    return time // timedelta(microseconds=1)


@dataclass(frozen=True)
class Clock:
    """When a keyed task is called by stream time.

    Parameters
    ----------
    period : timedelta > 0
        The task is called when stream time less the delay passes a multiple of it.
    allowed_lateness : timedelta >= 0, default 0
        How far a record may lag behind stream time. Streams behind the task are late by as much.
    max_ahead : timedelta > 0, optional
        How far beyond stream time an event time may be and still move it; None: any. The first one always does.
    from_first : bool, default False
        Whether periods count from the first event time of the stream, instead of from 1970. Marks are then exact to the
        microsecond, so that there is one for each record that moves time.
    whole : bool, default False
        Whether the task, which has no delay, asks only how many periods have passed: it is told of the moves of stream
        time that pass a multiple of the period, and of no other. Its keys age by these, too.
    """

    period: timedelta
    allowed_lateness: timedelta = timedelta(0)
    max_ahead: timedelta | None = None
    from_first: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        for name in ("period", "max_ahead"):
            value = getattr(self, name)
            if value is not None and value <= timedelta(0):
                raise ConfigError(f"{name} must be longer than 0, got {value!r}")
        if self.allowed_lateness < timedelta(0):
            raise ConfigError(f"allowed_lateness must not be negative, got {self.allowed_lateness!r}")
        if self.whole and self.allowed_lateness:
            raise ConfigError(f"whole periods have no allowed_lateness, got {self.allowed_lateness!r}")


@dataclass(frozen=True)
class StepClock:
    """A clock in its place in a dataflow.

    Attributes
    ----------
    streams : tuple of str
        Streams of marks; the foremost of them is stream time.
    resolution : int
        Marks are multiples of it, in microseconds. It divides all that the clocks of the dataflow name.
    lag : int
        By how many microseconds the tasks above delay what they put out: stream time here is so much earlier.
    max_ahead : int or None
        The smallest of the task and of those above it, in microseconds.
    from_first : bool
        Whether the task's periods count from the first event time.
    period : int
        Of its moves those that pass a multiple of it are told, in microseconds; 0: all.
    """

    streams: tuple[str, ...]
    resolution: int
    lag: int = 0
    max_ahead: int | None = None
    from_first: bool = False
    period: int = 0


def common_resolution(clocks: Iterable[Clock]) -> int:
    """The largest number of microseconds that divides all that the clocks name; 1 where one begins at the first time.

    >>> common_resolution([Clock(timedelta(minutes=1), allowed_lateness=timedelta(seconds=45))]) // 1_000_000
    15
    """
    clocks = tuple(clocks)
    if any(clock.from_first for clock in clocks):
        return 1
    return math.gcd(
        *(
            in_us(time)
            for clock in clocks
            for time in (clock.period, clock.allowed_lateness, clock.max_ahead)
            if time is not None and time
        )
    )


def whole_period(clocks: Iterable[Clock]) -> int:
    """The period in microseconds, where a task goes by one clock and by nothing but whole periods of it; else 0.

    >>> whole_period([Clock(timedelta(seconds=2), whole=True)]), whole_period([Clock(timedelta(seconds=2))])
    (2000000, 0)
    """
    clocks = tuple(clocks)
    return in_us(clocks[0].period) if len(clocks) == 1 and clocks[0].whole else 0


@dataclass(frozen=True)
class Ticks:
    """How stream time moves over the rows of a batch: before row ``rows[i]`` it comes to ``times[i]``.

    Attributes
    ----------
    start : int
        Stream time before the first row, in microseconds; :data:`NEVER` where there is none yet.
    rows, times, seq : arrays of int64, shape (n,)
        Row (the number of rows: behind the last), stream time, and the number of the message that moved it.
    resolution : int
        What stream time is rounded down to, in microseconds.
    lag : int
        What has been taken from stream time, see :class:`StepClock`.
    origin : int
        From where the task's periods count, in microseconds; :data:`NEVER` where that is the first event time and
        there is none yet.
    """

    start: int
    rows: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    seq: npt.NDArray[np.int64]
    resolution: int = 1
    lag: int = 0
    origin: int = 0

    @property
    def end(self) -> int:
        """Stream time behind the last row."""
        return int(self.times[-1]) if self.times.size else self.start

    @property
    def moments(self) -> npt.NDArray[np.int64]:
        """Stream time before the first row and behind each move."""
        return np.concatenate([[self.start], self.times])

    def at_rows(self, n: int, of: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """Stream time at each of the n rows, or what there is ``of`` each of the moments.

        >>> Ticks(NEVER, np.array([1, 3]), np.array([10, 20]), np.array([7, 9])).at_rows(4)[1:].tolist()
        [10, 10, 20]
        """
        edges = np.concatenate([[0], self.rows, [n]])
        return np.repeat(self.moments if of is None else of, np.diff(edges))
