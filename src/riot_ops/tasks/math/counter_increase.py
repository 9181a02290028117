"""Increments of cumulative counters, across resets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import NEVER, to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration, Positive, as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import valid_mask
from riot_ops.kernels.arrays.exact import exact_numbers
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, Requirement, State, StateField, ValueTask, register, replace_column

__all__ = ["CounterIncrease"]

NO_TIMES = np.empty(0, np.int64)
#: Why a reading is rejected.
LATE, OUT_OF_RANGE, OVERFLOW = 1, 2, 3


@kernel
def _increase(
    high: Any, rest: Any, times: Any, slots: Any, last: Any, last_rest: Any, last_time: Any, modulus: Any, per: Any,
    bad: Any, out: Any,
) -> None:  # fmt: skip
    """Write the increase of each counter, or its rate per ``per`` if that is > 0; a number is ``high + rest``."""
    for i in range(high.size):
        out[i] = np.nan
        x = high[i]
        if np.isnan(x):
            continue
        s = slots[i]
        r = rest[i] if rest.size > 0 else 0.0
        if modulus > 0 and (x + r < 0 or x > modulus or (x == modulus and r >= 0)):
            bad[i] = OUT_OF_RANGE
            continue
        known = not np.isnan(last[s])
        span = times[i] - last_time[s] if per > 0 and known else 1
        if span < 0:
            bad[i] = LATE
            continue
        if span == 0:  # the next reading has the increase of both
            continue
        if known:
            grown = (x - last[s]) + (r - last_rest[s])
            if grown < 0:
                grown = ((modulus - last[s]) - last_rest[s]) + (x + r) if modulus > 0 else x + r
            if per > 0:
                grown = grown * (per / span)
            if not np.isfinite(grown):
                bad[i] = OVERFLOW
                continue
            out[i] = grown
        last[s] = x
        last_rest[s] = r
        if per > 0:
            last_time[s] = times[i]


@register
@dataclass(frozen=True, kw_only=True)
class CounterIncrease(ValueTask):
    """Compute by how much each key's counter has grown since its last reading, across resets.

    ``increase = x - last``; where the counter fell, it has started again: ``x``, or ``x - last + modulus``. With
    ``per``, ``rate = increase per / Δt``, where Δt is the event time since the last reading.

    Parameters
    ----------
    modulus : float, > 0, optional
        A counter of limited width starts again at 0 after ``modulus - 1``, such as ``2**32``: what it has counted
        before and after that is added. None: a counter that falls has been reset to 0.
    per : timedelta > 0 or text such as "1s", optional
        Write the increase per this much time instead.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    number[n] -> float64[n], 1:1; O(1) time, 16 bytes of state per key, 24 with ``per``. Readings of a key are taken in
    the order in which they come; sort them by :class:`SortByEventTime` if they come out of order. Integers of 64 bits
    are subtracted without rounding; decimals, whose digits float64 would lose, are refused (cast them).

    Missing values
    --------------
    Null and NaN give null and leave the state unchanged. The first reading of a key gives null, as does, with ``per``,
    a second reading of one event time; the next one has the increase of both.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``, one outside ``[0, modulus)`` as ``out_of_range``,
    a result beyond float64 as ``overflow``; with ``per`` a record without event time as ``no_event_time``, and one
    before the last reading of its key as ``late``. They leave the state unchanged.

    References
    ----------
    .. [1] Prometheus, *Query functions*, ``increase`` and ``rate``: the same treatment of resets, without
       extrapolation.

    Examples
    --------
    >>> counted = CounterIncrease().session()
    >>> [counted.push({"value": v})[0]["value"] for v in (100, 130, 130, 20, 25)]
    [None, 30.0, 0.0, 20.0, 5.0]
    >>> wrapped = CounterIncrease(modulus=2**16).session()
    >>> [wrapped.push({"value": v})[0]["value"] for v in (65_530, 4)]
    [None, 10.0]
    """

    code: ClassVar[str] = "INC"
    category: ClassVar[str] = "Statistical"

    modulus: Positive | None = None
    per: Duration | None = None

    def validate(self) -> None:
        super().validate()
        if self.per is not None and as_timedelta(self.per) <= timedelta(0):
            raise ConfigError(f"per must be longer than 0, got {self.per!r}")

    def requires(self) -> Mapping[str, Requirement]:
        timed: dict[str, Requirement] = {} if self.per is None else {"event_time": "any"}
        return {**super().requires(), self.value: "exact number", **timed}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        if self.per is not None:
            check_time_field(self.name(), schema)

    def state_fields(self) -> Mapping[str, StateField]:
        timed = {} if self.per is None else {"time": StateField("int64", initial=NEVER)}
        return {"last": StateField("float64", initial=float("nan")), "rest": StateField("float64"), **timed}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        batch = super().validate_rows(batch, errors)
        if self.per is None or not batch.column("event_time").null_count:
            return batch
        present = valid_mask(batch.column("event_time"))
        errors.reject(batch, ~present, "no_event_time", "the time since the last reading is unknown")
        return batch.filter(pa.array(present))

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        high, rest = exact_numbers(batch.column(self.value))
        times = NO_TIMES if self.per is None else microseconds(batch.column("event_time"))[0]
        out, bad = np.empty(high.size), np.zeros(high.size, np.int8)
        _increase(
            high, rest, times, slots, state["last"], state["rest"], state.get("time", NO_TIMES), self.modulus or 0.0,
            0 if self.per is None else to_microseconds(self.per), bad, out,
        )  # fmt: skip
        if bad.any():
            for code, (reason, text) in REJECTIONS.items():
                errors.reject(batch, bad == code, reason, f"{self.value} {text}")
            batch, out = batch.filter(pa.array(bad == 0)), out[bad == 0]
        return replace_column(batch, self.target, out)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(10), pa.int64()),
                "event_time": pa.array([5, 0, 7, 7, None, 60, 61, 6, 90, 91], pa.timestamp("s", "UTC")).cast(TIMESTAMP),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", "b", "b"],
                "value": [10.0, -3.5, 12.0, None, float("nan"), 1e300, 4.0, 11.0, 1.5, float("inf")],
            }
        )
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(by=("key",), per=timedelta(seconds=2), output="rate"), batch, "rate")
        yield Case(cls(modulus=100.0), batch, "modulus")


REJECTIONS = {
    LATE: ("late", "comes after a later reading of its key"),
    OUT_OF_RANGE: ("out_of_range", "is negative, or not below the modulus"),
    OVERFLOW: ("overflow", "has grown by more than float64 holds"),
}
