"""Pacing: records become available as time passes, and their splits contain when they were due."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from riot_ops.core.checks import check_positive
from riot_ops.core.errors import ConfigError
from riot_ops.core.source import Offset, Source, Split, WrappedSource
from riot_ops.ingest.rates import Curve
from riot_ops.kernels.arrays.arrow import int_column

__all__ = ["PacedSource", "TimedSource", "paced"]

#: Shortest time to wait for a record that was not due yet.
MIN_WAIT_SECONDS = 0.0005


class TimedSource(Source):
    """A source with an index by event time, so that pacing it is cheap.

    Examples
    --------
    >>> import riot_ops as ro
    >>> isinstance(ro.streams.city(sensors=2, messages=10), ro.streams.TimedSource)
    True
    """

    @abstractmethod
    def time_at(self, offset: Offset) -> int | None:
        """Event time (µs since the epoch) of the record at an offset; None if it is null or there is no record."""

    @abstractmethod
    def until(self, start: Offset, event_time: int, limit: int | None = None) -> Offset:
        """Return the offset of the first record after ``start`` that is later than a time (µs).

        At most ``limit`` records further; records without event time are skipped.
        """


class PacedSource(WrappedSource):
    """Makes the records of a source available over time instead of at once.

    The clock starts at the first call of :meth:`latest`, with the record at its offset; a restart therefore continues
    at the same pace instead of catching up. Records are never dropped or reordered: for a slow consumer they queue up,
    and since ``due`` in a split is when its records were meant to arrive, latency includes the time in this backlog.

    Parameters
    ----------
    source : Source
        The source to pace. ``rate`` and ``curve`` need a source that implements :meth:`Source.count`.
    speed : float, > 0
        Event time per wall time: 1 is the original pace, 1000 a week in ten minutes.
    rate : float, > 0, messages per second
        Constant rate; event times do not matter.
    curve : Curve
        Rate over time, see :mod:`riot_ops.ingest.rates`.
    clock : function, default ``time.time``
        Returns seconds since the epoch; for tests.

    Exactly one of speed, rate and curve must be given.

    Examples
    --------
    >>> from riot_ops.ingest.memory_source import MemorySource
    >>> now = [100.0]
    >>> source = PacedSource(MemorySource([{"value": 1.0}] * 10), rate=2, clock=lambda: now[0])
    >>> source.latest({"row": 0})
    {'row': 1}
    >>> now[0] += 1.5
    >>> source.latest({"row": 1})
    {'row': 4}
    >>> source.splits({"row": 1}, {"row": 4}, 1)
    [{'start': 1, 'end': 4, 'due': [100500000, 101500000]}]
    """

    def __init__(
        self,
        source: Source,
        *,
        speed: float | None = None,
        rate: float | None = None,
        curve: Curve | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if sum(x is not None for x in (speed, rate, curve)) != 1:
            raise ConfigError("give exactly one of speed, rate and curve")
        check_positive(**{name: x for name, x in (("speed", speed), ("rate", rate)) if x is not None})
        if speed is not None and "event_time" not in source.schema.names:
            raise ConfigError("speed needs a source with event_time; give rate instead")
        if speed is None and source.count(source.initial(), source.initial()) is None:
            raise ConfigError(
                f"{type(source).__name__} does not number its records; give speed instead of "
                + ("rate" if rate is not None else "curve")
            )
        super().__init__(source)
        self.speed: float | None = speed
        self.rate: float | None = rate
        self.curve: Curve | None = curve
        self.clock = clock
        self._wall: float | None = None  # when the clock started ...
        self._origin: Offset | None = None  # ... with the record at this offset ...
        self._first: int | None = None  # ... of this event time
        #: The records due at the last call of latest, up to this position or event time.
        self._asked = 0

    def description(self) -> dict[str, Any] | None:
        source = self.source.description()
        if source is None or self.curve is not None or self.clock is not time.time:
            return None
        return {"source": self.name(), "of": source, "speed": self.speed, "rate": self.rate}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        now = self.clock()
        if self._wall is None:
            self._wall, self._origin = now, start
        elapsed = now - self._wall
        if self.speed is None:
            self._asked = self._ready(elapsed)
            ready = self._asked - self._position(start)
            if limit is not None:
                ready = min(ready, limit)
            return self.source.latest(start, ready) if ready > 0 else start
        if self._first is None:
            self._first = _time_at(self.source, start)
            if self._first is None:  # no record yet, or the first has no event time
                return self.source.latest(start, 1 if limit is None else min(1, limit))
            self._wall, elapsed = now, 0.0
        self._asked = self._first + int(elapsed * self.speed * 1e6)
        return _until(self.source, start, self._asked, limit)

    def waits(self) -> bool:
        return True

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        due: float | None = None  # µs
        if self._wall is not None and self.speed is None:
            position = self._position(offset)
            due = self._due(position) if position >= self._asked else None
        elif self._first is not None:
            at = _time_at(self.source, offset)
            due = self._due_by_time(offset) if at is not None and at > self._asked else None
        if due is None:  # records were due that the source did not have, or not all at once
            return self.source.wait_time(offset, wake)
        return max(due / 1e6 - self.clock(), MIN_WAIT_SECONDS)

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        total = self.source.count(start, end)
        if self._wall is None or total is None:
            return self.source.splits(start, end, n)
        found: list[Split] = []
        done, at = 0, start
        for i in range(1, n + 1):
            size = total * i // n - done
            if size == 0:
                continue
            following = end if done + size == total else self.source.latest(at, size)
            if self.speed is None:
                first = self._position(at)
                due = [self._due(first), self._due(first + size - 1)]
            else:
                due = [self._due_by_time(at), self._due_by_time(self.source.latest(at, size - 1))]
            found.extend({**split, "due": due} for split in self.source.splits(at, following, 1))
            done, at = done + size, following
        return found

    def _position(self, offset: Offset) -> int:
        assert self._origin is not None
        position = self.source.count(self._origin, offset)
        assert position is not None
        return position

    def _ready(self, elapsed: float) -> int:
        """Return the number of records due by now; the first is due immediately."""
        if elapsed < 0:  # the system clock was set back
            return 0
        passed = self.curve.cumulative(elapsed) if self.curve else elapsed * (self.rate or 0.0)
        ready = int(passed + 1e-6) + 1  # rounding may leave a whole number slightly too small
        if self.curve and self.curve.time_of(ready - 1) > elapsed + 1e-6:  # the first after a pause
            ready -= 1
        return ready

    def _due(self, position: int) -> int:
        """When the record at a position is due, in µs since the epoch."""
        return self._after(self.curve.time_of(position) if self.curve is not None else position / (self.rate or 1.0))

    def _due_by_time(self, offset: Offset) -> int:
        """When the record at an offset is due by its event time, in µs since the epoch."""
        at = _time_at(self.source, offset)
        return self._after(
            0.0 if at is None or self._first is None else max(0, at - self._first) / 1e6 / (self.speed or 1.0)
        )

    def _after(self, seconds: float) -> int:
        assert self._wall is not None
        return round((self._wall + seconds) * 1e6)


def paced(source: Source, speed: float | None, rate: float | None, curve: Curve | None = None) -> Source:
    """Pace a source; without speed, rate or curve return the source itself."""
    if speed is None and rate is None and curve is None:
        return source
    return PacedSource(source, speed=speed, rate=rate, curve=curve)


def _time_at(source: Source, offset: Offset) -> int | None:
    if isinstance(source, TimedSource):
        return source.time_at(offset)
    times = _times(source, offset, 1)
    return times[0] if times else None


def _until(source: Source, start: Offset, event_time: int, limit: int | None) -> Offset:
    if isinstance(source, TimedSource):
        return source.until(start, event_time, limit)
    passed, step = 0, 64
    while limit is None or passed < limit:
        times = _times(source, start, step if limit is None else min(step, limit - passed))
        ready = next((i for i, t in enumerate(times) if t is not None and t > event_time), len(times))
        start = source.latest(start, ready) if ready else start
        if ready < step:
            break
        passed, step = passed + ready, min(2 * step, 65536)
    return start


def _times(source: Source, start: Offset, n: int) -> list[Any]:
    """Read the event times of the next n records."""
    end = source.latest(start, n)
    found: list[Any] = []
    if end != start:
        for split in source.splits(start, end, 1):
            for batch in source.read(split):
                column = batch.column("event_time")
                values = int_column(column.cast(pa.timestamp("us", tz="UTC"))).tolist()
                known = column.is_valid().to_pylist()
                found += [v if ok else None for v, ok in zip(values, known, strict=True)]
    return found
