"""Values of plain lines: parsing the characters of fields into columns.

Lines are split in blocks. The fields of a block are parsed one after the other, while its bytes are in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.core.schema import EARLIEST, LATEST
from riot_ops.kernels.arrays.byte_masks import WIDTH, copy64, low_bits
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.dates import (
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
    "BATCH_LINES",
    "DOUBLE",
    "EPOCH",
    "ESCAPES",
    "FLAG",
    "INSTANT",
    "INSTANT_NS",
    "INTEGER",
    "ISO",
    "LOG",
    "NO_VALUE",
    "ROOM",
    "TEXT",
    "TWEET",
    "write_values",
]

#: Types of fields.
TEXT, INTEGER, DOUBLE, FLAG, ISO, EPOCH, INSTANT, INSTANT_NS, LOG, TWEET = range(10)
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
def _doubles(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, out: Any, good: Any) -> None:
    for j in range(rows):
        u = np.uint64(j)
        value = 0.0
        if sizes[u] != NO_VALUE:
            ok, value = plain_number(data, begins[u], sizes[u])
            if not ok:
                status, value = parse_number(data, begins[u], begins[u] + sizes[u])
                good[u] = good[u] and status == NUMBER
        out[np.uint64(k + j)] = value


@kernel
def _flags(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, out: Any, good: Any) -> None:
    """Parse ``true`` and ``false`` in any case, ``1`` and ``0``."""
    for j in range(rows):
        u = np.uint64(j)
        p = begins[u]
        n = sizes[u]
        flag = False
        if n == 1:
            flag = byte(data, p) == 49
            good[u] = good[u] and (flag or byte(data, p) == 48)
        elif n != NO_VALUE:
            word = (load8(data, p) | _SMALL) & low_bits(8 * n)
            flag = word == _TRUE and n == 4
            good[u] = good[u] and (flag or (word == _FALSE and n == 5))
        out[np.uint64(k + j)] = flag


@kernel
def _dates(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, kind: Any, out: Any, good: Any, memo: Any) -> None:
    for j in range(rows):
        u = np.uint64(j)
        p = begins[u]
        n = sizes[u]
        time = 0
        if n != NO_VALUE:
            utc = n >= 20 and byte(data, p + n - 1) == 90
            ok, time = plain_iso(data, p, n - 1 if utc else n, memo)
            if not ok:
                ok, time, _ = parse_iso(data, p, p + n)
            if not ok and kind == TWEET:
                ok, time = parse_tweet_time(data, p, p + n)
            good[u] = good[u] and ok and time >= EARLIEST and time <= LATEST
        out[np.uint64(k + j)] = time


@kernel
def _log_times(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, out: Any, good: Any, memo: Any) -> None:
    for j in range(rows):
        u = np.uint64(j)
        time = 0
        if sizes[u] != NO_VALUE:
            ok, time = plain_log_time(data, begins[u], sizes[u], memo)
            if not ok:
                ok, time = parse_log_time(data, begins[u], begins[u] + sizes[u])
            good[u] = good[u] and ok and time >= EARLIEST and time <= LATEST
        out[np.uint64(k + j)] = time


@kernel
def _integers(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, out: Any, good: Any) -> None:
    for j in range(rows):
        u = np.uint64(j)
        number = 0
        if sizes[u] != NO_VALUE:
            ok, number = whole_number(data, begins[u], sizes[u])
            good[u] = good[u] and ok
        out[np.uint64(k + j)] = number


@kernel
def _epochs(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, unit: Any, out: Any, good: Any) -> None:
    """Parse times since 1970 in units of ``unit`` microseconds, or in nanoseconds (0)."""
    low = EARLIEST // unit if unit else np.iinfo(np.int64).min
    high = LATEST // unit if unit else np.iinfo(np.int64).max
    for j in range(rows):
        u = np.uint64(j)
        time = 0
        if sizes[u] != NO_VALUE:
            ok, number = whole_number(data, begins[u], sizes[u])
            if ok and number >= low and number <= high:
                time = number * unit if unit else number // 1000
            else:
                ok, time = parse_epoch(data, begins[u], begins[u] + sizes[u], unit)
            good[u] = good[u] and ok and time >= EARLIEST and time <= LATEST
        out[np.uint64(k + j)] = time


@kernel
def _instants(data: Any, begins: Any, sizes: Any, rows: Any, k: Any, unit: Any, out: Any, good: Any) -> None:
    """Parse times to units of ``unit`` nanoseconds since 1970."""
    for j in range(rows):
        u = np.uint64(j)
        nanos = 0
        if sizes[u] != NO_VALUE:
            ok, nanos = whole_number(data, begins[u], sizes[u])
            if not ok:
                ok, nanos = parse_instant(data, begins[u], begins[u] + sizes[u])
            good[u] = good[u] and ok
        out[np.uint64(k + j)] = nanos // unit


@kernel
def write_values(
    data: Any, begins: Any, sizes: Any, rows: Any, k: Any, good: Any, kinds: Any, columns: Any, units: Any,
    optional: Any, memo: Any, texts: Any, offsets: Any, integers: Any, doubles: Any, flags: Any, present: Any,
) -> Any:  # fmt: skip
    """Parse the fields of a block of lines into rows from k on; returns the row after the last.

    Field f of line j consists of ``sizes[f, j]`` characters from ``begins[f, j]`` on, see :data:`NO_VALUE`. It has type
    ``kinds[f]``, and is written to column ``columns[f]`` among those of its type. Times are integers; a unit of an
    epoch has ``units[f]`` microseconds, or is a nanosecond (0). ``optional[f]`` is the row of ``present`` that flags
    where the field is present, -1 if it is required. ``good`` gets which lines are valid. ``memo`` is that of
    :mod:`riot_ops.kernels.text.dates`.
    """
    for j in range(rows):
        good[j] = True
    for f in range(kinds.size):
        c = columns[f]
        kind = kinds[f]
        if kind == DOUBLE:
            _doubles(data, begins[f], sizes[f], rows, k, doubles[c], good)
        elif kind == FLAG:
            _flags(data, begins[f], sizes[f], rows, k, flags[c], good)
        elif kind == ISO or kind == TWEET:
            _dates(data, begins[f], sizes[f], rows, k, kind, integers[c], good, memo)
        elif kind == LOG:
            _log_times(data, begins[f], sizes[f], rows, k, integers[c], good, memo)
        elif kind == EPOCH:
            _epochs(data, begins[f], sizes[f], rows, k, units[f], integers[c], good)
        elif kind == INSTANT or kind == INSTANT_NS:
            _instants(data, begins[f], sizes[f], rows, k, 1000 if kind == INSTANT else 1, integers[c], good)
        elif kind == INTEGER:
            _integers(data, begins[f], sizes[f], rows, k, integers[c], good)
    m = 0
    for j in range(rows):
        m += int(good[j])
    every = m == rows
    m = m if every else 0
    for j in range(0 if every else rows):
        if not good[j]:
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
