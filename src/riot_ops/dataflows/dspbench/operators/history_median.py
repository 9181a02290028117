"""History median: forecasts from the current value and the median of past values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.parameters import Length
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import float_column, readonly
from riot_ops.kernels.arrays.rows import take_rows
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, Requirement, State, StateField, ValueTask, register, replace_column

__all__ = ["HistoryMedian"]


@kernel
def _forecast(
    values: Any, now: Any, slots: Any, window: Any, ring: Any, ranked: Any, n: Any, start: Any, found: Any, rows: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Store past values, and forecast from current ones, from row ``start`` on.

    ``ring`` has the past values of a key in order of arrival, ``ranked`` the same in ascending order. Returns the
    number of forecasts and the next row: the loop stops early where a ring is full and must grow.
    """
    for i in range(start, values.size):
        if np.isnan(values[i]):
            continue
        s = slots[i]
        size = min(n[s], window)
        if now[i]:
            rows[found] = i
            out[found] = values[i]
            if size > 0:
                median = ranked[s, size >> 1]
                if size & 1 == 0:
                    median = median / 2 + ranked[s, (size >> 1) - 1] / 2
                out[found] = values[i] / 2 + median / 2
            found += 1
            continue
        if size == ring.shape[1] and size < window:
            return found, i
        place = n[s] % window
        p = size
        if n[s] >= window:  # remove the oldest
            p = 0
            while ranked[s, p] != ring[s, place]:
                p += 1
            while p + 1 < window:
                ranked[s, p] = ranked[s, p + 1]
                p += 1
        while p > 0 and ranked[s, p - 1] > values[i]:
            ranked[s, p] = ranked[s, p - 1]
            p -= 1
        ranked[s, p] = values[i]
        ring[s, place] = values[i]
        n[s] += 1
    return found, values.size


@register
@dataclass(frozen=True, kw_only=True)
class HistoryMedian(ValueTask):
    """Forecast a value of each key from its current value and the median of its past values.

    ``forecast = (now + median(past)) / 2``, or ``now`` without past values. With a key that includes the time of day,
    the past values are those of the previous days, see :class:`SliceMeans`.

    Parameters
    ----------
    now : str, default "open"
        Boolean field: true for a current value, which emits a forecast; false for a past value, which is stored.
    window : int, 1 to 1,048,576, default 31
        Number of latest past values stored per key.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[m], 1:0/1; O(1) time per forecast, O(window) per stored value. State per key: 8 bytes, and 16
    per value, for the largest number of values that any key of the bucket has had (rounded up to a power of two).

    Missing values
    --------------
    A null or NaN value is skipped, and so is a value whose field ``now`` is null.

    Errors
    ------
    An infinite value goes to the errors stream as ``not_finite``, a number that float64 cannot hold as
    ``out_of_range``.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: smart grid.
    .. [2] H. Ziekow, Z. Jerzak, *The DEBS 2014 Grand Challenge*, DEBS 2014.

    Examples
    --------
    >>> load = HistoryMedian().session()
    >>> days = [(False, 10.0), (False, 30.0), (False, 14.0), (True, 20.0)]
    >>> [row["value"] for now, v in days for row in load.push({"open": now, "value": v})]
    [17.0]
    """

    code: ClassVar[str] = "HMD"
    category: ClassVar[str] = "Predictive"
    selectivity: ClassVar[str] = "1:0/1"

    now: str = "open"
    window: Length = 31

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.now: "any"}

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "ring": StateField("float64", 1, growable=True),
            "ranked": StateField("float64", 1, growable=True),
            "n": StateField("int64"),
        }

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        values, _ = float_column(batch.column(self.value))
        flags = batch.column(self.now).cast(pa.bool_())
        if flags.null_count:
            values = readonly(np.where(np.asarray(flags.is_valid()), values, np.nan))
            flags = flags.fill_null(False)
        rows, out = np.empty(values.size, np.int64), np.empty(values.size)
        now = flags.to_numpy(zero_copy_only=False)
        found = row = 0
        # after a restart the fields have only the places up to the last value other than 0
        width = max(state["ring"].shape[1], state["ranked"].shape[1], int(state["n"][slots].max(initial=0)))
        self._widen(state, min(width, self.window))
        while True:
            rings = state["ring"], state["ranked"]
            found, row = _forecast(values, now, slots, self.window, *rings, state["n"], row, found, rows, out)
            if row == values.size:
                break
            self._widen(state, state["ring"].shape[1] + 1)
        return replace_column(take_rows(batch, rows[:found]), self.target, out[:found])

    def _widen(self, state: State, width: int) -> None:
        for name, field in self.state_fields().items():
            if field.growable:
                state[name] = field.widen(state[name], width)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        rows: list[tuple[Any, ...]] = [
            ("a", False, 3.0), ("a", False, 9.0), ("a", True, 1.0), ("b", True, 1e308), ("a", False, -4.0),
            (None, None, 2.0), ("a", True, None), ("a", False, 9.0), ("a", True, 1.5), ("b", False, 1e308),
            ("b", True, 1e308),
        ]  # fmt: skip
        keys, now, values = zip(*rows, strict=True)
        batch = pa.RecordBatch.from_pydict({"key": keys, "open": now, "value": values})
        yield Case(cls(by=("key",), window=2), batch)
        yield Case(cls(window=3, output="forecast"), batch)
