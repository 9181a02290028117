"""Escapes in JSON strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import byte

__all__ = ["escape_end", "unescape"]

#: The character of each one-letter escape, by letter.
_LETTERS = np.zeros(256, np.uint8)
_LETTERS[list(b'"/\\bfnrt')] = list(b'"/\\\b\f\n\r\t')
_LETTERS.flags.writeable = False


@kernel
def escape_end(data: Any, p: Any, end: Any) -> Any:
    """Return the end of the escape at p; -1 if it is invalid, or half of a surrogate pair, which is left to Python."""
    if p + 1 >= end:
        return -1
    b = byte(data, p + 1)
    if b != 117:
        return p + 2 if b in (34, 47, 92, 98, 102, 110, 114, 116) else -1
    if p + 6 > end:
        return -1
    code = 0
    for i in range(p + 2, p + 6):
        b = byte(data, i)
        if b >= 48 and b <= 57:
            code = code << 4 | (b - 48)
        elif (b | 32) >= 97 and (b | 32) <= 102:
            code = code << 4 | ((b | 32) - 87)
        else:
            return -1
    return -1 if code >> 11 == 0x1B else p + 6


@kernel
def unescape(data: Any, p: Any, end: Any, out: Any, o: Any) -> Any:
    """Copy a string to position o of ``out``, replacing its escapes; returns the end."""
    while p < end:
        b = byte(data, p)
        if b != 92:
            out[np.uint64(o)] = b
            o += 1
            p += 1
            continue
        b = byte(data, p + 1)
        if b != 117:
            out[np.uint64(o)] = _LETTERS[b]
            o += 1
            p += 2
            continue
        code = 0
        for i in range(p + 2, p + 6):
            b = byte(data, i)
            code = code << 4 | (b - 48 if b <= 57 else (b | 32) - 87)
        if code < 0x80:
            out[np.uint64(o)] = code
        elif code < 0x800:
            out[np.uint64(o)] = 0xC0 | code >> 6
            o += 1
            out[np.uint64(o)] = 0x80 | (code & 63)
        else:
            out[np.uint64(o)] = 0xE0 | code >> 12
            out[np.uint64(o + 1)] = 0x80 | (code >> 6 & 63)
            o += 2
            out[np.uint64(o)] = 0x80 | (code & 63)
        o += 1
        p += 6
    return o
