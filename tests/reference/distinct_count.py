"""HyperLogLog and the benchmark's LogLog from their definitions, one value at a time."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable
from typing import Any

import mmh3


def as_bytes(value: float | str) -> bytes:
    return value.encode() if isinstance(value, str) else struct.pack("<d", value + 0.0)


def hyperloglog(values: Iterable[Any], precision: int) -> list[float]:
    m = 2**precision
    alpha = {16: 0.673, 32: 0.697, 64: 0.709}.get(m, 0.7213 / (1 + 1.079 / m))
    registers = [0] * m
    out = []
    for value in values:
        if isinstance(value, str) or (value is not None and not math.isnan(value)):
            h = mmh3.hash64(as_bytes(value), signed=False)[0]
            bits = f"{h >> precision:0{64 - precision}b}"
            rank = bits.index("1") + 1 if "1" in bits else len(bits) + 1
            registers[h % m] = max(registers[h % m], rank)
        estimate = alpha * m * m / math.fsum(2.0**-r for r in registers)
        if estimate <= 2.5 * m and 0 in registers:
            estimate = m * math.log(m / registers.count(0))
        out.append(float(math.floor(estimate + 0.5)))
    return out


def loglog(values: Iterable[Any], precision: int) -> list[float]:
    m = 2**precision
    registers = [0] * m
    out = []
    seen = False
    for value in values:
        if isinstance(value, str) or (value is not None and not math.isnan(value)):
            seen = True
            text = value if isinstance(value, str) else str(float(value))
            x = struct.unpack("<i", hashlib.sha1(text.encode()).digest()[:4])[0]
            w = x >> precision
            rank = 31 if w == 0 else (w & -w).bit_length() - 1
            registers[x % m] = max(registers[x % m], rank)
        out.append(float(math.floor(0.79402 * m * 2 ** (sum(registers) / m))) if seen else 0.0)
    return out
