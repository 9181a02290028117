"""Columns of Python values, cast by the rules of :mod:`riot_ops.core.casting`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.casting import CAST_ERRORS, Problems, can_cast, cast_valid, is_list, problems_of
from riot_ops.core.nested_columns import Cells, build_lists, build_maps, build_structs

__all__ = ["from_values", "infer_type"]

types = pa.types

#: The types that Arrow infers for values of Python's own types.
PLAIN_TYPES = {float: pa.float64(), int: pa.int64(), str: pa.string(), bool: pa.bool_(), bytes: pa.binary()}


def from_values(values: Sequence[Any], want: pa.DataType) -> tuple[pa.Array, Problems]:
    """Convert Python values to a column.

    The rules are those of :func:`~riot_ops.core.casting.cast`, but floats are rounded to narrower types.

    >>> from_values([1, None, "2.5", [3]], pa.float64())[0].to_pylist()
    [1.0, None, 2.5, None]
    """
    result, bad = _convert(values, want)
    return result, problems_of(bad, [values[row] for row in bad], want)


def infer_type(values: Sequence[Any]) -> pa.DataType:
    """Infer the type that holds all values; text if there is none.

    >>> infer_type([1, 2.5]), infer_type([1, "a"]), infer_type([2**70])
    (DataType(double), DataType(string), DataType(int64))
    """
    plain = _plain_type(values)
    if plain is not None:
        return plain
    try:
        return pa.array(values).type
    except CAST_ERRORS:
        return pa.int64() if all(isinstance(v, int) for v in values) else pa.string()


def _convert(values: Sequence[Any], want: pa.DataType) -> Cells:
    """Convert values at once; where some do not fit, by their kinds."""
    try:
        result, bad = _convert_alike(values, want)
        if not bad:
            return result, []
    except CAST_ERRORS:
        pass
    nested = types.is_struct(want) or types.is_map(want) or is_list(want)
    return _convert_nested(values, want) if nested else _convert_by_kind(values, want)


def _convert_alike(values: Sequence[Any], want: pa.DataType) -> Cells:
    """Convert values of one kind, or raise one of :data:`CAST_ERRORS`."""
    # the missing values of pandas become null, but NaN stays NaN in a column of floats
    keep_nan = types.is_floating(want) or types.is_nested(want)
    column = _inferred(values, keep_nan, want)
    if types.is_float64(column.type) and types.is_floating(want) and want.bit_width < 64:
        return _round(column, want)
    if keep_nan and not can_cast(column.type, want):
        column = pa.array(values, from_pandas=True)
    if not can_cast(column.type, want):
        return pa.nulls(len(column), want), np.flatnonzero(np.asarray(column.is_valid())).tolist()
    return cast_valid(column, want)


def _convert_by_kind(values: Sequence[Any], want: pa.DataType) -> Cells:
    """Convert the values of each Python type by themselves."""
    values = [_arrow_value(value) for value in values]
    groups: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        groups.setdefault(_kind(value), []).append(row)
    parts, rows, bad = [], [], []
    for group in groups.values():
        part, bad_places = _convert_by_halves([values[row] for row in group], want)
        parts.append(part)
        rows += group
        bad += [group[place] for place in bad_places]
    if not parts:
        return pa.nulls(0, want), []
    if len(parts) == 1:
        return parts[0], bad
    return pa.concat_arrays(parts).take(pa.array(np.argsort(rows))), sorted(bad)


def _arrow_value(value: Any) -> Any:
    """Return a time or duration of NumPy in a form that Arrow reads, and None for one that is not a time."""
    if not isinstance(value, np.datetime64 | np.timedelta64):
        return value
    unit = np.datetime_data(value.dtype)[0]
    if np.isnat(value):
        return None
    if unit == "D" and isinstance(value, np.datetime64):
        return value.item()
    return value.astype(value.dtype.kind + "8[s]") if unit in ("D", "h", "m") else value


def _kind(value: Any) -> Any:
    """What decides the Arrow type of a value: its type, and the range of an integer."""
    if type(value) is not int:
        return type(value)
    return int, (value >= -(2**63)) + (value >= 2**63) + (value >= 2**64)


def _convert_by_halves(values: Sequence[Any], want: pa.DataType) -> Cells:
    """Convert values of one Python type, halved until those that Arrow does not know are alone."""
    parts: list[pa.Array] = []
    bad: list[int] = []
    stack = [(0, len(values))]
    while stack:
        start, end = stack.pop()
        try:
            part, bad_places = _convert_alike(values[start:end], want)
            parts.append(part)
            bad += [start + place for place in bad_places]
        except CAST_ERRORS:
            if end - start > 1:
                middle = (start + end) // 2
                stack += [(middle, end), (start, middle)]
            else:
                parts.append(pa.nulls(1, want))
                bad.append(start)
    return pa.concat_arrays(parts), bad


def _convert_nested(values: Sequence[Any], want: pa.DataType) -> Cells:
    """Convert dicts and lists member by member."""
    lists = (list, tuple, set, frozenset, np.ndarray)
    kinds = dict if types.is_struct(want) else (dict, list, tuple) if types.is_map(want) else lists
    missing = np.fromiter((_is_missing(value) for value in values), np.bool_, len(values))
    matching = [isinstance(value, kinds) and getattr(value, "ndim", 1) > 0 for value in values]
    valid = np.array(matching, np.bool_)
    if types.is_struct(want):
        rows = [value if match else {} for value, match in zip(values, matching, strict=True)]
        members = {field.name: _convert([row.get(field.name) for row in rows], field.type) for field in want}
        result, bad = build_structs(valid, members, want)
    elif types.is_map(want):
        entries = [_pairs(value) if match else None for value, match in zip(values, matching, strict=True)]
        valid &= np.array([pairs is not None for pairs in entries], np.bool_)
        lengths = np.array([len(pairs or ()) for pairs in entries], np.int64)
        flat = [entry for pairs in entries for entry in pairs or ()]
        result, bad = build_maps(
            valid,
            lengths,
            _convert([k for k, _ in flat], want.key_type),
            _convert([v for _, v in flat], want.item_type),
            want,
        )
    else:
        items = [list(value) if match else () for value, match in zip(values, matching, strict=True)]
        lengths = np.array([len(elements) for elements in items], np.int64)
        flat = [value for elements in items for value in elements]
        result, bad = build_lists(valid, lengths, _convert(flat, want.value_type), want)
    return result, sorted({*bad, *np.flatnonzero(~valid & ~missing).tolist()})


def _pairs(value: Any) -> list[Any] | None:
    """Return the entries of a map; None if the value is no map."""
    if isinstance(value, dict):
        return list(value.items())
    return list(value) if all(isinstance(entry, tuple | list) and len(entry) == 2 for entry in value) else None


def _is_missing(value: Any) -> bool:
    """Whether a value is one of the missing values of Python and pandas."""
    if value is None:
        return True
    try:
        return not isinstance(value, dict | list | tuple | np.ndarray) and bool(
            pa.array([value], from_pandas=True).null_count
        )
    except CAST_ERRORS:
        return False


def _round(column: pa.Array, want: pa.DataType) -> Cells:
    """Round Python's floats, which have 64 bits, to a narrower type."""
    narrow = column.cast(want, safe=False)
    beyond = pc.and_(pc.is_inf(narrow.cast(pa.float64())), pc.is_finite(column)).fill_null(False)
    if not pc.any(beyond).as_py():
        return narrow, []
    return pc.if_else(beyond, pa.scalar(None, want), narrow), np.flatnonzero(np.asarray(beyond)).tolist()


def _plain_type(values: Sequence[Any]) -> pa.DataType | None:
    """Return the type that Arrow would infer, for values of one of Python's own types; None for others.

    To infer a type, Arrow imports pandas, wherever it is installed.

    >>> _plain_type([1, None]), _plain_type([1, 2.5]), _plain_type([None])
    (DataType(int64), None, DataType(null))
    """
    kinds = set(map(type, values))
    kinds.discard(NoneType)
    if len(kinds) > 1:
        return None
    if not kinds:
        return pa.null()
    if kinds == {datetime} and all(value is None or value.tzinfo is UTC for value in values):
        return pa.timestamp("us", "UTC")
    return PLAIN_TYPES.get(kinds.pop())


def _inferred(values: Sequence[Any], keep_nan: bool, want: pa.DataType) -> pa.Array:
    plain = _plain_type(values)
    if plain is not None:
        with contextlib.suppress(*CAST_ERRORS):
            return pa.array(values, plain, from_pandas=not keep_nan)
    try:
        return pa.array(values, from_pandas=not keep_nan)
    except OverflowError:  # Arrow infers int64 for integers of any size
        return pa.array(values, want if types.is_decimal(want) else pa.uint64(), from_pandas=True)
    except CAST_ERRORS:
        if len(values) > 1:
            raise
        return pa.array(values, from_pandas=True)
