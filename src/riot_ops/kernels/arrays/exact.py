"""Numbers and times as pairs of float64, without rounding.

A pair ``(high, rest)`` stands for ``high + rest``: ``high`` is the float64 nearest to the number, ``rest`` what is
missing, at most 1,024 in size. It holds every integer of up to 64 bits, compares like the number (``high`` first),
and does not depend on the type of the field, so that kept state needs no type either.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from riot_ops.kernels.arrays.arrow import float_column, nullable_column, readonly, valid_mask

__all__ = [
    "NO_RESTS",
    "compared",
    "dense_ranks",
    "exact_columns",
    "exact_numbers",
    "exact_pair",
    "exact_result",
    "exact_type",
    "inexact_rows",
    "is_untyped",
    "normalized",
    "with_type",
]

Floats = npt.NDArray[np.float64]

#: The rests of numbers that are all float64: none.
NO_RESTS = readonly(np.empty(0))
#: Up to this size, float64 holds every integer.
MAX_EXACT = 1 << 53
#: Up to this number of digits, float64 distinguishes all decimals.
_DECIMAL_DIGITS = 15
_PAIR = pa.struct([("high", pa.float64()), ("rest", pa.float64())])
#: The largest float64 that an integer type holds.
_LARGEST = {np.dtype(np.int64): float(2**63 - 1024), np.dtype(np.uint64): float(2**64 - 2048)}


def exact_type(dtype: pa.DataType | None) -> pa.DataType:
    """The type of a value that is taken from a field: that of the field; float64 for floating numbers and nulls."""
    if dtype is None or types.is_null(dtype) or types.is_floating(dtype) or types.is_decimal(dtype):
        return pa.float64()
    return dtype


def exact_numbers(column: pa.Array) -> tuple[Floats, Floats]:
    """``(high, rest)`` of a column of numbers or times, NaN where null; ``rest`` is empty where every rest is 0.

    >>> high, rest = exact_numbers(pa.array([2**53 + 1, None, 3]))
    >>> high.tolist(), rest.tolist()
    ([9007199254740992.0, nan, 3.0], [1.0, 0.0, 0.0])
    """
    dtype = column.type
    if types.is_temporal(dtype):
        column = column.cast(pa.int32()) if dtype.bit_width == 32 else column.view(pa.int64())
    elif types.is_null(dtype):
        column = column.cast(pa.float64())
    if column.type not in (pa.int64(), pa.uint64()):
        return float_column(column)[0], NO_RESTS
    numbers = np.asarray(column.fill_null(0) if column.null_count else column)
    high = numbers.astype(np.float64)
    rest = NO_RESTS
    if numbers.size and (numbers.max() > MAX_EXACT or numbers.min() < -MAX_EXACT):
        near = np.minimum(high, _LARGEST[numbers.dtype])  # 2^63 is no int64
        rest = (numbers - near.astype(numbers.dtype)).view(np.int64) - (high - near)
        rest = readonly(rest.astype(np.float64))
    if column.null_count:
        high[~valid_mask(column)] = np.nan
    return readonly(high), rest


def exact_columns(columns: list[pa.Array]) -> tuple[Floats, Floats]:
    """:func:`exact_numbers` of columns of one length, a row each; ``rest`` has no columns where every rest is 0."""
    pairs = [exact_numbers(column) for column in columns]
    high = np.stack([one for one, _ in pairs])
    if not any(rest.size for _, rest in pairs):
        return readonly(high), readonly(np.empty((len(columns), 0)))
    return readonly(high), readonly(np.stack([rest if rest.size else np.zeros(len(one)) for one, rest in pairs]))


def inexact_rows(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return which rows have a number that float64 cannot hold, in a column of numbers or of lists; None: no row.

    An integer must be a float64. A decimal must be the decimal of its precision that is nearest to a float64, so that
    0.1 passes. Only types that can have such numbers are looked at.

    >>> inexact_rows(pa.array([2**53, 2**53 + 1, None])).tolist()
    [False, True, False]
    >>> inexact_rows(pa.array([[1], [2**53 + 1, 2], None])).tolist(), inexact_rows(pa.array([0.1]))
    ([False, True, False], None)
    """
    dtype = column.type
    if types.is_list(dtype) or types.is_large_list(dtype):
        items = inexact_rows(column.flatten())
        if items is None:
            return None
        found = np.zeros(len(column), np.bool_)
        found[np.asarray(pc.list_parent_indices(column))[items]] = True
        return found
    if types.is_int64(dtype) or types.is_uint64(dtype):
        rest = exact_numbers(column)[1] if _is_wide(column) else NO_RESTS
        return rest != 0 if rest.any() else None
    if not types.is_decimal(dtype) or dtype.precision <= _DECIMAL_DIGITS:
        return None
    limit = Decimal(1).scaleb(_DECIMAL_DIGITS - dtype.scale)
    long = np.flatnonzero([value is not None and abs(value) >= limit for value in column.to_pylist()])
    bad = [row for row in long.tolist() if Decimal(repr(float(value := column[row].as_py()))) != value]
    if not bad:
        return None
    found = np.zeros(len(column), np.bool_)
    found[bad] = True
    return found


def _is_wide(column: pa.Array) -> bool:
    """Whether a column of integers of 64 bits has one beyond those that float64 holds without gaps."""
    stored = column.buffers()[1]
    if stored is None:
        return False
    unsigned = types.is_uint64(column.type)
    numbers = np.frombuffer(stored, np.uint64 if unsigned else np.int64, len(column), 8 * column.offset)
    return bool(numbers.size) and bool(numbers.max() > MAX_EXACT or (not unsigned and numbers.min() < -MAX_EXACT))


def exact_pair(number: float) -> tuple[float, float]:
    """Return the pair of a Python number; an integer of more than 106 bits loses the lowest ones.

    >>> exact_pair(2**53 + 1), exact_pair(0.5)
    ((9007199254740992.0, 1.0), (0.5, 0.0))
    """
    high = float(number)
    return high, float(number - int(high)) if isinstance(number, int) else 0.0


def compared(high: Any, rest: Any, other: Any, other_rest: Any) -> Floats:
    """1, 0 or -1 where pairs are greater than, equal to or less than others; NaN where either is missing.

    >>> compared(np.array([2.0**53]), np.array([1.0]), 2.0**53, 0.0).tolist()
    [1.0]
    """
    with np.errstate(invalid="ignore"):  # of two infinities
        order = np.sign(high - other)
    if np.size(rest) or np.any(other_rest):
        order = np.where(order == 0, np.sign((rest if np.size(rest) else 0.0) - other_rest), order)
    found: Floats = order
    return found


def dense_ranks(column: pa.Array) -> Floats:
    """Return the numbers in the order of those of a column, as float64, with 0 for 0 and NaN where null.

    They are the values themselves where float64 holds them.

    >>> dense_ranks(pa.array([2**53 + 1, 0, None, 2**53])).tolist()
    [2.0, 0.0, nan, 1.0]
    """
    high, rest = exact_numbers(column)
    if not rest.size:
        return high
    numbers, ranks = np.unique(np.asarray(column.fill_null(0)), return_inverse=True)
    zero = int(np.searchsorted(numbers, 0))
    out = ranks.astype(np.float64) - zero
    if zero == numbers.size or numbers[zero] != 0:
        out[ranks >= zero] += 1
    out[np.isnan(high)] = np.nan
    return out


def normalized(total: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """Return the pair whose sum is that of two numbers of any size."""
    high = total + rest
    part = high - total
    return high, (total - (high - part)) + (rest - part)


def exact_result(high: Floats, rest: Floats, missing: npt.NDArray[np.bool_], dtype: pa.DataType | None) -> pa.Array:
    """A column of the numbers of pairs, of :func:`exact_type`; null where ``missing``, or where an integer overflows.

    Without a type, float64; or the pairs themselves where it would round, until :func:`with_type` has a type.

    >>> exact_result(np.array([2.0**53]), np.array([1.0]), np.array([False]), pa.int64()).to_pylist()
    [9007199254740993]
    """
    if dtype is None and rest.any():
        return pa.StructArray.from_arrays([nullable_column(high, missing), pa.array(rest)], fields=[*_PAIR])
    dtype = exact_type(dtype)
    if dtype == pa.float64():
        return nullable_column(high, missing)
    if types.is_boolean(dtype):
        return pa.array(high != 0, mask=missing)
    wide: Any = np.dtype(np.uint64 if dtype == pa.uint64() else np.int64)
    lowest, above = (0.0, 2.0**64) if dtype == pa.uint64() else (-(2.0**63), 2.0**63)
    fits = ((high > lowest) | ((high == lowest) & (rest >= 0))) & ((high < above) | ((high == above) & (rest < 0)))
    missing = missing | ~fits  # NaN does not fit
    near = np.clip(np.where(missing, 0.0, high), lowest, _LARGEST[wide])
    more = np.where(missing, 0.0, rest + (high - near)).astype(np.int64)
    numbers = pa.array(near.astype(wide) + more.view(wide), mask=missing)
    if types.is_temporal(dtype) and dtype.bit_width == 32:
        numbers = numbers.cast(pa.int32())
    return numbers.cast(dtype)


def is_untyped(dtype: pa.DataType) -> bool:
    """Whether :func:`exact_result` has left pairs for lack of a type."""
    return bool(dtype == _PAIR)


def with_type(column: pa.Array, dtype: pa.DataType | None) -> pa.Array:
    """Return the column of :func:`exact_result` that was made without a type.

    Without one again, integers of 64 bits if all numbers are whole, or else float64.

    >>> with_type(exact_result(np.array([2.0**53]), np.array([1.0]), np.array([False]), None), None).to_pylist()
    [9007199254740993]
    """
    if is_untyped(column.type):
        high, rest = (np.asarray(part) for part in column.flatten())
        if dtype is None and not bool(((high % 1 == 0) & (rest % 1 == 0) | np.isnan(high)).all()):
            dtype = pa.float64()
        if dtype is None:
            dtype = pa.uint64() if bool((high >= 2.0**63).any()) else pa.int64()
        return exact_result(high, rest, np.isnan(high), dtype)
    if dtype is None or column.type == dtype:
        return column
    if types.is_floating(column.type) and exact_type(dtype) != pa.float64():
        high = np.asarray(column.fill_null(np.nan))
        return exact_result(high, np.zeros(high.size), np.isnan(high), dtype)
    return column.cast(dtype)
