"""Lossless casts of columns to declared types; they report each cell that cannot be cast.

A cast covers the whole column; only if that fails, the column is halved until the offending cells are alone. The result
of a cell therefore never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from numbers import Number
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import value_text

__all__ = [
    "CAST_ERRORS",
    "PER_SECOND",
    "Problem",
    "can_cast",
    "cast",
    "from_values",
    "infer_type",
    "is_key_type",
    "is_text",
    "plain_schema",
    "plain_type",
    "to_python",
]

types = pa.types

#: What Arrow and Python raise if a value does not match a type.
CAST_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)

#: Units of time per second.
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Problem(NamedTuple):
    """Why a cell was rejected: a short stable code, and the message after the name of the field."""

    reason: str
    text: str


Problems = dict[int, Problem]


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """The type of the same values without dictionary, run-end or view encoding, as tasks expect it.

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
    """The schema with :func:`plain_type` applied to each field."""
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
        fields = {want.field(i).name: want.field(i).type for i in range(want.num_fields)}
        members = [have.field(i) for i in range(have.num_fields)]
        return all(f.name in fields and can_cast(f.type, fields[f.name]) for f in members)
    if types.is_map(have) and types.is_map(want):
        return can_cast(have.key_type, want.key_type) and can_cast(have.item_type, want.item_type)
    return False


def _simple_castable(have: pa.DataType, want: pa.DataType) -> Any:
    if is_text(have):
        return is_text(want) or _is_number(want) or types.is_boolean(want) or types.is_temporal(want)
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
    type are cut off; a whole number counts units since 1970; NaN becomes null if the type has no NaN.

    >>> cast(pa.array(["1.5", "warm"]), pa.float64())[1]
    {1: Problem(reason='wrong_type', text="= 'warm' (str) is not of type double")}
    """

    def part(start: int, end: int) -> pa.Array:
        return _cast_whole(column if end - start == len(column) else column.slice(start, end - start), want)

    return _by_halves(len(column), part, lambda i: _problem(to_python(column.slice(i, 1))[0], want), want)


def from_values(values: Sequence[Any], want: pa.DataType) -> tuple[pa.Array, Problems]:
    """Convert Python values to a column, by the rules of :func:`cast`; floats are rounded to narrower types.

    >>> from_values([1, None, "2.5", [3]], pa.float64())[0].to_pylist()
    [1.0, None, 2.5, None]
    """
    # the missing values of pandas become null, but NaN stays NaN in a column of floats
    keep_nan = types.is_floating(want) or types.is_nested(want)

    def part(start: int, end: int) -> pa.Array:
        piece = values[start:end]
        column = _inferred(piece, keep_nan, want)
        if types.is_float64(column.type) and types.is_floating(want) and want.bit_width < 64:
            return _rounded(column, want)
        if keep_nan and len(piece) == 1 and not can_cast(column.type, want):
            column = pa.array(piece, from_pandas=True)
        if not can_cast(column.type, want):
            raise pa.ArrowTypeError(f"not of type {want}")
        return _cast_whole(column, want)

    return _by_halves(len(values), part, lambda i: _problem(values[i], want), want)


def _rounded(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Round Python's floats, which have 64 bits, to a narrower type; raise if one is too large for it."""
    narrow = column.cast(want, safe=False)
    if pc.any(pc.and_(pc.is_inf(narrow.cast(pa.float64())), pc.is_finite(column))).as_py():
        raise pa.ArrowInvalid(f"too large for {want}")
    return narrow


def to_python(column: pa.Array) -> list[Any]:
    """Convert a column to Python values; invalid UTF-8 becomes bytes, and times out of Python's range become numbers.

    >>> to_python(pa.array([0, 2**62], pa.timestamp("us")))
    [datetime.datetime(1970, 1, 1, 0, 0), 4611686018427387904]
    """
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except CAST_ERRORS:
        column = _decoded(column)
    if len(column) > 1:
        return [to_python(column.slice(i, 1))[0] for i in range(len(column))]
    if is_text(column.type):
        return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    if types.is_temporal(column.type):
        return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return [column.to_string()]


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


def _by_halves(
    size: int, part: Callable[[int, int], pa.Array], problem: Callable[[int], Problem], want: pa.DataType
) -> tuple[pa.Array, Problems]:
    parts: list[pa.Array] = []
    problems: Problems = {}
    stack = [(0, size)]
    while stack:
        start, end = stack.pop()
        try:
            parts.append(part(start, end))
        except CAST_ERRORS:
            if end - start > 1:
                middle = (start + end) // 2
                stack += [(middle, end), (start, middle)]
            else:
                parts.append(pa.nulls(end - start, want))
                problems.update({i: problem(i) for i in range(start, end)})
    return (parts[0] if len(parts) == 1 else pa.concat_arrays(parts)), problems


def _cast_whole(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Cast the column, or raise one of :data:`CAST_ERRORS`."""
    column = _decoded(column)
    have = column.type
    if have.equals(want):
        return column
    if types.is_null(have):
        return pa.nulls(len(column), want)
    if is_text(have) and not is_text(want):
        text = column.cast(pa.large_string()) if not types.is_string(have) else column
        text = pc.utf8_trim_whitespace(text)
        return _parse_times(text, want) if types.is_timestamp(want) else text.cast(want)
    if types.is_timestamp(have) and types.is_timestamp(want):
        return _rescaled(column, want)
    if types.is_floating(have) and not types.is_floating(want):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, have), column)
    return column.cast(want)


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
    raise pa.ArrowInvalid("not all values are ISO 8601")


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


def _problem(value: Any, want: pa.DataType) -> Problem:
    reason = "wrong_type"
    if isinstance(value, str | bytes):
        reason = "invalid_utf8" if is_text(want) else "wrong_type"
    elif types.is_temporal(want):
        reason = "out_of_range" if isinstance(value, int | date) else "wrong_type"
    elif isinstance(value, Number | Decimal) and _is_number(want):
        fraction = isinstance(value, float) and not value.is_integer()
        reason = "wrong_type" if fraction else "out_of_range"
    texts = {"invalid_utf8": "is not UTF-8", "out_of_range": f"does not fit the type {want}"}
    return Problem(reason, f"= {value_text(value)} {texts.get(reason, f'is not of type {want}')}")


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
