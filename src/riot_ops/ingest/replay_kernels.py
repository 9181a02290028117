"""Compiled loops that find lines and their times in a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.arrays.byte_masks import WIDTH, equal64, low_bits
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import HIGH, ZEROS, byte, digits_of, load8, lowest_byte, trailing_zeros

__all__ = ["NO_TIME", "count_breaks", "leading_times", "line_ends", "shift_times"]

_ONE, _ZERO = np.uint64(1), np.uint64(0)
_BYTE, _COMMA = np.uint64(0xFF), np.uint64(44)
#: Digits of a number that is a time wherever it occurs in a line.
MIN_DIGITS = 10
#: The time of a line without one.
NO_TIME = np.iinfo(np.int64).min


@kernel(inline=True)
def _may_lead(data: Any, at: Any, end: Any) -> Any:
    """Whether a line may begin with a time; not if another character than a digit precedes the comma, as in dates."""
    if at >= end:
        return False
    if at + 8 > data.size or byte(data, at) == 45:
        return True
    w = load8(data, at)
    digits = lowest_byte(digits_of(w ^ ZEROS) & HIGH)
    return digits == 8 or (w >> np.uint64(8 * digits)) & _BYTE == _COMMA


@kernel
def line_ends(data: Any, start: Any, end: Any, out: Any) -> Any:
    """Find the positions after the next line breaks, as many as ``out`` can hold.

    Returns their number, and how many of the lines before and after them may begin with a time.
    """
    n = 0
    heads = int(_may_lead(data, start, end))
    i = start
    while i < end and n < out.size:
        if i + WIDTH > data.size:
            if data[np.uint64(i)] == 10:
                out[n] = i + 1
                n += 1
                heads += int(_may_lead(data, i + 1, end))
            i += 1
            continue
        breaks = equal64(data, i, 10) & low_bits(end - i)
        while breaks != _ZERO and n < out.size:
            at = i + np.int64(trailing_zeros(breaks)) + 1
            out[n] = at
            n += 1
            breaks &= breaks - _ONE
            heads += int(_may_lead(data, at, end))
        i += WIDTH
    return n, heads


@kernel
def leading_times(data: Any, starts: Any, ends: Any, out: Any) -> Any:
    """Parse the number before the first comma of each line, from ms to µs; return the number of lines without one."""
    missing = 0
    for i in range(starts.size):
        p = np.uint64(starts[i])
        end = np.uint64(ends[i])
        negative = p < end and data[p] == 45
        if negative:
            p += np.uint64(1)
        value: Any = 0
        digits = 0
        while p < end and 48 <= data[p] <= 57 and digits < 15:
            value = 10 * value + (np.int64(data[p]) - 48)
            digits += 1
            p += np.uint64(1)
        if digits > 0 and p < end and data[p] == 44:
            out[i] = -1000 * value if negative else 1000 * value
        else:
            out[i] = NO_TIME
            missing += 1
    return missing


@kernel
def _is_digit(byte: Any) -> Any:
    return 48 <= byte <= 57


@kernel
def shift_times(data: Any, starts: Any, ends: Any, times: Any, shift: Any, digits: Any, out: Any, offsets: Any) -> Any:
    """Write lines with their leading number replaced by the number ``shift`` ms later.

    So are equal numbers in the rest of the line if they have :data:`MIN_DIGITS` digits; fewer may equal it by chance.
    Lines without a time (``times`` in µs) are copied. ``offsets`` gets the beginning of each line and the end of the
    last one; with an empty ``out`` nothing else is written. ``digits`` is a place for 20 bytes. Return the number of
    bytes.
    """
    at: Any = np.int64(0)
    counting = out.size == 0
    for i in range(starts.size):
        offsets[i] = at
        start, end = starts[i], ends[i]
        length: Any = np.int64(0)
        size: Any = np.int64(0)
        if times[i] != NO_TIME:
            while start + length < end and (_is_digit(data[start + length]) or (length == 0 and data[start] == 45)):
                length += 1
            number = times[i] // 1000 + shift
            rest = abs(number)
            while rest > 0 or size == 0:
                digits[19 - size] = 48 + rest % 10
                rest //= 10
                size += 1
            if number < 0:
                digits[19 - size] = 45
                size += 1
        j = start
        while j < end:
            same = length > 0 and data[j] == data[start] and j + length <= end
            if same and j > start:
                after = j + length < end and _is_digit(data[j + length])
                same = length >= MIN_DIGITS and not _is_digit(data[j - 1]) and not after
                for k in range(1, length if same else 1):
                    same = same and data[j + k] == data[start + k]
            if same:
                if not counting:
                    for k in range(size):
                        out[at + k] = digits[20 - size + k]
                at += size
                j += length
            else:
                if not counting:
                    out[at] = data[j]
                at += 1
                j += 1
    offsets[starts.size] = at
    return at


@kernel
def count_breaks(data: Any) -> Any:
    """Count line breaks."""
    n = 0
    for i in range(data.size):
        if data[i] == 10:
            n += 1
    return n
