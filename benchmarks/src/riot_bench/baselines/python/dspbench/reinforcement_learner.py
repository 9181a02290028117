"""Reinforcement learner in plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from riot_bench.baselines.python.rows import new_rows

__all__ = ["reinforcement_learner"]

_MASK = (1 << 64) - 1


class _Random:
    """The generator splitmix64."""

    def __init__(self, seed: int) -> None:
        self.state = seed & _MASK

    def uniform(self) -> float:
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return float((x ^ (x >> 31)) >> 11) * 2.0**-53


def _upper(bins: dict[int, int], count: int, total: int, limit: int, width: int) -> int:
    """Return the last bin of the interval around the mean that has ``limit`` percent of the rewards."""
    middle = int(total / count) // width
    need = count * limit // 100
    have = bins.get(middle, 0)
    offset = 0
    while have < need:
        offset += 1
        have += bins.get(middle - offset, 0) + bins.get(middle + offset, 0)
    return middle + offset


def _cells(line: bytes | None) -> list[str]:
    """Split a line into cells; empty if it is not text."""
    try:
        return [] if line is None else line.decode().rstrip("\r\n").split(",")
    except UnicodeDecodeError:
        return []


def reinforcement_learner(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    learner: str = "interval",
    actions: tuple[str, ...] = ("page1", "page2", "page3"),
    rewards: tuple[int, int] = (0, 9999),
    bin_width: int = 1,
    confidence: int = 95,
    min_confidence: int = 50,
    confidence_step: int = 5,
    confidence_rounds: int = 50,
    min_samples: int | None = None,
    explore: float = 0.5,
    reduction: str = "linear",
    reduction_constant: float = 1.0,
    max_reward: int | None = None,
    rewards_first: bool = False,
    closed_loop: bool = False,
    feedback: Mapping[str, tuple[float, float]] | None = None,
    feedback_every: int = 50,
    seed: int = 0,
) -> dict[str, list[tuple[Any, ...]]]:
    """``actions``: event, action. ``inputs`` has lines of ``events`` and, without a closed loop, of ``rewards``."""
    random = _Random(seed)
    every = range(len(actions))
    places = {action: i for i, action in enumerate(actions)}
    width = bin_width if learner == "interval" else 1
    world = feedback or {"page1": (30.0, 12.0), "page2": (60.0, 30.0), "page3": (80.0, 10.0)}
    bins: list[dict[int, int]] = [{} for _ in every]
    counts, totals, uppers, selected = ([0 for _ in every] for _ in range(4))
    stale = set(every)
    limit, last_round = confidence, -1
    sampling = True
    chosen = new_rows()

    def reward(a: int, amount: int) -> None:
        b = amount // width
        bins[a][b] = bins[a].get(b, 0) + 1
        counts[a] += 1
        totals[a] += amount
        stale.add(a)

    def interval(number: int) -> int:
        nonlocal sampling, last_round, limit
        if sampling:
            if min(counts) < (30 if min_samples is None else min_samples):
                return int(random.uniform() * len(actions))
            sampling, last_round = False, number
        steps = (number - last_round) // confidence_rounds
        if steps > 0 and limit > min_confidence:
            limit = max(min_confidence, limit - confidence_step * steps)
            last_round = number
            stale.update(every)
        for a in stale:
            uppers[a] = _upper(bins[a], counts[a], totals[a], limit, width)
        stale.clear()
        return uppers.index(max(uppers))

    def greedy(number: int) -> int:
        r, most = max(number, 1), explore * reduction_constant
        chance = min(explore, most / r) if reduction == "linear" else most * math.log(r) / r
        if random.uniform() < chance:
            return int(random.uniform() * len(actions))
        means = [totals[a] / counts[a] if counts[a] else 0.0 for a in every]
        return means.index(max(means))

    def sampled(number: int) -> int:
        draws: list[float] = []
        for a in every:
            u = random.uniform()
            if counts[a] > (min_samples or 0):
                place = int(u * counts[a])
                for amount in sorted(bins[a]):
                    if place < bins[a][amount]:
                        break
                    place -= bins[a][amount]
                draws.append(max(amount, totals[a] / counts[a]) if learner == "optimistic" else amount)
            else:
                draws.append(math.floor(u * (max_reward or 0)))
        return draws.index(max(draws))

    choose = {"interval": interval, "greedy": greedy}.get(learner, sampled)

    def handle_event(line: bytes | None) -> None:
        cells = _cells(line)
        if len(cells) != 2 or not cells[0]:
            return
        try:
            number = int(cells[1])
        except ValueError:
            return
        if number < 1:
            return
        a = choose(number)
        chosen.append((cells[0], actions[a]))
        if closed_loop:
            selected[a] += 1
            if selected[a] % feedback_every == 0:
                z = -6.0
                for _ in range(12):
                    z += random.uniform()
                mean, spread = world[actions[a]]
                reward(a, max(0, int(z * spread + mean)))

    def handle_reward(line: bytes | None) -> None:
        cells = _cells(line)
        if len(cells) != 2 or cells[0] not in places:
            return
        try:
            amount = int(cells[1])
        except ValueError:
            return
        if rewards[0] <= amount <= rewards[1]:
            reward(places[cells[0]], amount)

    if closed_loop:
        for line in inputs["events"]:
            handle_event(line)
    elif rewards_first:
        for line in inputs["rewards"]:
            handle_reward(line)
        for line in inputs["events"]:
            handle_event(line)
    else:
        for event, reward_line in zip_longest(inputs["events"], inputs["rewards"]):
            handle_event(event)
            handle_reward(reward_line)
    return {"actions": chosen}
