"""Choose among actions, and learn from their rewards: multi-armed bandits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, short
from riot_ops.core.parameters import Count, NonNegative
from riot_ops.kernels.arrays.arrow import float_column, masked, present
from riot_ops.kernels.arrays.rows import filtered
from riot_ops.kernels.stats.bandits import (
    BEYOND,
    BROKEN,
    GREEDY,
    INTERVAL,
    MISSING,
    NEITHER,
    OPTIMISTIC,
    THOMPSON,
    UNKNOWN,
    choose,
    judge,
)
from riot_ops.kernels.text.strings import code_of
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, with_field

__all__ = ["Bandit"]

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
LEARNERS = {"interval": INTERVAL, "greedy": GREEDY, "thompson": THOMPSON, "optimistic": OPTIMISTIC}
#: Beyond, numbers that came as float64 may not be what they were.
EXACT = 1 << 53
#: A sum of twelve uniform numbers less 6 is at most so far from 0.
FARTHEST = 6.0
_ALL = np.empty(0, np.bool_)


@register
@dataclass(frozen=True, kw_only=True)
class Bandit(KeyedTask):
    """Choose one of several actions for each event, and learn from rewards which is best.

    Both come in one stream: a record that names an action is its reward, and ends here; any other is an event, and
    comes out with the action chosen. How far to try and how far to use what is known is up to the learner:

    - ``interval``: choose at random until each action has ``min_sample`` rewards; then that with the largest upper
      bound of an interval around its mean that holds ``confidence`` percent of its rewards, which falls as rounds pass;
    - ``greedy``: with a probability that falls as rounds pass at random, else that with the best mean (0 without any);
    - ``thompson``: draw a past reward of each action, or where there are no more than ``min_sample`` a number below
      ``max_reward``; choose that with the largest draw;
    - ``optimistic``: the same, but no draw is below the mean of the past rewards.

    Of equals the first is chosen.

    Parameters
    ----------
    actions : tuple of str
        What there is to choose from.
    learner : "interval", "greedy", "thompson" or "optimistic", default "interval"
        How, see above.
    rewards : pair of int, default (0, 9999)
        The least and the greatest reward that there can be.
    bin_width : int >= 1, default 1
        With ``interval``: how many rewards, in whole numbers, make a bin of the histogram.
    min_sample : int >= 0, default 30
        With ``interval``, ``thompson`` and ``optimistic``: rewards of an action by which it is judged.
    confidence, min_confidence : int, 0 to 100, default 95 and 50
        With ``interval``: percent of the rewards that an interval holds, at first and in the end.
    confidence_step : int, 0 to 100, default 5
        By how much it falls at a time.
    confidence_rounds : int >= 1, default 50
        After how many rounds it falls again.
    explore : float, 0 to 1, default 0.5
        With ``greedy``: probability of a choice at random, at first.
    reduction : "linear" or "logarithmic", default "linear"
        How it falls: ``min(explore, explore k / round)``, or ``explore k ln(round) / round``.
    reduction_constant : float, >= 0, default 1.0
        The k in it.
    max_reward : int >= 1, optional
        With ``thompson`` and ``optimistic``, which need it: what a draw without rewards is below.
    feedback : dict of str to (mean, deviation), optional
        An environment in place of rewards from outside: each ``feedback_every``-th choice of an action is rewarded at
        once by a roughly normal number, cut to a whole one that is not below 0. It is put out in ``reward``.
    feedback_every : int >= 1, default 50
        How often.
    seed : int, default 0
        Of all that is random: the numbers that a key draws are those of splitmix64 that begins with it.
    round : str, default "round"
        Field with the number of an event's round, from 1 on.
    action : str, default "action"
        Field with the action.
    reward : str, default "reward"
        Field with the reward.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; each key has a learner of its own.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:0/1. O(1) time per event of ``interval`` (amortised: the interval of an action moves
    with its rewards) and ``greedy``. A draw costs O(bins). State per key: 8 bytes per bin and action; there are
    ``(greatest - least) / bin_width``: by default 240 KB for three actions.

    Missing values
    --------------
    An event without a round, and an action without a reward, are errors (``missing``).

    Errors
    ------
    ``unknown_action``, ``missing``, ``not_whole`` (a round or a reward that is no whole number), ``out_of_range`` (a
    reward, or a round beyond 2^53).

    References
    ----------
    .. [1] L. P. Kaelbling, *Learning in embedded systems*, MIT Press 1993, section 4: interval estimation.
    .. [2] O. Chapelle, L. Li, *An empirical evaluation of Thompson sampling*, NIPS 2011: also the optimistic one.
    .. [3] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: reinforcement learner.

    Examples
    --------
    >>> bandit = Bandit(actions=("left", "right"), learner="greedy", explore=0.0).session()
    >>> bandit.push({"round": 1, "action": None, "reward": None})[0]["action"]
    'left'
    >>> bandit.push({"round": None, "action": "right", "reward": 3})
    []
    >>> bandit.push({"round": 2, "action": None, "reward": None})[0]["action"]
    'right'
    """

    code: ClassVar[str] = "BND"
    category: ClassVar[str] = "Predictive"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "1:0/1"

    actions: tuple[str, ...]
    learner: Literal["interval", "greedy", "thompson", "optimistic"] = "interval"
    rewards: tuple[int, int] = (0, 9999)
    bin_width: Count = 1
    min_sample: Annotated[int, msgspec.Meta(ge=0)] = 30
    confidence: Percent = 95
    min_confidence: Percent = 50
    confidence_step: Percent = 5
    confidence_rounds: Count = 50
    explore: Share = 0.5
    reduction: Literal["linear", "logarithmic"] = "linear"
    reduction_constant: NonNegative = 1.0
    max_reward: Count | None = None
    feedback: Any = None
    feedback_every: Count = 50
    seed: int = 0
    round: str = "round"
    action: str = "action"
    reward: str = "reward"

    def validate(self) -> None:
        if not self.actions or len(set(self.actions)) < len(self.actions):
            raise ConfigError(f"actions must name at least one action, none twice; got {self.actions!r}")
        low, high = self.rewards
        if not -EXACT <= low <= high <= EXACT or self._bins * len(self.actions) > 1 << 24:
            raise ConfigError(
                f"rewards must be the least and the greatest one, for all actions together at most 2^24 bins of "
                f"{self.bin_width}, got {self.rewards!r}"
            )
        if self.confidence < self.min_confidence:
            raise ConfigError(
                f"confidence must not be below min_confidence, got {self.confidence}, {self.min_confidence}"
            )
        if self.learner == "interval" and self.min_sample < 1:
            raise ConfigError(f"min_sample must be at least 1 with learner='interval', got {self.min_sample}")
        if self.learner in ("thompson", "optimistic") and self.max_reward is None:
            raise ConfigError(f"learner={self.learner!r} needs max_reward")
        if len({self.round, self.action, self.reward}) < 3:
            raise ConfigError(f"round, action and reward must be three fields, got {self.round!r}, {self.action!r}, "
                              f"{self.reward!r}")  # fmt: skip
        if self.feedback is not None:
            object.__setattr__(self, "feedback", self._environment())

    def _environment(self) -> dict[str, tuple[float, float]]:
        given = self.feedback
        if not isinstance(given, Mapping) or set(given) != set(self.actions):
            raise ConfigError(f"feedback must have each of the actions, got {short(given)}")
        checked: dict[str, tuple[float, float]] = {}
        for name, pair in given.items():
            numbers = [x for x in pair if isinstance(x, int | float)] if isinstance(pair, list | tuple) else []
            good = len(numbers) == 2 == len(pair) and np.isfinite(numbers).all() and numbers[1] >= 0
            if not good or not self.rewards[0] <= 0 <= numbers[0] + FARTHEST * numbers[1] <= self.rewards[1]:
                raise ConfigError(
                    f"feedback: {name!r} must have a mean and a deviation, such that rewards from 0 to six deviations "
                    f"above the mean are within {self.rewards}, got {short(pair)}"
                )
            checked[name] = float(numbers[0]), float(numbers[1])
        return checked

    def __hash__(self) -> int:
        return hash((self.actions, self.learner, self.rewards, self.seed, repr(self.feedback)))

    @property
    def _width(self) -> int:
        return self.bin_width if self.learner == "interval" else 1

    @property
    def _bins(self) -> int:
        low, high = self.rewards
        return high // self._width - low // self._width + 1

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.round: "number", self.action: "text", self.reward: "number"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        schema = with_field(schema, pa.field(self.action, pa.string()))
        return with_field(schema, pa.field(self.reward, pa.int64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.action, self.reward})

    def state_fields(self) -> Mapping[str, StateField]:
        n = len(self.actions)
        return {
            "bins": StateField("int64", n * self._bins),
            **{name: StateField("int64", n) for name in ("counts", "totals", "halves", "within", "selected")},
            "middles": StateField("int64", n, initial=-1),
            "fresh": StateField("bool", n, initial=False),
            "limit": StateField("int64", initial=self.confidence),
            "since": StateField("int64"),
            "ready": StateField("bool", initial=False),
            "drawn": StateField("int64"),
        }

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        """Of several keys what is wrong must not make one; else :meth:`update` passes it over, which costs less."""
        if not self.by:
            return batch
        wrong = self._wrong(batch, *self._read(batch), dead)
        return batch.filter(pa.array(wrong == 0)) if wrong.any() else batch

    def _read(self, batch: pa.RecordBatch) -> tuple[Any, Any, Any]:
        """The number of each record's action, its round and its reward."""
        rounds, rewards = (float_column(batch.column(name))[0] for name in (self.round, self.reward))
        return code_of(batch.column(self.action), self.actions), rounds, rewards

    def _wrong(self, batch: pa.RecordBatch, given: Any, rounds: Any, rewards: Any, dead: DeadLetters) -> Any:
        """What is wrong with each record, 0 if nothing; such are rejected."""
        column, wrong = batch.column(self.action), np.empty(batch.num_rows, np.int8)
        named = present(column) if column.null_count else _ALL
        low, high = self.rewards
        if judge(named, given, rounds, rewards, float(low), float(high), float(EXACT), wrong):
            names, what = ", ".join(self.actions), f"{self.round} or {self.reward}"
            dead.reject(batch, wrong == UNKNOWN, "unknown_action", f"{self.action} is none of {names}")
            dead.reject(batch, wrong == MISSING, "missing", f"{what} is missing")
            bounds = f"{what} is out of range: rewards are from {low} to {high}"
            dead.reject(batch, wrong == BEYOND, "out_of_range", bounds)
            dead.reject(batch, wrong == BROKEN, "not_whole", f"{what} is no whole number")
        return wrong

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        n, (low, _) = batch.num_rows, self.rewards
        given, rounds, rewards = self._read(batch)
        if not self.by and (wrong := self._wrong(batch, given, rounds, rewards, dead)).any():
            given = np.where(wrong, np.int32(NEITHER), given)
        chosen, earned = np.empty(n, np.int32), np.empty(n, np.int64)
        world = [(self.feedback or {}).get(name, (0.0, 0.0)) for name in self.actions]
        means, spreads = (np.array([pair[i] for pair in world]) for i in range(2))
        choose(
            LEARNERS[self.learner], slots, rounds, given, rewards, np.uint64(self.seed % (1 << 64)), low // self._width,
            self._width, self.min_sample, self.min_confidence, self.confidence_step, self.confidence_rounds,
            self.explore, self.reduction_constant, self.reduction == "logarithmic", float(self.max_reward or 0), means,
            spreads, self.feedback_every if self.feedback else 0, state["bins"], state["counts"],
            state["totals"], state["fresh"], state["middles"], state["halves"], state["within"], state["limit"],
            state["since"], state["ready"], state["drawn"], state["selected"], chosen, earned,
        )  # fmt: skip
        events = chosen >= 0
        made = {
            self.action: pa.array(self.actions, pa.string()).take(pa.array(chosen[events])),
            self.reward: self._earned(earned[events]),
        }
        schema = self.output_schema(batch.schema)
        rest = batch.select([name for name in schema.names if name not in made])
        rest = rest if events.all() else filtered(rest, events)
        columns = [made[f.name] if f.name in made else rest.column(f.name) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _earned(self, rewards: npt.NDArray[np.int64]) -> pa.Array:
        """What choices brought in, null where they brought nothing."""
        return pa.nulls(rewards.size, pa.int64()) if self.feedback is None else masked(rewards, rewards < 0)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        rows = [(1, None, None), (None, "a", 5), (None, "b", 7), (2, None, None), (None, "c", 3), (3, None, None)]
        rows += [(None, "b", 2), (None, "a", 9), (9, None, None), (None, "a", -1), (None, None, 5), (10, None, 8)]
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(12), pa.int64()),
                "user": ["x", "x", "x", "y", "x", "x", None, "y", "x", "x", "y", "x"],
                **{
                    name: pa.array([row[i] for row in rows], kind)
                    for i, (name, kind) in enumerate(
                        (("round", pa.int64()), ("action", pa.string()), ("reward", pa.int64()))
                    )
                },
            }
        )
        common: dict[str, Any] = {"actions": ("a", "b"), "rewards": (0, 20)}
        yield Case(cls(**common, min_sample=1, confidence_rounds=2, bin_width=3, by=("user",)), batch)
        yield Case(cls(**common, learner="greedy", reduction="logarithmic", seed=4), batch, "greedy")
        yield Case(cls(**common, learner="thompson", min_sample=1, max_reward=10), batch, "Thompson")
        loop = {"a": (3, 1), "b": (5.0, 2.5)}
        yield Case(
            cls(**common, learner="optimistic", min_sample=0, max_reward=9, feedback=loop, feedback_every=2),
            batch,
            "loop",
        )
