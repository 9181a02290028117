"""Exact sums of doubles, as fixed-point numbers of 68 digits of 32 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.accumulators import add_extreme

__all__ = [
    "DIGITS",
    "add_exact_sums",
    "add_exactly",
    "add_summaries",
    "merge_exact_sums",
    "round_sum",
    "round_sums",
    "run_exact_sums",
    "run_summaries",
]

#: Digits of 32 bits: a double is a multiple of 2^-1074 below 2^1024, and 2^77 of them can be summed.
DIGITS = 68
_LOW = 0xFFFFFFFF


@kernel
def add_exactly(digits: Any, x: Any) -> None:
    """Add a finite double to the sum ``Σ digits[k] 2^(32 k - 1074)``; all digits but the last are from 0 to 2^32 - 1.

    So a sum has one representation, whatever the order of its summands. Its sign is that of the last digit.
    """
    if x == 0.0:
        return
    m, e = math.frexp(abs(x))  # m 2^e with m from 1/2
    place = max(e - 53 + 1074, 0)
    whole = np.int64(math.ldexp(m, e + 1074 - place))  # of 53 bits at most
    k = place >> 5
    shift = place & 31
    low = (whole & _LOW) << shift  # below 2^63
    high = (whole >> 32) << shift  # below 2^52
    one = low & _LOW
    two = (low >> 32) + (high & _LOW)
    three = high >> 32
    if x < 0:
        one, two, three = -one, -two, -three
    carry = np.int64(0)
    i = 0
    while i < 3 or (carry != 0 and k < DIGITS):
        d = digits[k] + carry
        if i == 0:
            d += one
        elif i == 1:
            d += two
        elif i == 2:
            d += three
        if k == DIGITS - 1:
            digits[k] = d
            carry = np.int64(0)
        else:
            digits[k] = d & _LOW
            carry = d >> 32
        k += 1
        i += 1


@kernel
def round_sum(digits: Any, room: Any) -> Any:
    """Round a sum to the nearest double, ties to even; NaN if it overflows. ``room`` has as many digits."""
    negative = digits[DIGITS - 1] < 0
    at = digits
    if negative:  # its absolute value: the two's complement
        carry = np.int64(1)
        for k in range(DIGITS - 1):
            d = (digits[k] ^ _LOW) + carry
            room[k] = d & _LOW
            carry = d >> 32
        room[DIGITS - 1] = ~digits[DIGITS - 1] + carry
        at = room
    h = DIGITS - 1
    while h >= 0 and at[h] == 0:
        h -= 1
    if h < 0:
        return 0.0
    width = 0
    while at[h] >> width:
        width += 1
    # the highest 53 bits, from bit `bottom` on
    bottom = max(32 * h + width - 53, 0)
    k = bottom >> 5
    shift = bottom & 31
    value = at[k] >> shift
    if k + 1 < DIGITS:
        value |= at[k + 1] << (32 - shift)
    if k + 2 < DIGITS and shift > 11:
        value |= at[k + 2] << (64 - shift)
    half = False
    rest = False
    if bottom > 0:
        j = (bottom - 1) >> 5
        below = (bottom - 1) & 31
        half = (at[j] >> below) & 1 == 1
        rest = at[j] & ((np.int64(1) << below) - 1) != 0
        while not rest and j > 0:
            j -= 1
            rest = at[j] != 0
    if half and (rest or value & 1 == 1):
        value += 1
    if bottom - 1074 > 971 or (bottom - 1074 == 971 and value >> 53):
        return np.nan
    found = math.ldexp(float(value), bottom - 1074)
    return -found if negative else found


@kernel
def add_pair(digits: Any, x: Any, r: Any) -> None:
    """Add a pair, see :mod:`riot_ops.kernels.arrays.exact`, unless it is missing."""
    if not np.isnan(x):
        add_exactly(digits, x)
        if r != 0.0:
            add_exactly(digits, r)


@kernel
def add_exact_sums(groups: Any, values: Any, rests: Any, start: Any, stop: Any, digits: Any) -> None:
    """Add pairs to the sums of their groups; -1: no group."""
    for i in range(start, stop):
        if groups[i] >= 0:
            add_pair(digits[groups[i]], values[i], rests[i] if rests.size > 0 else 0.0)


@kernel
def run_exact_sums(groups: Any, values: Any, rests: Any, digits: Any, room: Any, out: Any) -> None:
    """Add rows one by one, and write the rounded sum after each."""
    for i in range(groups.size):
        own = digits[groups[i]]
        add_pair(own, values[i], rests[i] if rests.size > 0 else 0.0)
        out[i] = round_sum(own, room)


@kernel
def round_sums(digits: Any, groups: Any, room: Any, out: Any) -> None:
    """Round the sums of groups."""
    for i in range(groups.size):
        out[i] = round_sum(digits[groups[i]], room)


@kernel
def merge_exact_sums(a: Any, order: Any, first: Any, last: Any, digits: Any, other: Any) -> None:
    """Merge groups, see :mod:`riot_ops.kernels.stats.accumulators`."""
    for i in range(a.size):
        g = a[i]
        for j in range(first[i], last[i]):
            carry = np.int64(0)
            for k in range(DIGITS):
                d = digits[g, k] + other[order[j], k] + carry
                digits[g, k] = d if k == DIGITS - 1 else d & _LOW
                carry = d >> 32


@kernel
def add_summaries(
    groups: Any, values: Any, rests: Any, start: Any, stop: Any, n: Any, low: Any, high: Any, low_rest: Any,
    high_rest: Any, digits: Any,
) -> None:  # fmt: skip
    """Add pairs to counts, extremes and sums of their groups; -1: no group."""
    for i in range(start, stop):
        g = groups[i]
        if g >= 0 and not np.isnan(values[i]):
            r = rests[i] if rests.size > 0 else 0.0
            n[g] += 1
            add_extreme(g, values[i], r, low, high, low_rest, high_rest)
            add_pair(digits[g], values[i], r)


@kernel
def run_summaries(
    groups: Any, values: Any, rests: Any, n: Any, low: Any, high: Any, low_rest: Any, high_rest: Any, digits: Any,
    room: Any, out_n: Any, out_low: Any, out_high: Any, out_low_rest: Any, out_high_rest: Any, out: Any,
) -> None:  # fmt: skip
    """Add rows one by one, and write the cells after each, with the rounded sum."""
    for i in range(groups.size):
        g = np.uint64(groups[i])
        add_summaries(groups, values, rests, i, i + 1, n, low, high, low_rest, high_rest, digits)
        out_n[i] = n[g]
        out_low[i] = low[g]
        out_high[i] = high[g]
        out_low_rest[i] = low_rest[g]
        out_high_rest[i] = high_rest[g]
        out[i] = round_sum(digits[g], room)
