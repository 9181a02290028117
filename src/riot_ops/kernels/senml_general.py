"""SenML messages of any layout to columns: a compiled scanner of flat JSON.

It takes any order of keys and any white space. What it cannot take (escapes in values, nested
values, errors) it leaves to the caller, whose decision counts: it never accepts what the caller
(:mod:`riot_ops.kernels.senml_exact`) would reject.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.numbers import (
    HARD,
    MISSING,
    NOT_A_NUMBER,
    NUMBER,
    byte,
    parse_integer,
    parse_number,
)

__all__ = ["Columns", "Plan", "Scratch", "make_plan", "new_columns", "scan_general"]

MIN_TIME = -62_135_596_800_000_000  # year 1 and year 9999 in microseconds: what Python's dates hold
MAX_TIME = 253_402_300_799_999_999
MAX_OFFSET = MAX_TIME - MIN_TIME
NO_TIME = np.iinfo(np.int64).min

LENIENT = 1  # flag of a field: text, whose value is null where it is no number

STRING, PLAIN, NULL, TRUE, FALSE = 0, 1, 2, 3, 4
IGNORED, BASE, OUTER = -1, -2, -3
OFFSET = -16  # role OFFSET - j: relative time of field j

MAX_SLOTS, MAX_RECORDS = 512, 256

I64 = npt.NDArray[np.int64]


class Plan(NamedTuple):
    """What to take from a message."""

    names: npt.NDArray[np.uint8]  # UTF-8 of the wanted names, one after the other
    name_ends: I64
    value_of: I64  # per wanted field: its column of numbers, or -1
    text_of: I64  # per wanted field: its column of texts, or -1
    flags: I64
    identity: int  # the wanted field that must not be missing
    n_values: int
    n_texts: int
    n_times: int  # so many first fields have a time of their own
    concatenate: int


class Columns(NamedTuple):
    """What the kernels found, a row per message."""

    parsed: npt.NDArray[np.bool_]
    base: I64  # base time in microseconds, or NO_TIME
    values: npt.NDArray[np.float64]  # [message * n_values + column]; NaN: missing
    starts: I64  # [message * n_texts + column]; -1: missing
    lengths: I64
    offsets: I64  # [message * n_times + field]
    found: I64  # whether there are: missing values, offsets, missing base times


def make_plan(
    names: tuple[str, ...],
    value_of: list[int],
    text_of: list[int],
    lenient: list[bool],
    identity: int,
    n_times: int,
    concatenate: bool,
) -> Plan:
    encoded = [name.encode() for name in names]
    return Plan(
        readonly(np.frombuffer(b"".join(encoded) or b" ", np.uint8)),
        readonly(np.cumsum([0, *map(len, encoded)])),
        readonly(np.array(value_of, np.int64)),
        readonly(np.array(text_of, np.int64)),
        readonly(np.array(lenient, np.int64) * LENIENT),
        identity,
        max(value_of) + 1,
        max(text_of) + 1,
        n_times,
        int(concatenate),
    )


def new_columns(n: int, plan: Plan) -> Columns:
    return Columns(
        np.empty(n, np.bool_),
        np.empty(n, np.int64),
        np.empty(n * plan.n_values),
        np.empty(n * plan.n_texts, np.int64),
        np.empty(n * plan.n_texts, np.int64),
        np.zeros(n * plan.n_times, np.int64),
        np.zeros(3, np.int64),
    )


# -- values ----------------------------------------------------------------------------------------


@kernel
def is_null(data: Any, start: Any, end: Any) -> Any:
    """Whether a text is empty or says null, which stands for a missing value."""
    while start < end and byte(data, start) == 32:
        start += 1
    while end > start and byte(data, end - 1) == 32:
        end -= 1
    return start == end or (
        end - start == 4
        and byte(data, start) == 110
        and byte(data, start + 1) == 117
        and byte(data, start + 2) == 108
        and byte(data, start + 3) == 108
    )


@kernel
def text_number(data: Any, start: Any, end: Any, quoted: Any) -> Any:
    """``(status, value)`` of a value; in quotes it may have blanks around or be missing."""
    if quoted:
        if is_null(data, start, end):
            return MISSING, np.nan
        while byte(data, start) == 32:
            start += 1
        while byte(data, end - 1) == 32:
            end -= 1
    return parse_number(data, start, end)


@kernel
def milliseconds(data: Any, start: Any, end: Any, quoted: Any) -> Any:
    """``(ok, microseconds)`` of a time in milliseconds within some 10,000 years."""
    ok, whole = parse_integer(data, start, end)
    if ok:
        return -MAX_OFFSET <= 1000 * whole <= MAX_OFFSET, 1000 * whole
    status, value = text_number(data, start, end, quoted)
    if status != NUMBER or not (np.abs(value) < 3.0e14):
        return False, 0
    for i in range(start, end):  # long integers are exact, and not the business of floats
        c = byte(data, i)
        if c == 46 or c == 69 or c == 101:
            return True, np.int64(np.rint(value * 1000.0))
    return False, 0


@kernel
def is_base(us: Any) -> Any:
    return MIN_TIME <= us <= MAX_TIME


@kernel
def store(data: Any, start: Any, end: Any, kind: Any, i: Any, j: Any, plan: Any, columns: Any) -> Any:
    """Keep the value of wanted field j of message i; False where it cannot be taken."""
    column = plan.value_of[j]
    if column >= 0:
        status, value = NUMBER, np.nan
        if kind == TRUE or kind == FALSE:
            value = 1.0 if kind == TRUE else 0.0
        elif kind == NULL:
            status = MISSING
        else:
            status, value = text_number(data, start, end, kind == STRING)
        if status == HARD or (status == NOT_A_NUMBER and plan.flags[j] != LENIENT):
            return False
        if status != NUMBER:
            value = np.nan
            columns.found[0] = 1
        columns.values[i * plan.n_values + column] = value
    column = plan.text_of[j]
    if column >= 0:
        columns.starts[i * plan.n_texts + column] = -1 if kind == NULL else start
        columns.lengths[i * plan.n_texts + column] = 0 if kind == NULL else end - start
    return j != plan.identity or (kind != NULL and not is_null(data, start, end))


@kernel
def _is_utf8(data: Any, p: Any, end: Any) -> Any:
    while p < end:
        c = byte(data, p)
        if c < 0x80:
            p += 1
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= c <= 0xDF:
            more = 1
        elif 0xE0 <= c <= 0xEF:
            more = 2
            if c == 0xE0:
                low = 0xA0
            elif c == 0xED:
                high = 0x9F
        elif 0xF0 <= c <= 0xF4:
            more = 3
            if c == 0xF0:
                low = 0x90
            elif c == 0xF4:
                high = 0x8F
        else:
            return False
        if p + more >= end:
            return False
        for _ in range(more):
            p += 1
            c = byte(data, p)
            if c < low or c > high:
                return False
            low, high = 0x80, 0xBF
        p += 1
    return True


# -- the general scanner ---------------------------------------------------------------------------


class Scratch(NamedTuple):
    """What the general scanner notes about one message."""

    slots: I64  # per slot: start, end, kind, role
    records: I64  # per record: start and end of the name, slots of value and time; -1: none


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
    """``(position of the closing quote or -1, 1 where it has escapes + 2 where not ASCII)``."""
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
    """Whether three given characters follow."""
    return p + 3 <= end and byte(data, p) == a and byte(data, p + 1) == b and byte(data, p + 2) == c


@kernel
def _scalar(data: Any, p: Any, end: Any) -> Any:
    """``(kind or -1, start, end, position after it, seen)`` of the JSON value at p."""
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
def _scan_record(data: Any, p: Any, end: Any, r: Any, n: Any, scratch: Any) -> Any:
    """Note the record whose brace is at p; ``(position after it or -1, slots, seen)``."""
    records = scratch.records
    slots = scratch.slots
    records[4 * r] = -1
    records[4 * r + 1] = -1
    records[4 * r + 2] = -1
    records[4 * r + 3] = -1
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
            if kind != STRING or seen & 1 or records[4 * r] >= 0:
                return -1, n, 0
            records[4 * r] = start
            records[4 * r + 1] = over
        elif (size == 1 and a == 118) or (size == 2 and ((a == 115 and b == 118) or (a == 118 and b == 98))):
            if seen & 1 or records[4 * r + 2] >= 0:  # v, sv, vb: one of them, once
                return -1, n, 0
            if n >= MAX_SLOTS:
                return -1, n, 0
            records[4 * r + 2] = n
            n = _add_slot(slots, n, start, over, kind, IGNORED)
        elif size == 1 and a == 116:  # t
            if seen & 1 or kind > PLAIN or records[4 * r + 3] >= 0 or n >= MAX_SLOTS:
                return -1, n, 0
            records[4 * r + 3] = n
            n = _add_slot(slots, n, start, over, kind, IGNORED)
        elif not (size == 1 and a == 117) and kind <= PLAIN and not seen & 1:  # not the unit u
            n = _add_slot(slots, n, start, over, kind, IGNORED)
        p = skip_space(data, p, end)
        c = _at(data, p, end)
        if c == 125:
            return p + 1, n, all_seen
        if c != 44:
            return -1, n, 0
        p = skip_space(data, p + 1, end)


@kernel
def _scan_records(data: Any, p: Any, end: Any, n: Any, scratch: Any) -> Any:
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
        p, n, seen = _scan_record(data, p, end, r, n, scratch)
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
    """Whether ``data[a:b] + data[c:d]`` is a name."""
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
def _resolve(data: Any, n_records: Any, bn: Any, bn_end: Any, i: Any, plan: Any, columns: Any, scratch: Any) -> Any:
    """Take the wanted values from the records noted; False where something is amiss."""
    slots = scratch.slots
    records = scratch.records
    for j in range(plan.value_of.size):
        found = -1
        for r in range(n_records - 1, -1, -1):  # of records with one name the last one counts
            start, end = records[4 * r], records[4 * r + 1]
            first, stop = bn, bn_end
            if start < 0:
                start, end = 0, 0
                if bn < 0:
                    continue
            elif not plan.concatenate or bn < 0:
                first, stop = 0, 0
            if _name_is(data, first, stop, start, end, plan.names, plan.name_ends[j], plan.name_ends[j + 1]):
                found = r
                break
        slot = records[4 * found + 2] if found >= 0 else -1
        if slot < 0:
            if not store(data, 0, 0, NULL, i, j, plan, columns):
                return False
        else:
            slots[4 * slot + 3] = j
            if not store(data, slots[4 * slot], slots[4 * slot + 1], slots[4 * slot + 2], i, j, plan, columns):
                return False
        slot = records[4 * found + 3] if found >= 0 else -1
        if j < plan.n_times:
            offset = 0
            if slot >= 0:
                ok, offset = milliseconds(data, slots[4 * slot], slots[4 * slot + 1], slots[4 * slot + 2] == STRING)
                if not ok:
                    return False
                slots[4 * slot + 3] = OFFSET - j
                columns.found[1] = 1
            columns.offsets[i * plan.n_times + j] = offset
    return True


@kernel
def scan_general(data: Any, start: Any, end: Any, i: Any, plan: Any, columns: Any, scratch: Any) -> Any:
    """Parse message i, of any layout; the number of its slots, or -1 where it is not for us."""
    n = 0
    n_records = 0
    all_seen = 0
    p = start
    base = NO_TIME
    outer = NO_TIME
    slots = scratch.slots
    if byte(data, p) != 123:
        stop = p
        while stop < end and byte(data, stop) != 44 and stop - p < 20:
            stop += 1
        ok, whole = parse_integer(data, p, stop)
        if not ok or _at(data, stop, end) != 44:
            return -1
        n = _add_slot(slots, n, p, stop, PLAIN, OUTER)
        outer = 1000 * whole
        p = skip_space(data, stop + 1, end)
        if _at(data, p, end) != 123:
            return -1
    bn, bn_end = -1, -1
    has_e, has_base = False, False
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
            p, n, n_records, seen = _scan_records(data, p, end, n, scratch)
            if p < 0:
                return -1
            all_seen |= seen
        else:
            kind, first, over, p, seen = _scalar(data, p, end)
            if kind < 0:
                return -1
            all_seen |= seen
            if size == 2 and a == 98 and b == 116:  # bt
                if has_base or kind > PLAIN or seen & 1:
                    return -1
                has_base = True
                ok, base = milliseconds(data, first, over, kind == STRING)
                if not ok or not is_base(base):
                    return -1
                n = _add_slot(slots, n, first, over, kind, BASE)
            elif size == 2 and a == 98 and b == 110:  # bn
                if bn >= 0 or kind != STRING or seen & 1:
                    return -1
                bn, bn_end = first, over
            elif not (size == 2 and a == 98 and b == 117) and kind <= PLAIN and not seen & 1:
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
    if all_seen & 2 and not _is_utf8(data, start, end):
        return -1
    if not has_base and outer != NO_TIME:
        if not is_base(outer):
            return -1
        base = outer
    if base == NO_TIME:
        columns.found[2] = 1
    columns.base[i] = base
    return n if _resolve(data, n_records, bn, bn_end, i, plan, columns, scratch) else -1
