"""Inputs nobody would write: good ones with a few changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence


def mutated(rng: random.Random, text: bytes, tokens: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """A text with up to four changes: bytes, tokens, cuts, repetitions, parts of other texts."""
    data = bytearray(text)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        at = rng.randint(0, len(data))
        what = rng.random()
        if what < 0.35:
            data[at : at + rng.choice((0, 0, 1, 2))] = rng.choice(tokens)
        elif what < 0.5:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif what < 0.65:
            del data[at : at + rng.randint(1, 12)]
        elif what < 0.75:
            data[at:at] = data[at : at + rng.randint(1, 30)] * rng.randint(1, 3)
        elif what < 0.9 and others:
            other = rng.choice(others)
            start = rng.randint(0, len(other))
            data[at : at + rng.randint(0, 8)] = other[start : start + rng.randint(1, 40)]
        else:
            digits = rng.choice((b"1", b"12", b"1234567", b"12345678", b"123456789", b"1" * 19, b"9" * 20, b"1" * 40))
            data[at:at] = digits
    return bytes(data)


def batches(rng: random.Random, amount: int, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Lists of inputs, alike and mixed, ``amount`` in all."""
    made = 0
    while made < amount:
        n = min(rng.choice((1, 7, 60, 400)), amount - made)
        few = [rng.choice(seeds) for _ in range(rng.choice((1, 1, 2, 5)))]
        quiet = rng.random() < 0.3  # mostly good ones, so that what good ones leave behind shows
        yield [
            rng.choice(few) if quiet and rng.random() < 0.8 else mutated(rng, rng.choice(few), tokens, seeds)
            for _ in range(n)
        ]
        made += n


def cuts(rng: random.Random, n: int) -> list[int]:
    """Where to cut n rows: the edges of up to six parts."""
    return [0, *sorted(rng.randint(0, n) for _ in range(rng.randint(0, 5))), n]
