"""Lines to fields: splitting lines into cells, and parsing cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.dates import parse_epoch, parse_instant, parse_iso, parse_log_time, parse_tweet_time
from riot_ops.kernels.text.numbers import NUMBER, byte, parse_number

__all__ = [
    "BAD",
    "EMPTY",
    "GOOD",
    "HARD",
    "ISO",
    "LOG",
    "TWEET",
    "booleans",
    "doubles",
    "ends_with",
    "epochs",
    "has_plain_repr",
    "has_wide_spaces",
    "instants",
    "integers",
    "is_escaped",
    "split_lines",
    "times",
]

#: Status of a cell: empty, parsed, invalid, or to be parsed by Python.
EMPTY, GOOD, BAD, HARD = 0, 1, 2, 3

#: Forms of times, see :func:`times`.
ISO, LOG, TWEET = range(3)
#: How lines are split, see :func:`split_lines`.
DELIMITED, SPACED, LOGGED = 0, 1, 2
#: A tenth of the largest int64; its last digit is 7.
_TENTH = np.iinfo(np.int64).max // 10
_TRUE, _FALSE = int.from_bytes(b"true", "big"), int.from_bytes(b"false", "big")


@kernel
def ends_with(data: Any, starts: Any, ends: Any, cuts: Any, out: Any) -> None:
    """Write whether each line, apart from its line break, ends with a byte flagged in ``cuts``."""
    for i in range(starts.size):
        end = ends[i]
        if starts[i] < end and byte(data, end - 1) == 10:
            end -= 1
        if starts[i] < end and byte(data, end - 1) == 13:
            end -= 1
        out[i] = starts[i] < end and cuts[data[np.uint64(end - 1)]]


@kernel
def is_escaped(data: Any, start: Any, q: Any) -> Any:
    """Whether an odd number of backslashes, from ``start`` on, stands before q."""
    p = q
    while p > start and byte(data, p - 1) == 92:
        p -= 1
    return (q - p) % 2 == 1


@kernel
def split_lines(
    data: Any, starts: Any, ends: Any, valid: Any, cuts: Any, how: Any, place: Any, cell_starts: Any, cell_ends: Any,
    counts: Any,
) -> None:  # fmt: skip
    """Write the spans of cells; ``place[c]`` is the row of cell c in ``cell_starts`` and ``cell_ends``, -1: not wanted.

    ``cuts`` flags the bytes that separate cells: each of them (``DELIMITED``), runs of them (``SPACED``), or each of
    them outside of double quotes and brackets, which are not part of a cell (``LOGGED``); a quote after a backslash
    only ends a cell if no other does. A line break at the end is ignored. ``counts`` gets the number of cells, 0 for a
    null.
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
        escapes = True
        while True:
            if how == SPACED:
                while p < end and cuts[data[np.uint64(p)]]:
                    p += 1
                if p >= end:
                    break
            close = 0
            if how == LOGGED and p < end:
                b = byte(data, p)
                close = 34 if b == 34 else (93 if b == 91 else 0)
            if close:
                q = p + 1
                escaped = end
                while q < end:
                    if byte(data, q) == close and (q + 1 == end or cuts[data[np.uint64(q + 1)]]):
                        if close != 34 or not (escapes and is_escaped(data, p + 1, q)):
                            break
                        escaped = min(q, escaped)
                    q += 1
                if q == end and escaped < end:
                    q = escaped
                    escapes = False  # no quote of this line ends a cell otherwise: do not search for one again
                begin = p + 1
                stop = q
                if q < end:
                    q += 1
                else:
                    c = -1  # a quote or bracket is not closed
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
            p += 1  # a delimiter; another cell follows, even if it is empty
        counts[i] = c


@kernel
def integers(data: Any, starts: Any, ends: Any, wanted: Any, out: Any, found: Any) -> None:
    """Parse integers of up to 19 digits, enough for nanoseconds; ``found`` gets the status of each cell."""
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
            if value > _TENTH or (value == _TENTH and d > 7):
                hard = True
            value = 10 * value + d if not hard else 0
            p += 1
        out[i] = -value if negative else value
        found[i] = (HARD if hard else GOOD) if good else BAD


@kernel
def _may_be_number(data: Any, start: Any, end: Any) -> Any:
    """Whether all bytes can be part of a finite number in Python: digits and ``+-.Ee``."""
    for p in range(start, end):
        b = byte(data, p)
        if not ((b >= 48 and b <= 57) or b == 43 or b == 45 or b == 46 or b | 32 == 101):
            return False
    return True


@kernel
def doubles(data: Any, starts: Any, ends: Any, wanted: Any, out: Any, found: Any) -> None:
    """Parse numbers; forms that JSON does not allow are left to Python."""
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
            found[i] = HARD if _may_be_number(data, starts[i], ends[i]) else BAD


@kernel
def booleans(data: Any, starts: Any, ends: Any, wanted: Any, out: Any, found: Any) -> None:
    """Parse ``true`` and ``false`` in any case, ``1`` and ``0``."""
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
def times(data: Any, starts: Any, ends: Any, wanted: Any, form: Any, out: Any, found: Any) -> None:
    """Parse dates and times to microseconds since 1970; ``form`` is ``ISO``, ``LOG`` or ``TWEET``."""
    for i in range(starts.size):
        out[i] = 0
        if not wanted[i]:
            continue
        if starts[i] == ends[i]:
            found[i] = EMPTY
            continue
        if form == LOG:
            ok, value = parse_log_time(data, starts[i], ends[i])
        else:
            ok, value, _ = parse_iso(data, starts[i], ends[i])
            if form == TWEET and not ok:
                ok, value = parse_tweet_time(data, starts[i], ends[i])
        out[i] = value
        found[i] = GOOD if ok else BAD


@kernel
def epochs(data: Any, starts: Any, ends: Any, wanted: Any, unit: Any, out: Any, found: Any) -> None:
    """Parse times since 1970 to microseconds, see :func:`riot_ops.kernels.text.dates.parse_epoch`."""
    for i in range(starts.size):
        out[i] = 0
        if not wanted[i]:
            continue
        if starts[i] == ends[i]:
            found[i] = EMPTY
            continue
        ok, out[i] = parse_epoch(data, starts[i], ends[i], unit)
        found[i] = GOOD if ok else BAD


@kernel
def instants(data: Any, starts: Any, ends: Any, wanted: Any, out: Any, found: Any) -> None:
    """Parse times to nanoseconds since 1970, see :func:`riot_ops.kernels.text.dates.parse_instant`."""
    for i in range(starts.size):
        out[i] = 0
        if not wanted[i]:
            continue
        if starts[i] == ends[i]:
            found[i] = EMPTY
            continue
        ok, out[i] = parse_instant(data, starts[i], ends[i])
        found[i] = GOOD if ok else BAD


@kernel
def trimmed(data: Any, starts: Any, ends: Any, wanted: Any, begins: Any, stops: Any) -> None:
    """Write the spans of texts, without leading and trailing blanks and tabs if ``wanted``."""
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
def has_wide_spaces(data: Any, starts: Any, ends: Any, out: Any) -> None:
    """Write whether each text has white space other than single blanks."""
    for i in range(starts.size):
        out[i] = False
        blank = False
        for p in range(starts[i], ends[i]):
            b = byte(data, p)
            if (b >= 9 and b <= 13) or (blank and b == 32):
                out[i] = True
            blank = b == 32


@kernel
def has_plain_repr(data: Any, starts: Any, ends: Any, max_size: Any) -> Any:
    """Whether the ``repr`` of each text is the text between two ``'``, and none is longer than ``max_size``."""
    for i in range(starts.size):
        if ends[i] - starts[i] > max_size:
            return False
        for p in range(starts[i], ends[i]):
            b = byte(data, p)
            if b < 32 or b > 126 or b == 39 or b == 92:
                return False
    return True
