"""Accumulators of window aggregates: kernels that add rows to groups, and merge groups.

``groups[i]`` is the group of row i, -1 for none; rows from ``start`` to ``stop`` are added. Merging adds the groups
``order[first[i]:last[i]]`` of other accumulators to group ``a[i]``, one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.hyperloglog import estimate, insert
from riot_ops.kernels.stats.windows import neumaier_add

__all__ = [
    "SCALE",
    "US_PER_SECOND",
    "add_counts",
    "add_extreme",
    "add_extremes",
    "add_first",
    "add_firsts",
    "add_gaps",
    "add_last",
    "add_lasts",
    "add_lines",
    "add_ranks",
    "add_spans",
    "add_spreads",
    "add_sums",
    "distinct_estimates",
    "merge_counts",
    "merge_extremes",
    "merge_firsts",
    "merge_gaps",
    "merge_lasts",
    "merge_lines",
    "merge_ranks",
    "merge_spans",
    "merge_spreads",
    "merge_sums",
]


#: Factor of summands, a power of two: no sum of finite numbers overflows.
SCALE = 2.0**-40
#: Microseconds per second.
US_PER_SECOND = 1e6


@kernel
def add_counts(groups: Any, values: Any, start: Any, stop: Any, n: Any) -> None:
    """Count the values that are not NaN; with empty ``values``, count rows."""
    every = values.size == 0
    for i in range(start, stop):
        g = groups[i]
        if g >= 0 and (every or not np.isnan(values[i])):
            n[g] += 1


@kernel
def merge_counts(a: Any, order: Any, first: Any, last: Any, n: Any, other: Any) -> None:
    for i in range(a.size):
        for k in range(first[i], last[i]):
            n[a[i]] += other[order[k]]


@kernel
def add_sums(groups: Any, values: Any, rests: Any, start: Any, stop: Any, total: Any, rest: Any) -> None:
    """Sum values times :data:`SCALE`, compensated (Neumaier): ``rest`` is the sum of rounding errors.

    The two parts of a sum of integers are its exact value.
    """
    for i in range(start, stop):
        g = groups[i]
        if g >= 0 and not np.isnan(values[i]):
            total[g], rest[g] = neumaier_add(total[g], rest[g], values[i] * SCALE)
            if rests.size > 0:
                total[g], rest[g] = neumaier_add(total[g], rest[g], rests[i] * SCALE)


@kernel
def merge_sums(
    a: Any, order: Any, first: Any, last: Any, total: Any, rest: Any, other_total: Any, other_rest: Any
) -> None:
    for i in range(a.size):
        g = a[i]
        for k in range(first[i], last[i]):
            b = order[k]
            total[g], rest[g] = neumaier_add(total[g], rest[g], other_total[b])
            rest[g] += other_rest[b]


@kernel
def add_extreme(g: Any, x: Any, r: Any, low: Any, high: Any, low_rest: Any, high_rest: Any) -> None:
    """Add a pair, see :mod:`riot_ops.kernels.arrays.exact`, to minimum and maximum of a group."""
    x = x + 0.0  # -0.0 becomes 0.0: the result does not depend on which comes first
    if x < low[g] or (x == low[g] and r < low_rest[g]):
        low[g] = x
        low_rest[g] = r
    if x > high[g] or (x == high[g] and r > high_rest[g]):
        high[g] = x
        high_rest[g] = r


@kernel
def add_extremes(
    groups: Any, values: Any, rests: Any, start: Any, stop: Any, low: Any, high: Any, low_rest: Any, high_rest: Any
) -> None:
    """Minimum and maximum of pairs."""
    for i in range(start, stop):
        if groups[i] >= 0:
            add_extreme(groups[i], values[i], rests[i] if rests.size > 0 else 0.0, low, high, low_rest, high_rest)


@kernel
def merge_extremes(
    a: Any, order: Any, first: Any, last: Any, low: Any, high: Any, low_rest: Any, high_rest: Any, other_low: Any,
    other_high: Any, other_low_rest: Any, other_high_rest: Any,
) -> None:  # fmt: skip
    for i in range(a.size):
        g = a[i]
        for k in range(first[i], last[i]):
            b = order[k]
            x, r = other_low[b], other_low_rest[b]
            if x < low[g] or (x == low[g] and r < low_rest[g]):
                low[g] = x
                low_rest[g] = r
            x, r = other_high[b], other_high_rest[b]
            if x > high[g] or (x == high[g] and r > high_rest[g]):
                high[g] = x
                high_rest[g] = r


@kernel
def add_first(g: Any, x: Any, r: Any, time: Any, value: Any, rest: Any, at: Any) -> None:
    """Add a pair to a group: keep the value with the earliest time; among equal times the first to arrive."""
    if not np.isnan(x) and (np.isnan(value[g]) or time < at[g]):
        value[g] = x
        rest[g] = r
        at[g] = time


@kernel
def add_firsts(
    groups: Any, values: Any, rests: Any, times: Any, start: Any, stop: Any, value: Any, rest: Any, at: Any
) -> None:
    for i in range(start, stop):
        if groups[i] >= 0:
            add_first(groups[i], values[i], rests[i] if rests.size > 0 else 0.0, times[i], value, rest, at)


@kernel
def merge_firsts(
    a: Any, order: Any, first: Any, last: Any, value: Any, rest: Any, at: Any, other_value: Any, other_rest: Any,
    other_at: Any,
) -> None:  # fmt: skip
    for i in range(a.size):
        for k in range(first[i], last[i]):
            b = order[k]
            add_first(a[i], other_value[b], other_rest[b], other_at[b], value, rest, at)


@kernel
def add_last(g: Any, x: Any, r: Any, time: Any, value: Any, rest: Any, at: Any) -> None:
    """Add a pair to a group: keep the value with the latest time; among equal times the last to arrive."""
    if not np.isnan(x) and (np.isnan(value[g]) or time >= at[g]):
        value[g] = x
        rest[g] = r
        at[g] = time


@kernel
def add_lasts(
    groups: Any, values: Any, rests: Any, times: Any, start: Any, stop: Any, value: Any, rest: Any, at: Any
) -> None:
    for i in range(start, stop):
        if groups[i] >= 0:
            add_last(groups[i], values[i], rests[i] if rests.size > 0 else 0.0, times[i], value, rest, at)


@kernel
def merge_lasts(
    a: Any, order: Any, first: Any, last: Any, value: Any, rest: Any, at: Any, other_value: Any, other_rest: Any,
    other_at: Any,
) -> None:  # fmt: skip
    for i in range(a.size):
        for k in range(first[i], last[i]):
            b = order[k]
            add_last(a[i], other_value[b], other_rest[b], other_at[b], value, rest, at)


@kernel
def add_spreads(groups: Any, values: Any, start: Any, stop: Any, n: Any, mean: Any, m2: Any) -> None:
    """Count, mean and sum of squared deviations from the mean (Welford)."""
    for i in range(start, stop):
        g = groups[i]
        if g >= 0 and not np.isnan(values[i]):
            n[g] += 1
            d = values[i] - mean[g]
            mean[g] += d / n[g]
            m2[g] += d * (values[i] - mean[g])


@kernel
def merge_spreads(
    a: Any, order: Any, first: Any, last: Any, n: Any, mean: Any, m2: Any, other_n: Any, other_mean: Any, other_m2: Any
) -> None:
    """Merge moments, like one pass over both groups (Chan, Golub, LeVeque)."""
    for i in range(a.size):
        g = a[i]
        for k in range(first[i], last[i]):
            b = order[k]
            if other_n[b] == 0:
                continue
            both = n[g] + other_n[b]
            d = other_mean[b] - mean[g]
            mean[g] += d * other_n[b] / both
            m2[g] += other_m2[b] + d * d * n[g] * other_n[b] / both
            n[g] = both


@kernel
def add_spans(groups: Any, values: Any, times: Any, start: Any, stop: Any, begin: Any, end: Any) -> None:
    """Earliest and latest time of values that are not NaN; with empty ``values``, of rows."""
    every = values.size == 0
    for i in range(start, stop):
        g = groups[i]
        if g >= 0 and (every or not np.isnan(values[i])):
            begin[g] = min(begin[g], times[i])
            end[g] = max(end[g], times[i])


@kernel
def merge_spans(
    a: Any, order: Any, first: Any, last: Any, begin: Any, end: Any, other_begin: Any, other_end: Any
) -> None:
    for i in range(a.size):
        for k in range(first[i], last[i]):
            begin[a[i]] = min(begin[a[i]], other_begin[order[k]])
            end[a[i]] = max(end[a[i]], other_end[order[k]])


@kernel
def _add_gap(gap: Any, k: Any, mean: Any, m2: Any) -> Any:
    """Update mean and sum of squared deviations by the k-th gap."""
    d = gap - mean
    mean += d / k
    return mean, m2 + d * (gap - mean)


@kernel
def add_gaps(
    groups: Any, values: Any, times: Any, start: Any, stop: Any, n: Any, opening: Any, latest: Any, mean: Any, m2: Any
) -> None:
    """Mean, and sum of squared deviations, of the time between a value and the one that arrived before it."""
    every = values.size == 0
    for i in range(start, stop):
        g = groups[i]
        if g < 0 or not (every or not np.isnan(values[i])):
            continue
        if n[g] == 0:
            opening[g] = times[i]
        else:
            mean[g], m2[g] = _add_gap(np.float64(times[i] - latest[g]), n[g], mean[g], m2[g])
        latest[g] = times[i]
        n[g] += 1


@kernel
def merge_gaps(
    a: Any, order: Any, first: Any, last: Any, n: Any, opening: Any, latest: Any, mean: Any, m2: Any, other_n: Any,
    other_opening: Any, other_latest: Any, other_mean: Any, other_m2: Any,
) -> None:  # fmt: skip
    """Merge gaps, as if the values of the other group had arrived after those of this one."""
    for i in range(a.size):
        g = a[i]
        for k in range(first[i], last[i]):
            b = order[k]
            if other_n[b] == 0:
                continue
            if n[g] == 0:
                opening[g] = other_opening[b]
                mean[g] = other_mean[b]
                m2[g] = other_m2[b]
            else:
                mean[g], m2[g] = _add_gap(np.float64(other_opening[b] - latest[g]), n[g], mean[g], m2[g])
                more = other_n[b] - 1
                d = other_mean[b] - mean[g]
                mean[g] += d * more / (n[g] + more)
                m2[g] += other_m2[b] + d * d * n[g] * more / (n[g] + more)
            latest[g] = other_latest[b]
            n[g] += other_n[b]


@kernel
def add_lines(
    groups: Any, values: Any, times: Any, start: Any, stop: Any, n: Any, origin: Any, earliest: Any, mean_x: Any,
    mean_y: Any, xx: Any, xy: Any,
) -> None:  # fmt: skip
    """Means, and sums of squares and products of deviations, of time (seconds from ``origin``) and value."""
    for i in range(start, stop):
        g = groups[i]
        if g < 0 or np.isnan(values[i]):
            continue
        if n[g] == 0:
            origin[g] = times[i]
        n[g] += 1
        earliest[g] = min(earliest[g], times[i])
        dx = (times[i] - origin[g]) / US_PER_SECOND - mean_x[g]
        dy = values[i] - mean_y[g]
        mean_x[g] += dx / n[g]
        mean_y[g] += dy / n[g]
        rest = dx - dx / n[g]
        xx[g] += dx * rest
        xy[g] += dy * rest


@kernel
def merge_lines(
    a: Any, order: Any, first: Any, last: Any, n: Any, origin: Any, earliest: Any, mean_x: Any, mean_y: Any, xx: Any,
    xy: Any, other_n: Any, other_origin: Any, other_earliest: Any, other_mean_x: Any, other_mean_y: Any, other_xx: Any,
    other_xy: Any,
) -> None:  # fmt: skip
    """Merge lines, like one pass over both groups (Chan, Golub, LeVeque)."""
    for i in range(a.size):
        g = a[i]
        for k in range(first[i], last[i]):
            b = order[k]
            if other_n[b] == 0:
                continue
            if n[g] == 0:
                origin[g] = other_origin[b]
            both = n[g] + other_n[b]
            dx = other_mean_x[b] + (other_origin[b] - origin[g]) / US_PER_SECOND - mean_x[g]
            dy = other_mean_y[b] - mean_y[g]
            share = other_n[b] / both
            xx[g] += other_xx[b] + dx * dx * n[g] * share
            xy[g] += other_xy[b] + dx * dy * n[g] * share
            mean_x[g] += dx * share
            mean_y[g] += dy * share
            earliest[g] = min(earliest[g], other_earliest[b])
            n[g] = both


@kernel
def merge_ranks(a: Any, order: Any, first: Any, last: Any, registers: Any, other: Any) -> None:
    """Merge HyperLogLog registers by their maxima."""
    for i in range(a.size):
        for k in range(first[i], last[i]):
            for c in range(registers.shape[1]):
                registers[a[i], c] = max(registers[a[i], c], other[order[k], c])


@kernel
def add_ranks(groups: Any, hashes: Any, present: Any, start: Any, stop: Any, precision: Any, registers: Any) -> None:
    """Add hashes of values to HyperLogLog registers."""
    for i in range(start, stop):
        g = groups[i]
        if g >= 0 and present[i]:
            insert(registers[g], hashes[i], precision)


@kernel
def distinct_estimates(registers: Any, precision: Any, constant: Any, linear: Any, out: Any) -> None:
    """Estimate the number of distinct values of each group."""
    for g in range(registers.shape[0]):
        zeros = 0
        weight = np.uint64(0)
        for c in range(registers.shape[1]):
            r = np.int64(registers[g, c])
            if r == 0:
                zeros += 1
            else:
                weight += np.uint64(1) << np.uint64(65 - precision - r)
        out[g] = estimate(zeros, weight, precision, constant, linear)
