"""Multi-armed bandits: choosing actions by the rewards that they had."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = [
    "EVENT",
    "FRACTIONAL",
    "GREEDY",
    "INTERVAL",
    "MISSING",
    "NEITHER",
    "OPTIMISTIC",
    "OUT_OF_RANGE",
    "THOMPSON",
    "UNKNOWN",
    "choose",
    "move_interval",
    "validate_records",
]

#: Strategies.
INTERVAL, GREEDY, THOMPSON, OPTIMISTIC = 0, 1, 2, 3

#: Why a record is rejected: because of its action, or of its round or reward.
UNKNOWN, MISSING, OUT_OF_RANGE, FRACTIONAL = 1, 2, 3, 4
#: In place of the number of an action: ``EVENT`` asks for an action, ``NEITHER`` is neither event nor reward.
EVENT, NEITHER = -1, -2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)


@kernel
def validate_records(
    named: Any, given: Any, rounds: Any, rewards: Any, low: Any, high: Any, maximum: Any, wrong: Any
) -> Any:
    """Write why each record is rejected, 0 if it is not; returns whether any is."""
    found = False
    for i in range(wrong.size):
        named_one = named.size == 0 or named[i]
        x = rewards[i] if named_one else rounds[i]
        wrong[i] = 0
        if named_one and given[i] < 0:
            wrong[i] = UNKNOWN
        elif np.isnan(x):
            wrong[i] = MISSING
        elif x < (low if named_one else -maximum) or x > (high if named_one else maximum):
            wrong[i] = OUT_OF_RANGE
        elif x != np.floor(x):
            wrong[i] = FRACTIONAL
        found |= wrong[i] > 0
    return found


@kernel
def _uniform(seed: Any, drawn: Any, s: Any) -> Any:
    """Return the next random number in [0, 1) of a key (splitmix64); ``drawn`` counts the numbers of a key."""
    drawn[s] += 1
    x = seed + np.uint64(drawn[s]) * _GOLDEN
    x = (x ^ (x >> _30)) * _M1
    x = (x ^ (x >> _27)) * _M2
    x = x ^ (x >> _31)
    return np.float64(np.int64(x >> _11)) * 2.0**-53


@kernel
def _at(bins: Any, i: Any) -> Any:
    return bins[i] if i >= 0 and i < bins.size else 0


@kernel
def move_interval(
    bins: Any, first: Any, width: Any, count: Any, total: Any, limit: Any, s: Any, a: Any, middles: Any, halves: Any,
    within: Any,
) -> None:  # fmt: skip
    """Move the interval of an action: the narrowest around the mean that holds ``limit`` percent of the rewards.

    It extends ``halves`` bins to both sides of the bin of the mean (truncated to a whole number), ``middles``, which is
    below 0 before the first call. It is moved from its last position, as a reward changes it little. ``bins[i]`` is the
    number of rewards in bin ``first + i``, ``within`` the number in the interval.
    """
    mean = abs(total) // count
    if total < 0:
        mean = -mean
    middle = mean // width - first
    need = count * limit // 100
    before, half, have = middles[s, a], halves[s, a], within[s, a]
    if before < 0 or abs(middle - before) > half:
        half = 0
        have = bins[middle]
    else:
        for i in range(before, middle):
            have += _at(bins, i + 1 + half) - _at(bins, i - half)
        for i in range(before, middle, -1):
            have += _at(bins, i - 1 - half) - _at(bins, i + half)
    while half > 0:
        edges = _at(bins, middle - half) + _at(bins, middle + half)
        if have - edges < need:
            break
        have -= edges
        half -= 1
    while have < need:
        half += 1
        have += _at(bins, middle - half) + _at(bins, middle + half)
    middles[s, a], halves[s, a], within[s, a] = middle, half, have


@kernel
def _reward(
    s: Any, a: Any, reward: Any, first: Any, width: Any, bins: Any, counts: Any, totals: Any, fresh: Any, middles: Any,
    halves: Any, within: Any,
) -> None:  # fmt: skip
    b = reward // width - first
    bins[s, a * (bins.shape[1] // counts.shape[1]) + b] += 1
    counts[s, a] += 1
    totals[s, a] += reward
    fresh[s, a] = False
    if middles[s, a] >= 0 and abs(b - middles[s, a]) <= halves[s, a]:
        within[s, a] += 1


@kernel
def _bin_at(at: Any, bins: Any) -> Any:
    """Return the bin of the reward of rank ``at`` among all rewards of an action."""
    i = 0
    while at >= bins[i]:
        at -= bins[i]
        i += 1
    return i


@kernel
def choose(
    strategy: Any, slots: Any, rounds: Any, given: Any, rewards: Any, seed: Any, first: Any, width: Any,
    min_trials: Any, lowest: Any, step: Any, pause: Any, explore: Any, reduction: Any, logarithmic: Any, maximum: Any,
    means: Any, spreads: Any, every: Any, bins: Any, counts: Any, totals: Any, fresh: Any, middles: Any, halves: Any,
    within: Any, limit: Any, since: Any, ready: Any, drawn: Any, selected: Any, chosen: Any, earned: Any,
) -> None:  # fmt: skip
    """Add the reward of each record with an action (``given``), and choose an action for each :data:`EVENT`.

    ``chosen[i]`` is -1 for all other records; ``earned[i]`` is the reward of the simulated environment, -1 if none.
    """
    actions = counts.shape[1]
    size = bins.shape[1] // actions
    for i in range(slots.size):
        s = slots[i]
        chosen[i] = -1
        earned[i] = -1
        if given[i] == NEITHER:
            continue
        if given[i] != EVENT:
            _reward(
                s, given[i], np.int64(rewards[i]), first, width, bins, counts, totals, fresh, middles, halves, within
            )
            continue
        now: Any = np.int64(rounds[i])
        best = 0
        if strategy == INTERVAL:
            if not ready[s]:
                ready[s] = True
                for a in range(actions):
                    ready[s] &= counts[s, a] >= min_trials
                if ready[s]:
                    since[s] = now
            if not ready[s]:
                best = int(_uniform(seed, drawn, s) * actions)
            else:
                steps = (now - since[s]) // pause
                if steps > 0 and limit[s] > lowest:
                    # compare the steps first: their product may overflow
                    limit[s] = lowest if steps > limit[s] else max(lowest, limit[s] - step * steps)
                    since[s] = now
                    for a in range(actions):
                        fresh[s, a] = False
                highest = 0
                for a in range(actions):
                    if not fresh[s, a]:
                        of = bins[s, a * size : (a + 1) * size]
                        n, total = counts[s, a], totals[s, a]
                        move_interval(of, first, width, n, total, limit[s], s, a, middles, halves, within)
                        fresh[s, a] = True
                    upper = middles[s, a] + halves[s, a]
                    if a == 0 or upper > highest:
                        best, highest = a, upper
        elif strategy == GREEDY:
            r = max(now, 1)
            chance = explore * reduction * math.log(r) / r if logarithmic else min(explore, explore * reduction / r)
            if _uniform(seed, drawn, s) < chance:
                best = int(_uniform(seed, drawn, s) * actions)
            else:
                greatest = -np.inf
                for a in range(actions):
                    mean = totals[s, a] / counts[s, a] if counts[s, a] > 0 else 0.0
                    if mean > greatest:
                        best, greatest = a, mean
        else:
            greatest = -np.inf
            for a in range(actions):
                u = _uniform(seed, drawn, s)
                if counts[s, a] > min_trials:
                    of = bins[s, a * size : (a + 1) * size]
                    draw = np.float64(_bin_at(int(u * counts[s, a]), of) + first)
                    if strategy == OPTIMISTIC:
                        draw = max(draw, totals[s, a] / counts[s, a])
                else:
                    draw = math.floor(u * maximum)
                if draw > greatest:
                    best, greatest = a, draw
        chosen[i] = best
        if every > 0:
            selected[s, best] += 1
            if selected[s, best] % every == 0:
                z = -6.0
                for _ in range(12):
                    z += _uniform(seed, drawn, s)
                earned[i] = max(0, int(z * spreads[best] + means[best]))
                _reward(s, best, earned[i], first, width, bins, counts, totals, fresh, middles, halves, within)
