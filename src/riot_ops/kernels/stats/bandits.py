"""Learners that choose among actions by the rewards that these had: the loops of multi-armed bandits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = [
    "BEYOND",
    "BROKEN",
    "EVENT",
    "GREEDY",
    "INTERVAL",
    "MISSING",
    "NEITHER",
    "OPTIMISTIC",
    "THOMPSON",
    "UNKNOWN",
    "choose",
    "judge",
    "settle",
]

#: How an action is chosen.
INTERVAL, GREEDY, THOMPSON, OPTIMISTIC = 0, 1, 2, 3

#: What is wrong with a record: its action, or its round or reward.
UNKNOWN, MISSING, BEYOND, BROKEN = 1, 2, 3, 4
#: In place of an action's number: there is none, as the record is an event; it is neither of both.
EVENT, NEITHER = -1, -2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)


@kernel
def judge(named: Any, given: Any, rounds: Any, rewards: Any, low: Any, high: Any, most: Any, wrong: Any) -> Any:
    """What is wrong with each record, 0 if nothing; returns whether anything is."""
    found = False
    for i in range(wrong.size):
        named_one = named.size == 0 or named[i]
        x = rewards[i] if named_one else rounds[i]
        wrong[i] = 0
        if named_one and given[i] < 0:
            wrong[i] = UNKNOWN
        elif np.isnan(x):
            wrong[i] = MISSING
        elif x < (low if named_one else -most) or x > (high if named_one else most):
            wrong[i] = BEYOND
        elif x != np.floor(x):
            wrong[i] = BROKEN
        found |= wrong[i] > 0
    return found


@kernel
def _uniform(seed: Any, drawn: Any, s: Any) -> Any:
    """The next random number in [0, 1) of a key (splitmix64); ``drawn`` counts them."""
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
def settle(
    bins: Any, first: Any, width: Any, count: Any, total: Any, limit: Any, s: Any, a: Any, middles: Any, halves: Any,
    within: Any,
) -> None:  # fmt: skip
    """Bring an interval to where it is around the mean of the rewards and holds so many percent of them, no wider.

    It is as many bins (``halves``) to the right of that of the mean (cut to a whole number; ``middles``, below 0: not
    found yet) as to the left, and goes there from where it was, as little changes from reward to reward. ``bins[i]`` is
    how many rewards are in bin ``first + i``, ``within`` how many in the interval.
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
def _past(at: Any, bins: Any) -> Any:
    """The bin of the reward at a place, where all of an action stand in order."""
    i = 0
    while at >= bins[i]:
        at -= bins[i]
        i += 1
    return i


@kernel
def choose(
    kind: Any, slots: Any, rounds: Any, given: Any, rewards: Any, seed: Any, first: Any, width: Any, least: Any,
    lowest: Any, step: Any, pause: Any, explore: Any, reduction: Any, logarithmic: Any, most: Any, means: Any,
    spreads: Any, every: Any, bins: Any, counts: Any, totals: Any, fresh: Any, middles: Any, halves: Any,
    within: Any, limit: Any, since: Any, ready: Any, drawn: Any, selected: Any, chosen: Any, earned: Any,
) -> None:  # fmt: skip
    """Take the reward of each record that has an action (``given``), and choose one for each :data:`EVENT`.

    ``chosen[i]`` is -1 for all but these; ``earned[i]`` is what the environment gave for a choice, -1 if nothing.
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
        if kind == INTERVAL:
            if not ready[s]:
                ready[s] = True
                for a in range(actions):
                    ready[s] &= counts[s, a] >= least
                if ready[s]:
                    since[s] = now
            if not ready[s]:
                best = int(_uniform(seed, drawn, s) * actions)
            else:
                steps = (now - since[s]) // pause
                if steps > 0 and limit[s] > lowest:
                    # whether more steps than there is room for or not, without a product that is too large
                    limit[s] = lowest if steps > limit[s] else max(lowest, limit[s] - step * steps)
                    since[s] = now
                    for a in range(actions):
                        fresh[s, a] = False
                highest = 0
                for a in range(actions):
                    if not fresh[s, a]:
                        of = bins[s, a * size : (a + 1) * size]
                        n, total = counts[s, a], totals[s, a]
                        settle(of, first, width, n, total, limit[s], s, a, middles, halves, within)
                        fresh[s, a] = True
                    upper = middles[s, a] + halves[s, a]
                    if a == 0 or upper > highest:
                        best, highest = a, upper
        elif kind == GREEDY:
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
                if counts[s, a] > least:
                    of = bins[s, a * size : (a + 1) * size]
                    draw = np.float64(_past(int(u * counts[s, a]), of) + first)
                    if kind == OPTIMISTIC:
                        draw = max(draw, totals[s, a] / counts[s, a])
                else:
                    draw = math.floor(u * most)
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
