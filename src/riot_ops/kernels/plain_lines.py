"""Lines to fields in one pass, of such lines as there are most: plain ASCII, with nothing missing or odd.

Which they are is found on the way; whatever else a line may be is left to the loops of :mod:`riot_ops.kernels.fields`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.core.schema import EARLIEST, LATEST
from riot_ops.kernels.dates import parse_iso, plain_iso
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.numbers import (
    HIGH,
    NUMBER,
    ONES,
    byte,
    eight_digits,
    load8,
    parse_number,
    short_number,
    store8,
    trailing_zeros,
)

__all__ = ["DOUBLE", "EPOCH", "INTEGER", "ISO", "ROOM", "TEXT", "plain_lines"]

#: What a field is.
TEXT, INTEGER, DOUBLE, ISO, EPOCH = range(5)
#: Bytes behind a line that a plain one may be read into.
ROOM = 32

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_U1, _NOUGHT = np.uint64(1), np.uint64(0)
_U7, _U56 = np.uint64(7), np.uint64(56)
_LOW7 = ~HIGH
#: Moves the lowest bits of eight bytes, by a product, to its top byte.
_GATHER = np.uint64(0x0102040810204080)
_FOURTEEN = ONES * np.uint64(14)
_BLANKS = ONES * np.uint64(32)


@kernel
def _marks(w: Any, same: Any) -> Any:
    """A bit for each of eight ASCII bytes, whether it is the one that ``same`` repeats."""
    return ((~((w ^ same) + _LOW7) & HIGH) >> _U7) * _GATHER >> _U56


@kernel
def _cut(data: Any, p: Any, end: Any, delimiter: Any, spaced: Any, place: Any, begins: Any, stops: Any) -> Any:
    """How many cells a line has, and where those are that are wanted; -1 where it is not plain.

    The delimiters of 64 bytes are found without a branch, as the bits of a number, and then gone through: how they lie
    in eight bytes cannot be guessed, how many there are in a line can.
    """
    cells = 0
    begin = p
    seen = _NOUGHT
    same = ONES * np.uint64(delimiter)
    odd = HIGH if spaced else _NOUGHT  # another white space may be there where a byte is below 14
    while p < end:
        bits = _NOUGHT
        whole = min(8, (end - p) >> 3)
        for k in range(whole):
            w = load8(data, p + 8 * k)
            seen |= w | ((w - _FOURTEEN) & ~w & odd)
            bits |= _marks(w, same) << np.uint64(8 * k)
        if whole < 8 and p + 8 * whole < end:
            some = np.uint64(8 * (end - p - 8 * whole))
            w = (load8(data, p + 8 * whole) & ~(_ALL << some)) | (_BLANKS << some)
            seen |= w | ((w - _FOURTEEN) & ~w & odd)
            bits |= (_marks(w, same) & ~(_ALL << np.uint64(end - p - 8 * whole))) << np.uint64(8 * whole)
        while bits != _NOUGHT:
            q = p + np.int64(trailing_zeros(bits))
            bits &= bits - _U1
            if not spaced or q > begin:
                if cells < place.size and place[np.uint64(cells)] >= 0:
                    c = np.uint64(place[np.uint64(cells)])
                    begins[c] = begin
                    stops[c] = q
                cells += 1
            begin = q + 1
        p += 64
    if not spaced or end > begin:
        if cells < place.size and place[cells] >= 0:
            begins[place[cells]] = begin
            stops[place[cells]] = end
        cells += 1
    return -1 if (seen & HIGH) != _NOUGHT else cells


@kernel
def _integer(data: Any, p: Any, end: Any) -> Any:
    """``(ok, value)`` of up to 18 digits with an optional minus."""
    negative = p < end and byte(data, p) == 45
    if negative:
        p += 1
    n = end - p
    if n > 18:
        return False, 0
    good, value = eight_digits(load8(data, p), min(n, 8))
    p += 8
    while p < end:
        digit = byte(data, p) - 48
        good = good and digit >= 0 and digit <= 9
        value = 10 * value + digit
        p += 1
    return good, -value if negative else value


@kernel
def plain_lines(
    data: Any, starts: Any, ends: Any, valid: Any, row: Any, stop: Any, before: Any, delimiter: Any, spaced: Any,
    least: Any, most: Any, place: Any, kinds: Any, columns: Any, firsts: Any, lasts: Any, units: Any, begins: Any,
    stops: Any, texts: Any, offsets: Any, integers: Any, doubles: Any, plain: Any,
) -> None:  # fmt: skip
    """The fields of the lines from ``row`` to ``stop`` that are plain and of ``least`` to ``most`` cells.

    Of the bytes the first is that in place ``before``; :data:`ROOM` more than those of the lines can be read.

    Field f is of the kind ``kinds[f]``, goes to the column ``columns[f]`` of those of its kind (times are integers, of
    which an epoch has ``units[f]`` microseconds), and stands from cell ``firsts[f]`` to ``lasts[f]`` of those that are
    wanted (``place``). Texts are packed end to end.
    """
    day, midnight = _NOUGHT, 0
    for i in range(row, stop):
        u = np.uint64(i)
        good = valid.size == 0 or bool(valid[u])
        p = starts[u] - before
        end = ends[u] - before
        if good:
            if p < end and byte(data, end - 1) == 10:
                end -= 1
            if p < end and byte(data, end - 1) == 13:
                end -= 1
            cells = _cut(data, p, end, delimiter, spaced, place, begins, stops)
            good = cells >= least and cells <= most
        for f in range(kinds.size):
            kind = kinds[f]
            c = columns[f]
            b = e = 0
            if good:
                b = begins[firsts[f]]
                e = stops[lasts[f]]
                good = e > b
            if kind == TEXT:
                o = np.int64(offsets[c, u])
                size = e - b
                for j in range(0, size, 8):
                    store8(texts[c], o + j, load8(data, b + j))
                offsets[c, np.uint64(i + 1)] = o + size
            elif not good:
                continue
            elif kind == DOUBLE:
                good = False
                value = 0.0
                if e - b <= 8:
                    good, value = short_number(load8(data, b), e - b)
                if not good:
                    status, value = parse_number(data, b, e)
                    good = status == NUMBER
                doubles[c, u] = value
            elif kind == ISO:
                good, time, day, midnight = plain_iso(data, b, e - b, day, midnight)
                if not good:
                    good, time = parse_iso(data, b, e)
                    good = good and time >= EARLIEST and time <= LATEST
                integers[c, u] = time
            else:
                good, number = _integer(data, b, e)
                if kind == EPOCH:
                    good = good and number >= EARLIEST // units[f] and number <= LATEST // units[f]
                    number = number * units[f] if good else 0
                integers[c, u] = number
        plain[u] = good
        if not good:
            for c in range(offsets.shape[0]):
                offsets[c, np.uint64(i + 1)] = offsets[c, u]
