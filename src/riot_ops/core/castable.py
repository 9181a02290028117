"""Which cells of a column a lossless cast takes, found for all cells at once.

Arrow stops a cast at the first cell that does not fit. These masks find all of them by range and regular expression, so
that a column of bad cells costs about as much as one of good cells. A mask never excludes a cell that the cast takes.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "CLOCK",
    "PER_SECOND",
    "TIME",
    "castable_text",
    "castable_values",
    "fit_decimal",
    "int_range",
    "is_naive",
    "largest_whole",
    "matches",
    "valid_utf8",
]

types = pa.types
Mask = npt.NDArray[np.bool_]

#: Units of time per second.
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_LEAP = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    r"(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    rf"|02-(?:0[1-9]|1\d|2[0-8]))|{_LEAP}-02-29)"
)
_SECONDS = r"(?::[0-5]\d(?:[.,]\d+)?)?"
_CLOCK = rf"(?:[01]\d|2[0-3])(?::[0-5]\d{_SECONDS})?"
_ZONE = r"(?:[Zz]|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)"
#: The texts that a cast takes, but for their range.
DATE = _DATE
NAIVE_TIME = rf"{_DATE}(?:[Tt ]{_CLOCK})?"
TIME = rf"{_DATE}(?:[Tt ]{_CLOCK}{_ZONE}?)?"
CLOCK = rf"(?:[01]\d|2[0-3]):[0-5]\d{_SECONDS}"
FLOAT = r"(?i)[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan(?:\(\w*\))?)"
BOOLEAN = r"(?i)true|false|0|1"


def matches(text: pa.Array, pattern: str) -> Mask:
    """Return which texts match a regular expression as a whole; a null does."""
    return np.asarray(pc.match_substring_regex(text, f"^(?:{pattern})$").fill_null(True))


def is_naive(text: pa.Array) -> Mask:
    """Return which times have no zone."""
    return matches(text, NAIVE_TIME)


def valid_utf8(column: pa.Array) -> Mask:
    """Return which texts are UTF-8; a null is."""
    values = column.cast(pa.large_binary()).to_pylist()
    return np.fromiter((value is None or _decodes(value) for value in values), np.bool_, len(values))


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def castable_text(text: pa.Array, want: pa.DataType) -> Mask | None:
    """Return which texts, in UTF-8 and without white space around them, can be cast; None if no rule is known."""
    if types.is_floating(want):
        return matches(text, FLOAT)
    if types.is_boolean(want):
        return matches(text, BOOLEAN)
    if types.is_integer(want):
        return _whole_texts(text, want)
    if types.is_decimal(want):
        fits = (value is None or fit_decimal(value, want) is not None for value in text.to_pylist())
        return np.fromiter(fits, np.bool_, len(text))
    if types.is_date(want):
        return matches(text, DATE)
    if types.is_time(want):
        return matches(text, CLOCK)
    return matches(text, TIME) if types.is_timestamp(want) else None


def castable_values(column: pa.Array, want: pa.DataType) -> Mask | None:
    """Return which numbers and times can be cast; None if no rule is known."""
    have = column.type
    if types.is_decimal(have) or types.is_decimal(want):
        if not (types.is_decimal(want) or types.is_integer(want)):
            return None
        limits = None if types.is_decimal(want) else int_range(want)
        return np.fromiter((_decimal_fits(v, want, limits) for v in column.to_pylist()), np.bool_, len(column))
    if not (types.is_integer(have) or types.is_floating(have) or types.is_temporal(have)):
        return None
    values: npt.NDArray[Any]
    if types.is_temporal(have):
        number = pa.int32() if have.bit_width == 32 else pa.int64()
        values = column.view(number).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return _times_fit(values, have, want)
    values = column.cast(pa.float64() if types.is_floating(have) else have).fill_null(0).to_numpy(zero_copy_only=False)
    if types.is_integer(want):
        low, high = int_range(want)
        with np.errstate(invalid="ignore"):
            if not types.is_floating(have):
                return np.asarray((values >= low) & (values <= high))
            whole = np.isnan(values) | (values == np.trunc(values))
            return np.asarray(whole & ~(values < float(low)) & ~(values >= float(high + 1)))
    if types.is_floating(want) and types.is_integer(have):
        return np.asarray((values >= -largest_whole(want)) & (values <= largest_whole(want)))
    return None


def int_range(dtype: pa.DataType) -> tuple[int, int]:
    """Return the smallest and largest whole number of a type."""
    bits = dtype.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if types.is_signed_integer(dtype) else (0, 2**bits - 1)


def largest_whole(dtype: pa.DataType) -> int:
    """Return the whole number up to which a type of floats has all of them."""
    return int(2 ** {16: 11, 32: 24, 64: 53}[dtype.bit_width])


def fit_decimal(value: Any, want: pa.DataType) -> Decimal | None:
    """Return the number, or the text of one, with the scale of a decimal type; None if that loses digits.

    >>> fit_decimal("1.50", pa.decimal128(3, 1)), fit_decimal("1.55", pa.decimal128(3, 1))
    (Decimal('1.5'), None)
    """
    if isinstance(value, str) and not value.isascii():
        return None  # Python takes the digits of all scripts
    if isinstance(value, str) and "_" in value:
        return None
    try:
        number = Decimal(value)
    except (ArithmeticError, ValueError, TypeError):
        return None
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return None
    if not number:
        return Decimal((sign, (0,), -want.scale))
    text = "".join(map(str, digits)).lstrip("0")
    shift = exponent + want.scale
    if shift < 0:
        if len(text) <= -shift or text[shift:].strip("0"):
            return None
        text = text[:shift]
    elif shift > want.precision:
        return None
    else:
        text += "0" * shift
    if len(text) > want.precision:
        return None
    return Decimal(f"{'-' if sign else ''}{text}E{-want.scale}", decimal.Context(prec=len(text)))


def _decimal_fits(value: Any, want: pa.DataType, limits: tuple[int, int] | None) -> bool:
    if value is None or math.isnan(value):  # NaN becomes null
        return True
    if limits is None:
        return fit_decimal(value, want) is not None
    return bool(value == value.to_integral_value() and limits[0] <= value <= limits[1])


def _whole_texts(text: pa.Array, want: pa.DataType) -> Mask:
    """Return which texts are whole numbers in the range of a type, in digits or in Arrow's hexadecimal notation."""
    low, high = int_range(want)
    hexadecimal = matches(text, f"0[xX][0-9a-fA-F]{{1,{want.bit_width // 4}}}")
    decimal_ = matches(text, r"-?\d+" if low else r"\d+")
    negative = np.asarray(pc.starts_with(text, "-").fill_null(False))
    digits = pc.utf8_ltrim(text, "-0")
    lengths = np.asarray(pc.binary_length(digits).fill_null(0))
    fits = np.zeros(len(text), np.bool_)
    for side, limit in ((~negative, str(high)), (negative, str(-low))):
        smaller = np.asarray(pc.less_equal(digits, pa.scalar(limit, digits.type)).fill_null(True))
        fits |= side & ((lengths < len(limit)) | ((lengths == len(limit)) & smaller))
    return (decimal_ & fits) | hexadecimal


def _nanoseconds(dtype: pa.DataType) -> int:
    """Return the unit of a type of times, in nanoseconds."""
    if types.is_date32(dtype):
        return 86_400 * 10**9
    return int(10**9 // PER_SECOND["ms" if types.is_date64(dtype) else dtype.unit])


def _times_fit(values: npt.NDArray[np.int64], have: pa.DataType, want: pa.DataType) -> Mask:
    """Return which times, as numbers of their unit, can be cast; only times in a zone may lose digits."""
    source_unit, target_unit = _nanoseconds(have), _nanoseconds(want)
    if source_unit >= target_unit:
        factor, limit = source_unit // target_unit, 2 ** (want.bit_width - 1)
        return np.asarray((values >= -(limit // factor)) & (values <= (limit - 1) // factor))
    if types.is_timestamp(have) or types.is_timestamp(want):
        return np.ones(values.size, np.bool_)
    return np.asarray(values % (target_unit // source_unit) == 0)
