"""What plain Python functions return, checked and gathered into columns."""

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

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import RecordError, exception_text, short
from riot_ops.core.order import carried, next_ordinal, ordinals

__all__ = ["Collector", "Row", "add_all", "as_dict", "failure"]

Row = dict[str, Any]


def as_dict(result: Any) -> Mapping[str, Any]:
    """A result, where it is a dict."""
    if not isinstance(result, Mapping):
        raise RecordError(f"the function returned {short(result)}, not a dict", reason="wrong_type")
    return result


def add_all(row: Row, results: Any, collect: Collector) -> None:
    """Add the results of a record, numbered."""
    if results is None:
        return
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise RecordError(f"the function returned {short(results)}, not an iterable of dicts", reason="wrong_type")
    parent = {name: row[name] for name in carried(row)}
    places = {name: row[name] for name in ordinals(row)}
    place = next_ordinal(row)
    for i, result in enumerate(results):
        collect.add({**parent, **as_dict(result), **places, place: i})


def failure(error: Exception) -> tuple[str, str]:
    """Reason and message for the record over which a function failed."""
    if isinstance(error, RecordError):
        return error.reason, exception_text(error)
    return "function_error", f"{type(error).__name__}: {exception_text(error)}{_place(error.__traceback__)}"


def _place(traceback: TracebackType | None) -> str:
    """Where an exception arose: the innermost line in the file of the user's function."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(traceback)]
    frames = [found for found in frames if os.path.dirname(found[0].co_filename) != _OURS]
    if not frames:  # a function without Python code
        return ""
    file = frames[0][0].co_filename
    code, line = [found for found in frames if found[0].co_filename == file][-1]
    name = "notebook" if "ipykernel_" in file else os.path.basename(file)
    return f" ({name}, line {line}, in {code.co_name})"


_OURS = os.path.dirname(__file__)


class Collector:
    """Results that fit a schema, and the records that gave none."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.names = frozenset(schema.names)
        self.columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        self.checks = [(f.name, f.type, self.columns[f.name], _FAST.get(str(f.type), frozenset())) for f in schema]
        self.size = 0
        self.failed: dict[str, list[tuple[int, str]]] = {}
        self._row = 0
        self._kept = 0

    def record(self, row: int) -> Collector:
        """Within ``with``: all results of this record, or none where one fails."""
        self._row, self._kept = row, self.size
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> bool:
        if error is None:
            return False
        if not isinstance(error, Exception):
            return False
        for column in self.columns.values():
            del column[self._kept :]
        self.size = self._kept
        reason, message = failure(error)
        self.failed.setdefault(reason, []).append((self._row, message))
        return True

    def add(self, result: Mapping[str, Any]) -> None:
        """Add a result, or raise where it does not fit."""
        if not self.names.issuperset(result):
            unknown = next(name for name in result if name not in self.names)
            raise RecordError(
                f"the function returned the field {unknown!r}, which its schema lacks; fields "
                f"are {', '.join(self.schema.names)}",
                reason="unknown_field",
            )
        for name, kind, column, fast in self.checks:
            value = result.get(name)
            if value is not None and not (type(value) in fast and _fits(value)):
                try:
                    if _is_number(kind) and _is_odd(value, kind):
                        raise TypeError("it would change")  # Arrow would make a number of it
                    value = pa.array([value], kind)[0].as_py()
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    raise RecordError(
                        f"{name} = {short(value)} is not a {kind}: {error}", reason="wrong_type"
                    ) from None
            column.append(value)
        self.size += 1

    def reject(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        """Name the failed records; returns the others."""
        if not self.failed:
            return batch
        kept = np.ones(batch.num_rows, np.bool_)
        for reason, rows in self.failed.items():
            failed = np.array([i for i, _ in rows], np.int64)
            kept[failed] = False
            dead.reject(batch, failed, reason, [text for _, text in rows])
        return batch.filter(pa.array(kept))

    def batch(self) -> pa.RecordBatch:
        """The results."""
        return pa.RecordBatch.from_arrays(
            [pa.array(self.columns[f.name], f.type) for f in self.schema], schema=self.schema
        )


#: Types of values that fit a column as they are, once :func:`_fits` agrees.
_FAST: dict[str, frozenset[type]] = {
    "double": frozenset({float, int}),
    "int64": frozenset({int}),
    "string": frozenset({str}),
    "bool": frozenset({bool}),
    "timestamp[us, tz=UTC]": frozenset({datetime}),
}


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_odd(value: Any, kind: pa.DataType) -> bool:
    """Whether a value is no number, or has a fraction that an integer would lose."""
    if isinstance(value, float | np.floating):
        return pa.types.is_integer(kind) and not (math.isfinite(value) and value == int(value))
    return isinstance(value, str | bytes | bool | np.bool_)


def _fits(value: Any) -> bool:
    """Whether Arrow takes a value of a fast type without a look at it."""
    kind = type(value)
    if kind is int:
        return bool(-(1 << 53) <= value <= 1 << 53)
    if kind is str:
        return bool(value.isascii())
    return bool(kind is not datetime or value.tzinfo is not None)
