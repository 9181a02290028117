"""Lossless casts of columns to declared types; they report each cell that cannot be cast.

A cast covers the whole column; if that fails, :mod:`riot_ops.core.castable` finds the offending cells, and the others
are cast without them. The result of a cell never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
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
from riot_ops.core.nested_columns import Cells, Mask, build_lists, build_maps, build_structs, flat_list

__all__ = [
    "CAST_ERRORS",
    "Problem",
    "Problems",
    "can_cast",
    "cast",
    "cast_or_null",
    "cast_valid",
    "is_key_type",
    "is_list",
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
    if is_list(have) and is_list(want):
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
    result, bad = cast_valid(column, want)
    return result, problems_of(bad, to_python(column.take(pa.array(bad))), want) if bad else {}


def cast_or_null(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Cast a column by the rules of :func:`cast`; cells that cannot be cast become null."""
    return cast_valid(column, want)[0]


def cast_valid(column: pa.Array, want: pa.DataType) -> Cells:
    """Cast a column by the rules of :func:`cast`; return it, and the rows that cannot be cast, which are null."""
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


def _by_halves(column: pa.Array, want: pa.DataType) -> Cells:
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


def _cast_nested(column: pa.Array, want: pa.DataType) -> Cells:
    """Cast the members, or the values of all lists, as columns of their own."""
    valid = np.asarray(column.is_valid())
    if not can_cast(column.type, want):
        return pa.nulls(len(column), want), np.flatnonzero(valid).tolist()
    if types.is_struct(want):
        members = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
        cells = {f.name: cast_valid(members[f.name], f.type) for f in want if f.name in members}
        return build_structs(valid, cells, want)
    if types.is_map(want):
        column = column.take(pa.array(np.arange(len(column))))  # entries without gaps
        lengths = np.diff(np.asarray(column.offsets)).astype(np.int64)
        return build_maps(
            valid, lengths, cast_valid(column.keys, want.key_type), cast_valid(column.items, want.item_type), want
        )
    values, lengths = flat_list(column)
    return build_lists(valid, lengths, cast_valid(values, want.value_type), want)


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
    source_rate, target_rate = PER_SECOND[column.type.unit], PER_SECOND[want.unit]
    if target_rate > source_rate:
        numbers = pc.multiply_checked(numbers, target_rate // source_rate)
    elif target_rate < source_rate:
        factor = pa.scalar(source_rate // target_rate, pa.int64())
        towards_zero = pc.divide(numbers, factor)
        below = pc.less(numbers, pc.multiply(towards_zero, factor))
        numbers = pc.subtract(towards_zero, below.cast(pa.int64()))
    return numbers.cast(want)


def problems_of(rows: Sequence[int], values: Sequence[Any], want: pa.DataType) -> Problems:
    """Describe the values of the rows that cannot be cast."""
    text, temporal, number = is_text(want), types.is_temporal(want), _is_number(want)
    mismatch, overflow = f"is not of type {want}", f"does not fit the type {want}"
    problems = {}
    for row, value in zip(rows, values, strict=True):
        reason, end = "wrong_type", mismatch
        if isinstance(value, str | bytes):
            if text:
                reason, end = "invalid_utf8", "is not UTF-8"
        elif temporal:
            if isinstance(value, int | date):
                reason, end = "out_of_range", overflow
        elif number and isinstance(value, Number | Decimal) and not (isinstance(value, float) and value % 1):
            reason, end = "out_of_range", overflow
        problems[row] = Problem(reason, f"= {value_text(value)} {end}")
    return problems


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


def is_list(dtype: pa.DataType) -> bool:
    """Whether a type holds lists, with offsets of 32 or 64 bits or of one length."""
    return bool(types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype))
