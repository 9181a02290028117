"""Running aggregates: kernels that add rows to groups one by one, and write the cells of the row's group after each.

Each adds as the loop of :mod:`riot_ops.kernels.stats.accumulators` does, with an output per cell; rows have a group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.accumulators import SCALE, add_extreme, add_first, add_last
from riot_ops.kernels.stats.windows import neumaier_add

__all__ = [
    "run_counts",
    "run_exponential_means",
    "run_extremes",
    "run_firsts",
    "run_lasts",
    "run_sums",
    "run_variances",
    "run_whole_sums",
]

#: The sum of two numbers up to it is a float64 exactly.
HALF_EXACT = 1 << 52


@kernel
def run_counts(groups: Any, values: Any, n: Any, out: Any) -> None:
    if values.size == 0:
        for i in range(groups.size):
            g = np.uint64(groups[i])
            n[g] += 1
            out[i] = n[g]
    else:
        for i in range(groups.size):
            g = np.uint64(groups[i])
            if not np.isnan(values[i]):
                n[g] += 1
            out[i] = n[g]


@kernel
def run_sums(groups: Any, values: Any, rests: Any, total: Any, rest: Any, out: Any, out_rest: Any) -> None:
    for i in range(groups.size):
        g = np.uint64(groups[i])
        t = total[g]
        r = rest[g]
        if not np.isnan(values[i]):
            t, r = neumaier_add(t, r, values[i] * SCALE)
            if rests.size > 0:
                t, r = neumaier_add(t, r, rests[i] * SCALE)
            total[g] = t
            rest[g] = r
        out[i] = t
        out_rest[i] = r


@kernel
def run_whole_sums(groups: Any, values: Any, total: Any, rest: Any, out: Any, out_total: Any, out_rest: Any) -> Any:
    """Add int64 values; write sums to ``out``, or all of them to the other two if float64 cannot hold one: True."""
    wide = False
    last = np.uint64(0)
    t = r = 0.0
    for i in range(groups.size):
        g = np.uint64(groups[i])
        x = values[i]
        if i == 0 or g != last:  # otherwise they are at hand
            t = total[g] * (1.0 / SCALE)
            r = rest[g]
            last = g
        if r == 0.0 and abs(t) <= HALF_EXACT and -HALF_EXACT <= x <= HALF_EXACT:
            t += x
            total[g] = t * SCALE
            if not wide:
                out[i] = np.int64(t)
        else:
            if not wide:
                wide = True
                for j in range(i):
                    out_total[j] = out[j] * SCALE
                    out_rest[j] = 0.0
            low = x & 0xFFFFFFFF
            t, r = neumaier_add(t * SCALE, r, (x - low) * SCALE)
            total[g], rest[g] = neumaier_add(t, r, low * SCALE)
            t = total[g] * (1.0 / SCALE)
            r = rest[g]
        if wide:
            out_total[i] = total[g]
            out_rest[i] = r
    return wide


@kernel
def run_extremes(
    groups: Any,
    values: Any,
    rests: Any,
    low: Any,
    high: Any,
    low_rest: Any,
    high_rest: Any,
    out_low: Any,
    out_high: Any,
    out_low_rest: Any,
    out_high_rest: Any,
) -> None:
    for i in range(groups.size):
        g = np.uint64(groups[i])
        add_extreme(g, values[i], rests[i] if rests.size > 0 else 0.0, low, high, low_rest, high_rest)
        out_low[i] = low[g]
        out_high[i] = high[g]
        out_low_rest[i] = low_rest[g]
        out_high_rest[i] = high_rest[g]


@kernel
def run_firsts(
    groups: Any,
    values: Any,
    rests: Any,
    times: Any,
    first: Any,
    rest: Any,
    at: Any,
    out: Any,
    out_rest: Any,
    out_at: Any,
) -> None:
    for i in range(groups.size):
        g = np.uint64(groups[i])
        add_first(g, values[i], rests[i] if rests.size > 0 else 0.0, times[i], first, rest, at)
        out[i] = first[g]
        out_rest[i] = rest[g]
        out_at[i] = at[g]


@kernel
def run_lasts(
    groups: Any,
    values: Any,
    rests: Any,
    times: Any,
    last: Any,
    rest: Any,
    at: Any,
    out: Any,
    out_rest: Any,
    out_at: Any,
) -> None:
    for i in range(groups.size):
        g = np.uint64(groups[i])
        add_last(g, values[i], rests[i] if rests.size > 0 else 0.0, times[i], last, rest, at)
        out[i] = last[g]
        out_rest[i] = rest[g]
        out_at[i] = at[g]


@kernel
def run_variances(groups: Any, values: Any, n: Any, mean: Any, m2: Any, ddof: Any, bad: Any, out: Any) -> Any:
    """Write the variance after each value, NaN up to ``ddof`` values (Welford).

    A value whose squared distance overflows is ``bad`` and not added; return whether there is one.
    """
    any_bad = False
    for i in range(groups.size):
        g = np.uint64(groups[i])
        x = values[i]
        if not np.isnan(x):
            delta = x - mean[g]
            m = mean[g] + delta / (n[g] + 1)
            q = m2[g] + delta * (x - m)  # sum of squared distances from the mean
            if not np.isfinite(q):
                bad[i] = True
                any_bad = True
                continue
            n[g] += 1
            mean[g] = m
            m2[g] = q
        out[i] = m2[g] / (n[g] - ddof) if n[g] > ddof else np.nan
    return any_bad


@kernel
def run_exponential_means(slots: Any, values: Any, weight: Any, warmup: Any, means: Any, counts: Any, out: Any) -> None:
    """Write the mean after each value, NaN at a missing one: the plain mean of the first ``warmup`` values at first."""
    for i in range(values.size):
        x = values[i]
        out[i] = x
        if np.isnan(x):
            continue
        s = slots[i]
        if counts[s] < warmup:
            counts[s] += 1
            part = 1.0 / counts[s]
        elif counts[s] == 0:
            counts[s] = 1
            part = 1.0
        else:
            part = weight
        means[s] = (1.0 - part) * means[s] + part * x  # not mean + part * (x - mean): the difference may overflow
        out[i] = means[s]
