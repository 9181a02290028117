"""SenML messages to columns: templates learned from a stream, and columns out.

The messages of a stream differ in little but their values. From a message that the general scanner
has read comes a *template*: the literal text between the values, and what each value means.
Following messages are compared with the templates eight bytes at a time, and only their values are
parsed. Templates live for one call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.numbers import (
    HARD,
    HIGH,
    NOT_A_NUMBER,
    NUMBER,
    ONES,
    byte,
    load8,
    lowest,
    parse_integer,
    parse_number,
    short_number,
    zero_bytes,
)
from riot_ops.kernels.senml_general import MAX_RECORDS, MAX_SLOTS, Scratch, is_space, scan_general, skip_space
from riot_ops.kernels.senml_values import (
    BASE,
    LENIENT,
    MAX_OFFSET,
    MAX_TIME,
    MIN_TIME,
    NO_TIME,
    NULL,
    OFFSET,
    OUTER,
    PLAIN,
    STRING,
    Columns,
    Plan,
    is_base,
    is_null,
    make_plan,
    milliseconds,
    new_columns,
    store,
    text_number,
)

__all__ = [
    "LENIENT",
    "MAX_OFFSET",
    "MAX_TIME",
    "MIN_TIME",
    "NO_TIME",
    "Columns",
    "Plan",
    "copy_texts",
    "make_plan",
    "parse_messages",
    "repeat",
    "text_offsets",
]

I64 = npt.NDArray[np.int64]

_TEMPLATES, _SLOTS, _WORDS = 8, 128, 1024

_QUOTES = np.uint64(0x2222222222222222)
_SLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_BLANKS = np.uint64(0x2020202020202020)
_NOUGHT = np.uint64(0)
_BYTE = np.uint64(0xFF)


# -- templates -------------------------------------------------------------------------------------


class Templates(NamedTuple):
    """Skeletons of messages: literal text as words, and a slot after each piece but the last."""

    words: npt.NDArray[np.uint64]  # [template * _WORDS + word]
    tails: npt.NDArray[np.uint64]  # per piece the mask of its last, incomplete word
    pieces: I64  # per piece its first word and its length in bytes
    slots: I64  # per slot its kind and role
    heads: I64  # per template: slots, whether it has a base time, offsets; absent fields
    absent: I64  # fields that the message lacks


def _new_templates(plan: Plan) -> Templates:
    return Templates(
        np.empty(_TEMPLATES * _WORDS, np.uint64),
        np.empty(_TEMPLATES * _SLOTS, np.uint64),
        np.empty(_TEMPLATES * _SLOTS * 2, np.int64),
        np.empty(_TEMPLATES * _SLOTS * 2, np.int64),
        np.empty(_TEMPLATES * 4, np.int64),
        np.empty(_TEMPLATES * plan.value_of.size, np.int64),
    )


@kernel
def _learn(data: Any, start: Any, end: Any, n: Any, t: Any, plan: Any, scratch: Any, templates: Any) -> Any:
    """Make template t of a message that the general scanner took; False where it will not do."""
    slots = scratch.slots
    if n >= _SLOTS:
        return False
    word = 0
    p = start
    has_base, has_offsets = 0, 0
    for k in range(n + 1):
        stop = slots[4 * k] if k < n else end
        size = stop - p
        q = t * _SLOTS + k
        if word + (size + 7) // 8 > _WORDS:
            return False
        templates.pieces[2 * q] = t * _WORDS + word
        templates.pieces[2 * q + 1] = size
        templates.tails[q] = (np.uint64(1) << np.uint64(8 * (size % 8))) - np.uint64(1)
        for i in range(0, size, 8):
            w = _NOUGHT
            for j in range(min(8, size - i)):
                w |= np.uint64(data[p + i + j]) << np.uint64(8 * j)
            templates.words[t * _WORDS + word] = w
            word += 1
        if k < n:
            kind, role = slots[4 * k + 2], slots[4 * k + 3]
            if kind > PLAIN:
                return False
            templates.slots[2 * q] = kind
            templates.slots[2 * q + 1] = role
            if role == BASE:
                has_base = 1
            elif role <= OFFSET:
                has_offsets = 1
            p = slots[4 * k + 1]
    absent = 0
    fields = plan.value_of.size
    for j in range(fields):
        found = False
        for k in range(n):
            found |= slots[4 * k + 3] == j
        if not found:
            templates.absent[t * fields + absent] = j
            absent += 1
    templates.heads[4 * t] = n
    templates.heads[4 * t + 1] = has_base
    templates.heads[4 * t + 2] = has_offsets
    templates.heads[4 * t + 3] = absent
    return True


@kernel
def _marks(w: Any) -> Any:
    """Marks on quotes, backslashes, control characters and what is not ASCII; the lowest is true."""
    return zero_bytes(w ^ _QUOTES) | zero_bytes(w ^ _SLASHES) | ((w - _BLANKS) & ~w & HIGH) | (w & HIGH)


@kernel
def _match(data: Any, p: Any, end: Any, i: Any, t: Any, plan: Any, columns: Any, templates: Any) -> Any:
    """Parse message i with template t, or return False. Eight bytes after the end are readable."""
    words = templates.words
    pieces = templates.pieces
    value_of = plan.value_of
    text_of = plan.text_of
    values = columns.values
    n = templates.heads[4 * t]
    n_values = plan.n_values
    n_texts = plan.n_texts
    base = NO_TIME
    if columns.found[1]:  # another template may have begun this row
        for j in range(plan.n_times):
            columns.offsets[i * plan.n_times + j] = 0
    for k in range(n + 1):
        q = np.uint64(t * _SLOTS + k)
        size = pieces[q + q + np.uint64(1)]
        if p + size > end:
            return False
        word = pieces[q + q]
        difference = _NOUGHT
        stop = word + (size >> 3)
        while word < stop:
            difference |= load8(data, p) ^ words[np.uint64(word)]
            p += 8
            word += 1
        if size & 7:
            difference |= (load8(data, p) ^ words[np.uint64(word)]) & templates.tails[q]
            p += size & 7
        if difference != _NOUGHT:
            return False
        if k == n:
            break
        kind = templates.slots[q + q]
        role = templates.slots[q + q + np.uint64(1)]
        w = load8(data, p)
        if kind == STRING:
            marks = _marks(w)
            stop = p
            while marks == _NOUGHT:
                stop += 8
                if stop > end:
                    return False
                marks = _marks(load8(data, stop))
            stop += lowest(marks)
            if stop >= end or byte(data, stop) != 34:
                return False
        else:
            after = (words[np.uint64(pieces[q + q + np.uint64(2)])] & _BYTE) * ONES
            marks = zero_bytes(w ^ after)
            stop = p
            while marks == _NOUGHT:
                stop += 8
                if stop > end:
                    return False
                marks = zero_bytes(load8(data, stop) ^ after)
            stop += lowest(marks)
        if role >= 0:
            u = np.uint64(role)
            column = value_of[u]
            if column >= 0:
                ok, value = False, 0.0
                if stop - p <= 8:
                    ok, value = short_number(w, stop - p)
                if not ok:
                    status, value = text_number(data, p, stop, kind == STRING)
                    if status != NUMBER:
                        if status == HARD or (status == NOT_A_NUMBER and (kind == PLAIN or plan.flags[u] != LENIENT)):
                            return False
                        value = np.nan
                        columns.found[0] = 1
                values[np.uint64(i * n_values + column)] = value
            elif kind == PLAIN and parse_number(data, p, stop)[0] == NOT_A_NUMBER:
                return False
            column = text_of[u]
            if column >= 0:
                columns.starts[np.uint64(i * n_texts + column)] = p
                columns.lengths[np.uint64(i * n_texts + column)] = stop - p
            if (
                role == plan.identity
                and (stop - p < 5 or byte(data, p) == 32 or byte(data, stop - 1) == 32)
                and is_null(data, p, stop)
            ):
                return False
        elif role == BASE:
            ok, base = milliseconds(data, p, stop, kind == STRING)
            if not ok or not is_base(base):
                return False
        elif role == OUTER:
            ok, whole = parse_integer(data, p, stop)
            if not ok:
                return False
            if not templates.heads[4 * t + 1]:
                base = 1000 * whole
                if not is_base(base):
                    return False
        elif role <= OFFSET:
            ok, offset = milliseconds(data, p, stop, kind == STRING)
            if not ok:
                return False
            columns.offsets[i * plan.n_times + (OFFSET - role)] = offset
            columns.found[1] = 1
        elif kind == PLAIN and parse_number(data, p, stop)[0] == NOT_A_NUMBER:
            return False
        p = stop
    if p != end:
        return False
    fields = value_of.size
    for k in range(templates.heads[4 * t + 3]):
        store(data, 0, 0, NULL, i, templates.absent[t * fields + k], plan, columns)
    if base == NO_TIME:
        columns.found[2] = 1
    columns.base[i] = base
    return True


@kernel
def _parse(
    data: Any,
    starts: Any,
    ends: Any,
    valid: Any,
    use_templates: Any,
    plan: Any,
    columns: Any,
    scratch: Any,
    templates: Any,
) -> None:
    known = 0
    last = 0
    oldest = 0
    misses = 0
    room = data.size - 8
    for i in range(starts.size):
        columns.parsed[i] = False
        start = starts[i]
        end = ends[i]
        while end > start and is_space(byte(data, end - 1)):
            end -= 1
        start = skip_space(data, start, end)
        if start == end or (valid.size and not valid[i]):
            continue
        ok = False
        if end <= room and known > 0:
            ok = _match(data, start, end, i, last, plan, columns, templates)
            t = 0
            while not ok and t < known:
                if t != last:
                    ok = _match(data, start, end, i, t, plan, columns, templates)
                    if ok:
                        last = t
                        break
                t += 1
        if not ok:
            n = scan_general(data, start, end, i, plan, columns, scratch)
            ok = n >= 0
            if ok and use_templates:
                misses += 1
                # room for a few; then the oldest makes place, not too often
                if known < _TEMPLATES:
                    if _learn(data, start, end, n, known, plan, scratch, templates):
                        last = known
                        known += 1
                elif misses >= 64:
                    misses = 0
                    if _learn(data, start, end, n, oldest, plan, scratch, templates):
                        last = oldest
                    else:
                        # half-written: overwrite with something that matches nothing
                        templates.heads[4 * oldest] = 0
                        templates.pieces[2 * oldest * _SLOTS + 1] = 1 << 40
                    oldest = (oldest + 1) % _TEMPLATES
        columns.parsed[i] = ok


def parse_messages(
    data: npt.NDArray[np.uint8],
    starts: I64,
    ends: I64,
    valid: npt.NDArray[np.bool_],
    plan: Plan,
    *,
    templates: bool = True,
) -> Columns:
    """Parse messages, as far as the kernels can: those not ``parsed`` are for the caller."""
    columns = new_columns(starts.size, plan)
    scratch = Scratch(np.empty(4 * MAX_SLOTS, np.int64), np.empty(4 * MAX_RECORDS, np.int64))
    with np.errstate(over="ignore"):  # the kernels as plain Python: numbers modulo 2^64
        _parse(data, starts, ends, valid, templates, plan, columns, scratch, _new_templates(plan))
    return columns


# -- columns out -----------------------------------------------------------------------------------


@kernel
def repeat(values: Any, times: Any, out: Any) -> None:
    for i in range(values.size):
        v = values[i]
        for j in range(times):
            out[i * times + j] = v


@kernel
def text_offsets(lengths: Any, times: Any, out: Any) -> Any:
    """Offsets of texts that are each repeated; their total, which may be past what they can hold."""
    o = 0
    k = 1
    out[0] = 0
    for i in range(lengths.size):
        for _ in range(times):
            o += lengths[i]
            out[k] = o
            k += 1
    return o


@kernel
def copy_texts(data: Any, starts: Any, lengths: Any, times: Any, out: Any) -> None:
    """Copy texts, each repeated, one after the other."""
    o = 0
    room = data.size - 8
    width = out.size - 8
    for i in range(starts.size):
        start = starts[i]
        size = lengths[i]
        for _ in range(times):
            j = 0
            if start + size <= room and o + size <= width:
                # whole words; what they write past the text is written again by the next
                while j < size:
                    w = load8(data, start + j)
                    p = np.uint64(o + j)
                    for b in range(8):
                        out[p + np.uint64(b)] = np.uint8(w & _BYTE)
                        w = w >> np.uint64(8)
                    j += 8
            else:
                while j < size:
                    out[o + j] = data[start + j]
                    j += 1
            o += size
