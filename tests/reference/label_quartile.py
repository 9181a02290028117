"""Quartile labels, from the definition."""

import math


def percentile(values, p):
    """Return the value at p (n + 1) / 100 in the sorted values, counted from 1."""
    values = sorted(values)
    position = p * (len(values) + 1) / 100
    if position < 1:
        return values[0]
    if position >= len(values):
        return values[-1]
    whole = math.floor(position)
    low, high = values[whole - 1], values[whole]
    return low + (position - whole) * (high - low)


def label(values, labels):
    known = [v for v in values if v is not None and not math.isnan(v)]
    if not known:
        return [None] * len(values)
    bounds = [percentile(known, p) for p in (25, 50, 75)]

    def one(x):
        if x is None or math.isnan(x):
            return None
        for bound, name in zip(bounds, labels, strict=False):
            if x <= bound:
                return name
        return labels[3]

    return [one(x) for x in values]
