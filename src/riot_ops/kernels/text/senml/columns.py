"""The columns of SenML messages: a plan of the wanted fields, and the kernel that stores a message as a row.

A scanner notes the *slots* of a message, the positions of its values, by four numbers each: start, end, kind and role.
Only :func:`store_row` writes to the columns, and it writes every cell of a row, so nothing is left over from an earlier
message or template.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import (
    HARD,
    MISSING,
    NOT_A_NUMBER,
    NUMBER,
    byte,
    load8,
    parse_integer,
    parse_number,
    short_number,
)

__all__ = [
    "Columns",
    "Plan",
    "is_base",
    "is_null",
    "is_utf8",
    "make_plan",
    "new_columns",
    "store_row",
]

MIN_TIME = -62_135_596_800_000_000  # years 1 to 9999 in microseconds, the range of Python's dates
MAX_TIME = 253_402_300_799_999_999
MAX_OFFSET = MAX_TIME - MIN_TIME
#: Microseconds in a second; in seconds, a time below 2^28 is relative to the time of the message (RFC 8428, 4.5.3).
SECONDS = 1_000_000
RELATIVE_BELOW = (1 << 28) * SECONDS
NO_TIME = np.iinfo(np.int64).min

LENIENT = 1  # flag of a text field: its number is null if the text is not a number

STRING, PLAIN, NULL, TRUE, FALSE = 0, 1, 2, 3, 4
#: Roles of slots; the role of the value of wanted field j is j.
IGNORED, BASE, OUTER, BASE_UNIT = -1, -2, -3, -4
OFFSET = -16  # OFFSET - j: relative time of field j
UNIT = -(1 << 20)  # UNIT - j: unit of field j

I64 = npt.NDArray[np.int64]


class Plan(NamedTuple):
    """The wanted fields of a message and their columns."""

    names: npt.NDArray[np.uint8]  # concatenated UTF-8 of the wanted names
    name_ends: I64
    value_of: I64  # per wanted field: its column of numbers, or -1
    text_of: I64  # per wanted field: its column of texts, or -1
    unit_of: I64  # per wanted field: its unit's column of texts, or -1
    flags: I64
    identity: int  # the wanted field that is required
    n_values: int
    n_texts: int
    n_times: int  # the first n_times fields have times of their own
    concatenate: int
    units: int  # whether any unit is wanted
    micros: int  # microseconds in a unit of the messages' times


class Columns(NamedTuple):
    """Parsed values, with a row per message."""

    parsed: npt.NDArray[np.bool_]  # where False, the row is invalid
    base: I64  # base time in microseconds, or NO_TIME
    values: npt.NDArray[np.float64]  # [message * n_values + column]; NaN: missing
    starts: I64  # [message * n_texts + column]; -1: missing
    lengths: I64
    offsets: I64  # [message * n_times + field]
    found: I64  # any missing value, any offset, any missing base time; number of parsed messages


def make_plan(
    names: tuple[str, ...],
    value_of: list[int],
    text_of: list[int],
    unit_of: list[int],
    lenient: list[bool],
    identity: int,
    n_times: int,
    concatenate: bool,
    micros: int,
) -> Plan:
    """The plan for wanted names, with columns by field; -1 in ``value_of``, ``text_of`` and ``unit_of`` is none."""
    encoded = [name.encode() for name in names]
    return Plan(
        readonly(np.frombuffer(b"".join(encoded) or b" ", np.uint8)),
        readonly(np.cumsum([0, *map(len, encoded)])),
        readonly(np.array(value_of, np.int64)),
        readonly(np.array(text_of, np.int64)),
        readonly(np.array(unit_of, np.int64)),
        readonly(np.array(lenient, np.int64) * LENIENT),
        identity,
        max(value_of) + 1,
        max(*text_of, *unit_of) + 1,
        n_times,
        int(concatenate),
        int(max(unit_of) >= 0),
        micros,
    )


def new_columns(n: int, plan: Plan) -> Columns:
    """Allocate the columns of n messages."""
    texts, times = n * plan.n_texts, n * plan.n_times
    numbers = np.empty(4 + n + 2 * texts + times, np.int64)  # one array: the allocation of each costs as much as a row
    found, base, rest = numbers[:4], numbers[4 : 4 + n], numbers[4 + n :]
    found[:] = 0
    return Columns(
        np.zeros(n, np.bool_),
        base,
        np.empty(n * plan.n_values),
        rest[:texts],
        rest[texts : 2 * texts],
        rest[2 * texts :],
        found,
    )


# -- values ----------------------------------------------------------------------------------------


@kernel
def is_null(data: Any, start: Any, end: Any) -> Any:
    """Whether a text is blank or ``null``, which stands for a missing value."""
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
    """``(status, value)`` of a number; in quotes it may be surrounded by blanks or missing."""
    if quoted:
        if is_null(data, start, end):
            return MISSING, np.nan
        while byte(data, start) == 32:
            start += 1
        while byte(data, end - 1) == 32:
            end -= 1
    return parse_number(data, start, end)


@kernel
def _fraction(data: Any, start: Any, end: Any, quoted: Any, micros: Any) -> Any:
    """``(ok, microseconds)`` of a time in units of ``micros`` that is not an integer."""
    status, value = text_number(data, start, end, quoted)
    if status != NUMBER or not (np.abs(value) * micros < 3.0e17):
        return False, 0
    for i in range(start, end):  # only with a point or exponent: long integers must stay exact
        c = byte(data, i)
        if c == 46 or c == 69 or c == 101:
            return True, np.int64(np.rint(value * micros))
    return False, 0


@kernel
def is_base(us: Any) -> Any:
    return MIN_TIME <= us <= MAX_TIME


@kernel(inline=True)
def _number(data: Any, start: Any, end: Any, kind: Any) -> Any:
    """``(status, value)`` of a value of any kind."""
    if kind <= PLAIN:
        if end - start <= 8 and start + 8 <= data.size:
            ok, value = short_number(load8(data, start), end - start)
            if ok:
                return NUMBER, value
        return text_number(data, start, end, kind == STRING)
    if kind == NULL:
        return MISSING, 0.0
    return NUMBER, 1.0 if kind == TRUE else 0.0


@kernel
def _clear_row(i: Any, plan: Any, columns: Any) -> None:
    for c in range(i * plan.n_values, (i + 1) * plan.n_values):
        columns.values[np.uint64(c)] = np.nan
    for c in range(i * plan.n_texts, (i + 1) * plan.n_texts):
        columns.starts[np.uint64(c)] = -1
        columns.lengths[np.uint64(c)] = 0
    for c in range(i * plan.n_times, (i + 1) * plan.n_times):
        columns.offsets[np.uint64(c)] = 0


@kernel(inline=True)
def store_row(data: Any, slots: Any, first: Any, n: Any, i: Any, plan: Any, columns: Any) -> Any:
    """Write the row of message i from its n slots, the first at ``slots[first]``.

    Returns False, and leaves the row invalid, if the message is left to the Python parser.
    """
    _clear_row(i, plan, columns)
    base, outer = NO_TIME, NO_TIME
    missing = plan.n_values
    unit, unit_end = -1, -1
    identified = False
    for k in range(n):
        q = np.uint64(first + 4 * k)
        kind = slots[q + np.uint64(2)]
        role = slots[q + np.uint64(3)]
        if role == IGNORED and kind == STRING:
            continue
        start = slots[q]
        end = slots[q + np.uint64(1)]
        if role >= 0:
            u = np.uint64(role)
            column = plan.value_of[u]
            if column >= 0:
                status, value = _number(data, start, end, kind)
                if status == NUMBER:
                    columns.values[np.uint64(i * plan.n_values + column)] = value
                    missing -= 1
                elif status == HARD or (status == NOT_A_NUMBER and (kind == PLAIN or plan.flags[u] != LENIENT)):
                    return False
            elif kind == PLAIN and parse_number(data, start, end)[0] == NOT_A_NUMBER:
                return False
            column = plan.text_of[u]
            if column >= 0 and kind != NULL:
                columns.starts[np.uint64(i * plan.n_texts + column)] = start
                columns.lengths[np.uint64(i * plan.n_texts + column)] = end - start
            if role == plan.identity:
                if kind == NULL or is_null(data, start, end):
                    return False
                identified = True
        elif role == BASE or role == OUTER or UNIT < role <= OFFSET:
            ok, us = parse_integer(data, start, end)
            micros = 1000 if role == OUTER else plan.micros
            if ok:
                ok = np.abs(us) <= MAX_OFFSET // micros
                us *= micros
            elif role != OUTER:
                ok, us = _fraction(data, start, end, kind == STRING, micros)
            if not ok or np.abs(us) > MAX_OFFSET:
                return False
            if role == OUTER:
                outer = us
            elif role == BASE:
                base = us
                if not is_base(base):
                    return False
            else:
                columns.offsets[np.uint64(i * plan.n_times + (OFFSET - role))] = us
                columns.found[1] = 1
        elif role == BASE_UNIT:
            if kind == STRING:
                unit, unit_end = start, end
        elif role <= UNIT:
            if kind == STRING:
                column = i * plan.n_texts + plan.unit_of[UNIT - role]
                columns.starts[np.uint64(column)] = start
                columns.lengths[np.uint64(column)] = end - start
        elif kind == PLAIN and parse_number(data, start, end)[0] == NOT_A_NUMBER:
            return False
    if not identified:
        return False
    if base == NO_TIME and outer != NO_TIME:
        if not is_base(outer):
            return False
        base = outer
    if base == NO_TIME:
        columns.found[2] = 1
    if missing > 0:
        columns.found[0] = 1
    columns.base[i] = base
    if unit >= 0:
        for j in range(plan.unit_of.size):
            column = i * plan.n_texts + plan.unit_of[j]
            if plan.unit_of[j] >= 0 and columns.starts[column] < 0:
                columns.starts[column] = unit
                columns.lengths[column] = unit_end - unit
    return True


@kernel
def is_utf8(data: Any, p: Any, end: Any) -> Any:
    """Whether bytes are valid UTF-8."""
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
