"""Who comes and goes when: traces of submissions and removals, as files that replay, and what they cost."""

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

__all__ = ["Action", "Saved", "load", "random_walk", "replay", "save", "sequence"]


@dataclass(frozen=True)
class Action:
    """At a step, a dataflow is submitted or removed."""

    step: int
    op: Literal["submit", "remove"]
    name: str


def sequence(names: Sequence[str], seed: int = 0) -> list[Action]:
    """All come, one per step, in any order; then all go, in any order.

    >>> [(a.step, a.op, a.name) for a in sequence(["x"])]
    [(0, 'submit', 'x'), (1, 'remove', 'x')]
    """
    draw = random.Random(seed)  # noqa: S311 (no secret)
    come, go = draw.sample(names, len(names)), draw.sample(names, len(names))
    return _numbered([*(("submit", name) for name in come), *(("remove", name) for name in go)])


def random_walk(names: Sequence[str], steps: int = 100, seed: int = 0, preload: float = 0.5) -> list[Action]:
    """A share is there at first; then at each step one comes or goes, with equal chance; at last all go.

    Parameters
    ----------
    names : sequence of str
        The dataflows; one that is there does not come again, and where none is left to come, one goes.
    steps : int, >= 0, default 100
        Steps of the walk, without those in which the first come and the last go.
    seed : int, default 0
        Of all that is drawn.
    preload : float, 0 to 1, default 0.5
        The share that comes first.
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


def save(trace: Iterable[Action], path: str | Path) -> None:
    """Write a trace as lines of JSON."""
    lines = (json.dumps({"step": a.step, "op": a.op, "name": a.name}, ensure_ascii=False) for a in trace)
    Path(path).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def load(path: str | Path) -> list[Action]:
    """The trace that :func:`save` wrote; :class:`ConfigError` for anything else."""
    trace = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        try:
            trace.append(msgspec.json.decode(line, type=Action))
        except msgspec.MsgspecError as error:
            text = excerpt(line.decode("utf-8", "replace"), 60)
            raise ConfigError(f"line {number} of {path} is no action: {error}; it is {text!r}") from None
    return trace


# -- what it costs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Saved:
    """Steps that run, after each action of a trace.

    Attributes
    ----------
    alone : tuple of int
        Where each dataflow runs by itself.
    shared : tuple of int
        Where each distinct step runs once.
    uses : dict of int to int
        How many steps were used by k dataflows, summed over the trace.
    """

    alone: tuple[int, ...]
    shared: tuple[int, ...]
    uses: Mapping[int, int]

    @property
    def peak(self) -> float:
        """The share that is saved when most would run."""
        pairs = zip(self.alone, self.shared, strict=True)
        return _share(*max(pairs, key=lambda pair: pair[0], default=(0, 0)))

    @property
    def total(self) -> float:
        """The share that is saved of the sum over all steps of the trace."""
        return _share(sum(self.alone), sum(self.shared))

    @property
    def mean(self) -> float:
        """The mean of the shares that are saved at each step at which something runs."""
        shares = [_share(a, s) for a, s in zip(self.alone, self.shared, strict=True) if a]
        return sum(shares) / max(1, len(shares))


def _share(alone: int, shared: int) -> float:
    """What is saved; of nothing it is nothing."""
    return 1 - shared / alone if alone else 0.0


def replay(trace: Iterable[Action], signatures: Mapping[str, Iterable[str]]) -> Saved:
    """Count the steps that run through a trace, given the signatures of each dataflow.

    >>> saved = replay(sequence(["a", "b"]), {"a": ["source", "x"], "b": ["source", "y"]})
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
    return Saved(tuple(alone), tuple(shared), dict(sorted(uses.items())))
