"""Windows of a number of readings: sums or means of the values that are not missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import State, StateField
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import int_column, replace_column
from riot_ops.kernels.arrays.lazy_rows import AnyRows, floats, materialize, take_with_fields
from riot_ops.kernels.arrays.timestamps import from_microseconds, microseconds
from riot_ops.kernels.stats.windows import NEVER, slide, tumble
from riot_ops.tasks.window.windowing.accumulators import Numbers
from riot_ops.tasks.window.windowing.assigner import Assigner
from riot_ops.windows import Count, Sliding

__all__ = ["ReadingWindows"]

ORDER = ("seq", "ordinal")


class ReadingWindows(Assigner):
    """Consecutive or sliding windows of a number of readings; a record without a reading belongs to none.

    A result is the record that ends its window. One loop adds a reading and computes the result, so that the aggregates
    are the sum or the mean of the readings, and their number.

    Parameters
    ----------
    reading : str
        The field whose values are aggregated.
    aggregates : mapping of str to tuple
        By output field ``(reading, function)``.
    frame : Count or Sliding
    partial : bool
        Whether the end of a bounded stream emits windows that are not full, of keys that have had no full sliding one.
    """

    keeps_records = True

    def __init__(
        self, reading: str, aggregates: Mapping[str, tuple[str, str]], frame: Count | Sliding, partial: bool
    ) -> None:
        super().__init__((), each=isinstance(frame, Sliding))
        assert isinstance(frame.size, int)
        self.reading = reading
        self.size = frame.size
        self.partial = partial
        self._min_count = self.size if isinstance(frame, Count) or frame.full else 1
        functions = {name: function for name, (_, function) in aggregates.items()}
        self._mean = "mean" in functions.values()
        assert self._mean or self.each, "consecutive windows have means"
        self._counted = {name: function == "count" for name, function in functions.items()}
        # a power of two, so that no mean of finite readings overflows
        self._scale = 2.0 ** -(self.size - 1).bit_length() if self._mean else 1.0

    def lookback(self) -> Lookback | None:
        if self.each:
            return Lookback(self.size - 1)
        # where a window begins depends on the number of earlier readings
        return Lookback() if self.size == 1 else None

    def state_fields(self) -> Mapping[str, StateField]:
        fields = {"total": StateField("float64"), "rest": StateField("float64"), "n": StateField("int64")}
        if self.each:
            fields["ring"] = StateField("float64", self.size)
        if self.partial:
            fields |= {name: StateField("int64", initial=NEVER) for name in (*ORDER, "time")}
        return fields

    def decode_state(self, table: pa.Table) -> pa.Table:
        """Return plain sums: the state holds each in two parts, ``total`` and ``rest``, scaled against overflow."""
        parts = [np.asarray(table.column(name).combine_chunks()) for name in ("total", "rest")]
        with np.errstate(over="ignore"):  # a sum beyond all floats is infinite
            sums = pa.array((parts[0] + parts[1]) / self._scale)
        return table.drop_columns(["rest"]).set_column(table.column_names.index("total"), "total", sums)

    def run(self, task: Any, batch: AnyRows, slots: Numbers, state: State, errors: RejectedRecords) -> Any:
        """Add the rows of a batch, and return those that end a window with its aggregates."""
        values, _ = floats(batch, self.reading)
        rows, results = np.empty(values.size, np.int64), np.empty(values.size)
        sums = state["total"], state["rest"], state["n"]
        if self.each:
            counts = np.empty(values.size, np.int64)
            of = self.size, self._min_count, self._scale, self._mean
            found = slide(values, slots, state["ring"], *sums, *of, rows, results, counts)
        else:
            found = tumble(values, slots, *sums, self.size, self._scale, rows, results)
            counts = np.full(found, self.size, np.int64)
        if self.partial:
            self._remember_order(batch, np.flatnonzero(~np.isnan(values)), slots, state)
        rows, results, counts = rows[:found], results[:found], counts[:found]
        if self._mean:  # never missing: no reading is infinite and no scaled sum overflows
            return take_with_fields(
                batch, rows, {name: counts if counted else results for name, counted in self._counted.items()}
            )
        taken = materialize(batch) if found == values.size else materialize(batch).take(pa.array(rows))
        results = np.where(np.isfinite(results), results, np.nan)
        for name, counted in self._counted.items():
            taken = replace_column(taken, name, pa.array(counts) if counted else results)
        return taken

    def flush_partial(self, task: Any, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        """Return the results of the windows that are not full, if they are wanted."""
        if not self.partial:
            return None
        n = state["n"]
        slots = np.flatnonzero((n > 0) & (n < self.size))
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
        sums = state["total"][slots] + state["rest"][slots]
        results = sums / (n[slots] * self._scale) if self._mean else sums
        columns |= {name: pa.array(n[slots] if counted else results) for name, counted in self._counted.items()}
        return pa.RecordBatch.from_pydict(columns)

    def _remember_order(self, batch: AnyRows, rows: Numbers, slots: Numbers, state: State) -> None:
        """Store ``seq``, ``ordinal`` and time of the last reading of each key."""
        for name in ORDER:
            if name in batch.schema.names:
                state[name][slots[rows]] = int_column(batch.column(name))[rows]
        if "event_time" in batch.schema.names:
            times, timed = microseconds(batch.column("event_time"))
            state["time"][slots[rows]] = np.where(timed, times, NEVER)[rows]
