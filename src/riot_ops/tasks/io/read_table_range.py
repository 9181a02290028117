"""Reads of row ranges from a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from riot_ops.connectors.retry import map_parallel
from riot_ops.connectors.stores import open_table
from riot_ops.connectors.stores.table import Row
from riot_ops.connectors.template import encode_key
from riot_ops.core.errors import ConfigError, RecordError, excerpt
from riot_ops.core.parameters import Count
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import SchemaLike, arrow_type, canonical_schema, schema_pairs
from riot_ops.task import Case, register, replace_column, with_field
from riot_ops.tasks.io.store_task import Failures, TableTask, reject, scratch

__all__ = ["ReadTableRange"]

#: Field with the number of rows.
ROWS = "rows"


@register
@dataclass(frozen=True, kw_only=True)
class ReadTableRange(TableTask):
    """Read, for each record, the rows in a range of row keys, as a list for each value.

    A training task with ``size=None`` learns from such lists. A range is half-open, ``start <= row key < end``, in the
    order of the stored keys; with row keys ``{event_time:ms}|{sensor_id}`` it is a range of time.

    Parameters
    ----------
    store, table, partition, credential, retry, max_concurrency
        Address, partition key and clients, see :class:`TableTask` and :class:`StoreTask`.
    start, end : str, default "{start}" and "{end}"
        Templates of the first row key and of the one after the last, or of prefixes of them.
    schema : mapping of str to type, or pyarrow Schema
        Values to read and their Arrow types, such as ``{"temperature": "double"}``.
    max_rows : int, >= 1, default 1000000
        Most rows in a range.

    Shapes and rates
    ----------------
    range[n] -> list per value[n], 1:1, in order of the row keys; the field ``rows`` (int64) is their
    number. A range without rows gives empty lists.

    Missing values
    --------------
    A value that a row lacks is null in the list. A null in a key: ``missing_key``, see Errors.

    Errors
    ------
    ``missing_key`` (a null in a key); ``wrong_type`` (a value that is not of the declared type);
    ``too_large`` (more than ``max_rows`` rows).

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task ATR.

    Examples
    --------
    >>> read = ReadTableRange(store="memory", table="doc", partition="city", schema={"x": "double"}).session()
    >>> read.task.rows.insert([Row("city", encode_key(ms) + "|s1", {"x": ms / 2}) for ms in (5, 6, 7)])
    {}
    >>> read.push({"start": 5, "end": 7})
    [{'start': 5, 'end': 7, 'x': [2.5, 3.0], 'rows': 2}]
    """

    code: ClassVar[str] = "ATR"
    templates: ClassVar[tuple[str, ...]] = ("partition", "start", "end")

    start: str = "{start}"
    end: str = "{end}"
    schema: SchemaLike
    max_rows: Count = 1_000_000

    def validate(self) -> None:
        super().validate()
        object.__setattr__(self, "schema", canonical_schema(self.name(), self.schema or ()))
        if ROWS in dict(schema_pairs(self.schema)):
            raise ConfigError(f"{self.name()} adds the field {ROWS!r}; schema must not have it")

    def writes(self) -> frozenset[str]:
        return frozenset({*(name for name, _ in schema_pairs(self.schema)), ROWS})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name, text in schema_pairs(self.schema):
            schema = with_field(schema, pa.field(name, pa.list_(arrow_type(text))))
        return with_field(schema, pa.field(ROWS, pa.int64()))

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        failures: Failures = {}
        ranges = self.rendered(batch, self.templates, failures)
        rows_of = self._read_ranges(list(dict.fromkeys(r for i, r in enumerate(ranges) if i not in failures)))
        found: list[list[Row]] = []
        for i, key_range in enumerate(ranges):
            rows = rows_of.get(key_range, [])
            if isinstance(rows, RecordError):
                failures[i] = rows
                rows = []
            found.append(rows)
        out = batch
        for name, text in schema_pairs(self.schema):
            lists = [_typed(name, rows, arrow_type(text), i, failures) for i, rows in enumerate(found)]
            out = replace_column(out, name, pa.array(lists, pa.list_(arrow_type(text))))
        out = replace_column(out, ROWS, pa.array([len(rows) for rows in found], pa.int64()))
        return out.filter(pa.array(reject(batch, failures, errors)))

    def _read_ranges(self, ranges: list[tuple[str, ...]]) -> dict[tuple[str, ...], list[Row] | RecordError]:
        table = self.rows

        def read(key_range: tuple[str, ...]) -> list[Row] | RecordError:
            try:
                partition, start, end = key_range
                return table.range(partition, start, end, self.max_rows)
            except RecordError as error:
                return error

        return dict(zip(ranges, map_parallel(read, ranges, table.max_concurrency), strict=True))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        store = f"sqlite:///{scratch() / 'range.db'}"
        rows = [Row("p", encode_key(n), {"x": n / 2, "text": "ü" if n % 2 else None}) for n in range(10)]
        with open_table(store, "cases") as table:
            table.insert([*rows, Row("p", encode_key(50), {"x": "warm"})])
        batch = pa.RecordBatch.from_pydict(
            {"start": [0, 3, None, 5, 40, 9, 0], "end": [2, 4, 1, 5, 60, None, 100], "x": list("abcdefg")}
        )
        schema = {"x": "double", "text": "string"}
        given: dict[str, Any] = {"store": store, "table": "cases", "partition": "p", "schema": schema}
        yield Case(cls(**given), batch)
        yield Case(cls(**given, max_rows=1), batch, "small ranges")


def _typed(name: str, rows: list[Row], dtype: pa.DataType, place: int, failures: Failures) -> list[Any]:
    """Return one value from each row; record a failure if a value is of another type."""
    values = [row.values.get(name) for row in rows]
    try:
        pa.array(values, dtype)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        failures.setdefault(place, RecordError(f"{name}: {excerpt(str(error))}", reason="wrong_type"))
        return []
    return values
