"""A source that follows a script, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.parameters import Duration, as_timedelta
from riot_ops.core.source import Offset, Source, Split, heartbeat, parse_heartbeat

__all__ = ["ABORT", "ADVANCE", "EOF", "PAUSE", "ManualClock", "ScriptedSource"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock that only a test moves; call it like ``time.time``.

    Examples
    --------
    >>> clock = ManualClock(100.0)
    >>> clock.advance(2.5)
    >>> clock()
    102.5
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now: float = float(now)

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass; also replaces ``time.sleep``."""
        if seconds < 0:
            raise ConfigError(f"time does not run backwards: seconds must be >= 0, got {seconds!r}")
        self.now += seconds


@dataclass(frozen=True)
class _Mark:
    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PAUSE:
    """In a script: no record arrives for that time of the source's clock (0: for one poll).

    Examples
    --------
    >>> PAUSE("3s").duration
    '3s'
    """

    duration: Duration = timedelta(0)

    def __post_init__(self) -> None:
        duration_seconds("duration", self.duration, zero=True)


@dataclass(frozen=True)
class ADVANCE:
    """In a script: stream time advances to here, without a record (a heartbeat of the source).

    Parameters
    ----------
    time : datetime
        With time zone.

    Examples
    --------
    >>> from datetime import UTC
    >>> ADVANCE(datetime(2024, 5, 1, 12, tzinfo=UTC)).time.hour
    12
    """

    time: datetime

    def __post_init__(self) -> None:
        if self.time.tzinfo is None:
            raise ConfigError(f"time must have a time zone, got {self.time!r}")


#: In a script: the source ends here. A run that continues from here reads what follows.
EOF = _Mark("EOF")
#: In a script: reading fails here, once. A run that continues reads past it.
ABORT = _Mark("ABORT")


class ScriptedSource(Source):
    """Play a list of batches with :data:`EOF`, :data:`ABORT`, :class:`PAUSE` and :class:`ADVANCE` between them.

    A test of a crash and a restart thus is a list. :data:`EOF` and :data:`ABORT` are passed over by
    a later run that continues from a checkpoint; the same object may be used for both runs.

    Parameters
    ----------
    script : list
        Record batches (or lists of dicts) and marks. Batches without ``seq`` get one that counts on. What an
        :class:`ADVANCE` triggers follows the message before it.
    schema : pyarrow.Schema, optional
        By default that of the first batch.
    clock : function
        Seconds, for :class:`PAUSE`; by default a :class:`ManualClock` that each poll moves by 1 ms.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"value": "double"})
    >>> _ = flow.sink("out", readings.to(ro.tasks.KalmanFilter(), id="kalman"))
    >>> source = ScriptedSource([[{"value": 1.0}], PAUSE(), [{"value": 2.0}], ABORT, [{"value": 3.0}]])
    >>> flow.run(source)
    Traceback (most recent call last):
    riot_ops.core.errors.ConnectorError: the script says ABORT at item 3
    >>> flow.run(source)["kalman"].num_rows
    3
    """

    def __init__(
        self, script: Sequence[Any], schema: pa.Schema | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        self._items: list[Any] = []
        beats: dict[int, tuple[int, int]] = {}  # item -> number of the next message, and time
        self._polls = ManualClock()
        self._clock = clock
        self._first: Offset | None = None  # where this run began
        self._aborted: set[int] = set()
        self._paused: dict[int, float] = {}  # item -> when its pause began
        number = 0
        for item in script:
            if isinstance(item, (_Mark, PAUSE)):
                self._items.append(item)
                continue
            if isinstance(item, ADVANCE):
                beats[len(self._items)] = number, (item.time - EPOCH) // timedelta(microseconds=1)
                self._items.append(item)
                continue
            batch = item if isinstance(item, pa.RecordBatch) else _batch(item, schema)
            if "seq" not in batch.schema.names:
                numbers = pa.array(range(number, number + batch.num_rows), pa.int64())
                batch = pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=_numbered(batch.schema))
            if batch.num_rows:
                number = batch.column("seq")[-1].as_py() + 1
            self._items.append(batch)
            schema = schema or batch.schema
        if schema is None:
            raise ConfigError("a script without batches needs a schema")
        while self._items and (self._items[-1] == EOF or isinstance(self._items[-1], PAUSE)):
            self._items.pop()  # they have no effect at the end
        self._schema = _numbered(schema)
        for place, (number, time_us) in beats.items():
            self._items[place] = heartbeat(self._schema, number, time_us)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def initial(self) -> Offset:
        return {"item": 0, "row": 0}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        self._polls.advance(0.001)
        if self._first is None:
            self._first = start
        item, row = start["item"], start["row"]
        while item < len(self._items) and not self._is_batch(item):
            here = {"item": item, "row": 0}
            if not self._passes(item, began_here=here == self._first):
                return here
            item += 1
        if item < len(self._items) and row == 0 and self._is_heartbeat(item):  # these make a range of their own
            while item < len(self._items) and self._is_batch(item) and self._is_heartbeat(item):
                item += 1
            return {"item": item, "row": 0}
        left = limit
        while item < len(self._items) and self._is_batch(item) and left != 0:
            rows = self._items[item].num_rows - row
            if left is not None and rows > left:
                return {"item": item, "row": row + left}
            left = None if left is None else left - rows
            item, row = item + 1, 0
        return {"item": item, "row": row}

    def _is_batch(self, item: int) -> bool:
        return isinstance(self._items[item], pa.RecordBatch)

    def _is_heartbeat(self, item: int) -> bool:
        return parse_heartbeat(self._items[item]) is not None

    def _passes(self, item: int, began_here: bool) -> bool:
        """Return whether to read past a mark; raise at an ABORT."""
        mark = self._items[item]
        if isinstance(mark, PAUSE):
            now = (self._clock or self._polls)()
            if item in self._paused:
                return now - self._paused[item] >= as_timedelta(mark.duration).total_seconds()
            self._paused[item] = now
            return False
        if mark == EOF or began_here or item in self._aborted:
            return mark == ABORT or began_here
        self._aborted.add(item)
        raise ConnectorError(f"the script says ABORT at item {item}", retryable=True)

    def finished(self, offset: Offset) -> bool:
        item = offset["item"]
        return bool(item >= len(self._items) or (self._items[item] == EOF and offset != self._first))

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        return 0.0  # each question moves the clock of the pauses

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        pieces = self._pieces(start, end)
        edges = [len(pieces) * i // n for i in range(n + 1)]
        return [{"pieces": pieces[a:b]} for a, b in pairwise(edges) if a < b]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for item, start, end in split["pieces"]:
            yield self._items[item].slice(start, end - start)

    def count(self, start: Offset, end: Offset) -> int | None:
        return sum(b - a for _, a, b in self._pieces(start, end))

    def close(self) -> None:
        self._first = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_first": None}

    def _pieces(self, start: Offset, end: Offset) -> list[list[int]]:
        """Parts of batches in a range, as ``[item, first row, row after the last]``."""
        pieces = []
        for item in range(start["item"], min(end["item"] + 1, len(self._items))):
            if not self._is_batch(item):
                continue
            first = start["row"] if item == start["item"] else 0
            last = end["row"] if item == end["item"] else self._items[item].num_rows
            if first < last or (item < end["item"] and parse_heartbeat(self._items[item]) is not None):
                pieces.append([item, first, last])
        return pieces


def _batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None) -> pa.RecordBatch:
    if schema is not None and rows and "seq" not in rows[0] and "seq" in schema.names:
        schema = schema.remove(schema.get_field_index("seq"))
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)


def _numbered(schema: pa.Schema) -> pa.Schema:
    if "seq" in schema.names:
        return schema
    return schema.insert(0, pa.field("seq", pa.int64(), nullable=False))
