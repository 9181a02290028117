"""Traces of submissions and removals of dataflows, their files, and the steps that run over a trace."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from riot_ops.core.errors import ConfigError, excerpt

__all__ = ["Action", "Savings", "count_steps", "load_trace", "random_walk_trace", "save_trace", "sequential_trace"]


@dataclass(frozen=True)
class Action:
    """Submission or removal of a dataflow at a step."""

    step: int
    op: Literal["submit", "remove"]
    name: str


def sequential_trace(names: Sequence[str], seed: int = 0) -> list[Action]:
    """Create a trace that submits all dataflows in random order, one per step, then removes all in random order.

    >>> [(a.step, a.op, a.name) for a in sequential_trace(["x"])]
    [(0, 'submit', 'x'), (1, 'remove', 'x')]
    """
    draw = random.Random(seed)  # noqa: S311 (no secret)
    come, go = draw.sample(names, len(names)), draw.sample(names, len(names))
    return _numbered([*(("submit", name) for name in come), *(("remove", name) for name in go)])


def random_walk_trace(names: Sequence[str], steps: int = 100, seed: int = 0, preload: float = 0.5) -> list[Action]:
    """Create a random walk: submit a share, then submit or remove one per step with equal chance, then remove all.

    Parameters
    ----------
    names : sequence of str
        Dataflows; a running one is not submitted again, and if all are running, one is removed.
    steps : int, >= 0, default 100
        Steps of the walk, without the first submissions and the last removals.
    seed : int, default 0
        Seed of all random choices.
    preload : float, 0 to 1, default 0.5
        Share that is submitted first.
    """
    if not names or steps < 0 or not 0 <= preload <= 1:
        raise ConfigError(
            f"a walk needs names, steps >= 0 and preload 0 to 1, got {len(names)} names, {steps!r} and {preload!r}"
        )
    draw = random.Random(seed)  # noqa: S311 (no secret)
    there = draw.sample(names, int(len(names) * preload + 0.5))
    actions = [("submit", name) for name in there]
    for _ in range(steps):
        away = [name for name in names if name not in there]
        if away and (not there or draw.random() < 0.5):
            there.append(draw.choice(away))
            actions.append(("submit", there[-1]))
        else:
            actions.append(("remove", there.pop(draw.randrange(len(there)))))
    return _numbered([*actions, *(("remove", name) for name in draw.sample(there, len(there)))])


def _numbered(actions: Iterable[tuple[Any, str]]) -> list[Action]:
    return [Action(step, op, name) for step, (op, name) in enumerate(actions)]


# -- files -----------------------------------------------------------------------------------------


def save_trace(trace: Iterable[Action], path: str | Path) -> None:
    """Write a trace as JSON lines."""
    lines = (json.dumps({"step": a.step, "op": a.op, "name": a.name}, ensure_ascii=False) for a in trace)
    Path(path).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def load_trace(path: str | Path) -> list[Action]:
    """Return the trace that :func:`save_trace` wrote; raise :class:`ConfigError` for other content."""
    trace = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        try:
            trace.append(msgspec.json.decode(line, type=Action))
        except msgspec.MsgspecError as error:
            text = excerpt(line.decode("utf-8", "replace"), 60)
            raise ConfigError(f"line {number} of {path} is not an action: {error}; it is {text!r}") from None
    return trace


# -- costs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Savings:
    """Running steps after each action of a trace, with the savings by sharing.

    Attributes
    ----------
    alone : tuple of int
        Steps of separate dataflows.
    shared : tuple of int
        Distinct steps.
    uses : dict of int to int
        Number of steps used by k dataflows, summed over the trace, by k.
    """

    alone: tuple[int, ...]
    shared: tuple[int, ...]
    uses: Mapping[int, int]

    @property
    def peak(self) -> float:
        """Saved share at the peak of separate steps."""
        pairs = zip(self.alone, self.shared, strict=True)
        return _saved_share(*max(pairs, key=lambda pair: pair[0], default=(0, 0)))

    @property
    def total(self) -> float:
        """Saved share of the sum over the trace."""
        return _saved_share(sum(self.alone), sum(self.shared))

    @property
    def mean(self) -> float:
        """Mean of the saved shares after each action with running steps."""
        shares = [_saved_share(a, s) for a, s in zip(self.alone, self.shared, strict=True) if a]
        return sum(shares) / max(1, len(shares))


def _saved_share(alone: int, shared: int) -> float:
    """Return the saved share; 0 if no steps run."""
    return 1 - shared / alone if alone else 0.0


def count_steps(trace: Iterable[Action], signatures: Mapping[str, Iterable[str]]) -> Savings:
    """Count the running steps over a trace, given the step signatures of each dataflow.

    >>> saved = count_steps(sequential_trace(["a", "b"]), {"a": ["source", "x"], "b": ["source", "y"]})
    >>> saved.alone, saved.shared, saved.peak
    ((2, 4, 2, 0), (2, 3, 2, 0), 0.25)
    """
    there: Counter[str] = Counter()
    alone, shared = [], []
    uses: Counter[int] = Counter()
    for action in trace:
        marks = list(signatures[action.name])
        if action.op == "submit":
            there.update(marks)
        else:
            there.subtract(marks)
            there = +there
        alone.append(there.total())
        shared.append(len(there))
        uses.update(there.values())
    return Savings(tuple(alone), tuple(shared), dict(sorted(uses.items())))
