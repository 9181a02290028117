"""Characters, names and references of XML.

Every function accepts a subset of XML; Expat parses what it refuses. No function reads beyond the last ``>`` of
a document, at which all loops end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import byte
from riot_ops.kernels.text.strings import name_table

__all__ = [
    "CLASS",
    "NAME",
    "OTHER",
    "SPACE",
    "START",
    "TEXT",
    "VALUE",
    "character_size",
    "continues_name",
    "find_name",
    "is_class",
    "name_end",
    "read_reference",
    "skip_space",
    "write_character",
]

_TAB, _LF, _CR, _QUOTE, _HASH, _AMP, _APOSTROPHE, _SEMICOLON = 9, 10, 13, 34, 35, 38, 39, 59
_LT, _GT, _X = 60, 62, 120

#: Classes of ASCII bytes: white space, first of a name, within a name; and bytes that need no closer look in text, in
#: the value of an attribute, and in a comment, processing instruction or CDATA section.
SPACE, START, NAME, TEXT, VALUE, OTHER = 1, 2, 4, 8, 16, 32


def _classes() -> Any:
    table = np.zeros(256, np.uint8)
    for b in range(128):
        c = chr(b)
        valid = b >= 32 or c in "\t\n\r"
        table[b] |= SPACE * (c in " \t\n\r")
        table[b] |= START * (c.isalpha() or c in "_:")
        table[b] |= NAME * (c.isalnum() or c in "_:-.")
        table[b] |= TEXT * (valid and c not in "<&>\r")
        table[b] |= VALUE * (valid and c not in "<&>\"'")
        table[b] |= OTHER * (valid and c not in "-?]>")
    return readonly(table)


CLASS = _classes()

#: Ranges of non-ASCII letters that a name may begin with. Expat follows the fourth edition of XML, which lists them,
#: and not the more permissive fifth.
_LETTERS = readonly(
    np.array(
        [
            *((0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x131), (0x134, 0x13E), (0x141, 0x148), (0x14A, 0x17E)),  # Latin
            *((0x38E, 0x3A1), (0x3A3, 0x3CE), (0x401, 0x40C), (0x40E, 0x44F), (0x451, 0x45C)),  # Greek, Cyrillic
            *((0x5D0, 0x5EA), (0x621, 0x63A), (0x641, 0x64A)),  # Hebrew, Arabic
            *((0x3041, 0x3094), (0x30A1, 0x30FA), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3)),  # Kana, Han, Hangul
        ],
        np.int64,
    )
)

#: The predefined entities and their characters.
_REFERENCES, _REFERENCE_STARTS, _REFERENCE_ENDS = name_table(["amp", "lt", "gt", "quot", "apos"])
_REFERRED = readonly(np.array([_AMP, _LT, _GT, _QUOTE, _APOSTROPHE], np.int64))


@kernel
def find_name(data: Any, start: Any, end: Any, names: Any, starts: Any, ends: Any, fold: Any) -> Any:
    """Return the index of ``data[start:end]`` among the names, -1 if it is none; ``fold`` ignores ASCII case."""
    for j in range(starts.size):
        if ends[j] - starts[j] != end - start:
            continue
        same = True
        for i in range(end - start):
            a = data[start + i]
            b = names[starts[j] + i]
            if a != b and not (fold and (a | 32) == (b | 32) and 97 <= (a | 32) <= 122):
                same = False
                break
        if same:
            return j
    return -1


@kernel
def is_class(data: Any, i: Any, what: Any) -> Any:
    """Whether the byte at i is of a class."""
    return CLASS[data[np.uint64(i)]] & what != 0


@kernel
def skip_space(data: Any, start: Any) -> Any:
    """Skip white space."""
    i = start
    while is_class(data, i, SPACE):
        i += 1
    return i


@kernel
def character_size(data: Any, i: Any) -> Any:
    """Bytes of the non-ASCII character at i; 0 if it is invalid."""
    a = data[i]
    if a < 0xC2 or a > 0xF4 or (data[i + 1] & 0xC0) != 0x80:
        return 0
    if a < 0xE0:
        return 2
    b = data[i + 1]
    c = data[i + 2]
    if (c & 0xC0) != 0x80:
        return 0
    if a < 0xF0:
        if (a == 0xE0 and b < 0xA0) or (a == 0xED and b > 0x9F) or (a == 0xEF and b == 0xBF and c > 0xBD):
            return 0  # an overlong form, a surrogate, U+FFFE or U+FFFF
        return 3
    if (data[i + 3] & 0xC0) != 0x80 or (a == 0xF0 and b < 0x90) or (a == 0xF4 and b > 0x8F):
        return 0
    return 4


@kernel
def _letter_size(data: Any, i: Any) -> Any:
    """Bytes of the non-ASCII letter at i; 0 if it is not among the known ranges."""
    size = character_size(data, i)
    if size != 2 and size != 3:
        return 0
    code = np.int64(data[i]) & (0x1F if size == 2 else 0x0F)
    for j in range(1, size):
        code = code << 6 | np.int64(data[i + j]) & 0x3F
    for r in range(_LETTERS.shape[0]):
        if _LETTERS[r, 0] <= code <= _LETTERS[r, 1]:
            return size
    return 0


@kernel
def name_end(data: Any, start: Any) -> Any:
    """Return the end of the name at start; ``start`` if there is none."""
    i = start
    if not is_class(data, i, START) and byte(data, i) < 0x80:
        return start
    while True:
        while is_class(data, i, NAME):
            i += 1
        if byte(data, i) < 0x80:
            return i
        size = _letter_size(data, i)
        if size == 0:
            return start
        i += size


@kernel
def continues_name(data: Any, i: Any) -> Any:
    """Whether a name that reaches i may continue there."""
    return byte(data, i) >= 0x80 or is_class(data, i, NAME)


@kernel
def read_reference(data: Any, start: Any) -> Any:
    """``(code point, end)`` of the reference at start; the code point is -1 if it is invalid."""
    i = start + 1
    if data[i] != _HASH:
        i = name_end(data, i)
        found = find_name(data, start + 1, i, _REFERENCES, _REFERENCE_STARTS, _REFERENCE_ENDS, False)
        if found < 0 or data[i] != _SEMICOLON:
            return -1, i
        return _REFERRED[found], i + 1
    i += 1
    base = 10
    if data[i] == _X:
        base = 16
        i += 1
    first = i
    code: Any = 0
    while data[i] != _SEMICOLON:
        digit = np.int64(data[i]) - 48
        if digit > 9 and base == 16:
            digit = (np.int64(data[i]) | 32) - 87
            if digit < 10:
                return -1, i
        if digit < 0 or digit >= base:
            return -1, i
        code = code * base + digit
        if code > 0x10FFFF:
            return -1, i
        i += 1
    surrogate = 0xD800 <= code <= 0xDFFF
    control = code < 32 and code != _TAB and code != _LF and code != _CR
    if i == first or surrogate or control or code == 0xFFFE or code == 0xFFFF:
        return -1, i
    return code, i + 1


@kernel
def write_character(code: Any, out: Any, at: Any) -> Any:
    """Write a code point as UTF-8 at ``at``; returns the end."""
    if code < 0x80:
        out[at] = code
        return at + 1
    size = 2 if code < 0x800 else 3 if code < 0x10000 else 4
    for j in range(size - 1, 0, -1):
        out[at + j] = 0x80 | code & 0x3F
        code >>= 6
    out[at] = (0xF00 >> size) & 0xFF | code
    return at + size
