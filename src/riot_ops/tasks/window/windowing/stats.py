"""What is kept of the records of a window, and how: cells of groups of records.

A :class:`Stat` owns some cells of a group: it adds records to groups and merges groups. It knows nothing of time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.jit import compiled
from riot_ops.kernels.stats import cells as loops
from riot_ops.kernels.stats.hyperloglog import hash_content

__all__ = [
    "LEAST",
    "RELATIONS",
    "Aggregate",
    "Bins",
    "Cells",
    "Counts",
    "Extremes",
    "Firsts",
    "Gaps",
    "Hits",
    "Lasts",
    "Own",
    "Ranks",
    "Spans",
    "Spreads",
    "Stat",
    "Sums",
]

Cells = dict[str, Any]
Numbers = npt.NDArray[np.int64]

#: Smallest size of a number that a quantile tells from zero, and largest.
LEAST, MOST = 1e-6, 1e9
NO_VALUES = np.empty(0)


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of your own, for :class:`Window`: a few numbers per window, and functions that numba compiles.

    Parameters
    ----------
    name : str
        What it is called in checkpoints: state of another name is refused.
    initial : tuple of float
        The numbers of a window without records.
    add : function of (cell, x)
        Changes the numbers in ``cell`` (an array) by a value.
    merge : function of (cell, other)
        Changes ``cell`` as if the values of another part of the window had been added.
    result : function of (cell)
        The value of the window; NaN for none.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from riot_ops import tasks
    >>> def add(cell, x): cell[0] += x * x
    >>> def merge(cell, other): cell[0] += other[0]
    >>> energy = Aggregate("energy", (0.0,), add, merge, lambda cell: cell[0])
    >>> window = tasks.Window(size="1min", aggregates={"energy": (energy, "value")}).session()
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
        object.__setattr__(self, "initial", tuple(map(float, self.initial)))
        if not self.initial:
            raise ConfigError("Aggregate: initial needs at least one number")
        for part in ("add", "merge", "result"):
            if not callable(getattr(self, part)):
                raise ConfigError(f"Aggregate: {part} must be a function, got {getattr(self, part)!r}")


@dataclass(frozen=True)
class Stat(ABC):
    """Some cells of a group of records, for one field (or none)."""

    field: str | None

    @abstractmethod
    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        """NumPy type (or ``json``), length (0: a number) and initial value of each of the cells."""

    def column(self, batch: pa.RecordBatch | None) -> Any:
        """What :meth:`add` wants of a batch."""
        return NO_VALUES if batch is None or self.field is None else float_column(batch.column(self.field))[0]

    @abstractmethod
    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        """Add rows to their groups (-1: to none)."""

    @abstractmethod
    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        """Merge the groups ``order[first[i]:last[i]]`` of other cells into group ``into[i]``, one after the other."""

    def _of(self, cells: Cells) -> list[Any]:
        return [cells[name] for name in self.cells()]

    def _name(self, cell: str) -> str:
        return cell if self.field is None else f"{cell}.{self.field}"


@dataclass(frozen=True)
class LoopStat(Stat):
    """A stat of two loops over the cells of numbers: ``adding`` and ``merging``."""

    adding: ClassVar[Any]
    merging: ClassVar[Any]
    #: Name, NumPy type and initial value of each of the cells.
    kept: ClassVar[tuple[tuple[str, str, Any], ...]]

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._name(cell): (dtype, 0, initial) for cell, dtype, initial in self.kept}

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        self.adding(groups, *self._given(values, times), start, stop, *self._options(), *self._of(cells))

    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        self.merging(into, order, first, last, *self._of(cells), *self._of(other))

    def _given(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        """What the loop that adds reads of the rows."""
        return (values,)

    def _options(self) -> tuple[Any, ...]:
        """What it goes by."""
        return ()


class Counts(LoopStat):
    """How many records, or values that are there."""

    adding, merging = loops.add_counts, loops.merge_counts
    kept = (("n", "int64", 0),)

    def column(self, batch: pa.RecordBatch | None) -> Any:
        if batch is None or self.field is None or pa.types.is_floating(batch.schema.field(self.field).type):
            return super().column(batch)
        return np.where(np.asarray(batch.column(self.field).is_valid()), 0.0, np.nan)


class Sums(LoopStat):
    """A sum in two parts."""

    adding, merging = loops.add_sums, loops.merge_sums
    kept = (("total", "float64", 0.0), ("rest", "float64", 0.0))


class Extremes(LoopStat):
    """The least and the greatest value."""

    adding, merging = loops.add_extremes, loops.merge_extremes
    kept = (("low", "float64", np.inf), ("high", "float64", -np.inf))


class Firsts(LoopStat):
    """The value of the smallest time."""

    adding, merging = loops.add_firsts, loops.merge_firsts
    kept = (("first", "float64", np.nan), ("first_at", "int64", 0))

    def _given(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return values, times


class Lasts(LoopStat):
    """The value of the largest time."""

    adding, merging = loops.add_lasts, loops.merge_lasts
    kept = (("last", "float64", np.nan), ("last_at", "int64", 0))

    def _given(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return values, times


class Spreads(LoopStat):
    """Number, mean, and sum of squared distances from it."""

    adding, merging = loops.add_spreads, loops.merge_spreads
    kept = (("k", "int64", 0), ("mean", "float64", 0.0), ("m2", "float64", 0.0))


class Spans(LoopStat):
    """The first and the last time of a value."""

    adding, merging = loops.add_spans, loops.merge_spans
    kept = (("begin_us", "int64", np.iinfo(np.int64).max), ("end_us", "int64", np.iinfo(np.int64).min))

    def _given(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return values, times


class Gaps(LoopStat):
    """Times between values: number of values, when the first and the last came, mean, squared distances from it."""

    adding, merging = loops.add_gaps, loops.merge_gaps
    kept = (
        *(("timed", "int64", 0), ("opening_us", "int64", 0), ("latest_us", "int64", 0)),
        *(("gap_us", "float64", 0.0), ("gap_m2", "float64", 0.0)),
    )

    def _given(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return values, times


#: What a value may be to a number, as loops know it.
RELATIONS = {"==": 1, "<": 2, "<=": 3, ">": 4, ">=": 5, "!=": 6, "&": 8}


@dataclass(frozen=True)
class Hits(LoopStat):
    """How many values are in a relation to a number."""

    adding, merging = loops.add_hits, loops.merge_counts

    relation: str
    bound: float

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._name(f"hits {self.relation} {self.bound!r}"): ("int64", 0, 0)}

    def _options(self) -> tuple[Any, ...]:
        return RELATIONS[self.relation], self.bound


@dataclass(frozen=True)
class Bins(LoopStat):
    """How many values there are of each size, in bins whose ends lie in one proportion."""

    adding, merging = loops.add_bins, loops.merge_bins

    accuracy: float

    @property
    def scale(self) -> float:
        """Bins per factor e."""
        return float(1.0 / np.log((1.0 + self.accuracy) / (1.0 - self.accuracy)))

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        half = int(np.ceil(np.log(MOST / LEAST) * self.scale)) + 1
        return {self._name(f"bins_{self.accuracy}"): ("int32", 2 * half + 1, 0)}

    def _options(self) -> tuple[Any, ...]:
        return self.scale, LEAST


@dataclass(frozen=True)
class Ranks(LoopStat):
    """The registers of a HyperLogLog."""

    adding, merging = loops.add_ranks, loops.merge_ranks

    precision: int

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._name(f"registers_{self.precision}"): ("uint8", 1 << self.precision, 0)}

    def column(self, batch: pa.RecordBatch | None) -> Any:
        return hash_content(pa.nulls(0, pa.float64()) if batch is None else batch.column(self.field))

    def _given(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return tuple(values)  # hashes, and where there is a value

    def _options(self) -> tuple[Any, ...]:
        return (self.precision,)


@dataclass(frozen=True)
class Own(Stat):
    """The numbers of an aggregate of the user's own."""

    aggregate: Aggregate

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._name(self.aggregate.name): ("float64", len(self.aggregate.initial), self.aggregate.initial)}

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        compiled(_add_own)(compiled(self.aggregate.add), groups, values, start, stop, *self._of(cells))

    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        parts = (*self._of(cells), *self._of(other))
        compiled(_merge_own)(compiled(self.aggregate.merge), into, order, first, last, *parts)

    def results(self, cells: Cells) -> npt.NDArray[np.float64]:
        """The value of each group."""
        (own,) = self._of(cells)
        out = np.empty(len(own))
        compiled(_result_own)(compiled(self.aggregate.result), own, out)
        return out


def _add_own(add: Any, groups: Any, values: Any, start: Any, stop: Any, cells: Any) -> None:
    for i in range(start, stop):
        g = groups[i]
        if g >= 0 and not np.isnan(values[i]):
            add(cells[g], values[i])


def _merge_own(merge: Any, into: Any, order: Any, first: Any, last: Any, cells: Any, other: Any) -> None:
    for i in range(into.size):
        for k in range(first[i], last[i]):
            merge(cells[into[i]], other[order[k]])


def _result_own(result: Any, cells: Any, out: Any) -> None:
    for g in range(out.size):
        out[g] = result(cells[g])
