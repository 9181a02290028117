"""A Bloom filter over a Python set of bit numbers, hashed by mmh3."""

from __future__ import annotations

import math

import mmh3


class Bloom:
    def __init__(self, n: int, p: float) -> None:
        self.m = math.ceil(-n * math.log(p) / math.log(2) ** 2)
        self.k = max(1, round(self.m / n * math.log(2)))
        self.bits: set[int] = set()
        self.count = 0

    def places(self, value: str) -> list[int]:
        h1, h2 = mmh3.hash64(value.encode(), 0, signed=False)
        return [(h1 + i * h2) % 2**64 % self.m for i in range(self.k)]

    def add(self, value: str | None) -> None:
        if value is not None:
            self.bits.update(self.places(value))
            self.count += 1

    def contains(self, value: str | None) -> bool:
        return value is not None and self.bits.issuperset(self.places(value))

    def words(self) -> list[int]:
        words = [0] * -(-self.m // 64)
        for bit in self.bits:
            words[bit // 64] |= 1 << bit % 64
        return words
