"""The interval estimator of the reinforcement learner, one record at a time; random choices are None."""

from __future__ import annotations

import math
from collections import Counter

ACTIONS = ("page1", "page2", "page3")


def bounds(rewards, limit, width=1):
    """Return the interval around the mean that holds a percentage of the rewards."""
    mean = math.trunc(sum(rewards) / len(rewards))
    bins = Counter(math.floor(reward / width) for reward in rewards)
    middle = math.floor(mean / width)
    offset = 0
    while sum(bins[middle + i] for i in range(-offset, offset + 1)) < len(rewards) * limit // 100:
        offset += 1
    half = width / 2 if width > 1 else 0
    return (middle - offset) * width + half, (middle + offset) * width + half


class IntervalEstimator:
    def __init__(self, *, actions=ACTIONS, width=1, least=30, limit=95, lowest=50, step=5, pause=50):
        self.rewards = {action: [] for action in actions}
        self.width, self.least, self.limit, self.lowest, self.step, self.pause = (
            width,
            least,
            limit,
            lowest,
            step,
            pause,
        )
        self.last_round = None

    def reward(self, action, reward):
        self.rewards[action].append(reward)

    def choose(self, number):
        """Return the action for a round; None if it is chosen at random."""
        if self.last_round is None:
            if min(map(len, self.rewards.values())) < self.least:
                return None
            self.last_round = number
        steps = (number - self.last_round) // self.pause
        if steps > 0 and self.limit > self.lowest:
            self.limit = max(self.lowest, self.limit - self.step * steps)
            self.last_round = number
        best = None
        for action, rewards in self.rewards.items():
            upper = bounds(rewards, self.limit, self.width)[1]
            if best is None or upper > best[1]:
                best = action, upper
        return best[0]


def _whole(text):
    if not text.lstrip("+-").isdigit():
        raise ValueError(text)
    return int(text)


def reinforcement_learner(events, rewards, *, order="number", actions=ACTIONS, reward_range=(0, 9999), **options):
    """Return ``(number, event, action or None)`` for each event, and the malformed lines of both files."""
    learner = IntervalEstimator(actions=actions, **options)
    found, bad = [], ([], [])

    def earned(number, line):
        try:
            action, reward = line.split(",")
            reward = _whole(reward)
            if action not in actions or not reward_range[0] <= reward <= reward_range[1]:
                raise ValueError(line)
        except ValueError:
            bad[1].append(number)
        else:
            learner.reward(action, reward)

    def asked(number, line):
        try:
            event, round_number = line.split(",")
            if not event or _whole(round_number) < 1:
                raise ValueError(line)
            found.append((number, event, learner.choose(_whole(round_number))))
        except ValueError:
            bad[0].append(number)

    if order == "rewards first":
        for number, line in enumerate(rewards):
            earned(number, line)
        for number, line in enumerate(events):
            asked(number, line)
    else:
        for number in range(max(len(events), len(rewards))):
            if number < len(events):
                asked(number, events[number])
            if number < len(rewards):
                earned(number, rewards[number])
    return found, bad
