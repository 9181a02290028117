"""Columns cast to the types that a dataflow declares, without loss; a cell that does not fit is named.

A column is cast as a whole; only where that fails it is halved until the cells that do not fit stand
alone. What a cell becomes therefore never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from numbers import Number
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import short

__all__ = [
    "FAILURES",
    "PER_SECOND",
    "Problem",
    "cast",
    "castable",
    "cells",
    "from_values",
    "is_text",
    "plain",
    "plain_schema",
    "type_of",
]

types = pa.types

#: What Arrow and Python raise where a value is not of a type.
FAILURES = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Problem(NamedTuple):
    """Why a cell was rejected: a short stable code, and what goes on after the name of its field."""

    reason: str
    text: str


Problems = dict[int, Problem]


def plain(kind: pa.DataType) -> pa.DataType:
    """The type that holds the same values without an encoding of their own, as tasks take them.

    >>> plain(pa.dictionary(pa.int32(), pa.string_view()))
    DataType(string)
    """
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain(kind.storage_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(plain(kind.value_type))
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with :func:`plain` types."""
    return pa.schema([f.with_type(plain(f.type)) for f in schema], schema.metadata)


def castable(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether values of a type can be values of another: each, or all but those that do not fit.

    Examples
    --------
    >>> castable(pa.string(), pa.float64()), castable(pa.int64(), pa.string())
    (True, False)
    """
    have = plain(have)
    if have.equals(want) or types.is_null(have):
        return True
    if not types.is_nested(have):
        return bool(_simple_castable(have, want))
    if _is_list(have) and _is_list(want):
        return castable(have.value_type, want.value_type)
    if types.is_struct(have) and types.is_struct(want):
        fields = {want.field(i).name: want.field(i).type for i in range(want.num_fields)}
        given = [have.field(i) for i in range(have.num_fields)]
        return all(f.name in fields and castable(f.type, fields[f.name]) for f in given)
    if types.is_map(have) and types.is_map(want):
        return castable(have.key_type, want.key_type) and castable(have.item_type, want.item_type)
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
    """A column as another type, with null for the cells that do not fit, and what is wrong with those.

    Text is read as the number or ISO 8601 time that it spells; a time without a zone is in UTC, digits of a
    time below the unit are cut off; a whole number counts the units of a time since 1970; NaN is
    null where a type has none.

    >>> cast(pa.array(["1.5", "warm"]), pa.float64())[1]
    {1: Problem(reason='wrong_type', text="= 'warm' (str) is not of type double")}
    """

    def part(start: int, end: int) -> pa.Array:
        return _whole(column if end - start == len(column) else column.slice(start, end - start), want)

    return _by_halves(len(column), part, lambda i: _problem(cells(column.slice(i, 1))[0], want), want)


def from_values(values: Sequence[Any], want: pa.DataType) -> tuple[pa.Array, Problems]:
    """Python values as a column, by the rules of :func:`cast`.

    >>> from_values([1, None, "2.5", [3]], pa.float64())[0].to_pylist()
    [1.0, None, 2.5, None]
    """
    # what counts as missing in pandas is null, but a NaN among numbers stays one
    keep_nan = types.is_floating(want) or types.is_nested(want)

    def part(start: int, end: int) -> pa.Array:
        some = values[start:end]
        column = _inferred(some, keep_nan)
        if keep_nan and len(some) == 1 and not castable(column.type, want):
            column = pa.array(some, from_pandas=True)
        if not castable(column.type, want):
            raise pa.ArrowTypeError(f"not of type {want}")
        return _whole(column, want)

    return _by_halves(len(values), part, lambda i: _problem(values[i], want), want)


def cells(column: pa.Array) -> list[Any]:
    """The values of a column, also where Python has none for them: bytes for spoilt text, numbers for such times.

    >>> cells(pa.array([0, 2**62], pa.timestamp("us")))
    [datetime.datetime(1970, 1, 1, 0, 0), 4611686018427387904]
    """
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except FAILURES:
        column = _decoded(column)
    if len(column) > 1:
        return [cells(column.slice(i, 1))[0] for i in range(len(column))]
    if is_text(column.type):
        return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    if types.is_temporal(column.type):
        return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return [column.to_string()]


def type_of(values: Sequence[Any]) -> pa.DataType:
    """The type that holds all values; text where there is none.

    >>> type_of([1, 2.5]), type_of([1, "a"]), type_of([2**70])
    (DataType(double), DataType(string), DataType(int64))
    """
    try:
        return pa.array(values).type
    except FAILURES:
        return pa.int64() if all(isinstance(v, int) for v in values) else pa.string()


def _inferred(values: Sequence[Any], keep_nan: bool) -> pa.Array:
    try:
        return pa.array(values, from_pandas=not keep_nan)
    except FAILURES:
        if len(values) > 1:
            raise
        return pa.array(values, from_pandas=True)


def _by_halves(
    size: int, part: Callable[[int, int], pa.Array], problem: Callable[[int], Problem], want: pa.DataType
) -> tuple[pa.Array, Problems]:
    done: list[pa.Array] = []
    problems: Problems = {}
    waiting = [(0, size)]
    while waiting:
        start, end = waiting.pop()
        try:
            done.append(part(start, end))
        except FAILURES:
            if end - start > 1:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
            else:
                done.append(pa.nulls(end - start, want))
                problems.update({i: problem(i) for i in range(start, end)})
    return (done[0] if len(done) == 1 else pa.concat_arrays(done)), problems


def _whole(column: pa.Array, want: pa.DataType) -> pa.Array:
    """The column cast, or an exception of :data:`FAILURES`."""
    column = _decoded(column)
    have = column.type
    if have.equals(want):
        return column
    if types.is_null(have):
        return pa.nulls(len(column), want)
    if is_text(have) and not is_text(want):
        text = column.cast(pa.large_string()) if not types.is_string(have) else column
        text = pc.utf8_trim_whitespace(text)
        return _times(text, want) if types.is_timestamp(want) else text.cast(want)
    if types.is_timestamp(have) and types.is_timestamp(want):
        return _rescaled(column, want)
    if types.is_floating(have) and not types.is_floating(want):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, have), column)
    return column.cast(want)


def _decoded(column: pa.Array) -> pa.Array:
    """The column with its :func:`plain` type."""
    kind = column.type
    if types.is_dictionary(kind):
        return _decoded(column.dictionary).take(column.indices)  # Arrow decodes no words that are views
    if types.is_run_end_encoded(kind):
        return _decoded(pc.run_end_decode(column))
    if isinstance(kind, pa.BaseExtensionType):
        return _decoded(column.storage)
    return column if plain(kind).equals(kind) else column.cast(plain(kind))


def _times(text: pa.Array, want: pa.DataType) -> pa.Array:
    """Times from ISO 8601, with and without a zone, with as many digits of a second as there are."""
    for unit in (want.unit, "ns"):
        for zone in ("UTC", None):
            try:
                return _rescaled(text.cast(pa.timestamp(unit, zone)), want)
            except pa.ArrowInvalid:
                continue
    raise pa.ArrowInvalid("not all are ISO 8601")


def _rescaled(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Times in another unit, cut off towards the past."""
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
    why = {"invalid_utf8": "is not UTF-8", "out_of_range": f"does not fit the type {want}"}
    return Problem(reason, f"= {short(value)} {why.get(reason, f'is not of type {want}')}")


def is_text(kind: pa.DataType) -> bool:
    """Whether a type holds text or bytes."""
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
