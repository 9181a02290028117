"""Reinforcement learner: choose the page to show, and learn from the rewards of pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Natural, NonNegative, check_arguments
from riot_ops.dataflow import Dataflow, merge
from riot_ops.dataflows.dspbench import operators

__all__ = ["reinforcement_learner"]

ACTIONS = ("page1", "page2", "page3")
#: Mean and standard deviation of each action's reward in the closed loop.
EARNINGS = {"page1": (30.0, 12.0), "page2": (60.0, 30.0), "page3": (80.0, 10.0)}


def reinforcement_learner(
    *,
    learner: Literal["interval", "greedy", "thompson", "optimistic"] = "interval",
    actions: tuple[str, ...] = ACTIONS,
    rewards: tuple[int, int] = (0, 9999),
    bin_width: int = 1,
    confidence: Natural = 95,
    min_confidence: Natural = 50,
    confidence_step: Natural = 5,
    confidence_rounds: Count = 50,
    min_samples: Natural | None = None,
    explore: NonNegative = 0.5,
    reduction: Literal["linear", "logarithmic"] = "linear",
    reduction_constant: NonNegative = 1.0,
    max_reward: Count | None = None,
    rewards_first: bool = False,
    closed_loop: bool = False,
    feedback: Mapping[str, tuple[float, float]] | None = None,
    feedback_every: Count = 50,
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
        The interval estimator, the random greedy learner, or a Thompson sampler, see
        :class:`~riot_ops.dataflows.dspbench.operators.Bandit`.
    actions : tuple of str, default ("page1", "page2", "page3")
        Actions to choose from.
    rewards : pair of int, default (0, 9999)
        Minimum and maximum reward.
    bin_width : int, default 1
        Interval estimator: width of a bin of rewards.
    confidence, min_confidence : int, default 95 and 50
        Interval estimator: initial and final share of the rewards within the interval, in percent.
    confidence_step, confidence_rounds : int, default 5 and 50
        Interval estimator: step by which that share falls, and the number of rounds between two steps.
    min_samples : int, optional
        Interval estimator: rewards per action before it stops choosing at random, by default 30. Thompson samplers,
        which need it: number of rewards up to which they draw a number below ``max_reward``.
    explore : float, default 0.5
        Greedy learner: initial probability of a random choice.
    reduction : "linear" or "logarithmic", default "linear"
        Greedy learner: how that probability falls with the rounds.
    reduction_constant : float, default 1.0
        Greedy learner: constant of that reduction.
    max_reward : int, optional
        Thompson samplers, which need it: they draw a number below it as long as there are few rewards.
    rewards_first : bool, default False
        Whether all rewards precede the first event; otherwise reward n follows event n.
    closed_loop : bool, default False
        Whether the choices generate the rewards, normally distributed and reproducible by the seed.
    feedback : dict of str to (mean, deviation), optional
        Rewards of the actions in a closed loop; by default (30, 12), (60, 30) and (80, 10) for the three pages.
    feedback_every : int, default 50
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
    >>> flow = reinforcement_learner(min_samples=1, rewards_first=True)
    >>> rewards = lines("page1,3", "page2,9", "page3,4")
    >>> flow.run({"events": lines("a,1", "b,2"), "rewards": rewards})["actions"]["action"].to_pylist()
    ['page2', 'page2']
    """
    check_arguments(reinforcement_learner, locals())
    sampler = learner in ("thompson", "optimistic")
    if sampler and (min_samples is None or max_reward is None):
        raise ConfigError(f"learner={learner!r} needs min_samples and max_reward")
    if feedback is not None and not closed_loop:
        raise ConfigError("feedback needs closed_loop=True")
    options: dict[str, Any] = {
        "learner": learner,
        "rewards": rewards,
        "bin_width": bin_width,
        "confidence": confidence,
        "min_confidence": min_confidence,
        "confidence_step": confidence_step,
        "confidence_rounds": confidence_rounds,
        "min_samples": 30 if min_samples is None else min_samples,
        "explore": explore,
        "reduction": reduction,
        "reduction_constant": reduction_constant,
        "max_reward": max_reward if sampler else None,
        "seed": seed,
    }
    if closed_loop:
        options |= {"feedback": EARNINGS if feedback is None else feedback, "feedback_every": feedback_every}
    bandit = operators.Bandit(actions=actions, **options)

    flow = Dataflow("reinforcement_learner", merging="sequence" if rewards_first else "number")
    sources = () if closed_loop else ("rewards",)
    named = (*sources, "events") if rewards_first else ("events", *sources)
    lines = {name: flow.source(name) for name in named}
    read = t.ParseLines(schema={"event_id": (0, "string"), "round": (1, "int64")}, cells=2)
    no_reward = t.Project(fields=("event_id", "round"), nulls={"action": "string", "reward": "int64"})
    counted = t.RangeFilter(by=None, bounds={"round": (1, 2**63 - 1)}, on_error="reject")
    events = lines["events"].to(read, id="parse_events").to(counted, id="check_events").to(no_reward, id="event_rows")
    if closed_loop:
        chosen = events.shuffle(parallelism).to(bandit, id="learner")
    else:
        earned = t.ParseLines(schema={"action": (0, "string"), "reward": (1, "int64")}, cells=2)
        no_event = t.Project(fields=("action", "reward"), nulls={"event_id": "string", "round": "int64"})
        rewarded = lines["rewards"].to(earned, id="parse_rewards").to(no_event, id="reward_rows")
        if parallelism == 1:
            chosen = merge(events, rewarded).to_single().to(bandit, id="learner")
        else:
            chosen = flow.add(bandit, events.shuffle(parallelism), rewarded.broadcast(parallelism), id="learner")
    fields = ("event_id", "round", "action", *(("reward",) if closed_loop else ()))
    return flow.sink("actions_sink", chosen.shuffle().to(t.Project(fields=fields), id="actions"))
