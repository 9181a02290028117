"""Checking and collecting of the results of Python functions."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from traceback import walk_tb
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import RecordError, exception_text, value_text
from riot_ops.core.order import carried_fields, next_ordinal, ordinals
from riot_ops.core.rejected_records import RejectedRecords

__all__ = ["ResultCollector", "Row", "as_record", "collect_results", "describe_failure"]

Row = dict[str, Any]


def as_record(result: Any) -> Mapping[str, Any]:
    """Check that a result is a dict, and return it."""
    if not isinstance(result, Mapping):
        raise RecordError(f"the function returned {value_text(result)}, not a dict", reason="wrong_type")
    return result


def collect_results(row: Row, results: Any, collect: ResultCollector) -> None:
    """Add the results of a record to ``collect``, with ordinals."""
    if results is None:
        return
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise RecordError(f"the function returned {value_text(results)}, not an iterable of dicts", reason="wrong_type")
    parent = {name: row[name] for name in carried_fields(row)}
    places = {name: row[name] for name in ordinals(row)}
    place = next_ordinal(row)
    for i, result in enumerate(results):
        collect.add({**parent, **as_record(result), **places, place: i})


def describe_failure(error: Exception) -> tuple[str, str]:
    """Reason and message for a record on which a function failed."""
    if isinstance(error, RecordError):
        return error.reason, exception_text(error)
    return "function_error", f"{type(error).__name__}: {exception_text(error)}{_place(error.__traceback__)}"


def _place(traceback: TracebackType | None) -> str:
    """Place of an exception: the innermost line in the file of the user's function."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(traceback)]
    frames = [frame for frame in frames if os.path.dirname(frame[0].co_filename) != _OWN_FOLDER]
    if not frames:  # a function that is not written in Python
        return ""
    file = frames[0][0].co_filename
    code, line = [frame for frame in frames if frame[0].co_filename == file][-1]
    name = "notebook" if "ipykernel_" in file else os.path.basename(file)
    return f" ({name}, line {line}, in {code.co_name})"


_OWN_FOLDER = os.path.dirname(__file__)


class ResultCollector:
    """Collector of the results that fit a schema, and of the records that failed."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.names: frozenset[Any] = frozenset(schema.names)
        self.columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        self.checks: list[tuple[Any, Any, list[Any], frozenset[type]]] = [
            (f.name, f.type, self.columns[f.name], _UNCONVERTED.get(str(f.type), frozenset())) for f in schema
        ]
        self.size: int = 0
        self.failed: dict[str, list[tuple[int, str]]] = {}
        self._row = 0
        self._kept = 0

    def record(self, row: int) -> ResultCollector:
        """In a ``with`` block: add all results of a record, or none if one fails."""
        self._row, self._kept = row, self.size
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None, _: Any) -> bool:
        if error is None:
            return False
        if not isinstance(error, Exception):
            return False
        for column in self.columns.values():
            del column[self._kept :]
        self.size = self._kept
        reason, message = describe_failure(error)
        self.failed.setdefault(reason, []).append((self._row, message))
        return True

    def add(self, result: Mapping[str, Any]) -> None:
        """Add a result; raise :class:`RecordError` if it does not fit the schema."""
        if not self.names.issuperset(result):
            unknown = next(name for name in result if name not in self.names)
            raise RecordError(
                f"the function returned the field {unknown!r}, which its schema lacks; fields "
                f"are {', '.join(self.schema.names)}; further ones are declared by schema or, for map, adds",
                reason="unknown_field",
            )
        for name, dtype, column, unconverted in self.checks:
            value = result.get(name)
            if value is not None and not (type(value) in unconverted and _fits_unchanged(value)):
                try:
                    if _is_number(dtype) and _is_lossy(value, dtype):
                        raise TypeError("the value would change")  # Arrow would convert it
                    value = pa.array([value], dtype)[0].as_py()
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    raise RecordError(
                        f"{name} = {value_text(value)} is not a {dtype}: {error}", reason="wrong_type"
                    ) from None
            column.append(value)
        self.size += 1

    def reject(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        """Reject the failed records; returns the others."""
        if not self.failed:
            return batch
        keep = np.ones(batch.num_rows, np.bool_)
        for reason, rows in self.failed.items():
            failed = np.array([i for i, _ in rows], np.int64)
            keep[failed] = False
            errors.reject(batch, failed, reason, [text for _, text in rows])
        return batch.filter(pa.array(keep))

    def batch(self) -> pa.RecordBatch:
        """Return the collected results."""
        return pa.RecordBatch.from_arrays(
            [pa.array(self.columns[f.name], f.type) for f in self.schema], schema=self.schema
        )


#: Python types of values that need no conversion if :func:`_fits_unchanged` is true.
_UNCONVERTED: dict[str, frozenset[type]] = {
    "double": frozenset({float, int}),
    "int64": frozenset({int}),
    "string": frozenset({str}),
    "bool": frozenset({bool}),
    "timestamp[us, tz=UTC]": frozenset({datetime}),
}


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def _is_lossy(value: Any, dtype: pa.DataType) -> bool:
    """Whether a value is not a number, or has a fraction that an integer column would lose."""
    if isinstance(value, float | np.floating):
        return pa.types.is_integer(dtype) and not (math.isfinite(value) and value == int(value))
    return isinstance(value, str | bytes | bool | np.bool_)


def _fits_unchanged(value: Any) -> bool:
    """Whether Arrow accepts a value of these types without conversion or error."""
    cls = type(value)
    if cls is int:
        return bool(-(1 << 53) <= value <= 1 << 53)
    if cls is str:
        return bool(value.isascii())
    return bool(cls is not datetime or value.tzinfo is not None)
