"""Second frequency moments, one value at a time."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable

MASK = 2**64 - 1


def splitmix(seed: int, draw: int) -> int:
    z = (seed + draw * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def exact(values: Iterable[float | None]) -> list[float]:
    counts: Counter[float] = Counter()
    out = []
    for value in values:
        if not missing(value):
            counts[value] += 1
        out.append(float(sum(m * m for m in counts.values())))
    return out


def reservoir(values: Iterable[float | None], size: int, groups: int, seed: int) -> list[float]:
    variables: list[list] = []
    n = draws = 0
    out = []
    for value in values:
        if not missing(value):
            n += 1
            for variable in variables:
                variable[1] += variable[0] == value
            if n <= size:
                variables.append([value, 1])
            else:
                draws += 1
                place = int((splitmix(seed, draws) >> 11) / 2**53 * n)
                if place < size:
                    variables[place] = [value, 1]
        terms = [2 * c - 1 for _, c in variables]
        if n <= size:
            out.append(float(sum(terms)))
        else:
            share = size // groups
            out.append(n * statistics.median(sum(terms[g : g + share]) / share for g in range(0, size, share)))
    return out
