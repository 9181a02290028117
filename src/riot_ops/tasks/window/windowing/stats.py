"""Stats: the cells that windows keep of their records.

A :class:`Stat` owns some cells of a group: it adds records to groups and merges groups. It knows nothing of windows.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.operator import State, StateField
from riot_ops.kernels.arrays.arrow import float_column, numpy_values, readonly
from riot_ops.kernels.arrays.exact import compared, exact_numbers, exact_pair
from riot_ops.kernels.arrays.hashing import NO_SECRET
from riot_ops.kernels.stats import accumulators as loops
from riot_ops.kernels.stats import clipping, exact_sum, rings, running
from riot_ops.kernels.stats.hyperloglog import hash_values

__all__ = [
    "CLIPPED",
    "REFUSED",
    "RELATIONS",
    "Cells",
    "ClippedMeans",
    "Counts",
    "DistinctRegisters",
    "ExactSums",
    "ExponentialMeans",
    "Extremes",
    "Firsts",
    "HashWords",
    "KernelStat",
    "Lasts",
    "Lines",
    "MatchCounts",
    "Moments",
    "Placed",
    "Products",
    "Stat",
    "Summaries",
    "Sums",
    "TimeGaps",
    "TimeSpans",
    "Weights",
    "is_whole",
]

Cells = dict[str, Any]
Numbers = npt.NDArray[np.int64]
#: The key of a hash, see :class:`riot_ops.kernels.arrays.hash_key.HashKey`.
HashWords = npt.NDArray[np.uint64]

NO_VALUES = np.empty(0)
#: Cell of :meth:`KernelStat.run` with the rows that it has not added, if there are any.
REFUSED = "refused"


def is_whole(dtype: pa.DataType) -> bool:
    """Whether a type holds integers or booleans."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_boolean(dtype))


@dataclass(frozen=True)
class Placed:
    """Rows with their places in rings, see :mod:`riot_ops.kernels.stats.rings`."""

    slots: Numbers
    place: Numbers
    tail: Numbers
    first: Numbers
    held: Numbers
    closing: Numbers
    emitted: npt.NDArray[np.bool_]
    rooms: Numbers

    @classmethod
    def empty(cls, slots: Numbers, rooms: Numbers) -> Placed:
        """Return rows whose places are not known yet; ``rooms`` has the number of places of each key, or of all."""
        place, tail, first, held, closing = np.empty((5, slots.size), np.int64)
        return cls(slots, place, tail, first, held, closing, np.empty(slots.size, np.bool_), rooms)

    def outputs(self) -> tuple[Any, ...]:
        """Return what the kernels write that place rows."""
        return self.place, self.tail, self.first, self.held, self.closing, self.emitted

    def part(self, start: int, stop: int | None = None) -> Placed:
        """Return some of the rows; with the same memory."""
        slots, place, tail, first, held, closing, emitted = (one[start:stop] for one in (self.slots, *self.outputs()))
        return Placed(slots, place, tail, first, held, closing, emitted, self.rooms)


@dataclass(frozen=True)
class Stat(ABC):
    """Cells of a group of records, for one field (or none)."""

    #: Whether its cells hold hashes of values.
    hashes: ClassVar[bool] = False
    #: Whether it can be emitted at each record of unbounded windows, see :meth:`KernelStat.run`.
    runs: ClassVar[bool] = False
    #: Whether merging its cells, in any order, equals adding the records one by one to the bit.
    exact: ClassVar[bool] = False
    #: Whether it does for a field of integers.
    exact_integers: ClassVar[bool] = False
    #: Whether it reads the times of records.
    reads_times: ClassVar[bool] = False
    #: Whether it can be kept for windows of the last records, see :meth:`slide`.
    slides: ClassVar[bool] = False
    #: Whether it may refuse a value when results are emitted at each record.
    refuses: ClassVar[bool] = False

    field: str | None

    @abstractmethod
    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        """Declare NumPy type (or ``object``), length (0: a number) and initial value of each cell."""

    def column(self, batch: pa.RecordBatch | None, key: HashWords = NO_SECRET) -> Any:
        """Return the values that :meth:`add` needs from a batch; ``key`` is that of their hashes."""
        return NO_VALUES if batch is None or self.field is None else float_column(batch.column(self.field))[0]

    def run_column(self, batch: pa.RecordBatch, key: HashWords = NO_SECRET) -> Any:
        """Return the values that :meth:`run` needs from a batch."""
        return self.column(batch, key)

    def run(self, cells: Cells, groups: Numbers, values: Any, times: Numbers) -> Cells:
        """Add all rows to their groups, and return the cells of the row's group after each."""
        raise NotImplementedError

    def run_last(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, rows: Numbers) -> Cells:
        """Add all rows to their groups, and return the cells after ``rows``, the last one of each group."""
        return {name: cell[rows] for name, cell in self.run(cells, groups, values, times).items()}

    def merges_exactly(self, schema: pa.Schema) -> bool:
        """Whether merging its cells, in any order, equals adding the records one by one to the bit."""
        return self.exact or (self.exact_integers and is_whole(schema.field(self.field).type))

    def ring_fields(self, room: int, growable: bool) -> dict[str, StateField]:
        """Declare the state of :meth:`slide`, with ``room`` places, which may become more if ``growable``."""
        raise NotImplementedError

    def rings(self) -> dict[str, int]:
        """Return the state fields with places, with the numbers in each."""
        raise NotImplementedError

    def slide(self, state: State, batch: pa.RecordBatch, placed: Placed) -> Cells:
        """Add all rows, and return the cells of the windows that are emitted."""
        raise NotImplementedError

    def latest_window(self, state: State, slots: Numbers, tail: Numbers, first: Numbers, held: Numbers) -> Cells:
        """Return the cells of the windows at the last records of some keys."""
        raise NotImplementedError

    @abstractmethod
    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        """Add rows to their groups (-1: no group)."""

    @abstractmethod
    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        """Merge the groups ``order[first[i]:last[i]]`` of the other cells into group ``into[i]``, in this order."""

    def _cell_arrays(self, cells: Cells) -> list[Any]:
        return [cells[name] for name in self.cells()]

    def _cell_name(self, cell: str) -> str:
        return cell if self.field is None else f"{cell}.{self.field}"


@dataclass(frozen=True)
class KernelStat(Stat):
    """A stat of numeric cells, implemented by two compiled loops: ``add_kernel`` and ``merge_kernel``."""

    add_kernel: ClassVar[Any]
    merge_kernel: ClassVar[Any]
    #: The loop that adds rows one by one and writes the cells after each; None if a copy of the cells is too large.
    run_kernel: ClassVar[Any] = None
    #: Name, NumPy type and initial value of each cell.
    layout: ClassVar[tuple[tuple[str, str, Any], ...]]

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._cell_name(cell): (dtype, 0, initial) for cell, dtype, initial in self.layout}

    def add(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, start: int, stop: int) -> None:
        self.add_kernel(
            groups, *self._kernel_inputs(values, times), start, stop, *self._kernel_options(), *self._cell_arrays(cells)
        )

    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        self.merge_kernel(into, order, first, last, *self._cell_arrays(cells), *self._cell_arrays(other))

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.runs = cls.run_kernel is not None

    def run(self, cells: Cells, groups: Numbers, values: Any, times: Numbers) -> Cells:
        """Add all rows to their groups, and return the cells of the row's group after each."""
        after = {name: np.empty(groups.size, cells[name].dtype) for name in self._cell_names}
        self.run_kernel(groups, *self._kernel_inputs(values, times), *self._cell_arrays(cells), *after.values())
        return after

    def run_last(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, rows: Numbers) -> Cells:
        self.add(cells, groups, values, times, 0, groups.size)
        groups = groups[rows]
        return {name: cells[name][groups] for name in self._cell_names}

    def _cell_arrays(self, cells: Cells) -> list[Any]:
        return [cells[name] for name in self._cell_names]

    @functools.cached_property
    def _cell_names(self) -> tuple[str, ...]:
        """The names of the cells: every batch asks for them."""
        return tuple(self.cells())

    def _kernel_inputs(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        """Return the arrays of rows that ``add_kernel`` reads."""
        return (values,)

    def _kernel_options(self) -> tuple[Any, ...]:
        """Return the parameters of ``add_kernel``."""
        return ()


class Counts(KernelStat):
    """Number of records, or of non-missing values."""

    add_kernel, merge_kernel, run_kernel = loops.add_counts, loops.merge_counts, running.run_counts
    layout = (("n", "int64", 0),)
    slides = True
    exact = True

    def column(self, batch: pa.RecordBatch | None, key: HashWords = NO_SECRET) -> Any:
        if batch is None or self.field is None or pa.types.is_floating(batch.schema.field(self.field).type):
            return super().column(batch, key)
        column = batch.column(self.field)
        return np.where(np.asarray(column.is_valid()), 0.0, np.nan) if column.null_count else NO_VALUES

    def ring_fields(self, room: int, growable: bool) -> dict[str, StateField]:
        if not self._reads_values:
            return {}
        (ring,) = self.rings()
        return {f"{self._cell_names[0]}@total": StateField("int64"), ring: StateField("int64", room, growable=growable)}

    def rings(self) -> dict[str, int]:
        return {f"{self._cell_names[0]}@before": 1} if self._reads_values else {}

    def slide(self, state: State, batch: pa.RecordBatch, placed: Placed) -> Cells:
        (name,) = self._cell_names
        if not self._reads_values:
            return {name: placed.held[placed.emitted]}
        out = np.empty(placed.slots.size, np.int64)
        of = placed.slots, placed.place, placed.first, placed.emitted, state[f"{name}@total"], state[f"{name}@before"]
        return {name: out[: rings.slide_counts(readonly(self.column(batch)), *of, out)]}

    def latest_window(self, state: State, slots: Numbers, tail: Numbers, first: Numbers, held: Numbers) -> Cells:
        (name,) = self._cell_names
        if not self._reads_values:
            return {name: held}
        return {name: state[f"{name}@total"][slots] - state[f"{name}@before"][slots, first]}

    @property
    def _reads_values(self) -> bool:
        return self.field is not None


class RingStat(KernelStat):
    """A stat that can be kept in rings of cells, see :mod:`riot_ops.kernels.stats.rings`."""

    slides = True
    #: Kind of its cells.
    ring: ClassVar[int]
    #: The loop that adds rows to rings.
    slide_kernel: ClassVar[Any]

    def ring_fields(self, room: int, growable: bool) -> dict[str, StateField]:
        ((ring, width),) = self.rings().items()
        head = StateField("float64", width)
        return {f"{self._cell_names[0]}@head": head, ring: StateField("float64", width * room, growable=growable)}

    def rings(self) -> dict[str, int]:
        return {f"{self._cell_names[0]}@ring": rings.WIDTHS[self.ring]}

    def slide(self, state: State, batch: pa.RecordBatch, placed: Placed) -> Cells:
        column = self.column(batch)
        numbers, rests = column if isinstance(column, tuple) else (column, NO_VALUES)
        plain, width = self._is_plain(batch), rings.WIDTHS[self.ring]
        out = np.empty((1 if plain else width, int(np.count_nonzero(placed.emitted))))
        of = placed.slots, placed.place, placed.tail, placed.closing, placed.emitted, placed.rooms
        arrays: list[Any] = [readonly(numbers), readonly(rests), *of, *self._ring_arrays(state), np.empty(width)]
        self.slide_kernel(*arrays, plain, out)
        return dict(zip((self.plain,) if plain else self._cell_names, out, strict=False))

    def latest_window(self, state: State, slots: Numbers, tail: Numbers, first: Numbers, held: Numbers) -> Cells:
        width = rings.WIDTHS[self.ring]
        out = np.empty((width, slots.size))
        heads, ring = self._ring_arrays(state)
        rings.window_cells(self.ring, width, slots, tail, heads, ring, np.empty(width), out)
        return dict(zip(self._cell_names, out, strict=False))

    def _ring_arrays(self, state: State) -> tuple[Any, Any]:
        return state[f"{self._cell_names[0]}@head"], state[f"{self._cell_names[0]}@ring"]

    @functools.cached_property
    def plain(self) -> str:
        """Cell of :meth:`slide` with the sum of the two others, in place of them."""
        return self._cell_name("plain")

    def _is_plain(self, batch: pa.RecordBatch) -> bool:
        """Whether only the sum of two cells is wanted."""
        return False


class ExactStat(RingStat):
    """A stat of pairs of float64, which hold integers and times of 64 bits without rounding."""

    def column(self, batch: pa.RecordBatch | None, key: HashWords = NO_SECRET) -> Any:
        return (NO_VALUES, NO_VALUES) if batch is None else exact_numbers(batch.column(self.field))

    def _kernel_inputs(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return tuple(values)


class Sums(ExactStat):
    """Compensated sum, in two parts."""

    add_kernel, merge_kernel, run_kernel = loops.add_sums, loops.merge_sums, running.run_sums
    ring, slide_kernel = rings.SUMS, rings.slide_sums
    layout = (("total", "float64", 0.0), ("rest", "float64", 0.0))
    exact_integers = True

    def _is_plain(self, batch: pa.RecordBatch) -> bool:
        assert self.field is not None
        return bool(pa.types.is_floating(batch.schema.field(self.field).type))

    @functools.cached_property
    def whole(self) -> str:
        """Cell of :meth:`run` with sums of integers, in place of the others."""
        return self._cell_name("whole")

    def run_column(self, batch: pa.RecordBatch, key: HashWords = NO_SECRET) -> Any:
        """Return integers as int64, 0 where null."""
        assert self.field is not None
        column = batch.column(self.field)
        dtype = column.type
        if not pa.types.is_int64(dtype):
            if not is_whole(dtype) or pa.types.is_uint64(dtype):
                return self.column(batch, key)
            column = column.cast(pa.int64())
        return numpy_values(column.fill_null(0) if column.null_count else column)

    def run(self, cells: Cells, groups: Numbers, values: Any, times: Numbers) -> Cells:
        if isinstance(values, tuple):
            return super().run(cells, groups, values, times)
        held, n = self._cell_names, groups.size
        whole, total, rest = np.empty(n, np.int64), np.empty(n), np.empty(n)
        if not running.run_whole_sums(groups, values, cells[held[0]], cells[held[1]], whole, total, rest):
            return {self.whole: whole}
        return {held[0]: total, held[1]: rest}

    def run_last(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, rows: Numbers) -> Cells:
        return Stat.run_last(self, cells, groups, values, times, rows)  # faster for integers, which need no second part


@dataclass(frozen=True)
class Products(Sums):
    """Compensated sum of products with a weight."""

    exact_integers = False

    weight: str

    def _cell_name(self, cell: str) -> str:
        return super()._cell_name(f"{cell} by {self.weight}")

    def column(self, batch: pa.RecordBatch | None, key: HashWords = NO_SECRET) -> Any:
        if batch is None:
            return NO_VALUES, NO_VALUES
        return self._summands(*(float_column(batch.column(name))[0] for name in (self.field, self.weight))), NO_VALUES

    def run_column(self, batch: pa.RecordBatch, key: HashWords = NO_SECRET) -> Any:
        return self.column(batch, key)

    def _is_plain(self, batch: pa.RecordBatch) -> bool:
        return True

    def _summands(self, values: Any, weights: Any) -> Any:
        with np.errstate(over="ignore"):
            return values * weights


@dataclass(frozen=True)
class Weights(Products):
    """Compensated sum of the weights of values that are present."""

    def _cell_name(self, cell: str) -> str:
        return f"weight {super()._cell_name(cell)}"

    def _summands(self, values: Any, weights: Any) -> Any:
        return np.where(np.isnan(values), np.nan, weights)


class Extremes(ExactStat):
    """Minimum and maximum."""

    add_kernel, merge_kernel, run_kernel = loops.add_extremes, loops.merge_extremes, running.run_extremes
    ring, slide_kernel = rings.EXTREMES, rings.slide_extremes
    layout = (
        *(("low", "float64", np.inf), ("high", "float64", -np.inf)),
        *(("low_rest", "float64", 0.0), ("high_rest", "float64", 0.0)),
    )
    exact = True


class ExactSums(ExactStat):
    """Sum without rounding, as the digits of a fixed-point number."""

    add_kernel: ClassVar[Any] = exact_sum.add_exact_sums
    merge_kernel = exact_sum.merge_exact_sums
    run_kernel: ClassVar[Any] = exact_sum.run_exact_sums
    exact = True
    slides = False

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._cell_name("digits"): ("int64", exact_sum.DIGITS, 0)}

    @functools.cached_property
    def rounded(self) -> str:
        """Cell of :meth:`run` with rounded sums, in place of the digits."""
        return self._cell_name("rounded")

    def run(self, cells: Cells, groups: Numbers, values: Any, times: Numbers) -> Cells:
        after = {name: np.empty(groups.size, cells[name].dtype) for name in self._cell_names[:-1]}
        after[self.rounded] = np.empty(groups.size)
        room = np.empty(exact_sum.DIGITS, np.int64)
        self.run_kernel(groups, *values, *self._cell_arrays(cells), room, *after.values())
        return after

    def run_last(self, cells: Cells, groups: Numbers, values: Any, times: Numbers, rows: Numbers) -> Cells:
        if rows.size == groups.size:
            return self.run(cells, groups, values, times)
        self.add(cells, groups, values, times, 0, groups.size)
        groups = groups[rows]
        after = {name: cells[name][groups] for name in self._cell_names[:-1]}
        return after | {self.rounded: self.rounded_sums(cells, groups)}

    def rounded_sums(self, cells: Cells, groups: Numbers | None = None) -> npt.NDArray[np.float64]:
        """Round the sums of groups, or of all, to float64; NaN where it cannot hold one."""
        if self.rounded in cells:
            return cells[self.rounded]  # type: ignore[no-any-return]
        digits = cells[self._cell_names[-1]]
        groups = np.arange(len(digits)) if groups is None else groups
        out = np.empty(groups.size)
        exact_sum.round_sums(digits, groups, np.empty(exact_sum.DIGITS, np.int64), out)
        return out


class Summaries(ExactSums):
    """The cells of :class:`Counts`, :class:`Extremes` and :class:`ExactSums` of a field, by one loop."""

    add_kernel, run_kernel = exact_sum.add_summaries, exact_sum.run_summaries

    @functools.cached_property
    def parts(self) -> tuple[KernelStat, ...]:
        """The stats whose cells it has."""
        return Counts(self.field), Extremes(self.field), ExactSums(self.field)

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {name: cell for part in self.parts for name, cell in part.cells().items()}

    def merge(self, cells: Cells, into: Numbers, other: Cells, order: Numbers, first: Numbers, last: Numbers) -> None:
        for part in self.parts:
            part.merge(cells, into, other, order, first, last)


class Firsts(ExactStat):
    """Value with the smallest event time."""

    add_kernel, merge_kernel, run_kernel = loops.add_firsts, loops.merge_firsts, running.run_firsts
    ring, slide_kernel = rings.FIRSTS, rings.slide_firsts
    reads_times = exact = True
    layout = (("first", "float64", np.nan), ("first_rest", "float64", 0.0), ("first_at", "int64", 0))

    def _kernel_inputs(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return *values, times


class Lasts(ExactStat):
    """Value with the largest event time."""

    add_kernel, merge_kernel, run_kernel = loops.add_lasts, loops.merge_lasts, running.run_lasts
    ring, slide_kernel = rings.LASTS, rings.slide_lasts
    reads_times = exact = True
    layout = (("last", "float64", np.nan), ("last_rest", "float64", 0.0), ("last_at", "int64", 0))

    def _kernel_inputs(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return *values, times


@dataclass(frozen=True)
class Moments(RingStat):
    """Number of values, mean, and sum of squared distances from the mean."""

    add_kernel, merge_kernel, run_kernel = loops.add_spreads, loops.merge_spreads, running.run_variances
    ring, slide_kernel = rings.MOMENTS, rings.slide_moments
    layout = (("k", "int64", 0), ("mean", "float64", 0.0), ("m2", "float64", 0.0))
    refuses = True

    ddof: Literal[0, 1] = 1

    def _cell_name(self, cell: str) -> str:
        return super()._cell_name(cell if self.ddof else f"{cell} of all")

    @functools.cached_property
    def variance(self) -> str:
        """Cell of :meth:`run` with the variance, in place of the others."""
        return self._cell_name("variance")

    def run(self, cells: Cells, groups: Numbers, values: Any, times: Numbers) -> Cells:
        k, mean, m2 = self._cell_names
        bad, out = np.zeros(groups.size, np.bool_), np.empty(groups.size)
        if self.run_kernel(groups, values, cells[k], cells[mean], cells[m2], self.ddof, bad, out):
            return {self.variance: out, REFUSED: bad}
        return {self.variance: out}


class TimeSpans(KernelStat):
    """First and last event time of a value."""

    add_kernel, merge_kernel = loops.add_spans, loops.merge_spans
    layout = (("begin_us", "int64", np.iinfo(np.int64).max), ("end_us", "int64", np.iinfo(np.int64).min))

    def _kernel_inputs(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return values, times


class TimeGaps(KernelStat):
    """Times between values: number of values, first and last time, mean and sum of squared distances of the gaps."""

    add_kernel, merge_kernel = loops.add_gaps, loops.merge_gaps
    layout = (
        *(("timed", "int64", 0), ("opening_us", "int64", 0), ("latest_us", "int64", 0)),
        *(("gap_us", "float64", 0.0), ("gap_m2", "float64", 0.0)),
    )

    def _kernel_inputs(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return values, times


class Lines(KernelStat):
    """What the least-squares line of values over time is computed from."""

    add_kernel, merge_kernel = loops.add_lines, loops.merge_lines
    layout = (
        *(("dots", "int64", 0), ("origin_us", "int64", 0), ("earliest_us", "int64", np.iinfo(np.int64).max)),
        *((name, "float64", 0.0) for name in ("mean_x", "mean_y", "xx", "xy")),
    )

    def _kernel_inputs(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return values, times


@dataclass(frozen=True)
class ExponentialMeans(KernelStat):
    """Exponentially weighted mean, after a warm-up with equal weights."""

    run_kernel = running.run_exponential_means

    span: float
    warmup: int

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        kind = f"ewm {self.span!r} {self.warmup}"
        return {self._cell_name(kind): ("float64", 0, 0.0), self._cell_name(f"{kind} count"): ("int64", 0, 0)}

    def run(self, cells: Cells, groups: Numbers, values: Any, times: Numbers) -> Cells:
        (mean, count), out = self._cell_names, np.empty(groups.size)
        self.run_kernel(groups, values, 2.0 / (self.span + 1.0), self.warmup, cells[mean], cells[count], out)
        return {mean: out}


@dataclass(frozen=True)
class ClippedMeans(KernelStat):
    """The latest values without outliers, as a queue of two stacks, and their mean."""

    run_kernel = clipping.run_clipped

    window: int
    sigma: float
    whole: bool

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        number = {"head": "int64", "size": "int64", "front": "int64", "mean": "float64", "square": "float64"}
        rings = dict.fromkeys(("ring", "means", "squares"), ("float64", self.window, 0.0))
        layout = rings | {name: (dtype, 0, 0) for name, dtype in number.items()} | {"average": ("float64", 0, 0.0)}
        kind = f"clipped {self.window} {self.sigma!r} {self.whole}"
        return {self._cell_name(f"{kind} {name}"): layout[name] for name in CLIPPED}

    def run(self, cells: Cells, groups: Numbers, values: Any, times: Numbers) -> Cells:
        held = self._cell_names
        averages, counts = np.empty(groups.size), np.empty(groups.size, np.int64)
        arrays: list[Any] = [groups, values, self.sigma, self.whole, *(cells[name] for name in held), averages, counts]
        self.run_kernel(*arrays)
        return {held[-1]: averages, held[CLIPPED.index("size")]: counts}


#: Cells of :class:`ClippedMeans`, in the order of its kernel.
CLIPPED = ("ring", "head", "size", "front", "means", "squares", "mean", "square", "average")

#: The relations between a value and a number; ``&``: they share a bit.
RELATIONS = ("==", "<", "<=", ">", ">=", "!=", "&")


@dataclass(frozen=True)
class MatchCounts(Counts):
    """Number of values in a relation to a number."""

    add_kernel, merge_kernel, run_kernel = loops.add_counts, loops.merge_counts, running.run_counts

    exact = True

    relation: str
    bound: float

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._cell_name(f"hits {self.relation} {self.bound!r}"): ("int64", 0, 0)}

    def column(self, batch: pa.RecordBatch | None, key: HashWords = NO_SECRET) -> Any:
        """Return 0 for each value that matches, and NaN for the others."""
        if batch is None:
            return NO_VALUES
        column = batch.column(self.field)
        if self.relation == "&":
            return np.where(_has_bits(column, int(self.bound)), 0.0, np.nan)
        high, rest = exact_numbers(column)
        bound, bound_rest = exact_pair(self.bound)
        order = compared(high, rest, bound, bound_rest)
        hit = (order == 0) & ("=" in self.relation and self.relation != "!=")
        if self.relation in ("<", "<=", "!="):
            hit |= order < 0
        if self.relation in (">", ">=", "!="):
            hit |= order > 0
        return np.where(hit, 0.0, np.nan)


def _has_bits(column: pa.Array, bits: int) -> npt.NDArray[np.bool_]:
    """Return which values share a bit with an integer; a fraction is cut off."""
    if pa.types.is_integer(column.type):
        valid = np.asarray(column.is_valid())
        numbers = np.asarray(column.fill_null(0))
        wide = numbers.astype(np.uint64 if numbers.dtype.kind == "u" else np.int64).view(np.uint64)
        found: npt.NDArray[np.bool_] = ((wide & np.uint64(bits)) != 0) & valid
        return found
    values = np.nan_to_num(float_column(column)[0])
    low = np.fmod(np.trunc(values), 2.0**64)
    wide = np.abs(low).astype(np.uint64)
    wide = np.where(low < 0, ~wide + np.uint64(1), wide)
    shared: npt.NDArray[np.bool_] = (wide & np.uint64(bits)) != 0
    return shared


@dataclass(frozen=True)
class DistinctRegisters(KernelStat):
    """Registers of a HyperLogLog sketch."""

    hashes = True
    add_kernel, merge_kernel = loops.add_ranks, loops.merge_ranks

    precision: int

    def cells(self) -> Mapping[str, tuple[str, int, Any]]:
        return {self._cell_name(f"registers_{self.precision}"): ("uint8", 1 << self.precision, 0)}

    def column(self, batch: pa.RecordBatch | None, key: HashWords = NO_SECRET) -> Any:
        return hash_values(pa.nulls(0, pa.float64()) if batch is None else batch.column(self.field), key)

    def _kernel_inputs(self, values: Any, times: Numbers) -> tuple[Any, ...]:
        return tuple(values)  # hashes, and which values are present

    def _kernel_options(self) -> tuple[Any, ...]:
        return (self.precision,)
