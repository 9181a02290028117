"""Running aggregates: kernels that add rows to groups one by one, and write the cells of the row's group after each.

Each repeats the loop of :mod:`riot_ops.kernels.stats.accumulators`, with an output per cell; rows have a group.
"""

from __future__ import annotations

from typing import Any

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.accumulators import (
    add_counts,
    add_extremes,
    add_firsts,
    add_lasts,
    add_spreads,
    add_sums,
)

__all__ = ["run_counts", "run_extremes", "run_firsts", "run_lasts", "run_spreads", "run_sums"]


@kernel
def run_counts(groups: Any, values: Any, n: Any, out: Any) -> None:
    for i in range(groups.size):
        add_counts(groups, values, i, i + 1, n)
        out[i] = n[groups[i]]


@kernel
def run_sums(groups: Any, values: Any, rests: Any, total: Any, rest: Any, out: Any, out_rest: Any) -> None:
    for i in range(groups.size):
        add_sums(groups, values, rests, i, i + 1, total, rest)
        out[i] = total[groups[i]]
        out_rest[i] = rest[groups[i]]


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
        add_extremes(groups, values, rests, i, i + 1, low, high, low_rest, high_rest)
        g = groups[i]
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
        add_firsts(groups, values, rests, times, i, i + 1, first, rest, at)
        out[i] = first[groups[i]]
        out_rest[i] = rest[groups[i]]
        out_at[i] = at[groups[i]]


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
        add_lasts(groups, values, rests, times, i, i + 1, last, rest, at)
        out[i] = last[groups[i]]
        out_rest[i] = rest[groups[i]]
        out_at[i] = at[groups[i]]


@kernel
def run_spreads(groups: Any, values: Any, n: Any, mean: Any, m2: Any, out_n: Any, out_mean: Any, out_m2: Any) -> None:
    for i in range(groups.size):
        add_spreads(groups, values, i, i + 1, n, mean, m2)
        g = groups[i]
        out_n[i] = n[g]
        out_mean[i] = mean[g]
        out_m2[i] = m2[g]
