"""Values of fields: parsing their characters into columns.

Lines are split in blocks. The fields of a block are parsed one after the other, while its bytes are in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.core.schema import EARLIEST, LATEST
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.byte_masks import WIDTH, copy64, low_bits
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.dates import (
    MEMO,
    NONE,
    parse_epoch,
    parse_instant,
    parse_iso,
    parse_log_time,
    parse_tweet_time,
    plain_iso,
    plain_log_time,
)
from riot_ops.kernels.text.json_escapes import unescape
from riot_ops.kernels.text.numbers import NUMBER, byte, load8, parse_number, plain_number, store8, whole_number

__all__ = [
    "BAD",
    "BATCH_LINES",
    "BEYOND",
    "DOUBLE",
    "EPOCH",
    "ESCAPES",
    "FLAG",
    "GOOD",
    "HARD",
    "INSTANT",
    "INSTANT_NS",
    "INTEGER",
    "ISO",
    "LOG",
    "NO_VALUE",
    "ROOM",
    "TEXT",
    "TWEET",
    "read_values",
    "write_values",
]

#: Types of fields.
TEXT, INTEGER, DOUBLE, FLAG, ISO, EPOCH, INSTANT, INSTANT_NS, LOG, TWEET = range(10)
#: States of a value: parsed (or absent), invalid, left to Python, and a time outside the years 1 to 9999.
GOOD, BAD, HARD, BEYOND = range(4)
#: Lines per block.
BATCH_LINES = 128
#: Bytes that may be read after the end of a line.
ROOM = WIDTH
#: In place of a size: the field is missing. A size reduced by ``ESCAPES`` is that of a string with escapes.
NO_VALUE, ESCAPES = -1, 1 << 32

_NOUGHT = np.uint64(0)
_SMALL = np.uint64(0x2020202020202020)
_TRUE, _FALSE = (np.uint64(int.from_bytes(text, "little")) for text in (b"true", b"false"))


@kernel
def _texts(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, out: Any, offsets: Any) -> None:
    """Copy texts end to end."""
    o = np.int64(offsets[np.uint64(k)])
    for j in range(rows):
        u = np.uint64(j)
        p = begins[u]
        n = sizes[u]
        if n < NO_VALUE:
            o = unescape(data, p, p + n + ESCAPES, out, o)
            n = 0
        if n > 8:  # the next text overwrites what is written past this one
            for i in range(0, n, WIDTH):
                copy64(data, p + i, out, o + i)
        elif n > 0:
            store8(out, o, load8(data, p))
        o += max(n, 0)
        offsets[np.uint64(k + j + 1)] = o


@kernel
def _number_state(data: Any, p: Any, n: Any) -> Any:
    """Return the state of a text that is no number in JSON: ``HARD`` if all its bytes can be part of one in Python."""
    for i in range(p, p + n):
        b = byte(data, i)
        if not ((b >= 48 and b <= 57) or b == 43 or b == 45 or b == 46 or b | 32 == 101):
            return BAD
    return HARD


@kernel
def _doubles(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, out: Any, states: Any) -> None:
    for j in range(rows):
        u = np.uint64(j)
        value = 0.0
        if sizes[u] != NO_VALUE:
            ok, value = plain_number(data, begins[u], sizes[u])
            if not ok:
                status, value = parse_number(data, begins[u], begins[u] + sizes[u])
                if status != NUMBER:
                    states[u] = _number_state(data, begins[u], sizes[u])
        out[np.uint64(k + j)] = value


@kernel
def _flags(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, out: Any, states: Any) -> None:
    """Parse ``true`` and ``false`` in any case, ``1`` and ``0``."""
    for j in range(rows):
        u = np.uint64(j)
        p = begins[u]
        n = sizes[u]
        flag = False
        ok = True
        if n == 1:
            flag = byte(data, p) == 49
            ok = flag or byte(data, p) == 48
        elif n != NO_VALUE:
            word = (load8(data, p) | _SMALL) & low_bits(8 * n)
            flag = word == _TRUE and n == 4
            ok = flag or (word == _FALSE and n == 5)
        if not ok:
            states[u] = BAD
        out[np.uint64(k + j)] = flag


@kernel
def _times(
    data: Any, begins: Any, sizes: Any, rows: Any, k: Any, kind: Any, unit: Any, out: Any, states: Any, memo: Any
) -> None:
    low = EARLIEST // unit if unit else np.iinfo(np.int64).min
    high = LATEST // unit if unit else np.iinfo(np.int64).max
    for j in range(rows):
        u = np.uint64(j)
        p = begins[u]
        n = sizes[u]
        time = 0
        if n != NO_VALUE:
            if kind == EPOCH:
                ok, number = whole_number(data, p, n)
                if ok and number >= low and number <= high:
                    time = number * unit if unit else number // 1000
                else:
                    ok, time = parse_epoch(data, p, p + n, unit)
            elif kind == LOG:
                ok, time = plain_log_time(data, p, n, memo)
                if not ok:
                    ok, time = parse_log_time(data, p, p + n)
            else:
                utc = n >= 20 and byte(data, p + n - 1) == 90
                ok, time = plain_iso(data, p, n - 1 if utc else n, memo)
                if not ok:
                    ok, time, _ = parse_iso(data, p, p + n)
                if not ok and kind == TWEET:
                    ok, time = parse_tweet_time(data, p, p + n)
            if not ok:
                states[u] = BAD
            elif time < EARLIEST or time > LATEST:
                states[u] = BEYOND
        out[np.uint64(k + j)] = time


@kernel
def _integers(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, kind: Any, out: Any, states: Any) -> None:
    """Parse integers, or times to nanoseconds since 1970, ``INSTANT`` to microseconds."""
    for j in range(rows):
        u = np.uint64(j)
        number = 0
        if sizes[u] != NO_VALUE:
            ok, number = whole_number(data, begins[u], sizes[u])
            if not ok and kind == INTEGER:
                states[u] = _number_state(data, begins[u], sizes[u])
            elif not ok:
                ok, number = parse_instant(data, begins[u], begins[u] + sizes[u])
                if not ok:
                    states[u] = BAD
        out[np.uint64(k + j)] = number // 1000 if kind == INSTANT else number


@kernel
def _parse_values(
    data: Any, begins: Any, sizes: Any, rows: Any, k: Any, kind: Any, unit: Any, memo: Any, c: Any, integers: Any,
    doubles: Any, flags: Any, states: Any,
) -> None:  # fmt: skip
    """Parse the values of a field, other than texts, into rows from k on of column c; write the states of invalid ones.

    The characters of value j are the ``sizes[j]`` from ``begins[j]`` on. A unit of an epoch has ``unit`` microseconds,
    or is a nanosecond (0).
    """
    if kind == DOUBLE:
        _doubles(data, begins, sizes, rows, k, doubles[c], states)
    elif kind == FLAG:
        _flags(data, begins, sizes, rows, k, flags[c], states)
    elif kind == INTEGER or kind == INSTANT or kind == INSTANT_NS:
        _integers(data, begins, sizes, rows, k, kind, integers[c], states)
    elif kind != TEXT:
        _times(data, begins, sizes, rows, k, kind, unit, integers[c], states, memo)


#: Columns without values, by the type of their kinds.
_NO_VALUES = {INTEGER: np.empty((1, 0), np.int64), DOUBLE: np.empty((1, 0)), FLAG: np.empty((1, 0), np.bool_)}


def read_values(
    data: npt.NDArray[np.uint8], begins: Any, sizes: Any, kind: int, unit: int = 1
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int8]]:
    """``(values, states)`` of texts of one kind other than ``TEXT``; a unit is that of an epoch, in microseconds.

    :data:`ROOM` bytes after the texts must be readable.
    """
    stored = kind if kind in _NO_VALUES else INTEGER
    values, states = np.empty((1, begins.size), _NO_VALUES[stored].dtype), np.zeros(begins.size, np.int8)
    integers, doubles, flags = (_NO_VALUES | {stored: values}).values()
    memo = np.full(MEMO, NONE)
    begins, sizes = readonly(begins), readonly(sizes)
    _parse_values(data, begins, sizes, begins.size, 0, kind, unit, memo, 0, integers, doubles, flags, states)
    return values[0], states


@kernel
def write_values(
    data: Any, begins: Any, sizes: Any, rows: Any, k: Any, states: Any, kinds: Any, columns: Any, units: Any,
    optional: Any, memo: Any, texts: Any, offsets: Any, integers: Any, doubles: Any, flags: Any, present: Any,
) -> Any:  # fmt: skip
    """Parse the fields of a block of lines into rows from k on; returns the row after the last.

    Field f of line j consists of ``sizes[f, j]`` characters from ``begins[f, j]`` on, see :data:`NO_VALUE`. It has type
    ``kinds[f]``, and is written to column ``columns[f]`` among those of its type. Times are integers; a unit of an
    epoch has ``units[f]`` microseconds, or is a nanosecond (0). ``optional[f]`` is the row of ``present`` that flags
    where the field is present, -1 if it is required. ``states`` gets the state of each line. ``memo`` is that of
    :mod:`riot_ops.kernels.text.dates`.
    """
    for j in range(rows):
        states[j] = GOOD
    for f in range(kinds.size):
        _parse_values(
            data, begins[f], sizes[f], rows, k, kinds[f], units[f], memo, columns[f], integers, doubles, flags, states
        )  # fmt: skip
    m = 0
    for j in range(rows):
        m += int(states[j] == GOOD)
    every = m == rows
    m = m if every else 0
    for j in range(0 if every else rows):
        if states[j] != GOOD:
            continue
        if m < j:
            for f in range(kinds.size):
                begins[f, m] = begins[f, j]
                sizes[f, m] = sizes[f, j]
                c = columns[f]
                if kinds[f] == DOUBLE:
                    doubles[c, k + m] = doubles[c, k + j]
                elif kinds[f] == FLAG:
                    flags[c, k + m] = flags[c, k + j]
                elif kinds[f] != TEXT:
                    integers[c, k + m] = integers[c, k + j]
        m += 1
    for f in range(kinds.size):
        if kinds[f] == TEXT:
            _texts(data, begins[f], sizes[f], m, k, texts[columns[f]], offsets[columns[f]])
        if optional[f] >= 0:
            for j in range(m):
                present[optional[f], np.uint64(k + j)] = sizes[f, np.uint64(j)] != NO_VALUE
    return k + m
