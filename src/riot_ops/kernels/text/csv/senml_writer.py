"""Lines of comma-separated values to SenML messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.dates import parse_iso

__all__ = ["BAD_TIME", "OK", "OPEN_QUOTE", "WRONG_COLUMNS", "csv_to_senml"]

#: Status of a line.
OK, WRONG_COLUMNS, OPEN_QUOTE, BAD_TIME = 0, 1, 2, 3
_MAX_MAGNITUDE = 308  # decimal exponent of the largest float


@kernel
def _digit(b: Any) -> Any:
    return 48 <= b <= 57


@kernel
def parse_time(text: Any, n: Any) -> Any:
    """``(milliseconds, ok)`` of ``text[:n]``: an integer, or a date and time as :func:`parse_iso` reads it."""
    digits = 0
    sign = 1
    value = np.int64(0)
    for i in range(n):
        b = np.int64(text[i])
        if i == 0 and b == 45:
            sign = -1
        elif _digit(b) and digits < 18:
            value = value * 10 + (b - 48)
            digits += 1
        else:
            digits = -1
            break
    if digits > 0:
        return sign * value, True
    ok, time, _ = parse_iso(text, 0, n)
    return time // 1000, ok


@kernel
def write_number(text: Any, n: Any, out: Any, o: Any) -> Any:
    """Write ``text[:n]`` as a JSON number and return its end; o if it is not a number.

    Forms that Python accepts but JSON forbids are corrected: ``+1``, ``007``, ``.5`` and ``1.``.
    """
    i = 0
    p = o
    if i < n and (text[i] == 43 or text[i] == 45):
        if text[i] == 45:
            out[p] = 45
            p += 1
        i += 1
    first = i
    while i < n and text[i] == 48:
        i += 1
    whole = 0  # digits before the point, without leading zeros
    while i < n and _digit(text[i]):
        out[p] = text[i]
        p += 1
        i += 1
        whole += 1
    given = i - first
    if whole == 0:
        out[p] = 48
        p += 1
    magnitude = whole  # the number is below 10^magnitude
    zero = whole == 0
    if i < n and text[i] == 46:
        i += 1
        if i < n and _digit(text[i]):
            out[p] = 46
            p += 1
            while i < n and _digit(text[i]):
                zero = zero and text[i] == 48
                if zero:
                    magnitude -= 1
                out[p] = text[i]
                p += 1
                i += 1
                given += 1
    if given == 0:
        return o
    power = np.int64(0)
    if i < n and (text[i] == 101 or text[i] == 69):
        out[p] = 101
        p += 1
        i += 1
        sign = 1
        if i < n and (text[i] == 43 or text[i] == 45):
            if text[i] == 45:
                sign = -1
                out[p] = 45
                p += 1
            i += 1
        if i >= n or not _digit(text[i]):
            return o
        while i < n and _digit(text[i]):
            out[p] = text[i]
            p += 1
            if power < 1000000:
                power = power * 10 + np.int64(text[i]) - 48
            i += 1
        power *= sign
    if i < n or (magnitude + power > _MAX_MAGNITUDE and not zero):
        return o
    return p


@kernel
def write_text(text: Any, n: Any, out: Any, o: Any) -> Any:
    """Write ``text[:n]`` as a JSON string and return its end."""
    out[o] = 34
    o += 1
    for i in range(n):
        b = text[i]
        if b in (34, 92):
            out[o] = 92
            out[o + 1] = b
            o += 2
        elif b < 32:
            out[o] = 92
            out[o + 1] = 117
            out[o + 2] = 48
            out[o + 3] = 48
            out[o + 4] = 48 + (b >> 4)
            low = b & 15
            out[o + 5] = 48 + low if low < 10 else 87 + low
            o += 6
        else:
            out[o] = b
            o += 1
    out[o] = 34
    return o + 1


@kernel
def next_field(data: Any, start: Any, end: Any, delimiter: Any, text: Any) -> Any:
    """Unquote the field at start into ``text``; returns its length, the end of the field, and ok."""
    i = start
    n = 0
    if i < end and data[i] == 34:
        i += 1
        while True:
            if i >= end:
                return n, i, False  # the quote is never closed
            if data[i] == 34:
                if i + 1 < end and data[i + 1] == 34:
                    i += 1
                else:
                    i += 1
                    break
            text[n] = data[i]
            n += 1
            i += 1
    while i < end and data[i] != delimiter:
        if data[i] == 10 or data[i] == 13:
            return n, i, False  # a second line
        text[n] = data[i]
        n += 1
        i += 1
    return n, i, True


@kernel
def _copy(data: Any, start: Any, end: Any, out: Any, o: Any) -> Any:
    for i in range(start, end):
        out[o] = data[i]
        o += 1
    return o


@kernel
def csv_to_senml(
    data: Any,
    starts: Any,
    ends: Any,
    delimiter: Any,
    numeric: Any,
    time_column: Any,
    heads: Any,
    head_starts: Any,
    head_ends: Any,
    text: Any,
    out: Any,
    offsets: Any,
    problems: Any,
    counts: Any,
) -> None:
    """Write a message per line; ``heads[c]`` is the text before the value of column c.

    ``heads`` ends with the texts before a message, string values, number values, and the base time.
    """
    columns = numeric.size
    o = 0
    for r in range(starts.size):
        offsets[r] = o
        begin = o
        i = starts[r]
        end = ends[r]
        while end > i and (data[end - 1] == 10 or data[end - 1] == 13):
            end -= 1
        o = _copy(heads, head_starts[columns], head_ends[columns], out, o)
        problem = OK
        time = np.int64(0)
        timed = False
        empty = True
        c = 0
        while True:
            n, i, ok = next_field(data, i, end, delimiter, text)
            if not ok:
                problem = OPEN_QUOTE
                break
            if c < columns:
                a = 0  # nulls, numbers and times are read without surrounding blanks
                z = n
                while a < z and (text[a] == 32 or text[a] == 9):
                    a += 1
                while z > a and (text[z - 1] == 32 or text[z - 1] == 9):
                    z -= 1
                stripped = text[a:z]
                null = z == a or (
                    z - a == 4
                    and stripped[0] == 110
                    and stripped[1] == 117
                    and stripped[2] == 108
                    and stripped[3] == 108
                )
                if c == time_column:
                    if not null:
                        time, timed = parse_time(stripped, z - a)
                elif not null:
                    if not empty:
                        out[o] = 44
                        o += 1
                    o = _copy(heads, head_starts[c], head_ends[c], out, o)
                    value = o
                    if numeric[c]:
                        o = _copy(heads, head_starts[columns + 2], head_ends[columns + 2], out, o)
                        number = o
                        o = write_number(stripped, z - a, out, o)
                        if o == number:
                            o = value
                    if o == value:
                        o = _copy(heads, head_starts[columns + 1], head_ends[columns + 1], out, o)
                        o = write_text(text, n, out, o)
                    out[o] = 125
                    o += 1
                    empty = False
            c += 1
            if i >= end:
                break
            i += 1  # the delimiter; another field follows, even if it is empty
        counts[r] = c
        if problem == OK and c != columns:
            problem = WRONG_COLUMNS
        if problem == OK and not timed:
            problem = BAD_TIME
        if problem != OK:
            o = begin
        else:
            o = _copy(heads, head_starts[columns + 3], head_ends[columns + 3], out, o)
            if time < 0:
                out[o] = 45
                o += 1
                time = -time
            digits = 1
            rest = time
            while rest >= 10:
                rest //= 10
                digits += 1
            for d in range(digits):
                out[o + digits - 1 - d] = 48 + time % 10
                time //= 10
            o += digits
            out[o] = 125
            o += 1
        problems[r] = problem
    offsets[starts.size] = o
