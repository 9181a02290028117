"""Repeat records in memory: a source of little cost, for benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.checks import check_count
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.source import Offset, Split, fingerprint
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.streams.indexed import AHEAD, NumberedSource

__all__ = ["RepeatingSource"]


class RepeatingSource(NumberedSource):
    """Repeat the messages of a table without end.

    In each round the message numbers continue from those of the previous round, as do the event
    times, if there are any: a round takes the time from the first to the last of them.

    Parameters
    ----------
    records : Table
        With a column ``seq`` that counts messages from 0; several records may belong to a message.
    messages : int or None
        Length; None: without end.

    Examples
    --------
    >>> source = RepeatingSource(pa.table({"seq": [0, 1, 2], "value": [1.0, 2.0, 3.0]}), messages=4)
    >>> [b.to_pydict() for b in source.read({"start": 1, "end": 4})]
    [{'seq': [1, 2], 'value': [2.0, 3.0]}, {'seq': [3], 'value': [1.0]}]
    """

    def __init__(self, records: pa.Table, messages: int | None = None) -> None:
        if messages is not None:
            check_count(0, messages=messages)
        if "seq" not in records.schema.names or not records.num_rows:
            raise ConfigError("a loop needs records, with a column seq")
        records = records.combine_chunks()
        self._batch = records.to_batches()[0]
        seq = int_column(self._batch.column("seq"))
        steps = np.diff(seq)
        if seq[0] != 0 or ((steps != 0) & (steps != 1)).any():
            raise ConfigError("the column seq of a loop must count messages from 0")
        self.messages = messages
        self._each = int(seq[-1]) + 1
        self._edges = np.searchsorted(seq, np.arange(self._each + 1))
        self._period = self._span()

    def description(self) -> dict[str, Any]:
        return {
            "source": self.name(),
            "records": fingerprint(pa.Table.from_batches([self._batch])),
            "messages": self.messages,
        }

    def _span(self) -> int:
        """Return the event time of a round in microseconds; 0 where there is none."""
        if "event_time" not in self._batch.schema.names:
            return 0
        times = self._batch.column("event_time").drop_null().cast(TIMESTAMP)
        if not len(times):
            return 0
        micros = int_column(times)
        span = int(micros.max() - micros.min())
        return span + max(1, span // max(1, len(micros) - 1))

    @property
    def schema(self) -> pa.Schema:
        return self._batch.schema

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        end = start["message"] + (AHEAD if limit is None else limit)
        return {"message": end if self.messages is None else max(start["message"], min(end, self.messages))}

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        at, end = split["start"], split["end"]
        while at < end:
            turn, first = divmod(at, self._each)
            last = min(self._each, first + end - at)
            rows = self._batch.slice(self._edges[first], self._edges[last] - self._edges[first])
            yield self._shifted(rows, turn) if turn else rows
            at += last - first

    def _shifted(self, rows: pa.RecordBatch, turn: int) -> pa.RecordBatch:
        columns: dict[str, Any] = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns["seq"] = pa.array(int_column(columns["seq"]) + turn * self._each, rows.schema.field("seq").type)
        if self._period:
            times = columns["event_time"]
            moved = int_column(times.cast(TIMESTAMP)) + turn * self._period
            mask = None if times.null_count == 0 else times.is_null().to_numpy(zero_copy_only=False)
            columns["event_time"] = pa.array(moved, mask=mask).cast(TIMESTAMP).cast(times.type)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)
