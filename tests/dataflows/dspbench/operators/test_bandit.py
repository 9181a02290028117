"""Bandits: bounds of intervals, random choices, and rejected records."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import Bandit
from riot_ops.kernels.stats.bandits import move_interval
from tests.reference.dspbench.reinforcement_learner import IntervalEstimator, bounds

FIELDS = {"round": pa.int64(), "action": pa.string(), "reward": pa.int64()}


def batch_of(rows):
    return pa.RecordBatch.from_pydict(
        {name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(FIELDS.items())}
    )


def reward_rows(*rewards):
    return [(None, action, reward) for action, reward in rewards]


def event_rows(many):
    return [(i, None, None) for i in range(1, many + 1)]


def choices(task, rows):
    return task.session().push_batch(batch_of(rows))["action"].to_pylist()


@given(st.lists(st.integers(-20, 40), min_size=1, max_size=20), st.integers(0, 100), st.sampled_from([1, 3, 7]))
def test_upper_bounds(rewards, limit, width):
    first, last = -20 // width, 40 // width
    bins = np.zeros(last - first + 1, np.int64)
    for reward in rewards:
        bins[reward // width - first] += 1
    interval = np.full((1, 1), -1), np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
    move_interval(bins, first, width, len(rewards), sum(rewards), limit, 0, 0, *interval)
    half = width / 2 if width > 1 else 0
    assert (first + (interval[0] + interval[1]).item()) * width + half == bounds(rewards, limit, width)[1]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 40), st.booleans()), min_size=9, max_size=60),
    st.sampled_from([1, 3, 7]),
    st.sampled_from([(95, 50, 5), (100, 90, 3), (60, 0, 40), (80, 20, 0)]),
)
def test_intervals_follow_the_rewards(steps, width, falling):
    """An interval updated in place equals one computed from scratch."""
    limit, lowest, step = falling
    rows = reward_rows(("a", 0), ("b", 0))
    for n, (action, reward, ask) in enumerate(steps):
        rows += reward_rows((action, reward)) + ([(n, None, None)] if ask else [])
    options = {"confidence": limit, "min_confidence": lowest, "confidence_step": step, "confidence_rounds": 7}
    task = Bandit(actions=("a", "b"), rewards=(-20, 40), bin_width=width, min_samples=1, **options)
    naive = IntervalEstimator(actions=("a", "b"), width=width, least=1, pause=7, limit=limit, lowest=lowest, step=step)
    wanted = []
    for number, action, reward in rows:
        if action is None:
            wanted.append(naive.choose(number))
        else:
            naive.reward(action, reward)
    assert choices(task, rows) == wanted


def test_example_of_the_specification():
    assert bounds([10, 10, 11, 12, 9, 10, 8, 10, 13, 7], 90) == (7, 13)


def test_ties_go_to_the_first_action():
    task = Bandit(actions=("b", "a", "c"), rewards=(-50, 50), min_samples=1)
    assert choices(task, reward_rows(("a", -3), ("b", -3), ("c", -4)) + event_rows(2)) == ["b", "b"]
    assert choices(task, reward_rows(("a", -3), ("b", -7), ("c", -4)) + event_rows(1)) == ["a"]
    greedy = Bandit(actions=("b", "a"), rewards=(-50, 50), learner="greedy", explore=0.0)
    assert choices(
        greedy, event_rows(1) + reward_rows(("b", -3)) + event_rows(1) + reward_rows(("a", -2)) + event_rows(1)
    ) == ["b", "a", "a"]


def test_random_choices_are_uniform():
    found = Counter(choices(Bandit(actions=("a", "b", "c", "d"), seed=1), event_rows(8000)))
    assert all(abs(found[action] - 2000) < 160 for action in "abcd")
    greedy = Bandit(actions=("a", "b"), learner="greedy", reduction_constant=1e9, explore=0.6)
    found = Counter(choices(greedy, reward_rows(("b", 5)) + event_rows(8000)))
    assert abs(found["a"] - 0.3 * 8000) < 160


def test_draws_equal_splitmix64():
    """The first outputs for the seed 0, as published: 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f."""
    names = tuple(map(str, range(1000)))
    found = choices(Bandit(actions=names, rewards=(0, 0)), event_rows(3))
    assert found == [str(1000 * x >> 64) for x in (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)]


def test_exploration_falls():
    linear = Bandit(actions=("a", "b"), learner="greedy", explore=1.0, reduction_constant=100.0, seed=2)
    found = choices(linear, reward_rows(("b", 5)) + event_rows(100_000))
    assert abs(found[:100].count("a") - 50) < 20
    assert abs(found[50_000:].count("a") - 100 / 2 * np.log(2)) < 25
    slower = linear.replace(reduction="logarithmic", reduction_constant=10.0)
    found = choices(slower, reward_rows(("b", 5)) + event_rows(100_000))
    assert abs(found[50_000:].count("a") - 10 / 2 * (np.log(1e5) ** 2 - np.log(5e4) ** 2) / 2) < 25


def test_thompson_samplers_draw_past_rewards():
    rows = reward_rows(*[("a", 0)] * 3, ("a", 10), *[("b", 5)] * 4, *[("c", 99)] * 2) + event_rows(4000)
    task = Bandit(actions=("a", "b", "c"), learner="thompson", min_samples=3, max_reward=4, rewards=(0, 99))
    found = Counter(choices(task, rows))
    assert abs(found["a"] - 1000) < 120
    assert found["c"] == 0  # at most min_samples rewards: draws below 4
    last = Counter(choices(task.replace(learner="optimistic"), rows))
    assert abs(last["a"] - 1000) < 120
    low = rows[:4] + reward_rows(*[("b", 2)] * 4) + rows[8:]
    assert Counter(choices(task.replace(learner="optimistic", max_reward=2), low)) == {"a": 4000}


def earned(rounds, **options):
    """Return the rewards of choices of one action."""
    task = Bandit(actions=("a",), **{"learner": "greedy", **options})
    return task.session().push_batch(batch_of(event_rows(rounds)))["reward"].to_pylist()


def test_confidence_falls_by_steps_to_its_minimum():
    """Of rewards 0 … 99 an interval of p % around 49 reaches about p / 2 to the right; "b" has all of its at 60."""

    def turns(**options):
        task = Bandit(actions=("a", "b"), rewards=(0, 99), min_samples=100, confidence_rounds=10, **options)
        rows = [row for i in range(100) for row in reward_rows(("a", i), ("b", 60))]
        found = choices(task, [*rows, *event_rows(200)])
        return [i + 1 for i in range(1, 200) if found[i] != found[i - 1]]

    # "a" reaches to 49 + 47 at 95 %; it is below 60 when the limit is at most 21, which are 8 steps of 10 rounds
    assert turns(confidence_step=10, min_confidence=15) == [81]
    assert turns(confidence_step=10, min_confidence=30) == []
    assert turns(confidence_step=80, min_confidence=15) == [11]
    assert turns(confidence_step=0, min_confidence=15) == []


def test_simulated_environment_rewards_every_nth_choice():
    assert earned(7, feedback={"a": (7.9, 0.0)}, feedback_every=3) == [None, None, 7, None, None, 7, None]
    assert earned(100, feedback={"a": (7.9, 0.0)}) == [*[None] * 49, 7, *[None] * 49, 7]
    rewards = np.array(earned(4000, feedback={"a": (1000, 100)}, feedback_every=1))
    assert rewards.mean() == pytest.approx(999.5, abs=6)
    assert rewards.std() == pytest.approx(100, abs=5)
    below = Counter(earned(4000, feedback={"a": (0, 1)}, feedback_every=1, seed=3))
    assert set(below) <= {0, 1, 2, 3, 4, 5}
    assert below[1] == pytest.approx(4000 * 0.1359, abs=70)  # between one and two deviations


def test_learner_learns_from_a_simulated_environment():
    task = Bandit(actions=("a", "b"), learner="greedy", explore=1.0, reduction_constant=20.0, feedback_every=1,
                    feedback={"a": (10, 1), "b": (20, 1)})  # fmt: skip
    assert set(choices(task, event_rows(2000))[-50:]) == {"b"}


def test_keys_have_separate_learners():
    task = Bandit(actions=("a", "b"), min_samples=1, by="user").session()
    for user, best in (("x", "b"), ("y", "a")):
        for action in "ab":
            task.push({"user": user, "round": None, "action": action, "reward": 5 if action == best else 1})
    assert [task.push({"user": u, "round": 1, "action": None, "reward": None})[0]["action"] for u in "xy"] == ["b", "a"]


def test_other_fields():
    task = Bandit(actions=("a",), round="r", action="page", reward="earned").session()
    assert task.push({"r": 1, "page": None, "earned": None}) == [{"r": 1, "page": "a", "earned": None}]


def test_rejected_records():
    session = Bandit(actions=("a", "b"), rewards=(0, 9)).session()
    for number, action, reward in (
        (None, "c", 1),
        (None, "a", None),
        (None, None, 1),
        (None, "a", 10),
        (None, "a", -1),
        (None, "a", 1.5),
        (1.5, None, None),
        (1e300, None, None),
    ):
        session.push({"round": number, "action": action, "reward": reward})
    reasons = [error["reason"] for error in session.errors]
    assert reasons == ["unknown_action", *["missing"] * 2, *["out_of_range"] * 2, *["not_whole"] * 2, "out_of_range"]


def test_misuse_is_refused():
    for wrong, text in (
        ({"actions": ()}, "actions"),
        ({"actions": ("a", "a")}, "actions"),
        ({"rewards": (5, 4)}, "rewards"),
        ({"rewards": (0, 1 << 30)}, "rewards"),
        ({"confidence": 40}, "confidence"),
        ({"min_samples": 0}, "min_samples"),
        ({"learner": "optimistic"}, "max_reward"),
        ({"round": "action"}, "must be different fields"),
        ({"feedback": {"b": (1, 1)}}, "feedback"),
        ({"feedback": {"a": (1, -1)}}, "feedback"),
        ({"feedback": {"a": (9000, 1000)}}, "feedback"),
        ({"feedback": {"a": 3}}, "feedback"),
    ):
        with pytest.raises(ConfigError, match=text):
            Bandit(**{"actions": ("a",), **wrong})
    assert Bandit(actions=("a",), rewards=(0, 1 << 30), bin_width=1 << 10)
