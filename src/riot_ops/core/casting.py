"""Lossless casts of columns to declared types; they report each cell that cannot be cast.

A cast covers the whole column; if that fails, :mod:`riot_ops.core.castable` finds the offending cells, and the others
are cast without them. The result of a cell never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.castable import (
    CLOCK,
    PER_SECOND,
    TIME,
    castable_text,
    castable_values,
    fit_decimal,
    is_naive,
    largest_whole,
    matches,
    valid_utf8,
)
from riot_ops.core.errors import value_text

__all__ = [
    "CAST_ERRORS",
    "Problem",
    "can_cast",
    "cast",
    "cast_or_null",
    "flat_list",
    "from_values",
    "infer_type",
    "is_key_type",
    "is_text",
    "plain_schema",
    "plain_type",
    "problems_of",
    "to_python",
]

types = pa.types

#: What Arrow and Python raise if a value does not match a type.
CAST_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


class Problem(NamedTuple):
    """Why a cell was rejected: a short stable code, and the message after the name of the field."""

    reason: str
    text: str


Problems = dict[int, Problem]
Mask = npt.NDArray[np.bool_]


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the same values without dictionary, run-end or view encoding, as tasks expect it.

    Of extension types only JSON has the values of its storage.

    >>> plain_type(pa.dictionary(pa.int32(), pa.string_view()))
    DataType(string)
    """
    if types.is_dictionary(dtype) or types.is_run_end_encoded(dtype):
        return plain_type(dtype.value_type)
    if isinstance(dtype, pa.BaseExtensionType) and dtype.extension_name == "arrow.json":
        return plain_type(dtype.storage_type)
    if types.is_string_view(dtype):
        return pa.string()
    if types.is_binary_view(dtype):
        return pa.binary()
    if types.is_list_view(dtype) or types.is_large_list_view(dtype):
        return pa.list_(plain_type(dtype.value_type))
    return dtype


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with :func:`plain_type` applied to each field."""
    return pa.schema([f.with_type(plain_type(f.type)) for f in schema], schema.metadata)


def can_cast(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether values of one type can be cast to another: all of them, or those in range.

    Examples
    --------
    >>> can_cast(pa.string(), pa.float64()), can_cast(pa.int64(), pa.string())
    (True, False)
    """
    if isinstance(
        have, pa.BaseExtensionType
    ):  # a UUID to its 16 bytes, a period to its number: where a user asks for it
        return bool(plain_type(have.storage_type).equals(want))
    have = plain_type(have)
    if have.equals(want) or types.is_null(have):
        return True
    if not types.is_nested(have):
        return bool(_simple_castable(have, want))
    if _is_list(have) and _is_list(want):
        return can_cast(have.value_type, want.value_type)
    if types.is_struct(have) and types.is_struct(want):
        names = [field.name for field in have]
        shared = [field for field in want if field.name in names]
        known = all(names.count(f.name) == 1 and can_cast(have.field(f.name).type, f.type) for f in shared)
        return known and bool(shared or not names)
    if types.is_map(have) and types.is_map(want):
        return can_cast(have.key_type, want.key_type) and can_cast(have.item_type, want.item_type)
    return False


def _simple_castable(have: pa.DataType, want: pa.DataType) -> Any:
    if is_text(have):
        temporal = types.is_temporal(want) and not (types.is_duration(want) or types.is_interval(want))
        return is_text(want) or _is_number(want) or types.is_boolean(want) or temporal
    if types.is_boolean(have) or types.is_integer(have):
        return _is_number(want) or (types.is_timestamp(want) and types.is_integer(have))
    if types.is_floating(have):
        return types.is_integer(want) or (types.is_floating(want) and have.bit_width <= want.bit_width)
    if types.is_decimal(have):
        return types.is_decimal(want) or types.is_float64(want) or types.is_integer(want)
    if types.is_timestamp(have) or types.is_date(have):
        return types.is_timestamp(want) or (types.is_date(have) and types.is_date(want))
    if types.is_time(have) or types.is_duration(have):
        return types.is_time(want) if types.is_time(have) else types.is_duration(want)
    return False


def cast(column: pa.Array, want: pa.DataType) -> tuple[pa.Array, Problems]:
    """Cast a column; cells that cannot be cast become null and are reported with the problem of each.

    Text is parsed as a number or an ISO 8601 time; a time without a zone is in UTC, and digits below the unit of the
    type are cut off; a whole number counts units since 1970; NaN becomes null if the type has no NaN. Of a struct the
    fields that the type lacks are ignored, and those that it has beyond the struct are null.

    >>> cast(pa.array(["1.5", "warm"]), pa.float64())[1]
    {1: Problem(reason='wrong_type', text="= 'warm' (str) is not of type double")}
    """
    result, bad = _cast(column, want)
    return result, problems_of(bad, to_python(column.take(pa.array(bad))), want) if bad else {}


def cast_or_null(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Cast a column by the rules of :func:`cast`; cells that cannot be cast become null."""
    return _cast(column, want)[0]


def from_values(values: Sequence[Any], want: pa.DataType) -> tuple[pa.Array, Problems]:
    """Convert Python values to a column, by the rules of :func:`cast`; floats are rounded to narrower types.

    >>> from_values([1, None, "2.5", [3]], pa.float64())[0].to_pylist()
    [1.0, None, 2.5, None]
    """
    result, bad = _from_values(values, want)
    return result, problems_of(bad, [values[row] for row in bad], want)


def _cast(column: pa.Array, want: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Cast a column; return the rows that cannot be cast beside it."""
    try:
        column = _decoded(column)
    except CAST_ERRORS:  # an encoding of values that are not UTF-8
        return _by_halves(column, want)
    if types.is_nested(want) and not (column.type.equals(want) or types.is_null(column.type)):
        return _cast_nested(column, want)
    try:
        return _cast_whole(column, want), []
    except CAST_ERRORS:
        fits = _castable(column, want) if len(column) > 1 else None
    if fits is None or fits.all():
        return _by_halves(column, want)
    good = pc.if_else(pa.array(fits), column, pa.scalar(None, column.type))
    try:
        return _cast_whole(good, want), np.flatnonzero(~fits).tolist()
    except CAST_ERRORS:
        result, bad = _by_halves(good, want)
        return result, sorted({*np.flatnonzero(~fits).tolist(), *bad})


def _castable(column: pa.Array, want: pa.DataType) -> Mask | None:
    """Return which cells the cast takes, but for a few more; None if no rule is known."""
    if not is_text(column.type):
        return castable_values(column, want)
    fits = valid_utf8(column)
    if is_text(want):
        return None if fits.all() else fits
    valid = pc.if_else(pa.array(fits), column, pa.scalar(None, column.type))
    mask = castable_text(_trimmed(valid), want)
    return None if mask is None else mask & fits


def _by_halves(column: pa.Array, want: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Cast a column; where that fails, halve it until the offending cells are alone."""
    parts: list[pa.Array] = []
    bad: list[int] = []
    stack = [(0, len(column))]
    while stack:
        start, end = stack.pop()
        part = column.slice(start, end - start)
        try:
            # a null fits any type, also one to which Arrow casts no value
            parts.append(pa.nulls(len(part), want) if part.null_count == len(part) else _cast_whole(part, want))
        except CAST_ERRORS:
            if end - start > 1:
                middle = (start + end) // 2
                stack += [(middle, end), (start, middle)]
            else:
                parts.append(pa.nulls(end - start, want))
                bad += range(start, end)
    return (parts[0] if len(parts) == 1 else pa.concat_arrays(parts)), bad


# -- nested types ------------------------------------------------------------------------------------------


def flat_list(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the values of all lists of a column, and the length of each; a null has none.

    >>> flat_list(pa.array([[1, 2], None, [3]]))[1].tolist()
    [2, 0, 1]
    """
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return column.flatten(), lengths


def _cast_nested(column: pa.Array, want: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Cast the members, or the values of all lists, as columns of their own."""
    valid = np.asarray(column.is_valid())
    if not can_cast(column.type, want):
        return pa.nulls(len(column), want), np.flatnonzero(valid).tolist()
    if types.is_struct(want):
        members = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
        cells = {f.name: _cast(members[f.name], f.type) for f in want if f.name in members}
        return _struct(valid, cells, want)
    if types.is_map(want):
        column = column.take(pa.array(np.arange(len(column))))  # entries without gaps
        lengths = np.diff(np.asarray(column.offsets)).astype(np.int64)
        return _map(valid, lengths, _cast(column.keys, want.key_type), _cast(column.items, want.item_type), want)
    values, lengths = flat_list(column)
    return _list(valid, lengths, _cast(values, want.value_type), want)


def _struct(
    valid: Mask, members: Mapping[str, tuple[pa.Array, list[int]]], want: pa.StructType
) -> tuple[pa.Array, list[int]]:
    bad = np.zeros(valid.size, np.bool_)
    arrays = []
    for field in want:
        array, rows = members.get(field.name) or (pa.nulls(valid.size, field.type), [])
        bad[rows] = True
        if not field.nullable:
            bad |= valid & np.asarray(array.is_null())
        arrays.append(array)
    mask = pa.array(~valid | bad)
    if not arrays:
        return pa.array([None if null else {} for null in mask.to_pylist()], want), []
    return pa.StructArray.from_arrays(arrays, fields=list(want), mask=mask), np.flatnonzero(bad).tolist()


def _list(
    valid: Mask, lengths: npt.NDArray[np.int64], values: tuple[pa.Array, list[int]], want: pa.DataType
) -> tuple[pa.Array, list[int]]:
    array, wrong = values
    good = valid.copy()
    good[np.repeat(np.arange(valid.size), lengths)[wrong]] = False
    if types.is_fixed_size_list(want):
        good &= lengths == want.list_size
        starts = np.cumsum(lengths) - lengths
        places = starts[:, None] + np.arange(want.list_size)
        places = np.where(good[:, None], places, 0).ravel()
        mask = np.repeat(~good, want.list_size)
        array = array.take(pa.array(places, mask=mask))
        result = pa.FixedSizeListArray.from_arrays(array, type=want, mask=pa.array(~good))
    else:
        array = array.filter(pa.array(np.repeat(good, lengths)))
        kind = pa.LargeListArray if types.is_large_list(want) else pa.ListArray
        result = kind.from_arrays(_offsets(good, lengths), array, type=want, mask=pa.array(~good))
    return result, np.flatnonzero(valid & ~good).tolist()


def _map(
    valid: Mask,
    lengths: npt.NDArray[np.int64],
    keys: tuple[pa.Array, list[int]],
    items: tuple[pa.Array, list[int]],
    want: pa.MapType,
) -> tuple[pa.Array, list[int]]:
    good = valid.copy()
    parents = np.repeat(np.arange(valid.size), lengths)
    for _, wrong in (keys, items):
        good[parents[wrong]] = False
    good[parents[np.asarray(keys[0].is_null())]] = False
    kept = pa.array(np.repeat(good, lengths))
    offsets = _offsets(good, lengths)
    arrays = [array.filter(kept) for array, _ in (keys, items)]
    return (
        pa.MapArray.from_arrays(offsets, *arrays, type=want, mask=pa.array(~good)),
        np.flatnonzero(valid & ~good).tolist(),
    )


def _offsets(good: Mask, lengths: npt.NDArray[np.int64]) -> pa.Array:
    offsets = np.zeros(good.size + 1, np.int64)
    np.cumsum(np.where(good, lengths, 0), out=offsets[1:])
    return pa.array(offsets)


# -- Python values -----------------------------------------------------------------------------------------


def _from_values(values: Sequence[Any], want: pa.DataType) -> tuple[pa.Array, list[int]]:
    try:
        result, bad = _from_alike(values, want)
        if not bad:
            return result, []
    except CAST_ERRORS:
        pass
    nested = types.is_struct(want) or types.is_map(want) or _is_list(want)
    return _from_nested(values, want) if nested else _from_groups(values, want)


def _from_alike(values: Sequence[Any], want: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Convert values of one kind, or raise one of :data:`CAST_ERRORS`."""
    # the missing values of pandas become null, but NaN stays NaN in a column of floats
    keep_nan = types.is_floating(want) or types.is_nested(want)
    column = _inferred(values, keep_nan, want)
    if types.is_float64(column.type) and types.is_floating(want) and want.bit_width < 64:
        return _rounded(column, want)
    if keep_nan and not can_cast(column.type, want):
        column = pa.array(values, from_pandas=True)
    if not can_cast(column.type, want):
        return pa.nulls(len(column), want), np.flatnonzero(np.asarray(column.is_valid())).tolist()
    return _cast(column, want)


def _from_groups(values: Sequence[Any], want: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Convert the values of each Python type by themselves."""
    groups: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        groups.setdefault(_kind(value), []).append(row)
    parts, rows, bad = [], [], []
    for group in groups.values():
        found, wrong = _from_group([values[row] for row in group], want)
        parts.append(found)
        rows += group
        bad += [group[i] for i in wrong]
    if not parts:
        return pa.nulls(0, want), []
    if len(parts) == 1:
        return parts[0], bad
    return pa.concat_arrays(parts).take(pa.array(np.argsort(rows))), sorted(bad)


def _kind(value: Any) -> Any:
    """What decides the Arrow type of a value: its type, and the range of an integer."""
    if type(value) is not int:
        return type(value)
    return int, (value >= -(2**63)) + (value >= 2**63) + (value >= 2**64)


def _from_group(values: Sequence[Any], want: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Convert values of one Python type, halved until those that Arrow does not know are alone."""
    parts: list[pa.Array] = []
    bad: list[int] = []
    stack = [(0, len(values))]
    while stack:
        start, end = stack.pop()
        try:
            part, wrong = _from_alike(values[start:end], want)
            parts.append(part)
            bad += [start + i for i in wrong]
        except CAST_ERRORS:
            if end - start > 1:
                middle = (start + end) // 2
                stack += [(middle, end), (start, middle)]
            else:
                parts.append(pa.nulls(1, want))
                bad.append(start)
    return pa.concat_arrays(parts), bad


def _from_nested(values: Sequence[Any], want: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Convert dicts and lists member by member."""
    lists = (list, tuple, set, frozenset, np.ndarray)
    kinds = dict if types.is_struct(want) else (dict, list, tuple) if types.is_map(want) else lists
    missing = np.fromiter((_is_missing(value) for value in values), np.bool_, len(values))
    known = [isinstance(value, kinds) and getattr(value, "ndim", 1) > 0 for value in values]
    valid = np.array(known, np.bool_)
    if types.is_struct(want):
        rows = [value if there else {} for value, there in zip(values, known, strict=True)]
        members = {field.name: _from_values([row.get(field.name) for row in rows], field.type) for field in want}
        result, bad = _struct(valid, members, want)
    elif types.is_map(want):
        pairs = [_pairs(value) if there else None for value, there in zip(values, known, strict=True)]
        valid &= np.array([pair is not None for pair in pairs], np.bool_)
        lengths = np.array([len(pair or ()) for pair in pairs], np.int64)
        flat = [one for pair in pairs for one in pair or ()]
        result, bad = _map(
            valid,
            lengths,
            _from_values([k for k, _ in flat], want.key_type),
            _from_values([v for _, v in flat], want.item_type),
            want,
        )
    else:
        items = [list(value) if there else () for value, there in zip(values, known, strict=True)]
        lengths = np.array([len(one) for one in items], np.int64)
        flat = [value for one in items for value in one]
        result, bad = _list(valid, lengths, _from_values(flat, want.value_type), want)
    return result, sorted({*bad, *np.flatnonzero(~valid & ~missing).tolist()})


def _pairs(value: Any) -> list[Any] | None:
    """Return the entries of a map; None if the value is no map."""
    if isinstance(value, dict):
        return list(value.items())
    return list(value) if all(isinstance(one, tuple | list) and len(one) == 2 for one in value) else None


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


def _rounded(column: pa.Array, want: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Round Python's floats, which have 64 bits, to a narrower type."""
    narrow = column.cast(want, safe=False)
    beyond = pc.and_(pc.is_inf(narrow.cast(pa.float64())), pc.is_finite(column)).fill_null(False)
    if not pc.any(beyond).as_py():
        return narrow, []
    return pc.if_else(beyond, pa.scalar(None, want), narrow), np.flatnonzero(np.asarray(beyond)).tolist()


def to_python(column: pa.Array) -> list[Any]:
    """Convert a column to Python values; invalid UTF-8 becomes bytes, and times out of Python's range become numbers.

    >>> to_python(pa.array([0, 2**62], pa.timestamp("us")))
    [datetime.datetime(1970, 1, 1, 0, 0), 4611686018427387904]
    """
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except CAST_ERRORS:
        column = _decoded(column)
    if is_text(column.type):
        return [_text_or_bytes(value) for value in column.cast(pa.large_binary()).to_pylist()]
    if types.is_temporal(column.type):
        numbers = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist()
        return [_time_or_number(*pair) for pair in zip(column, numbers, strict=True)]
    if len(column) > 1:
        return [to_python(column.slice(i, 1))[0] for i in range(len(column))]
    return [column.to_string()]


def _text_or_bytes(value: bytes | None) -> str | bytes | None:
    try:
        return value if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _time_or_number(time: pa.Scalar, number: int | None) -> Any:
    try:
        return time.as_py()
    except CAST_ERRORS:
        return number


def infer_type(values: Sequence[Any]) -> pa.DataType:
    """Infer the type that holds all values; text if there is none.

    >>> infer_type([1, 2.5]), infer_type([1, "a"]), infer_type([2**70])
    (DataType(double), DataType(string), DataType(int64))
    """
    try:
        return pa.array(values).type
    except CAST_ERRORS:
        return pa.int64() if all(isinstance(v, int) for v in values) else pa.string()


def _inferred(values: Sequence[Any], keep_nan: bool, want: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, from_pandas=not keep_nan)
    except OverflowError:  # Arrow infers int64 for integers of any size
        return pa.array(values, want if types.is_decimal(want) else pa.uint64(), from_pandas=True)
    except CAST_ERRORS:
        if len(values) > 1:
            raise
        return pa.array(values, from_pandas=True)


def _cast_whole(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Cast a column that is not nested, or raise one of :data:`CAST_ERRORS`."""
    have = column.type
    if have.equals(want):
        return column
    if types.is_null(have):
        return pa.nulls(len(column), want)
    if is_text(have) and not is_text(want):
        return _parse(_trimmed(column), want)
    if types.is_timestamp(have) and types.is_timestamp(want):
        return _rescaled(column, want)
    if types.is_floating(have) and not types.is_floating(want):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, have), column)
    if types.is_decimal(want) and (types.is_integer(have) or types.is_boolean(have)):
        return _to_decimals(column if types.is_integer(have) else column.cast(pa.int8()), want)
    if types.is_float16(want) and not types.is_floating(have):
        column = column.cast(pa.int64())  # Arrow knows no cast of truth values, and rounds
        if not pc.all(pc.less_equal(pc.abs_checked(column), largest_whole(want))).as_py():
            raise pa.ArrowInvalid(f"too large for {want}")
    if types.is_timestamp(want) and types.is_integer(have):
        column = column.cast(pa.int64())
    return column.cast(want)


def _trimmed(column: pa.Array) -> pa.Array:
    """Return the texts without white space around them."""
    if types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    return pc.utf8_trim_whitespace(column if types.is_string(column.type) else column.cast(pa.large_string()))


def _parse(text: pa.Array, want: pa.DataType) -> pa.Array:
    if types.is_timestamp(want):
        return _parse_times(text, want)
    if types.is_time(want):
        if not matches(text, CLOCK).all():
            raise pa.ArrowInvalid("not all values are times of a day")
        instants = pc.binary_join_element_wise(pa.scalar("1970-01-01T", text.type), text, pa.scalar("", text.type))
        return _parse_times(instants, pa.timestamp(want.unit)).cast(want)
    if types.is_decimal(want):
        # Arrow does not notice that a number of many digits is beyond the type
        odd = pc.or_(pc.greater(pc.binary_length(text), 30), pc.match_substring_regex(text, "[eE]"))
        return _to_decimals(text, want) if pc.any(odd).as_py() else text.cast(want)
    return text.cast(want)


def _to_decimals(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Convert whole numbers, or texts, to decimals; raise if that loses digits."""
    values = column.to_pylist()
    numbers = [None if value is None else fit_decimal(value, want) for value in values]
    if numbers.count(None) != values.count(None):
        raise pa.ArrowInvalid(f"not all values are of type {want}")
    return pa.array(numbers, want)


def _decoded(column: pa.Array) -> pa.Array:
    """Cast the column to its :func:`plain_type`."""
    dtype = column.type
    if types.is_dictionary(dtype):
        return _decoded(column.dictionary).take(column.indices)  # Arrow cannot decode a dictionary of views
    if types.is_run_end_encoded(dtype):
        return _decoded(pc.run_end_decode(column))
    if isinstance(dtype, pa.BaseExtensionType):
        return _decoded(column.storage)
    return column if plain_type(dtype).equals(dtype) else column.cast(plain_type(dtype))


def _parse_times(text: pa.Array, want: pa.DataType) -> pa.Array:
    """Parse ISO 8601 times with or without a zone, with any number of digits of a second."""
    for unit in (want.unit, "ns"):
        for zone in ("UTC", None):
            try:
                return _rescaled(text.cast(pa.timestamp(unit, zone)), want)
            except pa.ArrowInvalid:
                continue
    if not matches(text, TIME).all():
        raise pa.ArrowInvalid("not all values are ISO 8601")
    text = pc.replace_substring(pc.ascii_upper(text), ",", ".")  # the forms of ISO 8601 that Arrow does not read
    digits = len(str(PER_SECOND[want.unit])) - 1
    if digits:
        text = pc.replace_substring_regex(text, rf"(\.\d{{{digits}}})\d+", r"\1")
    else:
        text = pc.replace_substring_regex(text, r"\.\d+", "")
    naive = pa.array(is_naive(text))
    missing = pa.scalar(None, text.type)
    zoned, local = pc.if_else(naive, missing, text), pc.if_else(naive, text, missing)
    unit = pa.timestamp(want.unit)
    return pc.coalesce(zoned.cast(pa.timestamp(want.unit, "UTC")).cast(unit), local.cast(unit)).cast(want)


def _rescaled(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Convert times to another unit, rounded down."""
    numbers = column.cast(pa.int64())
    have, wanted = PER_SECOND[column.type.unit], PER_SECOND[want.unit]
    if wanted > have:
        numbers = pc.multiply_checked(numbers, wanted // have)
    elif wanted < have:
        factor = pa.scalar(have // wanted, pa.int64())
        towards_zero = pc.divide(numbers, factor)
        below = pc.less(numbers, pc.multiply(towards_zero, factor))
        numbers = pc.subtract(towards_zero, below.cast(pa.int64()))
    return numbers.cast(want)


def problems_of(rows: Sequence[int], values: Sequence[Any], want: pa.DataType) -> Problems:
    """Describe the values of the rows that cannot be cast."""
    text, temporal, number = is_text(want), types.is_temporal(want), _is_number(want)
    wrong, beyond = f"is not of type {want}", f"does not fit the type {want}"
    found = {}
    for row, value in zip(rows, values, strict=True):
        reason, end = "wrong_type", wrong
        if isinstance(value, str | bytes):
            if text:
                reason, end = "invalid_utf8", "is not UTF-8"
        elif temporal:
            if isinstance(value, int | date):
                reason, end = "out_of_range", beyond
        elif number and isinstance(value, Number | Decimal) and not (isinstance(value, float) and value % 1):
            reason, end = "out_of_range", beyond
        found[row] = Problem(reason, f"= {value_text(value)} {end}")
    return found


def is_text(dtype: pa.DataType) -> bool:
    """Whether a type holds text or bytes."""
    return bool(
        types.is_string(dtype)
        or types.is_large_string(dtype)
        or types.is_binary(dtype)
        or types.is_large_binary(dtype)
        or types.is_fixed_size_binary(dtype)
    )


def is_key_type(dtype: pa.DataType) -> bool:
    """Whether values of a type can be keys: numbers, text, bytes, truth values, dates and times, and missing values.

    >>> is_key_type(pa.date32()), is_key_type(pa.binary(6)), is_key_type(pa.list_(pa.int64()))
    (True, True, False)
    """
    if types.is_dictionary(dtype):
        return is_key_type(dtype.value_type)
    if types.is_decimal(dtype):  # to be compared with other scales, see kernels.arrays.hashing
        return bool(0 <= dtype.scale <= 38 and dtype.precision - dtype.scale <= 38)
    temporal = types.is_temporal(dtype) and not types.is_interval(dtype)
    view = types.is_string_view(dtype) or types.is_binary_view(dtype)
    simple = types.is_integer(dtype) or types.is_floating(dtype) or types.is_boolean(dtype) or types.is_null(dtype)
    return bool(simple or temporal or view or is_text(dtype))


def _is_number(dtype: pa.DataType) -> bool:
    return bool(types.is_integer(dtype) or types.is_floating(dtype) or types.is_decimal(dtype))


def _is_list(dtype: pa.DataType) -> bool:
    return bool(types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype))
