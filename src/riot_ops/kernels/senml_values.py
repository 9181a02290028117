"""What SenML parse takes from a message, the columns it goes into, and how single values are read."""

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

__all__ = [
    "Columns",
    "Plan",
    "is_base",
    "is_null",
    "is_utf8",
    "make_plan",
    "milliseconds",
    "new_columns",
    "store",
    "text_number",
]

MIN_TIME = -62_135_596_800_000_000  # year 1 and year 9999 in microseconds: what Python's dates hold
MAX_TIME = 253_402_300_799_999_999
MAX_OFFSET = MAX_TIME - MIN_TIME
NO_TIME = np.iinfo(np.int64).min

LENIENT = 1  # flag of a field: text, whose value is null where it is no number

STRING, PLAIN, NULL, TRUE, FALSE = 0, 1, 2, 3, 4
IGNORED, BASE, OUTER = -1, -2, -3
OFFSET = -16  # role OFFSET - j: relative time of field j

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
def is_utf8(data: Any, p: Any, end: Any) -> Any:
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
