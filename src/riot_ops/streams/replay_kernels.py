"""The loops that find lines and their times in a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.masks import WIDTH, equal64, first
from riot_ops.kernels.numbers import trailing_zeros

__all__ = ["NO_TIME", "count_breaks", "leading_times", "line_ends"]

_U1, _NOUGHT = np.uint64(1), np.uint64(0)
#: The time of a line without one.
NO_TIME = np.iinfo(np.int64).min


@kernel
def _may_lead(c: Any) -> Any:
    """Whether a character may be the first of a number: a digit or a minus."""
    return c == 45 or (c >= 48 and c <= 57)


@kernel
def line_ends(data: Any, start: Any, end: Any, out: Any) -> Any:
    """The positions after the next line breaks, as many as ``out`` can hold.

    Returns their number, and how many of the lines before and behind them may begin with a time.
    """
    n = 0
    heads = int(start < end and _may_lead(data[np.uint64(start)]))
    i = start
    while i < end and n < out.size:
        if i + WIDTH > data.size:
            if data[np.uint64(i)] == 10:
                out[n] = i + 1
                n += 1
                heads += int(i + 1 < end and _may_lead(data[np.uint64(i + 1)]))
            i += 1
            continue
        breaks = equal64(data, i, 10) & first(end - i)
        while breaks != _NOUGHT and n < out.size:
            at = i + np.int64(trailing_zeros(breaks)) + 1
            out[n] = at
            n += 1
            breaks &= breaks - _U1
            heads += int(at < end and _may_lead(data[np.uint64(at)]))
        i += WIDTH
    return n, heads


@kernel
def leading_times(data: Any, starts: Any, ends: Any, out: Any) -> Any:
    """The number before each line's first comma, in µs for ms; returns how many lines have none."""
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
def count_breaks(data: Any) -> Any:
    """Number of line breaks."""
    n = 0
    for i in range(data.size):
        if data[i] == 10:
            n += 1
    return n
