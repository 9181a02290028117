"""The general scanner of SenML messages: flat JSON with keys in any order and any white space.

Arrays of records, base values, sums, data, escapes in values, nested values and errors are left to
:mod:`riot_ops.kernels.text.senml.python_parser`. The scanner never accepts a message that this parser would reject.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import NOT_A_NUMBER, byte, parse_integer, parse_number
from riot_ops.kernels.text.senml.columns import (
    BASE,
    BASE_UNIT,
    FALSE,
    IGNORED,
    NULL,
    OFFSET,
    OUTER,
    PLAIN,
    STRING,
    TRUE,
    UNIT,
    is_utf8,
)

__all__ = ["MAX_RECORDS", "MAX_SLOTS", "Scratch", "is_space", "scan_message", "skip_space"]

MAX_SLOTS, MAX_RECORDS = 512, 256

I64 = npt.NDArray[np.int64]


class Scratch(NamedTuple):
    """The scanner's notes about a message."""

    slots: I64  # per slot: start, end, kind, role
    records: I64  # per record: start and end of its name; slots of value, time and unit; -1: none


@kernel
def _at(data: Any, p: Any, end: Any) -> Any:
    return byte(data, p) if p < end else -1


@kernel
def is_space(c: Any) -> Any:
    return c == 32 or c == 10 or c == 13 or c == 9


@kernel
def skip_space(data: Any, p: Any, end: Any) -> Any:
    while p < end and is_space(byte(data, p)):
        p += 1
    return p


@kernel
def _string_end(data: Any, p: Any, end: Any) -> Any:
    """``(position of the closing quote or -1, seen)``; seen is 1 for escapes, plus 2 for non-ASCII bytes."""
    seen = 0
    while p < end:
        c = byte(data, p)
        if c == 34:
            return p, seen
        if c < 32:
            return -1, seen
        if c >= 128:
            seen |= 2
        if c == 92:
            seen |= 1
            p += 1
            c = _at(data, p, end)
            # quote, backslash, slash, b, f, n, r, t
            if not (c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116):
                return -1, seen
        p += 1
    return -1, seen


@kernel
def _number_end(data: Any, p: Any, end: Any) -> Any:
    while p < end:
        c = byte(data, p)
        if not (48 <= c <= 57 or c == 45 or c == 43 or c == 46 or c == 69 or c == 101):
            return p
        p += 1
    return p


@kernel
def _is_word(data: Any, p: Any, end: Any, a: Any, b: Any, c: Any) -> Any:
    """Whether the next three characters are a, b and c."""
    return p + 3 <= end and byte(data, p) == a and byte(data, p + 1) == b and byte(data, p + 2) == c


@kernel
def _scalar(data: Any, p: Any, end: Any) -> Any:
    """``(kind or -1, start, end, position after it, seen)`` of the scalar JSON value at p."""
    c = _at(data, p, end)
    if c == 34:
        stop, seen = _string_end(data, p + 1, end)
        return (STRING if stop >= 0 else -1), p + 1, stop, stop + 1, seen
    if c == 45 or 48 <= c <= 57:
        stop = _number_end(data, p, end)
        status, _ = parse_number(data, p, stop)
        return (PLAIN if status != NOT_A_NUMBER else -1), p, stop, stop, 0
    if c == 110 and _is_word(data, p + 1, end, 117, 108, 108):
        return NULL, p, p + 4, p + 4, 0
    if c == 116 and _is_word(data, p + 1, end, 114, 117, 101):
        return TRUE, p, p + 4, p + 4, 0
    if c == 102 and _is_word(data, p + 1, end, 97, 108, 115) and _at(data, p + 4, end) == 101:
        return FALSE, p, p + 5, p + 5, 0
    return -1, p, p, p, 0


@kernel
def _add_slot(slots: Any, n: Any, start: Any, end: Any, kind: Any, role: Any) -> Any:
    if n >= MAX_SLOTS:
        return n
    slots[4 * n] = start
    slots[4 * n + 1] = end
    slots[4 * n + 2] = kind
    slots[4 * n + 3] = role
    return n + 1


@kernel
def _is_rare(data: Any, key: Any, size: Any, a: Any, b: Any) -> Any:
    """Whether a field is left to Python: s, vd, bv, bs, bver, or one whose name ends with _."""
    if size == 0:
        return False
    if size == 1 and a == 115:
        return True
    if size == 2 and ((a == 118 and b == 100) or (a == 98 and (b == 118 or b == 115))):
        return True
    return byte(data, key + size - 1) == 95 or (
        size == 4 and a == 98 and _is_word(data, key + 1, key + 4, 118, 101, 114)
    )


@kernel
def _scan_record(data: Any, p: Any, end: Any, r: Any, n: Any, units: Any, scratch: Any) -> Any:
    """Note the record whose brace is at p; ``(position after it or -1, slots, seen)``."""
    records = scratch.records
    slots = scratch.slots
    r *= 5
    for q in range(r, r + 5):
        records[q] = -1
    all_seen = 0
    p = skip_space(data, p + 1, end)
    if _at(data, p, end) == 125:
        return p + 1, n, 0
    while True:
        if _at(data, p, end) != 34:
            return -1, n, 0
        key = p + 1
        stop, seen = _string_end(data, key, end)
        if stop < 0 or seen & 1:
            return -1, n, 0
        all_seen |= seen
        p = skip_space(data, stop + 1, end)
        if _at(data, p, end) != 58:
            return -1, n, 0
        p = skip_space(data, p + 1, end)
        kind, start, over, p, seen = _scalar(data, p, end)
        if kind < 0:
            return -1, n, 0
        all_seen |= seen
        a = byte(data, key) if stop > key else 0
        b = byte(data, key + 1) if stop > key + 1 else 0
        size = stop - key
        if size == 1 and a == 110:  # n
            if kind != STRING or seen & 1 or records[r] >= 0:
                return -1, n, 0
            records[r] = start
            records[r + 1] = over
        elif (size == 1 and a == 118) or (
            size == 2 and ((a == 115 and b == 118) or (a == 118 and (b == 98 or b == 115)))
        ):
            if seen & 1 or records[r + 2] >= 0:  # v, sv, vs, vb: one of them, once
                return -1, n, 0
            if b == 98 and kind != TRUE and kind != FALSE and kind != NULL:
                return -1, n, 0
            if (b == 118 or b == 115) and kind != STRING and kind != NULL:
                return -1, n, 0
            if n >= MAX_SLOTS:
                return -1, n, 0
            records[r + 2] = n
            n = _add_slot(slots, n, start, over, kind, IGNORED)
        elif _is_rare(data, key, size, a, b) or (size == 2 and a == 98 and (b == 110 or b == 116 or b == 117)):
            return -1, n, 0
        elif size == 1 and a == 116:  # t
            if seen & 1 or kind > PLAIN or records[r + 3] >= 0 or n >= MAX_SLOTS:
                return -1, n, 0
            records[r + 3] = n
            n = _add_slot(slots, n, start, over, kind, IGNORED)
        elif size == 1 and a == 117:  # u
            if units:
                if seen & 1 or (kind != STRING and kind != NULL) or records[r + 4] >= 0 or n >= MAX_SLOTS:
                    return -1, n, 0
                records[r + 4] = n
                n = _add_slot(slots, n, start, over, kind, IGNORED)
        elif kind <= PLAIN and not seen & 1:
            n = _add_slot(slots, n, start, over, kind, IGNORED)
        p = skip_space(data, p, end)
        c = _at(data, p, end)
        if c == 125:
            return p + 1, n, all_seen
        if c != 44:
            return -1, n, 0
        p = skip_space(data, p + 1, end)


@kernel
def _scan_records(data: Any, p: Any, end: Any, n: Any, units: Any, scratch: Any) -> Any:
    """Note the records of the list at p; ``(position after it or -1, slots, records, seen)``."""
    if _at(data, p, end) != 91:
        return -1, n, 0, 0
    r = 0
    all_seen = 0
    p = skip_space(data, p + 1, end)
    if _at(data, p, end) == 93:
        return p + 1, n, 0, 0
    while True:
        if _at(data, p, end) != 123 or r >= MAX_RECORDS:
            return -1, n, r, 0
        p, n, seen = _scan_record(data, p, end, r, n, units, scratch)
        if p < 0:
            return -1, n, r, 0
        r += 1
        all_seen |= seen
        p = skip_space(data, p, end)
        c = _at(data, p, end)
        if c == 93:
            return p + 1, n, r, all_seen
        if c != 44:
            return -1, n, r, 0
        p = skip_space(data, p + 1, end)


@kernel
def _name_is(data: Any, a: Any, b: Any, c: Any, d: Any, names: Any, start: Any, end: Any) -> Any:
    """Whether ``data[a:b] + data[c:d]`` equals ``names[start:end]``."""
    if (b - a) + (d - c) != end - start:
        return False
    for i in range(b - a):
        if data[a + i] != names[start + i]:
            return False
    start += b - a
    for i in range(d - c):
        if data[c + i] != names[start + i]:
            return False
    return True


@kernel
def _assign(data: Any, n_records: Any, bn: Any, bn_end: Any, plan: Any, scratch: Any) -> None:
    """Assign roles to the slots of the noted records."""
    slots = scratch.slots
    records = scratch.records
    for j in range(plan.value_of.size):
        for r in range(5 * (n_records - 1), -1, -5):  # of records with the same name the last counts
            start, end = records[r], records[r + 1]
            first, stop = bn, bn_end
            if start < 0:
                start, end = 0, 0
                if bn < 0:
                    continue
            elif not plan.concatenate or bn < 0:
                first, stop = 0, 0
            if _name_is(data, first, stop, start, end, plan.names, plan.name_ends[j], plan.name_ends[j + 1]):
                if records[r + 2] >= 0:
                    slots[4 * records[r + 2] + 3] = j
                if records[r + 3] >= 0 and j < plan.n_times:
                    slots[4 * records[r + 3] + 3] = OFFSET - j
                if records[r + 4] >= 0 and plan.unit_of[j] >= 0:
                    slots[4 * records[r + 4] + 3] = UNIT - j
                break


@kernel
def scan_message(data: Any, start: Any, end: Any, plan: Any, scratch: Any) -> Any:
    """Note the slots of a message; returns their number, -1 if the message is left to the Python parser."""
    n = 0
    n_records = 0
    all_seen = 0
    p = start
    slots = scratch.slots
    if byte(data, p) != 123:
        stop = p
        while stop < end and byte(data, stop) != 44 and stop - p < 20:
            stop += 1
        ok, _ = parse_integer(data, p, stop)
        if not ok or _at(data, stop, end) != 44:
            return -1
        n = _add_slot(slots, n, p, stop, PLAIN, OUTER)
        p = skip_space(data, stop + 1, end)
        if _at(data, p, end) != 123:
            return -1
    bn, bn_end = -1, -1
    has_e, has_base, has_unit = False, False, False
    p = skip_space(data, p + 1, end)
    while True:
        if _at(data, p, end) != 34:
            return -1
        key = p + 1
        stop, seen = _string_end(data, key, end)
        if stop < 0 or seen & 1:
            return -1
        all_seen |= seen
        p = skip_space(data, stop + 1, end)
        if _at(data, p, end) != 58:
            return -1
        p = skip_space(data, p + 1, end)
        size = stop - key
        a = byte(data, key) if size > 0 else 0
        b = byte(data, key + 1) if size > 1 else 0
        if size == 1 and a == 101:  # e
            if has_e:
                return -1
            has_e = True
            p, n, n_records, seen = _scan_records(data, p, end, n, plan.units, scratch)
            if p < 0:
                return -1
            all_seen |= seen
        elif _is_rare(data, key, size, a, b):
            return -1
        else:
            kind, first, over, p, seen = _scalar(data, p, end)
            if kind < 0:
                return -1
            all_seen |= seen
            if size == 2 and a == 98 and b == 116:  # bt
                if has_base or kind > PLAIN or seen & 1:
                    return -1
                has_base = True
                n = _add_slot(slots, n, first, over, kind, BASE)
            elif size == 2 and a == 98 and b == 110:  # bn
                if bn >= 0 or kind != STRING or seen & 1:
                    return -1
                bn, bn_end = first, over
            elif size == 2 and a == 98 and b == 117:  # bu
                if plan.units:
                    if has_unit or seen & 1 or (kind != STRING and kind != NULL):
                        return -1
                    has_unit = True
                    n = _add_slot(slots, n, first, over, kind, BASE_UNIT)
            elif kind <= PLAIN and not seen & 1:
                n = _add_slot(slots, n, first, over, kind, IGNORED)
        p = skip_space(data, p, end)
        c = _at(data, p, end)
        if c == 125:
            break
        if c != 44:
            return -1
        p = skip_space(data, p + 1, end)
    if p + 1 != end or not has_e or n >= MAX_SLOTS:
        return -1
    if all_seen & 2 and not is_utf8(data, start, end):
        return -1
    _assign(data, n_records, bn, bn_end, plan, scratch)
    return n
