"""Moving average: the mean over windows of a number of readings, tumbling or sliding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Length
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.lazy_rows import AnyRows, floats, take_with_fields
from riot_ops.kernels.arrays.timestamps import from_microseconds, microseconds
from riot_ops.kernels.stats.windows import NEVER, slide, tumble
from riot_ops.task import Case, Lookback, ReadableState, State, StateField, ValueTask, register, with_field

__all__ = ["MovingAverage"]

#: Readings per window by default.
DEFAULT_WINDOW = 10
ORDER = ("seq", "ordinal")


@register
@dataclass(frozen=True, kw_only=True)
class MovingAverage(ValueTask, ReadableState):
    """Average the readings of each key over windows of a fixed number of readings.

    ``mean = (x1 + … + xn) / n`` with a compensated sum.

    Parameters
    ----------
    window : int, 1 to 1,048,576, default 10
        Readings per window.
    mode : "tumbling", "sliding" or "growing", default "tumbling"
        Consecutive windows; a window that ends at every reading once it is full; or a window that ends at every
        reading, shorter at first.
    partial : bool, default False
        Whether the end of a bounded stream emits windows that are not full; in sliding mode, those of keys that never
        had a full one. Growing windows have already been emitted.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n / window], N:1 (sliding: 1:1 once full, growing: 1:1); O(1) time per reading
    (amortised unless tumbling). State per key: 24 bytes, and unless tumbling 8 more per reading of the window. The
    error of a mean is a few units in the last place of the mean of ``|x|``.

    A result is the record that completed the window, with the mean in the output field and the number of readings in
    ``count``. A partial window at the end has the ``seq`` and ``ordinal`` of its last record. For means over time
    windows see :class:`Window`.

    Missing values
    --------------
    A null or NaN reading is skipped.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task AVG.
    .. [2] A. Neumaier, *Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen*,
       ZAMM 54, 1974, method IV.

    Examples
    --------
    >>> average = MovingAverage(window=3).session()
    >>> [out["value"] for v in range(1, 8) for out in average.push({"value": v})]
    [2.0, 5.0]
    >>> sliding = MovingAverage(window=3, mode="sliding").session()
    >>> [out["value"] for v in range(1, 8) for out in sliding.push({"value": v})]
    [2.0, 3.0, 4.0, 5.0, 6.0]
    >>> moving = MovingAverage(window=3, mode="growing").session()
    >>> [out["value"] for v in range(1, 8) for out in moving.push({"value": v})]
    [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0]
    """

    code: ClassVar[str] = "AVG"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"
    accepts_lazy_rows: ClassVar[bool] = True

    window: Length = DEFAULT_WINDOW
    mode: Literal["tumbling", "sliding", "growing"] = "tumbling"
    partial: bool = False

    def validate(self) -> None:
        if self.partial and self.mode == "growing":
            raise ConfigError("partial must be False with mode='growing', which never holds a window back")

    @property
    def _scale(self) -> float:
        """Power of two that scales the readings, so that no sum of finite readings overflows."""
        return 2.0 ** -(self.window - 1).bit_length()

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return with_field(super().output_schema(schema), pa.field("count", pa.int64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.target, "count"})

    def lookback(self) -> Lookback | None:
        if self.mode == "tumbling":  # where a window begins depends on the number of earlier readings
            return Lookback() if self.window == 1 else None
        return Lookback(self.window - 1) if self.ttl is None else None

    def state_fields(self) -> Mapping[str, StateField]:
        fields = {"total": StateField("float64"), "rest": StateField("float64"), "n": StateField("int64")}
        if self.mode != "tumbling":
            fields["ring"] = StateField("float64", self.window)
        if self.partial:
            fields |= {name: StateField("int64", initial=NEVER) for name in (*ORDER, "time")}
        return fields

    def decode_state(self, table: pa.Table) -> pa.Table:
        """Return plain sums: the state holds each in two parts, ``total`` and ``rest``, scaled against overflow."""
        parts = [np.asarray(table.column(name).combine_chunks()) for name in ("total", "rest")]
        with np.errstate(over="ignore"):  # a sum beyond all floats is infinite
            sums = pa.array((parts[0] + parts[1]) / self._scale)
        return table.drop_columns(["rest"]).set_column(table.column_names.index("total"), "total", sums)

    def update(self, batch: AnyRows, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters) -> pa.RecordBatch:
        values, _ = floats(batch, self.value)
        rows, means = np.empty(values.size, np.int64), np.empty(values.size)
        sums = state["total"], state["rest"], state["n"]
        if self.mode == "tumbling":
            found = tumble(values, slots, *sums, self.window, self._scale, rows, means)
            counts = np.full(found, self.window, np.int64)
        else:
            min_size = 1 if self.mode == "growing" else self.window
            counts = np.empty(values.size, np.int64)
            ring, of = state["ring"], (self.window, min_size, self._scale, True)
            found = slide(values, slots, ring, *sums, *of, rows, means, counts)
        if self.partial:
            read = np.flatnonzero(~np.isnan(values))
            _remember_order(batch, read, slots[read], state)
            if "event_time" in batch.schema.names:
                times, timed = microseconds(batch.column("event_time"))
                state["time"][slots[read]] = np.where(timed, times, NEVER)[read]
        # no mean is NaN: no reading is infinite and no scaled sum overflows
        return take_with_fields(batch, rows[:found], {self.target: means[:found], "count": counts[:found]})

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        if not self.partial:
            return None
        n = state["n"]
        slots = np.flatnonzero((n > 0) & (n < self.window))
        times = state["time"][slots]
        columns = {
            name: column.take(pa.array(slots)) for name, column in zip(keys.schema.names, keys.columns, strict=True)
        }
        timed = times != NEVER  # per key: the results must not depend on the other keys of the bucket
        if timed.any():
            columns["event_time"] = pc.if_else(pa.array(timed), from_microseconds(np.where(timed, times, 0)), None)
        for name in ORDER:
            if slots.size and state[name][slots].min() != NEVER:
                columns[name] = pa.array(state[name][slots])
        columns[self.target] = pa.array((state["total"][slots] + state["rest"][slots]) / (n[slots] * self._scale))
        columns["count"] = pa.array(n[slots])
        return pa.RecordBatch.from_pydict(columns)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        values = [10.0, -3.5, 12.0, None, float("nan"), 1e308, 4.0, 11.0, 1e308, 0.5]
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(10), pa.int64()),
                "event_time": pa.array([0, 1, 2, 3, 4, 5, None, 12, 1, 30], pa.timestamp("s", tz="UTC")),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", None, ""],
                "value": values,
            }
        )
        yield Case(cls(window=2, by=("key",)), batch)
        yield Case(cls(window=3, mode="sliding", output="mean", partial=True), batch)
        yield Case(cls(window=3, mode="growing", by=("key",)), batch)


def _remember_order(batch: AnyRows, rows: npt.NDArray[np.int64], places: Any, state: State) -> None:
    """Store ``seq`` and ``ordinal`` of the last record of each key in its state."""
    for name in ORDER:
        if name in batch.schema.names:
            state[name][places] = int_column(batch.column(name))[rows]
