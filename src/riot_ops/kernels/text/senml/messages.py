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
from riot_ops.kernels.text.numbers import HIGH, ONES, byte, load8, lowest_byte, store8, zero_bytes
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
    "make_plan",
    "measure_texts",
    "parse_messages",
    "write_texts",
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


def _new_templates(n: int) -> Templates:
    return Templates(
        np.empty(n * _WORDS, np.uint64),
        np.empty(n * _SLOTS, np.uint64),
        np.empty(n * _SLOTS * 2, np.int64),
        np.empty(n * _SLOTS * 4, np.int64),
        np.empty(n, np.int64),
    )


#: For a single message, which has no use for templates.
_NO_TEMPLATES = _new_templates(0)


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
    read = 0
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
        read += stored
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
    columns.found[3] = read


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
    templates = templates and starts.size > 1
    learned = _new_templates(_TEMPLATES) if templates else _NO_TEMPLATES
    _parse(data, starts, ends, todo, templates, plan, columns, scratch, learned)
    return columns


# -- columns ---------------------------------------------------------------------------------------


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
def measure_texts(
    starts: Any, lengths: Any, base: Any, n_texts: Any, identity: Any, parts: Any, times: Any, first: Any, second: Any
) -> Any:
    """Write the offsets of two columns of texts, in which each message has ``times`` rows; return the bytes of both.

    The first column has the text in the column ``identity``, the second the texts in the columns ``parts``, joined by
    commas; without parts it is left out. A missing text is empty; the column -1 is the message's time, in milliseconds.
    """
    total = 0
    joined = 0
    first[0] = 0
    second[0] = 0
    for i in range(base.size):
        k = i * n_texts
        size = 0
        if starts[k + identity] >= 0:
            size = lengths[k + identity]
        for j in range(i * times, i * times + times):
            total += size
            first[j + 1] = total
        if parts.size:
            size = parts.size - 1
            for j in range(parts.size):
                if parts[j] < 0:
                    size += _number_length(base[i] // 1000)
                elif starts[k + parts[j]] >= 0:
                    size += lengths[k + parts[j]]
            for j in range(i * times, i * times + times):
                joined += size
                second[j + 1] = joined
    return total, joined


@kernel(inline=True)
def _copy(data: Any, start: Any, size: Any, out: Any, at: Any) -> None:
    """Copy bytes; up to seven more may be written, which the next copy overwrites."""
    if start + size + 8 <= data.size:
        for j in range(0, size, 8):
            store8(out, at + j, load8(data, start + j))
    else:
        for j in range(size):
            out[np.uint64(at + j)] = data[np.uint64(start + j)]


@kernel
def write_texts(
    data: Any, starts: Any, lengths: Any, base: Any, n_texts: Any, identity: Any, parts: Any, times: Any, first: Any,
    second: Any, texts: Any, joined: Any,
) -> None:  # fmt: skip
    """Write the texts that :func:`measure_texts` has measured; the outputs have 8 spare bytes at their ends."""
    for i in range(base.size):
        k = i * n_texts
        p = np.int64(first[i * times])
        if starts[k + identity] >= 0:
            for _ in range(times):
                _copy(data, starts[k + identity], lengths[k + identity], texts, p)
                p += lengths[k + identity]
        if parts.size == 0:
            continue
        begin = np.int64(second[i * times])
        p = begin
        for j in range(parts.size):
            if j > 0:
                joined[p] = 44  # a comma
                p += 1
            if parts[j] < 0:
                value = base[i] // 1000
                end = p + _number_length(value)
                if value < 0:
                    joined[p] = 45  # a minus
                    p += 1
                    value = -value
                for q in range(end - 1, p - 1, -1):
                    joined[q] = 48 + value % 10
                    value //= 10
                p = end
            elif starts[k + parts[j]] >= 0:
                _copy(data, starts[k + parts[j]], lengths[k + parts[j]], joined, p)
                p += lengths[k + parts[j]]
        size = p - begin
        for _ in range(1, times):
            _copy(joined, begin, size, joined, p)
            p += size
