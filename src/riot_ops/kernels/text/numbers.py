"""Decimal text to numbers, eight characters at a time, equal to Python's ``float`` to the last bit.

Positions are signed integers, but loads use unsigned indices: for these numba adds no check for negative ones, so LLVM
merges the eight loads of :func:`load8` into one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.jit import kernel

__all__ = [
    "HARD",
    "HIGH",
    "MISSING",
    "NOT_A_NUMBER",
    "NUMBER",
    "ONES",
    "ZEROS",
    "byte",
    "digits_end",
    "digits_of",
    "eight_digits",
    "load8",
    "lowest_byte",
    "parse_integer",
    "parse_number",
    "plain_number",
    "short_number",
    "store8",
    "trailing_zeros",
    "whole_number",
]

NUMBER = 0
MISSING = 1
NOT_A_NUMBER = 2
#: A number left to Python: it has over 19 digits, is subnormal or too large, or is nearly a tie.
HARD = 3

_U1 = np.uint64(1)
_U7 = np.uint64(7)
_U8 = np.uint64(8)
_U10 = np.uint64(10)
_U16 = np.uint64(16)
_U32 = np.uint64(32)
_U56 = np.uint64(56)
_U63 = np.uint64(63)
_LOW32 = np.uint64(0xFFFFFFFF)
_BYTE = np.uint64(0xFF)
ONES = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)
_FIVES = np.uint64(0x5555555555555555)
_THREES = np.uint64(0x3333333333333333)
_LOW4 = np.uint64(0x0F0F0F0F0F0F0F0F)
_DOTS = np.uint64(0x2E2E2E2E2E2E2E2E)
ZEROS = np.uint64(0x3030303030303030)
_SIXES = np.uint64(0x7676767676767676)
_PAIRS = np.uint64(0x000000FF000000FF)
_MUL1 = np.uint64(0x000F424000000064)
_MUL2 = np.uint64(0x0000271000000001)
_MINUS = np.uint64(0x2D)
_ZERO = np.uint64(0x30)
_TOP9 = np.uint64(0x1FF)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_TIE = np.uint64(3)
_NOUGHT = np.uint64(0)

#: The largest int64 without its last three digits, and these digits.
_MAX, _MAX_REST = divmod(np.iinfo(np.int64).max, 1000)
_POW10 = 10.0 ** np.arange(23)
_INT10 = 10 ** np.arange(19, dtype=np.int64)


def _powers_of_five() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the 128 leading bits of 5^q for q from -342 to 308, rounded up for q < 0."""
    high, low = [], []
    for q in range(-342, 309):
        power = 5 ** abs(q)
        if q < 0:
            z = (power - 1).bit_length()
            bits = (1 << (z + 127 if q >= -27 else 2 * z + 128)) // power + 1
        else:
            bits = power << 128
        bits >>= max(0, bits.bit_length() - 128)
        high.append(bits >> 64)
        low.append(bits & (2**64 - 1))
    return np.array(high, np.uint64), np.array(low, np.uint64)


_FIVE_HIGH, _FIVE_LOW = _powers_of_five()


@kernel
def byte(data: Any, i: Any) -> Any:
    return np.int64(data[np.uint64(i)])


@kernel
def load8(data: Any, i: Any) -> Any:
    """Load eight bytes at i as a little-endian number."""
    u = np.uint64(i)
    return (
        np.uint64(data[u])
        | (np.uint64(data[u + _U1]) << _U8)
        | (np.uint64(data[u + np.uint64(2)]) << _U16)
        | (np.uint64(data[u + np.uint64(3)]) << np.uint64(24))
        | (np.uint64(data[u + np.uint64(4)]) << _U32)
        | (np.uint64(data[u + np.uint64(5)]) << np.uint64(40))
        | (np.uint64(data[u + np.uint64(6)]) << np.uint64(48))
        | (np.uint64(data[u + _U7]) << _U56)
    )


@kernel
def store8(data: Any, i: Any, w: Any) -> None:
    """Store a little-endian number as eight bytes at i."""
    u = np.uint64(i)
    data[u] = np.uint8(w & _BYTE)
    data[u + _U1] = np.uint8((w >> _U8) & _BYTE)
    data[u + np.uint64(2)] = np.uint8((w >> _U16) & _BYTE)
    data[u + np.uint64(3)] = np.uint8((w >> np.uint64(24)) & _BYTE)
    data[u + np.uint64(4)] = np.uint8((w >> _U32) & _BYTE)
    data[u + np.uint64(5)] = np.uint8((w >> np.uint64(40)) & _BYTE)
    data[u + np.uint64(6)] = np.uint8((w >> np.uint64(48)) & _BYTE)
    data[u + _U7] = np.uint8(w >> _U56)


@kernel
def zero_bytes(w: Any) -> Any:
    """Mark the bytes that are 0 in their top bit; only the lowest mark is reliable."""
    return (w - ONES) & ~w & HIGH


@kernel(numba="numba.cpython.unsafe.numbers.trailing_zeros")
def trailing_zeros(w: Any) -> Any:
    """Return the number of zero bits below the lowest bit set; 64 if none is."""
    below = ~w & (w - _U1)
    below = below - ((below >> _U1) & _FIVES)
    below = (below & _THREES) + ((below >> np.uint64(2)) & _THREES)
    below = (below + (below >> np.uint64(4))) & _LOW4
    return (below * ONES) >> _U56


@kernel
def lowest_byte(marks: Any) -> Any:
    """Index of the lowest marked byte; 8 if there is none."""
    return np.int64(trailing_zeros(marks) >> np.uint64(3))


@kernel
def _eight_digits(d: Any) -> Any:
    """Combine eight digits 0 to 9 into a number; the lowest byte is the leading digit."""
    d = d * _U10 + (d >> _U8)
    return np.int64(((d & _PAIRS) * _MUL1 + ((d >> _U16) & _PAIRS) * _MUL2) >> _U32)


@kernel
def digits_of(d: Any) -> Any:
    """Set the top bit of each byte above 9."""
    return d | (d + _SIXES)


@kernel
def digits_end(data: Any, p: Any, end: Any) -> Any:
    """Return the end of a run of digits."""
    last = min(end, data.size - 7)
    while p < last:
        other = digits_of(load8(data, p) ^ ZEROS) & HIGH
        if other != _NOUGHT:
            return min(p + lowest_byte(other), end)
        p += 8
    while p < end and byte(data, p) >= 48 and byte(data, p) <= 57:
        p += 1
    return min(p, end)


@kernel
def eight_digits(w: Any, n: Any) -> Any:
    """``(ok, value)`` of the first n (0 to 8) characters of w; ok if n > 0 and all are digits."""
    if n < 1:
        return False, 0
    shift = np.uint64(64 - 8 * n)
    digits = (w << shift) ^ (ZEROS << shift)
    return (digits_of(digits) & HIGH) == _NOUGHT, _eight_digits(digits)


@kernel(inline=True)
def short_number(w: Any, n: Any) -> Any:
    """``(ok, value)`` of the first n (0 to 8) characters of w, without loops.

    Not ok only means that the text does not have the form ``-12.34``.
    """
    negative = (w & _BYTE) == _MINUS
    if negative:
        w = w >> _U8
        n = n - 1
    if n < 1:
        return False, 0.0
    y = w << np.uint64(64 - 8 * n)
    # arithmetic instead of branches, as the processor cannot predict whether a value has a dot;
    # without a dot, its mark is 0 and its place 8
    dot = zero_bytes(y ^ _DOTS)
    mark = dot & (~dot + _U1)
    dots = np.int64(mark != _NOUGHT)
    decimals = 7 - lowest_byte(dot) + (1 - dots)
    n = n - dots
    whole = n - decimals
    if whole < 1 or decimals < dots:
        return False, 0.0
    y = (y & ~((mark << _U1) - _U1)) | ((y & ((mark >> _U7) - _U1)) << np.uint64(8 * dots))
    shift = np.uint64(64 - 8 * n)
    digits = y ^ (ZEROS << shift)
    if ((digits | (digits + _SIXES)) & HIGH) != _NOUGHT:
        return False, 0.0
    if whole > 1 and ((y >> shift) & _BYTE) == _ZERO:
        return False, 0.0
    value = np.float64(_eight_digits(digits)) / _POW10[np.uint64(decimals)]
    return True, -value if negative else value


@kernel(inline=True)
def plain_number(data: Any, start: Any, n: Any) -> Any:
    """``(ok, value)`` of n characters: like :func:`short_number`, with up to eight digits before and after the dot.

    24 bytes from the start must be readable.
    """
    if n <= 8:
        return short_number(load8(data, start), n)
    negative = byte(data, start) == 45
    p = start + 1 if negative else start
    n = n - 1 if negative else n
    w = load8(data, p)
    whole = lowest_byte(zero_bytes(w ^ _DOTS))
    decimals = n - whole - 1
    if whole < 1 or decimals < 1 or decimals > 8 or n > 16 or byte(data, p + whole) != 46:
        return False, 0.0
    good, value = eight_digits(w, whole)
    more, rest = eight_digits(load8(data, p + whole + 1), decimals)
    if not good or not more or (whole > 1 and (w & _BYTE) == _ZERO):
        return False, 0.0
    number = np.float64(value * _INT10[np.uint64(decimals)] + rest) / _POW10[np.uint64(decimals)]
    return True, -number if negative else number


@kernel(inline=True)
def whole_number(data: Any, start: Any, n: Any) -> Any:
    """``(ok, value)`` of n characters, up to 19 digits with an optional minus; 25 bytes must be readable.

    Not ok only means that the text does not have this form, or the number is near the limits of an int64.
    """
    negative = n > 0 and byte(data, start) == 45
    p = start + 1 if negative else start
    n = n - 1 if negative else n
    good, value = eight_digits(load8(data, p), min(n, 8))
    if n > 8:
        more, rest = eight_digits(load8(data, p + 8), min(n - 8, 8))
        good = good and more
        value = value * _INT10[np.uint64(min(n - 8, 8))] + rest
        if n > 16:
            more, rest = eight_digits(load8(data, p + 16), min(n - 16, 8))
            good = good and more and n <= 19 and (n < 19 or value < _MAX or (value == _MAX and rest <= _MAX_REST))
            value = value * _INT10[np.uint64(n - 16)] + rest if good else 0
    return good, -value if negative else value


@kernel
def parse_integer(data: Any, start: Any, end: Any) -> Any:
    """``(ok, value)`` of up to 15 digits with an optional minus."""
    p = start
    negative = p < end and byte(data, p) == 45
    if negative:
        p += 1
    n = end - p
    if n < 1 or n > 15 or (n > 1 and byte(data, p) == 48):
        return False, 0
    value = 0
    if n > 8 and p + 16 <= data.size:
        first = load8(data, p) ^ ZEROS
        rest = np.uint64(64 - 8 * (n - 8))
        second = (load8(data, p + 8) << rest) ^ (ZEROS << rest)
        if ((first | (first + _SIXES) | second | (second + _SIXES)) & HIGH) != _NOUGHT:
            return False, 0
        value = _eight_digits(first) * _INT10[np.uint64(n - 8)] + _eight_digits(second)
    else:
        for i in range(p, end):
            digit = byte(data, i) - 48
            if digit < 0 or digit > 9:
                return False, 0
            value = 10 * value + digit
    return True, -value if negative else value


@kernel
def _product(a: Any, b: Any) -> Any:
    """Return the high and the low half of the product of two 64-bit numbers."""
    a1 = a >> _U32
    a0 = a & _LOW32
    b1 = b >> _U32
    b0 = b & _LOW32
    low = a0 * b0
    middle = a1 * b0 + (low >> _U32)
    other = a0 * b1 + (middle & _LOW32)
    return a1 * b1 + (middle >> _U32) + (other >> _U32), (other << _U32) | (low & _LOW32)


@kernel
def _scaled(m: Any, q: Any) -> Any:
    """``(status, m * 10^q)`` by the method of Eisel and Lemire, for m > 0.

    D. Lemire, *Number parsing at a gigabyte per second*, Software: Practice and Experience, 2021.
    """
    if q < -342 or q > 308:
        return HARD, 0.0
    zeros = 0
    while (m >> _U63) == _NOUGHT:
        m = m << _U1
        zeros += 1
    high, low = _product(m, _FIVE_HIGH[q + 342])
    if (high & _TOP9) == _TOP9:
        more, _ = _product(m, _FIVE_LOW[q + 342])
        low = low + more
        if more > low:
            high = high + _U1
    if low == _ALL and (q < -27 or q > 55):
        return HARD, 0.0
    upper = np.int64(high >> _U63)
    shift = np.uint64(upper + 9)
    mantissa = high >> shift
    exponent = ((217706 * q) >> 16) + 63 + upper - zeros
    if exponent + 1023 <= 0:
        return HARD, 0.0
    if low <= _U1 and q >= -4 and q <= 23 and (mantissa & _TIE) == _U1 and (mantissa << shift) == high:
        mantissa = mantissa - _U1
    mantissa = (mantissa + (mantissa & _U1)) >> _U1
    if (mantissa >> np.uint64(53)) != _NOUGHT:
        mantissa = mantissa >> _U1
        exponent += 1
    if exponent > 1023:
        return HARD, 0.0
    return NUMBER, math.ldexp(np.float64(np.int64(mantissa)), int(exponent - 52))


@kernel
def parse_number(data: Any, start: Any, end: Any) -> Any:
    """``(status, value)`` of ``data[start:end]`` by the grammar of JSON numbers."""
    p = start
    negative = p < end and byte(data, p) == 45
    if negative:
        p += 1
    m = _NOUGHT
    digits = 0  # without leading zeros
    first = p
    point = -1
    while True:
        while p < end:
            d = byte(data, p) - 48
            if d < 0 or d > 9:
                break
            if digits > 0 or d > 0:
                digits += 1
            if digits <= 19:
                m = m * _U10 + np.uint64(d)
            p += 1
        if point >= 0 or p >= end or byte(data, p) != 46:
            break
        point = p
        p += 1
    whole = p if point < 0 else point
    if whole == first or (whole > first + 1 and byte(data, first) == 48):
        return NOT_A_NUMBER, 0.0
    exponent = 0
    if point >= 0:
        exponent = point + 1 - p
        if exponent == 0:
            return NOT_A_NUMBER, 0.0
    if p < end and (byte(data, p) | 32) == 101:
        p += 1
        sign = 1
        if p < end and (byte(data, p) == 43 or byte(data, p) == 45):
            sign = 44 - byte(data, p)
            p += 1
        first = p
        power = 0
        while p < end:
            d = byte(data, p) - 48
            if d < 0 or d > 9:
                break
            power = min(10 * power + d, 1000000)
            p += 1
        if p == first:
            return NOT_A_NUMBER, 0.0
        exponent += sign * power
    if p != end:
        return NOT_A_NUMBER, 0.0
    if digits > 19:
        return HARD, 0.0
    status = NUMBER
    if digits == 0:
        value = 0.0
    elif digits <= 15 and exponent >= -22 and exponent <= 22:
        value = np.float64(np.int64(m))
        value = value / _POW10[-exponent] if exponent < 0 else value * _POW10[exponent]
    else:
        status, value = _scaled(m, exponent)
    return status, -value if negative else value
