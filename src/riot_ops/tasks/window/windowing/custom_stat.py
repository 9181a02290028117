"""Custom aggregates: numbers of a window that functions of the user's add, merge and evaluate."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ConfigError, excerpt
from riot_ops.kernels.jit import compile_uncached
from riot_ops.tasks.window.windowing.stats import Cells, Numbers, Stat

__all__ = ["Aggregate", "CustomStat"]


@dataclass(frozen=True)
class Aggregate:
    """A custom aggregate for :class:`Window`: a few numbers per window, and functions that numba compiles.

    Parameters
    ----------
    name : str
        Name in checkpoints: state of another name is refused.
    initial : tuple of float
        The numbers of a window without records.
    add : function of (cell, x)
        Adds a value to the numbers in ``cell`` (an array).
    merge : function of (cell, other)
        Adds the numbers of another part of the window to ``cell``.
    result : function of (cell)
        Computes the value of the window; NaN for none.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from riot_ops import tasks
    >>> def add(cell, x): cell[0] += x * x
    >>> def merge(cell, other): cell[0] += other[0]
    >>> energy = Aggregate("energy", (0.0,), add, merge, lambda cell: cell[0])
    >>> window = tasks.Window(frame="1min", aggregates={"energy": ("value", energy)}).session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> _ = window.push_many({"event_time": noon, "value": v} for v in (1.0, 2.0))
    >>> window.flush()[0]["energy"]
    5.0
    """

    name: str
    initial: tuple[float, ...]
    add: Callable[[Any, float], None] = field(repr=False)
    merge: Callable[[Any, Any], None] = field(repr=False)
    result: Callable[[Any], float] = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ConfigError(f"Aggregate: name must be an identifier, got {self.name!r}")
        try:
            object.__setattr__(self, "initial", tuple(map(float, self.initial)))
        except (TypeError, ValueError):
            raise ConfigError(f"Aggregate: initial must be a tuple of numbers, got {self.initial!r}") from None
        if not self.initial:
            raise ConfigError("Aggregate: initial needs at least one number")
        for part, arguments in (("add", "(cell, x)"), ("merge", "(cell, other)"), ("result", "(cell)")):
            function = getattr(self, part)
            if not callable(function):
                raise ConfigError(f"Aggregate: {part} must be a function, got {function!r}")
            try:
                inspect.signature(function).bind(*arguments.split(","))
            except TypeError as error:
                raise ConfigError(f"Aggregate: {part} must be a function of {arguments}: {error}") from None
            except ValueError:  # a built-in function may have no signature
                pass


@dataclass(frozen=True)
class CustomStat(Stat):
    """Numbers of a custom aggregate."""

    runs = True

    aggregate: Aggregate

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._cell_name(self.aggregate.name): ("float64", len(self.aggregate.initial), self.aggregate.initial)}

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        self._call(_add_custom, "add", groups, values, start, stop, *self._cell_arrays(cells))

    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        parts = (*self._cell_arrays(cells), *self._cell_arrays(other))
        self._call(_merge_custom, "merge", into, order, first, last, *parts)

    def run(self, cells: Cells, groups: Numbers, values: Any, times: Numbers) -> Cells:
        ((name, own),) = zip(self.cells(), self._cell_arrays(cells), strict=True)
        out = np.empty((groups.size, own.shape[1]))
        self._call(_run_custom, "add", groups, values, own, out)
        return {name: out}

    def results(self, cells: Cells) -> npt.NDArray[np.float64]:
        """Compute the value of each group."""
        (own,) = self._cell_arrays(cells)
        out = np.empty(len(own))
        self._call(_result_custom, "result", own, out)
        return out

    def _call(self, loop: Any, part: str, *arguments: Any) -> None:
        """Run a compiled loop that takes a function of the aggregate."""
        try:
            compile_uncached(loop)(compile_uncached(getattr(self.aggregate, part)), *arguments)
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "numba":
                raise
            why = " ".join(line for line in str(error).splitlines() if line.strip() and "pipeline" not in line)
            raise ConfigError(
                f"Aggregate: {part} of {self.aggregate.name!r} cannot be compiled: {excerpt(why, 200)}"
            ) from None


def _add_custom(add: Any, groups: Any, values: Any, start: Any, stop: Any, cells: Any) -> None:
    for i in range(start, stop):
        g = groups[i]
        if g >= 0 and not np.isnan(values[i]):
            add(cells[g], values[i])


def _run_custom(add: Any, groups: Any, values: Any, cells: Any, out: Any) -> None:
    for i in range(groups.size):
        g = groups[i]
        if not np.isnan(values[i]):
            add(cells[g], values[i])
        for c in range(out.shape[1]):
            out[i, c] = cells[g, c]


def _merge_custom(merge: Any, into: Any, order: Any, first: Any, last: Any, cells: Any, other: Any) -> None:
    for i in range(into.size):
        for k in range(first[i], last[i]):
            merge(cells[into[i]], other[order[k]])


def _result_custom(result: Any, cells: Any, out: Any) -> None:
    for g in range(out.size):
        out[g] = result(cells[g])
