"""Types of PostgreSQL for those of Arrow, and the text that COPY reads."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any

import pyarrow as pa
from pyarrow import types

from riot_ops.core.json_rows import json_texts

__all__ = ["column_type", "copy_text", "free_name", "row_number"]

_SIMPLE: list[tuple[Any, str]] = [
    (types.is_boolean, "boolean"),
    (types.is_int8, "smallint"),
    (types.is_int16, "smallint"),
    (types.is_uint8, "smallint"),
    (types.is_int32, "integer"),
    (types.is_uint16, "integer"),
    (types.is_int64, "bigint"),
    (types.is_uint32, "bigint"),
    (types.is_uint64, "numeric(20)"),
    (types.is_float64, "double precision"),
    (types.is_floating, "real"),
    (types.is_string, "text"),
    (types.is_large_string, "text"),
    (types.is_date, "date"),
    (types.is_time, "time"),
    (types.is_duration, "interval"),
    (types.is_nested, "jsonb"),
]


def column_type(dtype: pa.DataType) -> str | None:
    """Return the type of a column for an Arrow type; None if there is none, as for times with nanoseconds.

    >>> column_type(pa.float64()), column_type(pa.timestamp("us", "UTC")), column_type(pa.list_(pa.int64()))
    ('double precision', 'timestamp with time zone', 'jsonb')
    """
    if types.is_dictionary(dtype):
        return column_type(dtype.value_type)
    if getattr(dtype, "unit", "") == "ns":
        return None
    if types.is_timestamp(dtype):
        return "timestamp with time zone" if dtype.tz is not None else "timestamp"
    if types.is_decimal(dtype):
        return f"numeric({dtype.precision},{dtype.scale})"
    if _is_binary(dtype):
        return "bytea"
    return next((name for fits, name in _SIMPLE if fits(dtype)), None)


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name that no column has.

    >>> free_name("part", ["bed", "part"])
    'part_'
    """
    return name if name not in taken else free_name(f"{name}_", taken)


def row_number(columns: Collection[str]) -> str:
    """Return the name of the column of a staging table, its first, with the place of the record in its writer."""
    return free_name("riot_ops_row", columns)


def copy_text(batch: pa.Table, first_row: int | None) -> bytes:
    """Return records as the CSV that COPY reads; with the row's number as first column if ``first_row`` is given."""
    from pyarrow import csv

    columns = [_cells(column) for column in batch.columns]
    names = batch.schema.names
    if first_row is not None:
        columns.insert(0, pa.chunked_array([pa.array(range(first_row, first_row + batch.num_rows), pa.int64())]))
        names = [row_number(names), *names]
    written = io.BytesIO()
    csv.write_csv(pa.table(columns, names=names), written, csv.WriteOptions(include_header=False))
    return written.getvalue()


def _cells(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column in types that CSV writes as PostgreSQL reads them."""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    dtype = column.type
    if types.is_nested(dtype):
        return json_texts(column)
    if types.is_float16(dtype):
        return column.cast(pa.float32())
    if _is_binary(dtype):
        return pa.array([None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()], pa.string())
    if types.is_duration(dtype):
        numbers = column.cast(pa.int64()).to_pylist()
        times = {"s": 1_000_000, "ms": 1_000, "us": 1}[dtype.unit]
        return pa.array([None if n is None else f"{n * times} microseconds" for n in numbers], pa.string())
    return column


def _is_binary(dtype: pa.DataType) -> bool:
    return bool(types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_fixed_size_binary(dtype))
