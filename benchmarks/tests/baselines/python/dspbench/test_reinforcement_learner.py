"""Baseline of the reinforcement learner in plain Python, against the dataflow with the same random numbers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riot_bench.baselines.python.dspbench.reinforcement_learner import reinforcement_learner as baseline

import riot_ops as ro
from riot_ops.dataflows import reinforcement_learner
from tests.dataflows.dspbench.test_reinforcement_learner import (
    EVENTS,
    LEARNERS,
    OPTIONS,
    ORDERS,
    REWARDS,
    events,
    found,
    mixed_rewards,
    rewards,
    rounds,
    table,
)
from tests.search import depth
from tests.simulated_query import SimulatedQuery


def raw(**files):
    return {name: [line.encode() for line in lines] for name, lines in files.items()}


@settings(max_examples=depth(30))
@given(events, rewards, st.sampled_from(LEARNERS), ORDERS, st.integers(0, 1 << 32))
def test_learners_equal_the_staged_dataflow(event_lines, reward_lines, options, order, seed):
    choose = random.Random(seed)
    flow = reinforcement_learner(rewards_first=order == "rewards first", seed=seed, **options)
    sources = {"events": ro.MemorySource(table(event_lines)), "rewards": ro.MemorySource(table(reward_lines))}
    plain = baseline(
        raw(events=event_lines, rewards=reward_lines), rewards_first=order == "rewards first", seed=seed, **options
    )["actions"]
    staged = SimulatedQuery(flow, sources, choose, max_records=4, partitions=choose.choice([1, 3]))
    assert found(staged["actions"]) == plain


@pytest.mark.parametrize("options", LEARNERS, ids=lambda options: "-".join(map(str, options.values())))
def test_closed_loop_is_independent_of_batch_sizes(options, tmp_path):
    earnings = {"page1": (3.0, 2.0), "page2": (6.0, 3.0), "page3": (8.0, 1.0)}
    loop = {**options, "closed_loop": True, "feedback": earnings, "feedback_every": 3, "seed": 5}
    lines = rounds(300)
    plain = baseline(raw(events=lines), **loop)["actions"]
    assert found(reinforcement_learner(**loop).run(table(lines), batch_size=7)["actions"]) == plain
    parts = []
    for stop in (131, 300):
        source = ro.MemorySource(table(lines[:stop]))
        parts += found(reinforcement_learner(**loop).run(source, checkpoint=tmp_path)["actions"])
    assert parts == plain


def test_shared_files_give_equal_results(sample_data):
    event_lines, reward_lines = ((sample_data / name).read_text().splitlines() for name in (EVENTS, REWARDS))
    for order in ("rewards first", "number"):
        rows = found(
            reinforcement_learner(rewards_first=order == "rewards first").run(
                {"events": table(event_lines), "rewards": table(reward_lines)}
            )["actions"]
        )
        assert (
            rows
            == baseline(raw(events=event_lines, rewards=reward_lines), rewards_first=order == "rewards first")[
                "actions"
            ]
        )


def test_learners_have_separate_baselines():
    event_lines = rounds(40)
    loop = {"learner": "greedy", "closed_loop": True, "feedback_every": 2, "seed": 3}
    both = found(reinforcement_learner(parallelism=2, **loop).run(table(event_lines))["actions"])
    for half in (0, 1):
        assert both[half::2] == baseline(raw(events=event_lines[half::2]), **loop)["actions"]


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_options_reach_the_baseline(option):
    event_lines, reward_lines = rounds(600), mixed_rewards()
    base = {"min_samples": 4}
    plain = baseline(raw(events=event_lines, rewards=reward_lines), **{**base, **option})["actions"]
    flow = reinforcement_learner(**{**base, **option})
    assert found(flow.run({"events": table(event_lines), "rewards": table(reward_lines)})["actions"]) == plain
    others = {name: value for name, value in option.items() if name != next(reversed(option))}
    if "learner" not in option or option["learner"] == "greedy":
        assert plain != baseline(raw(events=event_lines, rewards=reward_lines), **{**base, **others})["actions"]
