"""Reinforcement learner: choose the page to show, and learn from the rewards of pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Natural, NonNegative, check_arguments
from riot_ops.dataflow import Dataflow, merge

__all__ = ["reinforcement_learner"]

ACTIONS = ("page1", "page2", "page3")
#: Mean and standard deviation of each action's reward in the closed loop.
EARNINGS = {"page1": (30.0, 12.0), "page2": (60.0, 30.0), "page3": (80.0, 10.0)}
REDUCTIONS = {"linear": "linear", "logLinear": "logarithmic"}


def reinforcement_learner(
    *,
    learner: Literal["interval", "greedy", "thompson", "optimistic"] = "interval",
    actions: tuple[str, ...] = ACTIONS,
    reward_range: tuple[int, int] = (0, 9999),
    bin_width: int = 1,
    confidence_limit: Natural = 95,
    min_confidence_limit: Natural = 50,
    confidence_limit_reduction_step: Natural = 5,
    confidence_limit_reduction_round_interval: Count = 50,
    min_reward_distr_sample: Natural = 30,
    random_selection_prob: NonNegative = 0.5,
    prob_reduction_algorithm: Literal["linear", "logLinear"] = "linear",
    prob_reduction_constant: NonNegative = 1.0,
    min_sample_size: Natural | None = None,
    max_reward: Count | None = None,
    order: Literal["number", "rewards first"] = "number",
    closed_loop: bool = False,
    earnings: Mapping[str, tuple[float, float]] | None = None,
    reward_every: Count = 50,
    seed: int = 0,
    parallelism: int = 1,
) -> Dataflow:
    """Build reinforcement learner (RL): events and rewards → a learner → the action chosen for each event.

    The sources are ``events``, with lines of an event and its round, and ``rewards``, with lines of an action and its
    reward; a closed loop only has ``events``. Rounds count from 1; another round, or an unknown action, is an error.
    The result stream is ``actions``, with the fields ``event_id``, ``round``, ``action``, and in a closed loop
    ``reward``.

    Parameters
    ----------
    learner : "interval", "greedy", "thompson" or "optimistic", default "interval"
        The interval estimator, the random greedy learner, or a Thompson sampler, see :class:`riot_ops.tasks.Bandit`.
    actions : tuple of str, default ("page1", "page2", "page3")
        Actions to choose from.
    reward_range : pair of int, default (0, 9999)
        Minimum and maximum reward.
    bin_width : int, default 1
        Interval estimator: width of a bin of rewards.
    confidence_limit, min_confidence_limit : int, default 95 and 50
        Interval estimator: initial and final share of the rewards within the interval, in percent.
    confidence_limit_reduction_step, confidence_limit_reduction_round_interval : int, default 5 and 50
        Interval estimator: step by which that share falls, and the number of rounds between two steps.
    min_reward_distr_sample : int, default 30
        Interval estimator: rewards per action before it stops choosing at random.
    random_selection_prob : float, default 0.5
        Greedy learner: initial probability of a random choice.
    prob_reduction_algorithm : "linear" or "logLinear", default "linear"
        Greedy learner: how that probability falls with the rounds.
    prob_reduction_constant : float, default 1.0
        Greedy learner: constant of that reduction.
    min_sample_size, max_reward : int, optional
        Thompson samplers, which need both: number of rewards up to which they draw a number below ``max_reward``.
    order : "number" or "rewards first", default "number"
        Whether reward n follows event n, or all rewards precede the first event.
    closed_loop : bool, default False
        Whether the choices generate the rewards, normally distributed and reproducible by the seed.
    earnings : dict of str to (mean, deviation), optional
        Rewards of the actions in a closed loop; by default (30, 12), (60, 30) and (80, 10) for the three pages.
    reward_every : int, default 50
        Closed loop: number of choices of an action per reward.
    seed : int, default 0
        Seed of all random numbers.
    parallelism : int, default 1
        Number of learners; events are distributed round-robin, rewards are broadcast.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lines = lambda *text: pa.table({"payload": [t.encode() for t in text], "event_time": pa.nulls(len(text))})
    >>> flow = reinforcement_learner(min_reward_distr_sample=1, order="rewards first")
    >>> rewards = lines("page1,3", "page2,9", "page3,4")
    >>> flow.run({"events": lines("a,1", "b,2"), "rewards": rewards})["actions"]["action"].to_pylist()
    ['page2', 'page2']
    """
    check_arguments(reinforcement_learner, locals())
    sampler = learner in ("thompson", "optimistic")
    if sampler and (min_sample_size is None or max_reward is None):
        raise ConfigError(f"learner={learner!r} needs min_sample_size and max_reward")
    if earnings is not None and not closed_loop:
        raise ConfigError("earnings need closed_loop=True")
    options: dict[str, Any] = {
        "learner": learner,
        "rewards": reward_range,
        "bin_width": bin_width,
        "confidence": confidence_limit,
        "min_confidence": min_confidence_limit,
        "confidence_step": confidence_limit_reduction_step,
        "confidence_rounds": confidence_limit_reduction_round_interval,
        "min_sample": min_sample_size if sampler else min_reward_distr_sample,
        "explore": random_selection_prob,
        "reduction": REDUCTIONS[prob_reduction_algorithm],
        "reduction_constant": prob_reduction_constant,
        "max_reward": max_reward if sampler else None,
        "seed": seed,
    }
    if closed_loop:
        options |= {"feedback": EARNINGS if earnings is None else earnings, "feedback_every": reward_every}
    bandit = t.Bandit(actions=actions, **options)

    flow = Dataflow("reinforcement_learner", merging="number" if order == "number" else "sequence")
    sources = () if closed_loop else ("rewards",)
    named = ("events", *sources) if order == "number" else (*sources, "events")
    lines = {name: flow.source(name) for name in named}
    read = t.ParseLines(fields={"event_id": (0, "string"), "round": (1, "int64")}, cells=2)
    no_reward = t.Project(fields=("event_id", "round"), nulls={"action": "string", "reward": "int64"})
    counted = t.RangeFilter(by=None, bounds={"round": (1, 2**63 - 1)}, on_fail="reject")
    events = lines["events"].to(read, id="parse_events").to(counted, id="check_events").to(no_reward, id="event_rows")
    if closed_loop:
        chosen = events.shuffle(parallelism).to(bandit, id="learner")
    else:
        earned = t.ParseLines(fields={"action": (0, "string"), "reward": (1, "int64")}, cells=2)
        no_event = t.Project(fields=("action", "reward"), nulls={"event_id": "string", "round": "int64"})
        rewards = lines["rewards"].to(earned, id="parse_rewards").to(no_event, id="reward_rows")
        if parallelism == 1:
            chosen = merge(events, rewards).to_single().to(bandit, id="learner")
        else:
            chosen = flow.add(bandit, events.shuffle(parallelism), rewards.broadcast(parallelism), id="learner")
    fields = ("event_id", "round", "action", *(("reward",) if closed_loop else ()))
    return flow.sink("actions_sink", chosen.shuffle().to(t.Project(fields=fields), id="actions"))
