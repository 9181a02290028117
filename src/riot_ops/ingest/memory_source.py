"""A source of records in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from riot_ops.core.source import Offset, Source, Split, fingerprint, row_splits
from riot_ops.ingest.step import REJECTED, align_rejection_columns
from riot_ops.ingest.tables import Numbering, as_table

__all__ = ["MemorySource"]


class MemorySource(Source):
    """Records from memory.

    Parameters
    ----------
    rows : table, record batch, pandas or Polars frame, or list of dicts
        Any object with Arrow's C interface works. Records without a field ``seq`` are numbered in their order; an
        existing ``seq`` must not decrease (:class:`~riot_ops.core.errors.ConfigError`).
    schema : pyarrow.Schema, optional
        Fields and types of dicts; cells that do not match go to the errors stream. By default all fields, with types
        that hold all their values.

    Examples
    --------
    >>> source = MemorySource([{"value": 1.0}, {"value": 2.0}])
    >>> source.schema.names
    ['seq', 'value']
    """

    def __init__(self, rows: Any, schema: pa.Schema | None = None) -> None:
        number = Numbering()
        table = as_table(rows, schema)
        batches = [number(batch) for batch in table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]]
        self._table = pa.Table.from_batches(align_rejection_columns(batches))
        self._schema = pa.schema([f for f in self._table.schema if f.name != REJECTED])
        self._fingerprint: str | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def description(self) -> dict[str, Any]:
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self._table)
        return {"source": self.name(), "records": self._fingerprint}

    def initial(self) -> Offset:
        return {"row": 0}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        end = self._table.num_rows if limit is None else min(self._table.num_rows, start["row"] + limit)
        return {"row": end}

    def finished(self, offset: Offset) -> bool:
        return bool(offset["row"] >= self._table.num_rows)

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return row_splits(start, end, n)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        part = self._table.slice(split["start"], split["end"] - split["start"])
        yield from part.combine_chunks().to_batches()

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["row"] - start["row"])

    def seq_at(self, offset: Offset) -> int:
        following = self._table.column("seq").slice(offset["row"]).drop_null()
        return int(following[0].as_py()) if len(following) else 0
