"""Multi-armed bandits: choose among actions, and learn from their rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.parameters import OWN_CHECK, Count, Names, NonNegative
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import float_column, nullable_column, valid_mask
from riot_ops.kernels.arrays.rows import filter_rows
from riot_ops.kernels.stats.bandits import (
    FRACTIONAL,
    GREEDY,
    INTERVAL,
    MISSING,
    NEITHER,
    OPTIMISTIC,
    OUT_OF_RANGE,
    THOMPSON,
    UNKNOWN,
    choose,
    validate_records,
)
from riot_ops.kernels.text.strings import name_codes
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, with_field

__all__ = ["Bandit"]

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
LEARNERS = {"interval": INTERVAL, "greedy": GREEDY, "thompson": THOMPSON, "optimistic": OPTIMISTIC}
#: Largest integer up to which float64 is exact.
MAX_EXACT_INTEGER = 1 << 53
#: Maximum deviation of the roughly normal numbers: the sum of twelve uniform numbers minus 6 lies in [-6, 6].
MAX_DEVIATIONS = 6.0
_ALL = np.empty(0, np.bool_)


@register
@dataclass(frozen=True, kw_only=True)
class Bandit(KeyedTask):
    """Choose one of several actions for each event, and learn from rewards which is best.

    Both come in one stream: a record with an action is a reward for it, and is not emitted; any other record is an
    event, and is emitted with the chosen action. The learner balances exploration and exploitation:

    - ``interval``: choose at random until each action has ``min_samples`` rewards; then choose the action with the
      largest upper bound of an interval around its mean that holds ``confidence`` percent of its rewards; the
      percentage falls as rounds pass;
    - ``greedy``: choose at random with a probability that falls as rounds pass, else choose the action with the best
      mean (0 without rewards);
    - ``thompson``: draw a past reward of each action, or with at most ``min_samples`` rewards a number below
      ``max_reward``; choose the action with the largest draw;
    - ``optimistic``: like ``thompson``, but no draw is below the mean of the past rewards.

    Ties go to the first action.

    Parameters
    ----------
    actions : tuple of str
        Actions to choose from.
    learner : "interval", "greedy", "thompson" or "optimistic", default "interval"
        Learner, see above.
    rewards : pair of int, default (0, 9999)
        Minimum and maximum reward.
    bin_width : int >= 1, default 1
        With ``interval``: width of a histogram bin, in rewards.
    min_samples : int >= 0, default 30
        With ``interval``, ``thompson`` and ``optimistic``: minimum number of rewards by which an action is judged.
    confidence, min_confidence : int, 0 to 100, default 95 and 50
        With ``interval``: initial and final percentage of the rewards that an interval holds.
    confidence_step : int, 0 to 100, default 5
        With ``interval``: step by which that percentage falls.
    confidence_rounds : int >= 1, default 50
        With ``interval``: number of rounds between two steps.
    explore : float, 0 to 1, default 0.5
        With ``greedy``: initial probability of a random choice.
    reduction : "linear" or "logarithmic", default "linear"
        With ``greedy``: ``min(explore, explore k / round)``, or ``explore k ln(round) / round``.
    reduction_constant : float, >= 0, default 1.0
        The constant k of the reduction.
    max_reward : int >= 1, optional
        With ``thompson`` and ``optimistic``, which need it: upper bound of draws without rewards.
    feedback : dict of str to (mean, deviation), optional
        Simulated environment instead of reward records: each ``feedback_every``-th choice of an action is rewarded at
        once with a roughly normal number, truncated to a non-negative integer and emitted in ``reward``.
    feedback_every : int >= 1, default 50
        Number of choices of an action per simulated reward.
    seed : int, default 0
        Seed of splitmix64, which draws the random numbers of each key.
    round : str, default "round"
        Field with the number of an event's round, from 1 on.
    action : str, default "action"
        Field with the action.
    reward : str, default "reward"
        Field with the reward; it and the round are read as float64.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; each key has its own learner.

    Shapes and rates
    ----------------
    record[n] -> record[m], 1:0/1. O(1) time per event with ``interval`` (amortised: the interval of an action moves
    with its rewards) and ``greedy``; a draw costs O(bins). State per key: 8 bytes per bin and action, with
    ``(maximum - minimum) / bin_width`` bins: by default 240 KB for three actions.

    Missing values
    --------------
    An event without a round, and an action without a reward, are errors (``missing``).

    Errors
    ------
    ``unknown_action``, ``missing``, ``not_whole`` (a round or a reward that is not an integer), ``out_of_range`` (a
    reward, or a round beyond 2^53).

    References
    ----------
    .. [1] L. P. Kaelbling, *Learning in embedded systems*, MIT Press 1993, section 4: interval estimation.
    .. [2] O. Chapelle, L. Li, *An empirical evaluation of Thompson sampling*, NIPS 2011: also the optimistic variant.
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

    actions: Names
    learner: Literal["interval", "greedy", "thompson", "optimistic"] = "interval"
    rewards: tuple[int, int] = (0, 9999)
    bin_width: Count = 1
    min_samples: Annotated[int, msgspec.Meta(ge=0)] = 30
    confidence: Percent = 95
    min_confidence: Percent = 50
    confidence_step: Percent = 5
    confidence_rounds: Count = 50
    explore: Share = 0.5
    reduction: Literal["linear", "logarithmic"] = "linear"
    reduction_constant: NonNegative = 1.0
    max_reward: Count | None = None
    feedback: Annotated[Mapping[str, tuple[float, float]] | None, OWN_CHECK] = None
    feedback_every: Count = 50
    seed: int = 0
    round: str = "round"
    action: str = "action"
    reward: str = "reward"

    def validate(self) -> None:
        if not self.actions or len(set(self.actions)) < len(self.actions):
            raise ConfigError(f"actions must name at least one action, and none twice; got {self.actions!r}")
        low, high = self.rewards
        if not -MAX_EXACT_INTEGER <= low <= high <= MAX_EXACT_INTEGER or self._bins * len(self.actions) > 1 << 24:
            raise ConfigError(
                f"rewards must be the minimum and the maximum, with at most 2^24 bins of width {self.bin_width} "
                f"over all actions; got {self.rewards!r}"
            )
        if self.confidence < self.min_confidence:
            raise ConfigError(
                f"confidence must not be below min_confidence, got {self.confidence}, {self.min_confidence}"
            )
        if self.learner == "interval" and self.min_samples < 1:
            raise ConfigError(f"min_samples must be at least 1 with learner='interval', got {self.min_samples}")
        if self.learner in ("thompson", "optimistic") and self.max_reward is None:
            raise ConfigError(f"learner={self.learner!r} needs max_reward")
        if len({self.round, self.action, self.reward}) < 3:
            raise ConfigError(
                f"round, action and reward must be different fields, got {self.round!r}, {self.action!r}, "
                f"{self.reward!r}"
            )
        if self.feedback is not None:
            object.__setattr__(self, "feedback", self._checked_feedback())

    def _checked_feedback(self) -> dict[str, tuple[float, float]]:
        feedback = self.feedback
        if not isinstance(feedback, Mapping) or set(feedback) != set(self.actions):
            raise ConfigError(f"feedback must have every action, and no others; got {value_text(feedback)}")
        checked: dict[str, tuple[float, float]] = {}
        for name, pair in feedback.items():
            numbers = [x for x in pair if isinstance(x, int | float)] if isinstance(pair, list | tuple) else []
            good = len(numbers) == 2 == len(pair) and np.isfinite(numbers).all() and numbers[1] >= 0
            if not good or not self.rewards[0] <= 0 <= numbers[0] + MAX_DEVIATIONS * numbers[1] <= self.rewards[1]:
                raise ConfigError(
                    f"feedback: {name!r} must have a mean and a deviation such that 0 and the mean plus six deviations "
                    f"are within {self.rewards}, got {value_text(pair)}"
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

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        """Reject invalid records, so that they create no key; without a key :meth:`update` does so, at lower cost."""
        if not self.by:
            return batch
        wrong = self._reject_invalid(batch, *self._read(batch), errors)
        return batch.filter(pa.array(wrong == 0)) if wrong.any() else batch

    def _read(self, batch: pa.RecordBatch) -> tuple[Any, Any, Any]:
        """Return each record's action code, round and reward."""
        rounds, rewards = (float_column(batch.column(name))[0] for name in (self.round, self.reward))
        return name_codes(batch.column(self.action), self.actions), rounds, rewards

    def _reject_invalid(
        self, batch: pa.RecordBatch, actions: Any, rounds: Any, rewards: Any, errors: RejectedRecords
    ) -> Any:
        """Reject invalid records, and return the reason of each record (0: valid)."""
        column, wrong = batch.column(self.action), np.empty(batch.num_rows, np.int8)
        named = valid_mask(column) if column.null_count else _ALL
        low, high = self.rewards
        if validate_records(named, actions, rounds, rewards, float(low), float(high), float(MAX_EXACT_INTEGER), wrong):
            names, what = ", ".join(self.actions), f"{self.round} or {self.reward}"
            errors.reject(batch, wrong == UNKNOWN, "unknown_action", f"{self.action} is not one of {names}")
            errors.reject(batch, wrong == MISSING, "missing", f"{what} is missing")
            bounds = f"{what} is out of range: rewards are from {low} to {high}"
            errors.reject(batch, wrong == OUT_OF_RANGE, "out_of_range", bounds)
            errors.reject(batch, wrong == FRACTIONAL, "not_whole", f"{what} is not an integer")
        return wrong

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        n, (low, _) = batch.num_rows, self.rewards
        actions, rounds, rewards = self._read(batch)
        if not self.by and (wrong := self._reject_invalid(batch, actions, rounds, rewards, errors)).any():
            actions = np.where(wrong, np.int32(NEITHER), actions)
        chosen, earned = np.empty(n, np.int32), np.empty(n, np.int64)
        world = [(self.feedback or {}).get(name, (0.0, 0.0)) for name in self.actions]
        means, spreads = (np.array([pair[i] for pair in world]) for i in range(2))
        choose(
            LEARNERS[self.learner], slots, rounds, actions, rewards, np.uint64(self.seed % (1 << 64)),
            low // self._width,
            self._width, self.min_samples, self.min_confidence, self.confidence_step, self.confidence_rounds,
            self.explore, self.reduction_constant, self.reduction == "logarithmic", float(self.max_reward or 0), means,
            spreads, self.feedback_every if self.feedback else 0, state["bins"], state["counts"],
            state["totals"], state["fresh"], state["middles"], state["halves"], state["within"], state["limit"],
            state["since"], state["ready"], state["drawn"], state["selected"], chosen, earned,
        )  # fmt: skip
        events = chosen >= 0
        outputs = {
            self.action: pa.array(self.actions, pa.string()).take(pa.array(chosen[events])),
            self.reward: self._reward_column(earned[events]),
        }
        schema = self.output_schema(batch.schema)
        rest = batch.select([name for name in schema.names if name not in outputs])
        rest = rest if events.all() else filter_rows(rest, events)
        columns = [outputs[f.name] if f.name in outputs else rest.column(f.name) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _reward_column(self, rewards: npt.NDArray[np.int64]) -> pa.Array:
        """Build the column of simulated rewards, null without a reward."""
        return pa.nulls(rewards.size, pa.int64()) if self.feedback is None else nullable_column(rewards, rewards < 0)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        rows = [(1, None, None), (None, "a", 5), (None, "b", 7), (2, None, None), (None, "c", 3), (3, None, None)]
        rows += [(None, "b", 2), (None, "a", 9), (9, None, None), (None, "a", -1), (None, None, 5), (10, None, 8)]
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(12), pa.int64()),
                "user": ["x", "x", "x", "y", "x", "x", None, "y", "x", "x", "y", "x"],
                **{
                    name: pa.array([row[i] for row in rows], dtype)
                    for i, (name, dtype) in enumerate(
                        (("round", pa.int64()), ("action", pa.string()), ("reward", pa.int64()))
                    )
                },
            }
        )
        common: dict[str, Any] = {"actions": ("a", "b"), "rewards": (0, 20)}
        yield Case(cls(**common, min_samples=1, confidence_rounds=2, bin_width=3, by=("user",)), batch)
        yield Case(cls(**common, learner="greedy", reduction="logarithmic", seed=4), batch, "greedy")
        yield Case(cls(**common, learner="thompson", min_samples=1, max_reward=10), batch, "Thompson")
        loop = {"a": (3, 1), "b": (5.0, 2.5)}
        yield Case(
            cls(**common, learner="optimistic", min_samples=0, max_reward=9, feedback=loop, feedback_every=2),
            batch,
            "loop",
        )
