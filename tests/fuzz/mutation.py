"""Mutated inputs: valid ones with a few changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence


def mutate(rng: random.Random, text: bytes, tokens: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """Change a text in up to four places: bytes, tokens, cuts, repetitions, parts of other texts."""
    data = bytearray(text)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        at = rng.randint(0, len(data))
        kind = rng.random()
        if kind < 0.35:
            data[at : at + rng.choice((0, 0, 1, 2))] = rng.choice(tokens)
        elif kind < 0.5:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif kind < 0.65:
            del data[at : at + rng.randint(1, 12)]
        elif kind < 0.75:
            data[at:at] = data[at : at + rng.randint(1, 30)] * rng.randint(1, 3)
        elif kind < 0.9 and others:
            other = rng.choice(others)
            start = rng.randint(0, len(other))
            data[at : at + rng.randint(0, 8)] = other[start : start + rng.randint(1, 40)]
        else:
            digits = rng.choice((b"1", b"12", b"1234567", b"12345678", b"123456789", b"1" * 19, b"9" * 20, b"1" * 40))
            data[at:at] = digits
    return bytes(data)


def input_batches(
    rng: random.Random, amount: int, seeds: Sequence[bytes], tokens: Sequence[bytes]
) -> Iterator[list[bytes]]:
    """Lists of inputs, uniform and mixed, ``amount`` in total."""
    count = 0
    while count < amount:
        n = min(rng.choice((1, 7, 60, 400)), amount - count)
        few = [rng.choice(seeds) for _ in range(rng.choice((1, 1, 2, 5)))]
        mostly_valid = rng.random() < 0.3  # so that leftovers of valid inputs show up
        yield [
            rng.choice(few) if mostly_valid and rng.random() < 0.8 else mutate(rng, rng.choice(few), tokens, seeds)
            for _ in range(n)
        ]
        count += n


def random_cuts(rng: random.Random, n: int) -> list[int]:
    """Random edges that cut n rows into up to six parts."""
    return [0, *sorted(rng.randint(0, n) for _ in range(rng.randint(0, 5))), n]
