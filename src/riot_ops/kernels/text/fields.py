"""Lines to fields: where the cells of lines are, and what they say."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.dates import parse_iso, parse_log_time
from riot_ops.kernels.text.numbers import NUMBER, byte, parse_number

__all__ = [
    "BAD",
    "EMPTY",
    "GOOD",
    "HARD",
    "are_plainly_quoted",
    "booleans",
    "doubles",
    "ends_with",
    "far_apart",
    "integers",
    "split_lines",
    "times",
]

#: What a cell is: nothing, what was asked for, something else, or for Python to look at.
EMPTY, GOOD, BAD, HARD = 0, 1, 2, 3

#: How lines are cut, see :func:`split_lines`.
DELIMITED, SPACED, LOGGED = 0, 1, 2
#: A tenth of the largest int64, which ends with 7.
_MOST = np.iinfo(np.int64).max // 10
_TRUE, _FALSE = int.from_bytes(b"true", "big"), int.from_bytes(b"false", "big")


@kernel
def ends_with(data: Any, starts: Any, ends: Any, cuts: Any, out: Any) -> None:
    """Whether each line, without the line break at its end, ends with one of the bytes of ``cuts``."""
    for i in range(starts.size):
        end = ends[i]
        if starts[i] < end and byte(data, end - 1) == 10:
            end -= 1
        if starts[i] < end and byte(data, end - 1) == 13:
            end -= 1
        out[i] = starts[i] < end and cuts[data[np.uint64(end - 1)]]


@kernel
def split_lines(
    data: Any, starts: Any, ends: Any, valid: Any, cuts: Any, kind: Any, place: Any, cell_starts: Any, cell_ends: Any,
    counts: Any,
) -> None:  # fmt: skip
    """The cells of each line; ``place[c]`` is the row of cell c in ``cell_starts`` and ``cell_ends``, -1: not wanted.

    ``cuts`` has for each byte whether it stands between cells: one by one (``DELIMITED``), in runs (``SPACED``), or one
    by one but not within double quotes or brackets, which are no part of a cell (``LOGGED``). A line break at the end
    is none of the line. ``counts`` gets how many cells there are, 0 of a null.
    """
    for i in range(starts.size):
        counts[i] = 0
        if valid.size > 0 and not valid[i]:
            continue
        p = starts[i]
        end = ends[i]
        if p < end and byte(data, end - 1) == 10:
            end -= 1
        if p < end and byte(data, end - 1) == 13:
            end -= 1
        c = 0
        while True:
            if kind == SPACED:
                while p < end and cuts[data[np.uint64(p)]]:
                    p += 1
                if p >= end:
                    break
            close = 0
            if kind == LOGGED and p < end:
                b = byte(data, p)
                close = 34 if b == 34 else (93 if b == 91 else 0)
            if close:
                q = p + 1
                while q < end and not (byte(data, q) == close and (q + 1 == end or cuts[data[np.uint64(q + 1)]])):
                    q += 1
                begin = p + 1
                stop = q
                if q < end:
                    q += 1
                else:
                    c = -1  # it is not closed
                    break
            else:
                q = p
                while q < end and not cuts[data[np.uint64(q)]]:
                    q += 1
                begin = p
                stop = q
            if c < place.size and place[c] >= 0:
                cell_starts[place[c], i] = begin
                cell_ends[place[c], i] = stop
            c += 1
            p = q
            if p >= end:
                break
            p += 1  # a delimiter: a cell follows it, be it empty
        counts[i] = c


@kernel
def integers(data: Any, starts: Any, ends: Any, wanted: Any, out: Any, found: Any) -> None:
    """Whole numbers of up to 19 digits, as nanoseconds have them; ``found`` says what each cell is."""
    for i in range(starts.size):
        out[i] = 0
        if not wanted[i]:
            continue
        p = starts[i]
        end = ends[i]
        if p == end:
            found[i] = EMPTY
            continue
        negative = byte(data, p) == 45
        if negative or byte(data, p) == 43:
            p += 1
        value = 0
        good = p < end
        hard = end - p > 19
        while p < end:
            d = byte(data, p) - 48
            if d < 0 or d > 9:
                good = False
                break
            if value > _MOST or (value == _MOST and d > 7):
                hard = True
            value = 10 * value + d if not hard else 0
            p += 1
        out[i] = -value if negative else value
        found[i] = (HARD if hard else GOOD) if good else BAD


@kernel
def _of_numbers(data: Any, start: Any, end: Any) -> Any:
    """Whether there is nothing but what Python writes finite numbers with: ``+-.Ee`` and digits."""
    for p in range(start, end):
        b = byte(data, p)
        if not ((b >= 48 and b <= 57) or b == 43 or b == 45 or b == 46 or b | 32 == 101):
            return False
    return True


@kernel
def doubles(data: Any, starts: Any, ends: Any, wanted: Any, out: Any, found: Any) -> None:
    """Numbers; what JSON would not write so is for Python."""
    for i in range(starts.size):
        out[i] = 0.0
        if not wanted[i]:
            continue
        if starts[i] == ends[i]:
            found[i] = EMPTY
            continue
        status, value = parse_number(data, starts[i], ends[i])
        out[i] = value
        if status == NUMBER:
            found[i] = GOOD
        else:
            found[i] = HARD if _of_numbers(data, starts[i], ends[i]) else BAD


@kernel
def booleans(data: Any, starts: Any, ends: Any, wanted: Any, out: Any, found: Any) -> None:
    """``true``, ``false``, in capitals or not, ``1`` and ``0``."""
    for i in range(starts.size):
        out[i] = False
        if not wanted[i]:
            continue
        p = starts[i]
        n = ends[i] - p
        found[i] = BAD
        if n == 0:
            found[i] = EMPTY
        elif n == 1 and (byte(data, p) == 48 or byte(data, p) == 49):
            out[i] = byte(data, p) == 49
            found[i] = GOOD
        elif n == 4 or n == 5:
            word = 0
            for k in range(n):
                word = word << 8 | byte(data, p + k) | 32
            out[i] = word == _TRUE
            found[i] = GOOD if word == _TRUE or word == _FALSE else BAD


@kernel
def times(data: Any, starts: Any, ends: Any, wanted: Any, logged: Any, out: Any, found: Any) -> None:
    """Dates and times, in microseconds since 1970."""
    for i in range(starts.size):
        out[i] = 0
        if not wanted[i]:
            continue
        if starts[i] == ends[i]:
            found[i] = EMPTY
            continue
        ok, value = parse_log_time(data, starts[i], ends[i]) if logged else parse_iso(data, starts[i], ends[i])
        out[i] = value
        found[i] = GOOD if ok else BAD


@kernel
def trimmed(data: Any, starts: Any, ends: Any, wanted: Any, begins: Any, stops: Any) -> None:
    """The spans of texts, of those that are wanted without the blanks and tabs at both ends."""
    for i in range(starts.size):
        p = starts[i]
        q = ends[i]
        if wanted[i]:
            while p < q and (byte(data, p) == 32 or byte(data, p) == 9):
                p += 1
            while p < q and (byte(data, q - 1) == 32 or byte(data, q - 1) == 9):
                q -= 1
        begins[i] = p
        stops[i] = q


@kernel
def far_apart(data: Any, starts: Any, ends: Any, out: Any) -> None:
    """Whether white space in each text is anything but single blanks."""
    for i in range(starts.size):
        out[i] = False
        blank = False
        for p in range(starts[i], ends[i]):
            b = byte(data, p)
            if (b >= 9 and b <= 13) or (blank and b == 32):
                out[i] = True
            blank = b == 32


@kernel
def are_plainly_quoted(data: Any, starts: Any, ends: Any, most: Any) -> Any:
    """Whether Python writes each text as it is between two ``'``, and none is of more than so many characters."""
    for i in range(starts.size):
        if ends[i] - starts[i] > most:
            return False
        for p in range(starts[i], ends[i]):
            b = byte(data, p)
            if b < 32 or b > 126 or b == 39 or b == 92:
                return False
    return True
