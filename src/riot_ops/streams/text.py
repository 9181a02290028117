"""Writing bytes and decimal numbers into an array, for generators of text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel

__all__ = ["pack", "write_bytes", "write_decimal", "write_digits", "write_hex", "write_part"]


def pack(texts: list[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Concatenate texts; return the bytes and the start of each text, followed by the total length.

    >>> pack(["ab", "c"])[1].tolist()
    [0, 2, 3]
    """
    parts = [t.encode() for t in texts]
    edges = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return readonly(np.frombuffer(b"".join(parts), np.uint8)), readonly(edges)


@kernel
def write_bytes(out: Any, p: Any, data: Any, start: Any, end: Any) -> Any:
    """Copy bytes; return the position after them, as all these functions do.

    Unsigned positions spare numba's test for negative indexes: the loop is 15 times faster.
    """
    a = np.uint64(start)
    b = np.uint64(p)
    for j in range(np.uint64(end - start)):
        out[b + j] = data[a + j]
    return p + (end - start)


@kernel
def write_part(out: Any, p: Any, data: Any, edges: Any, i: Any) -> Any:
    """Copy the packed text number ``i``."""
    return write_bytes(out, p, data, edges[i], edges[i + 1])


@kernel
def write_digits(out: Any, p: Any, value: Any, width: Any) -> Any:
    """Write a whole number >= 0, with at least ``width`` digits."""
    v = np.uint64(value)
    n = 1
    bound = np.uint64(10)
    while v >= bound and n < 18:
        n += 1
        bound *= np.uint64(10)
    n = max(n, width)
    at = np.uint64(p + n)
    for _ in range(n):
        at -= np.uint64(1)
        rest = v // np.uint64(10)
        out[at] = np.uint64(48) + (v - rest * np.uint64(10))
        v = rest
    return p + n


@kernel
def write_decimal(out: Any, p: Any, scaled: Any, decimals: Any, trim: Any) -> Any:
    """Write ``scaled / 10**decimals`` with that many decimals, or without trailing zeros."""
    if scaled < 0:
        out[p] = 45
        p += 1
        scaled = -scaled
    scale = 1
    for _ in range(decimals):
        scale *= 10
    whole = scaled // scale
    p = write_digits(out, p, whole, 1)
    fraction = scaled - whole * scale
    if decimals == 0 or (trim and fraction == 0):
        return p
    out[p] = 46
    p = write_digits(out, p + 1, fraction, decimals)
    while trim and out[p - 1] == 48:
        p -= 1
    return p


@kernel
def write_hex(out: Any, p: Any, word: Any) -> Any:
    """Write a 64-bit number as 16 upper-case hexadecimal digits."""
    at = np.uint64(p)
    for j in range(np.uint64(16)):
        nibble = (word >> np.uint64(60 - 4 * j)) & np.uint64(15)
        out[at + j] = nibble + (np.uint64(48) if nibble < np.uint64(10) else np.uint64(55))
    return p + 16
