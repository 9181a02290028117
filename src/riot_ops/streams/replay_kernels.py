"""The loops that find lines and their times in a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["NO_TIME", "count_breaks", "leading_times", "line_ends"]

_LOW = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_BREAKS = np.uint64(0x0A0A0A0A0A0A0A0A)
#: The time of a line without one.
NO_TIME = np.iinfo(np.int64).min


@kernel
def line_ends(data: Any, words: Any, start: Any, end: Any, out: Any) -> Any:
    """The positions after the next line breaks, as many as ``out`` can hold; returns their number.

    ``words`` are the same bytes, eight at a time: a word without line break is passed with a few operations.
    """
    n = 0
    i = np.uint64(start)
    stop = np.uint64(end)
    while i < stop and n < out.size:
        if i & np.uint64(7) == np.uint64(0):
            w = i >> np.uint64(3)
            last = stop >> np.uint64(3)
            while w < last:
                x = words[w] ^ _BREAKS
                if (x - _LOW) & ~x & _HIGH != np.uint64(0):
                    break
                w += np.uint64(1)
            i = w << np.uint64(3)
            if i >= stop:
                break
        until = min(stop, (i | np.uint64(7)) + np.uint64(1))
        while i < until:
            if data[i] == 10:
                if n == out.size:
                    return n
                out[n] = np.int64(i) + 1
                n += 1
            i += np.uint64(1)
    return n


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
