"""A digest of records that does not depend on their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["digest"]


def digest(rows: Iterable[tuple[Any, ...]]) -> str:
    """Return an order-independent digest: the number of rows and the sum of their SHA-256 hashes modulo 2^256.

    Duplicate rows count, and ``1`` differs from ``1.0``.

    >>> digest([("a", 1), ("b", 2.0)]) == digest([("b", 2.0), ("a", 1)])
    True
    """
    count = total = 0
    for row in rows:
        count += 1
        total += int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(row)).digest())
    return f"{count}-{total % (1 << 256):064x}"
