"""The parts of an XML document: attributes, text, comments, processing instructions, CDATA sections, declaration.

As in :mod:`riot_ops.kernels.text.xml.characters`, whatever is refused is left to Expat, and no loop passes the last
``>``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import HIGH, ONES, byte, load8, lowest_byte
from riot_ops.kernels.text.strings import equal_bytes, name_table
from riot_ops.kernels.text.xml.characters import (
    NAME,
    OTHER,
    SPACE,
    TEXT,
    VALUE,
    character_size,
    find_name,
    is_class,
    name_end,
    read_reference,
    skip_space,
    write_character,
)

__all__ = [
    "read_attributes",
    "read_text",
    "resolve",
    "skip_declaration",
    "skip_misc",
    "skip_other",
]

_TAB, _LF, _CR, _BANG, _QUOTE, _AMP, _APOSTROPHE, _DASH = 9, 10, 13, 33, 34, 38, 39, 45
_SLASH, _COLON, _LT, _EQUALS, _GT, _QUESTION, _OPEN, _CLOSE = 47, 58, 60, 61, 62, 63, 91, 93
_X = 120

#: For eight bytes at a time: ``<`` and ``>`` differ in one bit.
_TWOS, _GTS = np.uint64(0x0202020202020202), np.uint64(0x3E3E3E3E3E3E3E3E)
_AMPS, _BLANKS = np.uint64(0x2626262626262626), np.uint64(0x2020202020202020)
_NOUGHT = np.uint64(0)

#: The attributes of a declaration, in order, and their usual values.
_DECLARED, _DECLARED_STARTS, _DECLARED_ENDS = name_table(
    ["version", "encoding", "standalone", "1.0", "utf-8", "yes", "no"]
)

_CDATA, _, _ = name_table(["[CDATA["])


@kernel
def skip_other(data: Any, start: Any, last: Any, cdata: Any) -> Any:
    """Skip the comment, processing instruction or, if ``cdata``, CDATA section at start; -1 if it is none."""
    i = start + 2
    if data[start + 1] == _QUESTION:
        closing, length = _QUESTION, 1
        i = name_end(data, i)
        if i == start + 2 or (i == start + 5 and (data[start + 2] | 32) == _X):  # <?xml is not allowed here
            return -1
        if not is_class(data, i, SPACE) and (data[i] != _QUESTION or data[i + 1] != _GT):
            return -1
    elif data[i] == _DASH and data[i + 1] == _DASH:
        closing, length = _DASH, 2
        i += 2
    elif cdata and equal_bytes(data, i, i + 7, _CDATA, 0, 7):
        closing, length = _CLOSE, 2
        i += 7
    else:
        return -1
    while True:
        while is_class(data, i, OTHER):
            i += 1
        b = data[i]
        if b == closing and (length == 1 or data[i + 1] == closing):
            if data[i + length] == _GT:
                return i + length + 1
            if closing == _DASH:
                return -1  # no -- within a comment
            i += 1
        elif b >= 0x80:
            size = character_size(data, i)
            if size == 0:
                return -1
            i += size
        elif i < last and (b == _DASH or b == _QUESTION or b == _CLOSE or b == _GT):
            i += 1
        else:
            return -1


@kernel
def skip_misc(data: Any, start: Any, last: Any) -> Any:
    """Skip white space, comments and processing instructions outside of the root; -1 if there is anything else."""
    i = start
    while i <= last:
        if is_class(data, i, SPACE):
            i += 1
        elif data[i] != _LT or i == last:
            return -1
        elif data[i + 1] == _QUESTION or data[i + 1] == _BANG:
            i = skip_other(data, i, last, False)
            if i < 0:
                return -1
        else:
            return i
    return i


@kernel
def skip_declaration(data: Any, start: Any, last: Any, text: Any) -> Any:
    """Skip byte order mark and declaration, if any; -1 if the declaration is unusual or names another encoding.

    With ``text``, which is decoded already, any encoding is accepted.
    """
    i = start
    if last - i > 3 and data[i] == 0xEF and data[i + 1] == 0xBB and data[i + 2] == 0xBF:
        i += 3
    if (
        last - i < 5
        or data[i] != _LT
        or data[i + 1] != _QUESTION
        or name_end(data, i + 2) != i + 5
        or (data[i + 2] | 32) != _X
    ):
        return i
    if data[i + 2] != _X or data[i + 3] != 109 or data[i + 4] != 108:
        return -1
    i += 5
    before = -1  # the last attribute found
    while True:
        gap = i
        i = skip_space(data, i)
        if data[i] == _QUESTION:
            return i + 2 if before >= 0 and data[i + 1] == _GT else -1
        name = i
        i = name_end(data, i)
        found = find_name(data, name, i, _DECLARED, _DECLARED_STARTS, _DECLARED_ENDS, False)
        if name == gap or found <= before or found > 2 or (before < 0 and found != 0):
            return -1
        i = skip_space(data, i)
        if data[i] != _EQUALS:
            return -1
        i = skip_space(data, i + 1)
        quote = data[i]
        if quote != _QUOTE and quote != _APOSTROPHE:
            return -1
        i += 1
        value = i
        while is_class(data, i, NAME) and data[i] != _COLON:
            i += 1
        if data[i] != quote:
            return -1
        known = find_name(data, value, i, _DECLARED, _DECLARED_STARTS, _DECLARED_ENDS, found == 1)
        if found == 0 and known != 3:
            return -1
        if found == 1 and known != 4 and not (text and 97 <= (data[value] | 32) <= 122):
            return -1
        if found == 2 and known < 5:
            return -1
        before = found
        i += 1


@kernel
def value_end(data: Any, start: Any, last: Any, quote: Any) -> Any:
    """Return the end of an attribute's value, at its closing quote; -1 if it is not well-formed."""
    i = start
    while True:
        while is_class(data, i, VALUE):
            i += 1
        b = byte(data, i)
        if b == quote:
            return i
        if b >= 0x80:
            size = character_size(data, i)
            if size == 0:
                return -1
            i += size
        elif b == _AMP:
            code, i = read_reference(data, i)
            if code < 0:
                return -1
        elif i < last and (b == _GT or b == _QUOTE or b == _APOSTROPHE):
            i += 1
        else:
            return -1


@kernel
def read_attributes(data: Any, start: Any, last: Any, spans: Any) -> Any:
    """``(end, count)`` of the attributes between an element's name and its ``>`` or ``/``; count is -1 if refused.

    ``spans`` gets the start and end of names and values. It limits the number of attributes, because each is compared
    with all others.
    """
    i = start
    count = 0
    while True:
        name = skip_space(data, i)
        if byte(data, name) == _GT or byte(data, name) == _SLASH:
            return name, count
        end = name_end(data, name)
        if name == i or end == name or count == spans.shape[0]:
            return i, -1
        i = skip_space(data, end)
        if byte(data, i) != _EQUALS:
            return i, -1
        i = skip_space(data, i + 1)
        quote = byte(data, i)
        value = i + 1
        if quote != _QUOTE and quote != _APOSTROPHE:
            return i, -1
        i = value_end(data, value, last, quote)
        if i < 0:
            return i, -1
        for j in range(count):
            if equal_bytes(data, spans[j, 0], spans[j, 1], data, name, end):
                return i, -1
        spans[count, 0] = name
        spans[count, 1] = end
        spans[count, 2] = value
        spans[count, 3] = i
        count += 1
        i += 1


@kernel
def _special_bytes(w: Any) -> Any:
    """Mark ``<``, ``>``, ``&``, control characters and non-ASCII bytes; only the lowest mark is reliable."""
    return ((((w | _TWOS) ^ _GTS) - ONES) | ((w ^ _AMPS) - ONES) | (w - _BLANKS) | w) & HIGH


@kernel(inline=True)
def read_text(data: Any, start: Any, last: Any) -> Any:
    """``(end, raw, more)`` of the text at start.

    The end is at the next ``<``, or -1 if refused. ``raw``: whether the text differs from its bytes. ``more``: the
    number of bytes that are not the first of a character.
    """
    i = start
    raw = False
    more = 0
    safe = data.size - 8
    while i < last:
        if i <= safe:
            marks = _special_bytes(load8(data, i))
            if marks == _NOUGHT:
                i += 8
                continue
            i += lowest_byte(marks)
        b = byte(data, i)
        if b == _LT:
            return i, raw, more
        if is_class(data, i, TEXT):  # line breaks and tabs, and any byte at the end of the data
            i += 1
        elif b >= 0x80:
            size = character_size(data, i)
            if size == 0:
                return -1, raw, more
            i += size
            more += size - 1
        elif b == _AMP:
            code, i = read_reference(data, i)
            if code < 0:
                return -1, raw, more
            raw = True
        elif b == _CR:
            raw = True
            i += 1
        elif b == _GT and not (data[i - 1] == _CLOSE and data[i - 2] == _CLOSE):
            i += 1
        else:
            return -1, raw, more
    return -1, raw, more


@kernel
def resolve(data: Any, start: Any, end: Any, value: Any, out: Any, at: Any) -> Any:
    """Resolve the references of well-formed text, or of an attribute's value; returns ``(end, characters)``.

    The result is never longer than the text.
    """
    i = start
    o = at
    cdata = False
    while i < end:
        b = data[i]
        if b == _AMP and not cdata:
            code, i = read_reference(data, i)
            o = write_character(code, out, o)
        elif b == _LT and not cdata:
            cdata = data[i + 1] == _BANG and data[i + 2] == _OPEN
            i = i + 9 if cdata else skip_other(data, i, end, False)
        elif cdata and b == _CLOSE and data[i + 1] == _CLOSE and data[i + 2] == _GT:
            cdata = False
            i += 3
        else:
            if b == _CR:
                b = _LF
                if i + 1 < end and data[i + 1] == _LF:
                    i += 1
            out[o] = 32 if value and (b == _TAB or b == _LF) else b
            o += 1
            i += 1
    characters = 0
    for j in range(at, o):
        if (out[j] & 0xC0) != 0x80:
            characters += 1
    return o, characters
