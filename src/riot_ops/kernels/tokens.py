"""Text to tokens: runs of bytes of one class."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.numbers import ONES, load8, lowest, zero_bytes

__all__ = ["BETWEEN", "NO_TRIM", "tokens"]

#: What a byte becomes that stands between tokens: no text in UTF-8 has it.
BETWEEN = 255
NO_TRIM = np.empty(0, np.bool_)


@kernel
def _next(data: Any, p: Any, end: Any, first: Any, pattern: Any) -> Any:
    """The next place of a byte, which fills the pattern; the end where there is none."""
    while p + 8 <= end:
        found = zero_bytes(load8(data, p) ^ pattern)
        if found != 0:
            return p + lowest(found)
        p += 8
    while p < end and data[np.uint64(p)] != first:
        p += 1
    return p


@kernel
def _tokens(
    data: Any, starts: Any, ends: Any, valid: Any, table: Any, first: Any, trim: Any, rows: Any, places: Any,
    spans: Any, out: Any,
) -> Any:  # fmt: skip
    """Copy the tokens of each text; returns how many there are, and of how many bytes.

    ``table`` has for each byte what it becomes, :data:`BETWEEN` where it stands between tokens; ``first`` is the byte
    that a token must begin with, -1 for any. ``trim`` has which bytes are taken off at both ends (but for the first),
    or is empty. ``spans`` gets where each token begins in ``out``, and one more: where the last ends.
    """
    n = 0
    o = 0
    spans[0] = 0
    pattern = np.uint64(max(first, 0)) * ONES
    for i in range(starts.size):
        if valid.size > 0 and not valid[i]:
            continue
        place = 0
        begins = starts[i]
        p = begins
        end = ends[i]
        while p < end:
            if first >= 0:  # most texts have few such bytes: look for these alone
                p = _next(data, p, end, first, pattern)
                if p == end:
                    break
                if p > begins and table[data[np.uint64(p - 1)]] != BETWEEN:  # within a token
                    p += 1
                    continue
            b = table[data[np.uint64(p)]]
            if b == BETWEEN:
                p += 1
                continue
            begin = o
            while b != BETWEEN:
                out[np.uint64(o)] = b
                o += 1
                p += 1
                if p >= end:
                    break
                b = table[data[np.uint64(p)]]
            if trim.size > 0:
                low = begin + 1 if first >= 0 else begin
                while o > low and trim[out[np.uint64(o - 1)]]:
                    o -= 1
                q = low
                while q < o and trim[out[np.uint64(q)]]:
                    q += 1
                empty = q == o
                for j in range(o - q):
                    out[np.uint64(low + j)] = out[np.uint64(q + j)]
                o -= q - low
                if empty:
                    o = begin
                    continue
            rows[n] = i
            places[n] = place
            place += 1
            n += 1
            spans[np.uint64(n)] = o
    return n, o


def tokens(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    table: npt.NDArray[np.uint8],
    first: int = -1,
    trim: npt.NDArray[np.bool_] = NO_TRIM,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """``(rows, places, offsets, bytes)`` of the tokens: text and place in it of each, and all of them end to end.

    The texts together must hold less than 2 GiB.
    """
    size = int((ends - starts).sum())
    room = (size + starts.size) // 2 + 1
    rows, places = np.empty(room, np.int64), np.empty(room, np.int64)
    spans, out = np.empty(room + 1, np.int32), np.empty(size, np.uint8)
    n, used = _tokens(data, starts, ends, valid, readonly(table), first, readonly(trim), rows, places, spans, out)
    return rows[:n], places[:n], spans[: n + 1], out[:used]
