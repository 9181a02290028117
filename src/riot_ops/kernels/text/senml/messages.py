"""SenML messages to columns, by templates learned from the messages.

Most messages of a stream differ only in their values. A message read by the general scanner becomes a *template*: the
literal text between its values, and the meaning of each value. Later messages are compared with the templates eight
bytes at a time, and only their values are parsed. Templates live for one call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import HIGH, ONES, byte, load8, lowest_byte, zero_bytes
from riot_ops.kernels.text.senml.columns import (
    LENIENT,
    MAX_OFFSET,
    MAX_TIME,
    MIN_TIME,
    NO_TIME,
    PLAIN,
    RELATIVE_BELOW,
    SECONDS,
    STRING,
    Columns,
    Plan,
    make_plan,
    new_columns,
    store_row,
)
from riot_ops.kernels.text.senml.scanner import MAX_RECORDS, MAX_SLOTS, Scratch, is_space, scan_message, skip_space

__all__ = [
    "LENIENT",
    "MAX_OFFSET",
    "MAX_TIME",
    "MIN_TIME",
    "NO_TIME",
    "RELATIVE_BELOW",
    "SECONDS",
    "Columns",
    "Plan",
    "join_texts",
    "joined_lengths",
    "make_plan",
    "parse_messages",
    "repeat",
]

I64 = npt.NDArray[np.int64]

_TEMPLATES, _SLOTS, _WORDS = 8, 128, 1024

_QUOTES = np.uint64(0x2222222222222222)
_SLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_BLANKS = np.uint64(0x2020202020202020)
_NOUGHT = np.uint64(0)
_BYTE = np.uint64(0xFF)
_U1 = np.uint64(1)
_U2 = np.uint64(2)


# -- templates -------------------------------------------------------------------------------------


class Templates(NamedTuple):
    """Templates of messages: pieces of literal text as words, and a slot after each piece but the last.

    A piece is a number of full words and a last word of 0 to 7 bytes; the words of a template are consecutive.
    """

    words: npt.NDArray[np.uint64]  # [template * _WORDS + word]
    tails: npt.NDArray[np.uint64]  # mask of the last word of each piece
    pieces: I64  # per piece: number of full words, and bytes of its last word
    slots: I64  # per slot: start, end, kind and role, as in Scratch
    counts: I64  # number of slots of each template


def _new_templates() -> Templates:
    return Templates(
        np.empty(_TEMPLATES * _WORDS, np.uint64),
        np.empty(_TEMPLATES * _SLOTS, np.uint64),
        np.empty(_TEMPLATES * _SLOTS * 2, np.int64),
        np.empty(_TEMPLATES * _SLOTS * 4, np.int64),
        np.empty(_TEMPLATES, np.int64),
    )


@kernel
def _learn(data: Any, start: Any, end: Any, n: Any, t: Any, slots: Any, templates: Any) -> Any:
    """Make a message template t; returns False, without changes, if it is unsuitable."""
    if n >= _SLOTS or (end - start) // 8 + n + 1 > _WORDS:
        return False
    for k in range(n):
        if slots[4 * k + 2] > PLAIN:
            return False
    word = t * _WORDS
    p = start
    for k in range(n + 1):
        size = (slots[4 * k] if k < n else end) - p
        q = t * _SLOTS + k
        templates.pieces[2 * q] = size // 8
        templates.pieces[2 * q + 1] = size % 8
        templates.tails[q] = (_U1 << np.uint64(8 * (size % 8))) - _U1
        for i in range(0, size + 1, 8):
            w = _NOUGHT
            for j in range(min(8, size - i)):
                w |= np.uint64(data[p + i + j]) << np.uint64(8 * j)
            templates.words[word] = w
            word += 1
        if k < n:
            templates.slots[4 * q + 2] = slots[4 * k + 2]
            templates.slots[4 * q + 3] = slots[4 * k + 3]
            p = slots[4 * k + 1]
    templates.counts[t] = n
    return True


@kernel
def _special_bytes(w: Any) -> Any:
    """Mark quotes, backslashes, control characters and non-ASCII bytes; only the lowest mark is reliable."""
    return (((w ^ _QUOTES) - ONES) | ((w ^ _SLASHES) - ONES) | (w - _BLANKS) | w) & HIGH


@kernel(inline=True)
def _matches(data: Any, p: Any, end: Any, t: Any, templates: Any) -> Any:
    """Whether a message matches template t; its slots get the positions. 16 bytes after the end must be readable."""
    words = templates.words
    n = templates.counts[t]
    q = np.uint64(t * _SLOTS)
    word = np.uint64(t * _WORDS)
    k = 0
    while True:
        full = templates.pieces[q + q]
        tail = templates.pieces[q + q + _U1]
        if p + 8 * full + tail > end:
            return False
        for _ in range(full):
            if load8(data, p) != words[word]:
                return False
            p += 8
            word += _U1
        if (load8(data, p) ^ words[word]) & templates.tails[q] != _NOUGHT:
            return False
        p += tail
        word += _U1
        if k == n:
            return p == end
        s = np.uint64(4) * q
        templates.slots[s] = p
        # two words per branch, as the processor cannot predict the length of a value
        if templates.slots[s + _U2] == STRING:
            step = 16
            while step == 16 and p < end:
                marks = _special_bytes(load8(data, p))
                step = lowest_byte(marks)
                step += lowest_byte(_special_bytes(load8(data, p + 8))) if marks == _NOUGHT else 0
                p += step
            if p >= end or byte(data, p) != 34:
                return False
        else:
            after = (words[word] & _BYTE) * ONES
            step = 16
            while step == 16 and p < end:
                marks = zero_bytes(load8(data, p) ^ after)
                step = lowest_byte(marks)
                step += lowest_byte(zero_bytes(load8(data, p + 8) ^ after)) if marks == _NOUGHT else 0
                p += step
        templates.slots[s + _U1] = p
        q += _U1
        k += 1


@kernel(inline=True)
def _find_template(data: Any, start: Any, end: Any, last: Any, known: Any, templates: Any) -> Any:
    """Return the template that a message matches, trying the last one first; -1 if there is none."""
    for k in range(known):
        t = last if k == 0 else k - 1 if k <= last else k
        if _matches(data, start, end, t, templates):
            return t
    return -1


@kernel
def _parse(
    data: Any,
    starts: Any,
    ends: Any,
    todo: Any,
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
    room = data.size - 16
    for i in range(starts.size):
        start = starts[i]
        end = ends[i]
        while end > start and is_space(byte(data, end - 1)):
            end -= 1
        start = skip_space(data, start, end)
        if start == end or (todo.size and not todo[i]):
            continue
        t = _find_template(data, start, end, last, known, templates) if end <= room else -1
        while True:
            slots, first, n = scratch.slots, 0, 0
            if t >= 0:
                slots, first, n = templates.slots, 4 * t * _SLOTS, templates.counts[t]
                last = t
            else:
                n = scan_message(data, start, end, plan, scratch)
            stored = n >= 0 and store_row(data, slots, first, n, i, plan, columns)
            if stored or t < 0:
                break
            t = -1
        columns.parsed[i] = stored
        if stored and t < 0 and use_templates:
            misses += 1
            # when the table is full, replace the oldest template, but not too often
            t = known
            if known == _TEMPLATES:
                if misses < 64:
                    continue
                misses = 0
                t = oldest
                oldest = (oldest + 1) % _TEMPLATES
            if _learn(data, start, end, n, t, scratch.slots, templates):
                last = t
                known = max(known, t + 1)


def parse_messages(
    data: npt.NDArray[np.uint8],
    starts: I64,
    ends: I64,
    todo: npt.NDArray[np.bool_],
    plan: Plan,
    *,
    templates: bool = True,
) -> Columns:
    """Parse the messages flagged in ``todo`` (if empty: all) that the kernels support.

    Messages that are not ``parsed`` afterwards are left to the caller.
    """
    columns = new_columns(starts.size, plan)
    scratch = Scratch(np.empty(4 * MAX_SLOTS, np.int64), np.empty(5 * MAX_RECORDS, np.int64))
    with np.errstate(over="ignore"):  # as plain Python, the kernels compute modulo 2^64
        _parse(data, starts, ends, todo, templates, plan, columns, scratch, _new_templates())
    return columns


# -- columns ---------------------------------------------------------------------------------------


@kernel
def repeat(values: Any, times: Any, out: Any) -> None:
    """Write each value ``times`` times."""
    for i in range(values.size):
        v = values[i]
        for j in range(times):
            out[i * times + j] = v


@kernel
def _number_length(value: Any) -> Any:
    """Return the number of characters of a whole number above -2^63 in decimal."""
    n = 1
    if value < 0:
        value = -value
        n = 2
    while value >= 10:
        value //= 10
        n += 1
    return n


@kernel
def joined_lengths(starts: Any, lengths: Any, base: Any, n_texts: Any, parts: Any, out: Any) -> Any:
    """Write the length of each message's texts in the columns ``parts``, joined by commas; return the total.

    A missing text is empty; the column -1 is the message's time, in milliseconds.
    """
    total = 0
    for i in range(base.size):
        size = parts.size - 1
        for j in range(parts.size):
            if parts[j] < 0:
                size += _number_length(base[i] // 1000)
            elif starts[i * n_texts + parts[j]] >= 0:
                size += lengths[i * n_texts + parts[j]]
        out[i] = size
        total += size
    return total


@kernel
def join_texts(
    data: Any, starts: Any, lengths: Any, base: Any, n_texts: Any, parts: Any, places: Any, out: Any
) -> None:
    """Write the texts that :func:`joined_lengths` has measured, from the place of each message on."""
    for i in range(base.size):
        p = places[i]
        for j in range(parts.size):
            if j > 0:
                out[p] = 44  # a comma
                p += 1
            if parts[j] < 0:
                value = base[i] // 1000
                end = p + _number_length(value)
                if value < 0:
                    out[p] = 45  # a minus
                    p += 1
                    value = -value
                for q in range(end - 1, p - 1, -1):
                    out[q] = 48 + value % 10
                    value //= 10
                p = end
            else:
                k = i * n_texts + parts[j]
                if starts[k] >= 0:
                    for q in range(lengths[k]):
                        out[p + q] = data[starts[k] + q]
                    p += lengths[k]
