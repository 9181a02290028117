"""Reinforcement learner, against the interval estimator a record at a time."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import reinforcement_learner
from riot_ops.streams import replay
from tests.reference.dspbench.reinforcement_learner import IntervalEstimator
from tests.reference.dspbench.reinforcement_learner import reinforcement_learner as reference
from tests.search import depth
from tests.simulated_query import SimulatedQuery

EVENTS, REWARDS = (f"dspbench/synthetic/rl-{name}.csv" for name in ("events", "rewards"))
PAGES = ["page1", "page2", "page3"]

event_dirt = st.sampled_from(["", "a", "a,b", "a,1,2", ",5", "a,1.5"])
reward_dirt = st.sampled_from(["", "page1", "page9,4", "page1,x", "page1,-1", "page2,10000", "page1,2,3", ",4"])
events = st.lists(st.builds("e{},{}".format, st.integers(0, 9), st.integers(-3, 40)) | event_dirt, max_size=14)
earned = st.builds("{},{}".format, st.sampled_from(PAGES), st.sampled_from([0, 1, 5, 6, 7, 30, 31]))
rewards = st.lists(st.one_of(earned, earned, earned, reward_dirt), max_size=14)
intervals = st.fixed_dictionaries(
    {
        "width": st.sampled_from([1, 4]),
        "least": st.sampled_from([1, 2]),
        "limit": st.sampled_from([95, 100]),
        "lowest": st.sampled_from([0, 50]),
        "step": st.sampled_from([5, 30]),
        "pause": st.sampled_from([1, 3]),
    }
)
NAMES = {
    "width": "bin_width",
    "least": "min_samples",
    "limit": "confidence",
    "lowest": "min_confidence",
    "step": "confidence_step",
    "pause": "confidence_rounds",
}
ORDERS = st.sampled_from(["number", "rewards first"])


def table(lines):
    return pa.table(
        {"event_time": pa.nulls(len(lines), pa.timestamp("us", "UTC")), "payload": [line.encode() for line in lines]}
    )


def found(actions):
    return [(row["event_id"], row["action"]) for row in actions.sort_by("seq").to_pylist()]


def same(rows, wanted):
    """Compare choices; a random choice may be any action."""
    assert [event for event, _ in rows] == [event for _, event, _ in wanted]
    for (_, action), (_, _, other) in zip(rows, wanted, strict=True):
        assert action == other or (other is None and action in PAGES)


@pytest.mark.long
@given(events, rewards, intervals, ORDERS, st.integers(1, 9))
def test_results_equal_the_reference(event_lines, reward_lines, options, order, batch_size):
    flow = reinforcement_learner(
        rewards_first=order == "rewards first", seed=7, **{NAMES[name]: value for name, value in options.items()}
    )
    result = flow.run({"events": table(event_lines), "rewards": table(reward_lines)}, batch_size=batch_size)
    wanted, bad = reference(event_lines, reward_lines, order=order, **options)
    same(found(result["actions"]), wanted)
    steps = Counter(row["task"] for row in result.errors.to_pylist())
    assert steps["parse_events"] + steps["check_events"] == len(bad[0])
    assert steps["parse_rewards"] + steps["learner"] == len(bad[1])


LEARNERS = [
    {"learner": "interval", "min_samples": 2, "confidence_rounds": 2},
    {"learner": "greedy", "explore": 0.9, "reduction_constant": 5.0},
    {"learner": "greedy", "explore": 0.9, "reduction": "logarithmic"},
    {"learner": "thompson", "min_samples": 1, "max_reward": 40},
    {"learner": "optimistic", "min_samples": 0, "max_reward": 9},
]


@settings(max_examples=depth(30))
@given(events, rewards, st.sampled_from(LEARNERS), ORDERS, st.integers(0, 1 << 32))
def test_staged_results_are_equal(event_lines, reward_lines, options, order, seed):
    choose = random.Random(seed)
    flow = reinforcement_learner(rewards_first=order == "rewards first", seed=seed, **options)
    sources = {"events": ro.MemorySource(table(event_lines)), "rewards": ro.MemorySource(table(reward_lines))}
    whole = flow.run({"events": table(event_lines), "rewards": table(reward_lines)})["actions"]
    staged = SimulatedQuery(flow, sources, choose, max_records=4, partitions=choose.choice([1, 3]))
    assert found(staged["actions"]) == found(whole)


def rounds(many):
    return [f"s{i},{i}" for i in range(1, many + 1)]


@pytest.mark.parametrize("options", LEARNERS, ids=lambda options: "-".join(map(str, options.values())))
def test_closed_loop_is_independent_of_batch_sizes(options, tmp_path):
    earnings = {"page1": (3.0, 2.0), "page2": (6.0, 3.0), "page3": (8.0, 1.0)}
    loop = {**options, "closed_loop": True, "feedback": earnings, "feedback_every": 3, "seed": 5}
    lines = rounds(300)
    whole = found(reinforcement_learner(**loop).run(table(lines))["actions"])
    assert found(reinforcement_learner(**loop).run(table(lines), batch_size=7)["actions"]) == whole
    parts = []
    for stop in (131, 300):
        source = ro.MemorySource(table(lines[:stop]))
        parts += found(reinforcement_learner(**loop).run(source, checkpoint=tmp_path)["actions"])
    assert parts == whole


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_closed_loop_learns_the_best_page(seed):
    result = reinforcement_learner(closed_loop=True, seed=seed).run(table(rounds(10_000)))["actions"]
    rows = result.sort_by("seq").to_pylist()
    learner, made = IntervalEstimator(), Counter()
    choices = []
    for row in rows:
        choices.append(learner.choose(row["round"]))
        assert choices[-1] in (None, row["action"])
        made[row["action"]] += 1
        assert (row["reward"] is not None) == (made[row["action"]] % 50 == 0)
        if row["reward"] is not None:
            learner.reward(row["action"], row["reward"])
    for page, (mean, spread) in {"page1": (30, 12), "page2": (60, 30), "page3": (80, 10)}.items():
        earned = learner.rewards[page]
        assert len(earned) >= 30
        assert abs(sum(earned) / len(earned) - mean) < 4 * spread / len(earned) ** 0.5
    begun = choices.index(next(filter(None, choices)))
    assert Counter(choices[begun : begun + 50]).most_common(1)[0][0] == "page2"
    assert Counter(choices[-2000:]).most_common(1)[0][0] == "page3"


@pytest.mark.long
def test_shared_files_give_equal_results(sample_data):
    event_lines, reward_lines = ((sample_data / name).read_text().splitlines() for name in (EVENTS, REWARDS))
    for order in ("rewards first", "number"):
        wanted, bad = reference(event_lines, reward_lines, order=order)
        assert bad == ([], [])
        sources = {"events": replay(sample_data / EVENTS), "rewards": replay(sample_data / REWARDS)}
        rows = found(reinforcement_learner(rewards_first=order == "rewards first").run(sources)["actions"])
        same(rows, wanted)
        assert sum(action is None for *_, action in wanted) < (1 if order == "rewards first" else 150)


def test_learners_alternate():
    reward_lines = [f"{page},{i}" for i, page in enumerate(PAGES)]
    flow = reinforcement_learner(parallelism=2, rewards_first=True, min_samples=1, confidence=100, seed=3)
    event_lines = rounds(40)
    rows = found(flow.run({"events": table(event_lines), "rewards": table(reward_lines)}, batch_size=9)["actions"])
    assert rows == [(line.split(",")[0], "page3") for line in event_lines]
    loop = {"learner": "greedy", "closed_loop": True, "feedback_every": 2, "seed": 3}
    both = found(reinforcement_learner(parallelism=2, **loop).run(table(event_lines))["actions"])
    for half in (0, 1):
        alone = reinforcement_learner(**loop).run(table(event_lines[half::2]))["actions"]
        assert both[half::2] == found(alone)


PAIRS = {"page1": (30, 12), "page2": (38, 25), "page3": (60, 5)}
OPTIONS = [
    {"bin_width": 5},
    {"confidence": 60},
    {"min_confidence": 0, "confidence_step": 40},
    {"confidence_step": 40},
    {"confidence_rounds": 3},
    {"min_samples": 12},
    {"learner": "greedy"},
    {"learner": "greedy", "explore": 1.0},
    {"learner": "greedy", "reduction": "logarithmic"},
    {"learner": "greedy", "reduction_constant": 9.0},
    {"learner": "thompson", "min_samples": 3, "max_reward": 50},
    {"learner": "thompson", "min_samples": 12, "max_reward": 50},
    {"learner": "thompson", "min_samples": 12, "max_reward": 90},
    {"learner": "optimistic", "min_samples": 3, "max_reward": 50},
    {"actions": ("page3", "page1")},
    {"rewards": (0, 40)},
    {"rewards_first": True},
    {"seed": 9},
]


def mixed_rewards():
    draw = random.Random(1)
    lines = [f"{page},{max(0, round(draw.gauss(*PAIRS[page])))}" for page in PAGES * 12]
    draw.shuffle(lines)
    return lines


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_every_option_changes_the_choices(option):
    inputs = {"events": table(rounds(600)), "rewards": table(mixed_rewards())}
    base = {"min_samples": 4}
    others = {name: value for name, value in option.items() if name != next(reversed(option))}
    if "learner" not in option or option["learner"] == "greedy":
        changed, usual = (reinforcement_learner(**{**base, **one}).run(inputs)["actions"] for one in (option, others))
        assert found(changed) != found(usual)


def test_misuse_is_refused():
    for wrong, text in (
        ({"rewards_first": "no"}, "rewards_first"),
        ({"reduction": "cubic"}, "reduction"),
        ({"learner": "thompson"}, "min_samples"),
        ({"learner": "oracle"}, "learner"),
        ({"feedback": {}}, "closed_loop"),
        ({"closed_loop": True, "feedback": {"page1": (1, 1)}}, "feedback"),
        ({"closed_loop": True, "rewards": (0, 100)}, "feedback"),
        ({"parallelism": 0}, "parallelism"),
    ):
        with pytest.raises(ConfigError, match=text):
            reinforcement_learner(**wrong)
