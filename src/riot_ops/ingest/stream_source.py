"""A source of records that are read sequentially: from an iterator, a record batch reader, or files."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.source import Offset, Source, Split, row_splits
from riot_ops.ingest.prefetch import GATHER_SECONDS
from riot_ops.ingest.tables import Numbering

__all__ = ["StreamSource"]

#: Rows that :meth:`StreamSource.latest` reads at once without a limit; they are buffered until they are read.
MAX_ROWS = 1 << 20
#: Approximate limit of bytes that it reads at once, for any limit of rows.
MAX_BYTES = 32 << 20


class StreamSource(Source):
    """Rows in their order; the source buffers only the rows that are available but not yet read.

    Parameters
    ----------
    open_batches : function
        Called with a row, it returns an iterator of the batches from this row on. If the source is not replayable, a
        batch is empty while no more rows have arrived.
    schema : pyarrow.Schema
        The fields, with or without ``seq``.
    replayable : bool, default True
        Whether ``open_batches`` can be called more than once.
    """

    def __init__(
        self, open_batches: Callable[[int], Iterator[pa.RecordBatch]], schema: pa.Schema, *, replayable: bool = True
    ) -> None:
        self._open_batches = open_batches
        self._fields = schema
        self.replayable = replayable
        self._started = False
        self._reset()

    def _reset(self) -> None:
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._held: deque[tuple[int, pa.RecordBatch]] = deque()
        self._end = 0  # the row after those held
        self._over = False

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the buffered rows: a copy in another process reads for itself."""
        return {**self.__dict__, "_batches": None, "_held": deque(), "_end": 0, "_over": False}

    @property
    def schema(self) -> pa.Schema:
        if "seq" in self._fields.names:
            return self._fields
        return self._fields.insert(0, pa.field("seq", pa.int64(), nullable=False))

    def initial(self) -> Offset:
        return {"row": 0}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        row = start["row"]
        self._seek(row)
        until = row + (MAX_ROWS if limit is None else limit)
        self._pull(row, until)
        return {"row": min(self._end, until)}

    def finished(self, offset: Offset) -> bool:
        if self._batches is None:
            self.latest(offset, 1)
        return bool(self._over and offset["row"] >= self._end)

    def waits(self) -> bool:
        return False

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return row_splits(start, end, n)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        row, end = split["start"], split["end"]
        held = self._held and self._held[0][0] <= row and end <= self._end
        for first, batch in list(self._held) if held else self._from(row):
            part = batch.slice(max(row - first, 0), end - max(row, first)) if first < end else batch.slice(0, 0)
            if part.num_rows:
                yield part
            if first + batch.num_rows >= end:
                return

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["row"] - start["row"])

    def close(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def _from(self, row: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Open the batches from a row on; yield each with the number of its first row."""
        if not self.replayable and (self._started or row):
            raise ConfigError(
                "an iterator can be read only once, and this one has been read: pass a new one to each run, or "
                "a list, a table, or a path"
            )
        self._started = True
        number = Numbering(row)
        for batch in self._open_batches(row):
            if batch.num_rows or not self.replayable:
                first = number.rows
                yield first, number(batch)

    def _seek(self, row: int) -> None:
        """Position the buffer so that it holds the row, or ends at it."""
        first = self._held[0][0] if self._held else self._end
        if self._batches is None or not first <= row <= self._end:
            self._reset()
            self._batches, self._end = self._from(row), row
        while self._held and self._held[0][0] + self._held[0][1].num_rows <= row:
            self._held.popleft()

    def _pull(self, start: int, until: int) -> None:
        assert self._batches is not None
        # one more row shows whether this is the end; an iterator may not have it for a long time
        until += int(self.replayable)
        deadline = time.monotonic() + GATHER_SECONDS
        size = 0
        while self._end < until and not self._over and size < MAX_BYTES:
            if not self.replayable and self._end > start and time.monotonic() > deadline:
                return
            following = next(self._batches, None)
            if following is None:
                self._over = True
                return
            if not following[1].num_rows:
                return
            self._held.append(following)
            self._end += following[1].num_rows
            size += following[1].nbytes
