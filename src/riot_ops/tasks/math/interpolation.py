"""Interpolation: fill gaps in a stream from the preceding readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.parameters import Length
from riot_ops.kernels.arrays.arrow import float_column, readonly
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, Requirement, State, StateField, ValueTask, register, replace_column, with_field

__all__ = ["Interpolation"]

KIND = "obs_type"
FLAG = "interpolated"


@kernel
def fill_mean(values: Any, wanted: Any, slots: Any, ring: Any, seen: Any, out: Any) -> None:
    """Fill gaps with the mean of a key's latest readings; ``seen`` counts to W, then cycles from W to 2 W - 1."""
    window = ring.shape[1]
    for i in range(values.size):
        x = values[i]
        out[i] = x
        if not wanted[i]:
            continue
        s = slots[i]
        if not np.isnan(x):
            ring[s, seen[s] % window] = x
            seen[s] += 1
            if seen[s] == 2 * window:
                seen[s] = window
        elif seen[s] > 0:
            n = min(seen[s], window)
            total = 0.0
            for j in range(n):
                total += ring[s, j]
            if not np.isfinite(total):
                total = 0.0
                for j in range(n):
                    total += ring[s, j] / n
                out[i] = total
            else:
                out[i] = total / n


@kernel
def fill_line(
    values: Any, wanted: Any, places: Any, placed: Any, slots: Any, y: Any, at: Any, known: Any, steps: Any, out: Any
) -> None:
    """Fill gaps along a line; ``y[s]`` and ``at[s]`` hold the last two readings of a key and their positions."""
    for i in range(values.size):
        x = values[i]
        out[i] = x
        if not wanted[i]:
            continue
        s = slots[i]
        t = steps[s]
        steps[s] += 1
        if places.size > 0:
            if not placed[i]:
                continue
            t = places[i]
        if not np.isnan(x):
            y[s, 0] = y[s, 1]
            at[s, 0] = at[s, 1]
            y[s, 1] = x
            at[s, 1] = t
            known[s] = min(known[s] + 1, 2)
        elif known[s] > 0:
            guess = y[s, 1]
            if known[s] == 2 and at[s, 1] != at[s, 0]:
                guess += (y[s, 1] - y[s, 0]) * ((t - at[s, 1]) / (at[s, 1] - at[s, 0]))
            if np.isfinite(guess):
                out[i] = guess


@register
@dataclass(frozen=True, kw_only=True)
class Interpolation(ValueTask):
    """Replace a missing reading by an estimate from the latest readings of its key.

    ``mean``: ``(y1 + … + yW) / W`` of the last W readings. ``linear``: the straight line through
    the last two, ``y2 + (y2 - y1) (t - t2) / (t2 - t1)``.

    Parameters
    ----------
    window : int, 1 to 1,048,576, default 5
        Number W of readings in the mean; fewer while the key has fewer.
    method : "mean" or "linear", default "mean"
        How to estimate. ``linear`` uses ``event_time`` where the input has that field, else the number
        of the key's records; with a single reading, or two of one time, it repeats the last one.
    fields : tuple of str or None, default None
        Observation types (column ``obs_type``) to fill; records of other types pass unchanged. None:
        fill all records.
    flag : bool, default False
        Whether to add a boolean column ``interpolated``.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1; O(1) time per reading, O(window) per gap; state per key: 8 W + 8
    bytes, ``linear`` 48.

    Missing values
    --------------
    Null and NaN are filled; they stay null until the key has a reading. Estimates never enter the history. With
    ``linear``, a record without event time passes unchanged and does not enter the history either; where an estimate
    overflows float64, the value stays null.

    Errors
    ------
    An infinite reading (of a type to fill) goes to the errors stream as ``not_finite``.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task INP.

    Examples
    --------
    >>> fill = Interpolation(window=5).session()
    >>> [fill.push({"value": v})[0]["value"] for v in (None, 1.0, 2.0, None, 3.0)]
    [None, 1.0, 2.0, 1.5, 3.0]
    """

    code: ClassVar[str] = "INP"
    category: ClassVar[str] = "Statistical"

    window: Length = 5
    method: Literal["mean", "linear"] = "mean"
    fields: tuple[str, ...] | None = None
    flag: bool = False

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {} if self.fields is None else {KIND: "text"}
        return {**super().requires(), **extra}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        schema = super().output_schema(schema)
        if self.method == "linear" and "event_time" in schema.names:
            check_time_field(self.name(), schema)
        return with_field(schema, pa.field(FLAG, pa.bool_())) if self.flag else schema

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.target, FLAG} if self.flag else {self.target})

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        values, _ = float_column(batch.column(self.value))
        infinite = np.isinf(values) & self._wanted(batch)
        if not infinite.any():
            return batch
        dead.reject(batch, infinite, "not_finite", f"{self.value} is infinite")
        return batch.filter(pa.array(~infinite))

    def state_fields(self) -> Mapping[str, StateField]:
        if self.method == "mean":
            return {"ring": StateField("float64", self.window), "seen": StateField("int64")}
        return {
            "y": StateField("float64", 2),
            "at": StateField("int64", 2),
            "known": StateField("int64"),
            "steps": StateField("int64"),
        }

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        values, _ = float_column(batch.column(self.value))
        wanted = self._wanted(batch)
        out = np.empty(values.size)
        if self.method == "mean":
            fill_mean(values, wanted, slots, state["ring"], state["seen"], out)
        else:
            places, placed = _NO_TIMES
            if "event_time" in batch.schema.names:
                places, placed = microseconds(batch.column("event_time"))
            fill_line(
                values, wanted, places, placed, slots, state["y"], state["at"], state["known"], state["steps"], out
            )
        filled = replace_column(batch, self.target, out)
        if not self.flag:
            return filled
        return replace_column(filled, FLAG, pa.array(np.isnan(values) & ~np.isnan(out)))

    def _wanted(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        if self.fields is None:
            return np.ones(batch.num_rows, np.bool_)
        column = batch.column(KIND)
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        names = pa.array([f.encode() for f in self.fields], pa.binary()).cast(column.type)
        return np.asarray(pc.is_in(column, value_set=names))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", "", "a"],
                "obs_type": ["t", "t", "t", "t", "h", None, "t", "t", "", "t"],
                "value": [10.0, -3.5, None, None, float("nan"), 1e308, float("nan"), 1e308, None, None],
            }
        )
        times = pa.array([0, 1, 2, 3, 4, 5, None, 12, 1, 30], pa.timestamp("s", tz="UTC"))
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(by=("key",), fields=("t", ""), flag=True, window=1, output="filled"), batch)
        yield Case(cls(by=("key",), method="linear"), batch)
        yield Case(cls(method="linear", flag=True), batch.append_column("event_time", times))


_NO_TIMES = readonly(np.empty(0, np.int64)), readonly(np.empty(0, np.bool_))
