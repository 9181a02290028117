"""Records that are read one after the other: of an iterator, a record batch reader, or files."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.source import Offset, Source, Split, row_splits
from riot_ops.ingest.prefetch import WAIT_SECONDS
from riot_ops.ingest.tables import Numbering

__all__ = ["StreamSource"]

#: Rows that are made available at once where nobody says how many; they are held until they are read.
MOST_ROWS = 1 << 20
#: Bytes that are made available at once, more or less, however many rows are asked for.
MOST_BYTES = 32 << 20


class StreamSource(Source):
    """Rows in the order in which they can be read; those that nobody has read yet are held, and no others.

    Parameters
    ----------
    opened : function
        Gives the batches from a row on; of what can be opened once, an empty one where no more have come yet.
    schema : pyarrow.Schema
        The fields, ``seq`` or not.
    replayable : bool, default True
        Whether it can be opened more than once.
    """

    def __init__(
        self, opened: Callable[[int], Iterator[pa.RecordBatch]], schema: pa.Schema, *, replayable: bool = True
    ) -> None:
        self._opened = opened
        self._fields = schema
        self.replayable = replayable
        self._begun = False
        self._forget()

    def _forget(self) -> None:
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._held: deque[tuple[int, pa.RecordBatch]] = deque()
        self._end = 0  # the row behind those held
        self._over = False

    def __getstate__(self) -> dict[str, Any]:
        """Without what was read: a copy in another process reads for itself."""
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
        until = row + (MOST_ROWS if limit is None else limit)
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
        """Batches and their first rows, numbered."""
        if not self.replayable and (self._begun or row):
            raise ConfigError(
                "an iterator can be read once, and this one has been: make a new one for another run, or pass "
                "a list, a table, or a path"
            )
        self._begun = True
        number = Numbering(row)
        for batch in self._opened(row):
            if batch.num_rows or not self.replayable:
                first = number.rows
                yield first, number(batch)

    def _seek(self, row: int) -> None:
        """Have the row, or the one behind the last, among those held."""
        first = self._held[0][0] if self._held else self._end
        if self._batches is None or not first <= row <= self._end:
            self._forget()
            self._batches, self._end = self._from(row), row
        while self._held and self._held[0][0] + self._held[0][1].num_rows <= row:
            self._held.popleft()

    def _pull(self, start: int, until: int) -> None:
        assert self._batches is not None
        # one row more than asked for tells whether that is the end; an iterator may not have it for long
        until += int(self.replayable)
        deadline = time.monotonic() + WAIT_SECONDS
        size = 0
        while self._end < until and not self._over and size < MOST_BYTES:
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
