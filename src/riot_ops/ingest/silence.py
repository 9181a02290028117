"""Heartbeats of a live source that is silent: stream time follows the wall clock until records come again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import as_timedelta
from riot_ops.core.source import Offset, Source, Split, WrappedSource, heartbeat

__all__ = ["HeartbeatSource"]

#: Shortest time between two heartbeats, in seconds, unless the silence after which they begin is shorter.
STEP_SECONDS = 1.0


class HeartbeatSource(WrappedSource):
    """Close windows while a live source is silent: after some time without a record, stream time is the wall clock's.

    Each heartbeat is part of an offset with its time, so that a range that is read again has the same heartbeats. After
    a failure, Spark reads the ranges that it has logged; a run in process plans what came after its checkpoint again,
    and measures a new silence.

    Records that were sent before a heartbeat and come after it may be late: ``idle`` must be longer than their delay,
    or the tasks need an ``allowed_lateness``. The source is for records of the present; after the first silence,
    records of the past are late.

    Parameters
    ----------
    source : Source
        A source whose event times are those of now.
    idle : timedelta > 0 or text such as "30s"
        Heartbeats begin after this time without a record, and come at most once per second.
    clock : function, default ``time.time``
        Returns seconds since the epoch; for tests.

    Examples
    --------
    >>> from riot_ops.ingest.memory_source import MemorySource
    >>> class Live(MemorySource):
    ...     def finished(self, offset):
    ...         return False
    >>> now = [100.0]
    >>> source = HeartbeatSource(Live([{"value": 1.0}]), "30s", clock=lambda: now[0])
    >>> start = source.latest(source.initial())
    >>> now[0] += 29
    >>> source.latest(start) == start
    True
    >>> now[0] += 1
    >>> source.latest(start)
    {'source': {'row': 1}, 'beat': [130000000, {'row': 1}]}
    """

    def __init__(self, source: Source, idle: timedelta | str, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(source)
        length = as_timedelta(idle)
        if not isinstance(length, timedelta) or length <= timedelta(0):
            raise ConfigError(f"HeartbeatSource: idle must be a duration longer than 0, got {idle!r}")
        self.idle = length
        self.clock = clock
        self._heard: float | None = None  # when the last record came
        self._beat = 0.0  # when the last heartbeat was made

    def description(self) -> dict[str, Any] | None:
        source = self.source.description()
        if source is None or self.clock is not time.time:
            return None
        return {"source": self.name(), "of": source, "idle_us": self.idle // timedelta(microseconds=1)}

    def initial(self) -> Offset:
        return {"source": self.source.initial(), "beat": None}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        at = self.source.latest(start["source"], limit)
        now = self.clock()
        if at != start["source"] or self._heard is None or now < self._heard:
            self._heard, self._beat = now, 0.0
            return {**start, "source": at}
        if self._remaining(now) > 0 or self.source.finished(at):
            return start
        self._beat = now
        return {"source": at, "beat": [int(now * 1e6), at]}

    def _remaining(self, now: float) -> float:
        """Return the seconds until the next heartbeat, if no record comes."""
        assert self._heard is not None
        idle = self.idle.total_seconds()
        return max(self._heard + idle, self._beat + min(idle, STEP_SECONDS)) - now

    def finished(self, offset: Offset) -> bool:
        return self.source.finished(offset["source"])

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        first, last, beat = start["source"], end["source"], end["beat"]
        if beat == start["beat"]:
            return self._parts(first, last, n)
        time_us, at = beat
        beats = {"beat": time_us, "seq": self.source.seq_at(at)}
        return [*self._parts(first, at, n), beats, *self._parts(at, last, n)]

    def _parts(self, start: Offset, end: Offset, n: int) -> list[Split]:
        if start == end:
            return []
        parts = self.source.splits(start, end, n)
        return [{"of": part} | ({"due": part["due"]} if "due" in part else {}) for part in parts]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if "beat" in split:
            yield heartbeat(self.schema, split["seq"], split["beat"])
        else:
            yield from self.source.read(split["of"])

    def read_inputs(self, name: str, split: Split) -> Iterator[dict[str, list[pa.RecordBatch]]]:
        if "beat" in split:
            yield {name: list(self.read(split))}
        else:
            yield from self.source.read_inputs(name, split["of"])

    def waits(self) -> bool:
        return self.source.waits()

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        wait = self.source.wait_time(offset["source"], wake)
        if wait is None or self._heard is None or self.source.finished(offset["source"]):
            return wait
        return max(min(wait, self._remaining(self.clock())), 0.0)

    def count(self, start: Offset, end: Offset) -> int | None:
        return self.source.count(start["source"], end["source"])

    def seq_at(self, offset: Offset) -> int:
        return self.source.seq_at(offset["source"])

    def commit(self, end: Offset) -> None:
        self.source.commit(end["source"])
