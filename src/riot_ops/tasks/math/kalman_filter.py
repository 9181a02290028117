"""Scalar Kalman filter for noisy sensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import NEVER, to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration, NonNegative, Positive, as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import NO_MASK, nullable_column, valid_mask
from riot_ops.kernels.arrays.lazy_rows import AnyRows, floats, materialize, replace_field
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, Requirement, State, StateField, ValueTask, register

__all__ = ["KalmanFilter"]


@kernel(inline=True)
def filter_step(z: Any, s: Any, x: Any, p: Any, seen: Any, noise: Any, r: Any, predict: Any, first: Any) -> Any:
    """Update the state in a slot with a reading, which may be NaN; return the estimate."""
    if np.isnan(z):
        if predict and (seen[s] or not first):
            p[s] += noise  # P- = P + q, without a measurement update
        return x[s] if predict and seen[s] else np.nan  # before the first reading there is no estimate
    if first and not seen[s]:
        x[s] = z  # the prior estimate; its variance is P0 in any case
    predicted = p[s] + noise  # P-
    gain = predicted / (predicted + r)  # K
    x[s] += gain * (z - x[s])
    p[s] = (1.0 - gain) * predicted
    seen[s] = True
    return x[s]


@kernel
def kalman(
    values: Any, slots: Any, x: Any, p: Any, seen: Any, q: Any, r: Any, predict: Any, first: Any, out: Any
) -> None:
    """Write the estimate at each reading, with the noise q in each step."""
    for i in range(values.size):
        out[i] = filter_step(values[i], slots[i], x, p, seen, q, r, predict, first)


@kernel
def kalman_by_time(
    values: Any, slots: Any, x: Any, p: Any, seen: Any, q: Any, r: Any, predict: Any, first: Any, times: Any, last: Any,
    unit: Any, out: Any,
) -> None:  # fmt: skip
    """Write the estimate at each reading, with the noise q per ``unit`` of time since ``last``."""
    for i in range(values.size):
        s = slots[i]
        noise = q * (max(times[i] - last[s], 0) / unit) if last[s] != NEVER else 0.0
        if not np.isnan(values[i]) or (predict and (seen[s] or not first)):
            last[s] = max(last[s], times[i])
        out[i] = filter_step(values[i], s, x, p, seen, noise, r, predict, first)


@kernel
def count_missing(out: Any) -> Any:
    """Return how many estimates are missing; a pass of its own is faster than a count within the filter."""
    n = 0
    for i in range(out.size):
        n += np.isnan(out[i])
    return n


@register
@dataclass(frozen=True, kw_only=True)
class KalmanFilter(ValueTask):
    """Smooth noisy readings per key with a scalar random-walk Kalman filter.

    ``P- = P + q;  K = P- / (P- + r);  x = x + K (z - x);  P = (1 - K) P-``

    Parameters
    ----------
    process_noise : float, > 0, default 0.125
        Variance q added per step (unit of the input, squared), or per ``noise_per``.
    noise_per : timedelta > 0 or text such as "1s", optional
        Time in which the variance grows by q: a step adds ``q Δt / noise_per``, where Δt is the event time since the
        key's last step, 0 for the first one and for a record out of order. None: each step adds q, regardless of its
        time.
    measurement_noise : float, >= 0, default 0.32
        Variance r of one reading (unit of the input, squared).
    initial_variance : float, > 0, default 30.0
        Variance P0 of the prior.
    prior : "zero" or "first", default "zero"
        Prior estimate x0: 0, or the first reading. In both cases the first reading is a regular measurement
        update, so that ``P = (P0 + q) r / (P0 + q + r)`` after it.
    on_missing : "predict" or "skip", default "predict"
        Effect of a missing reading, see below.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1; O(1) time, 17 bytes of state per key, 25 with ``noise_per``.

    Missing values
    --------------
    A null or NaN reading only predicts (P grows by q) and emits the last estimate; with ``on_missing="skip"`` it emits
    null and leaves the state unchanged. Before the first reading of a key the result is null, and with
    ``prior="first"`` the state does not change either.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``; with ``noise_per`` a record without event time as
    ``no_event_time``.

    References
    ----------
    .. [1] G. Welch, G. Bishop, *An Introduction to the Kalman Filter*, 2006, eq. 1.9-1.13.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task KAL.

    Examples
    --------
    >>> kal = KalmanFilter(process_noise=0.125, measurement_noise=0.32).session()
    >>> [round(kal.push({"value": v})[0]["value"], 6) for v in (10.0, 12.0, 11.0)]
    [9.894892, 11.115543, 11.058637]
    >>> kal = KalmanFilter(prior="first").session()
    >>> [round(kal.push({"value": v})[0]["value"], 3) for v in (10.0, 12.0, 11.0)]
    [10.0, 11.16, 11.081]

    With ``noise_per``, a reading after a long silence counts more:

    >>> from datetime import UTC, datetime
    >>> kal = KalmanFilter(prior="first", noise_per="1s").session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> readings = ((0, 10.0), (1, 12.0), (3600, 20.0))
    >>> rows = kal.push_many({"event_time": noon + timedelta(seconds=s), "value": v} for s, v in readings)
    >>> [round(row["value"], 3) for row in rows]
    [10.0, 11.16, 19.994]
    """

    code: ClassVar[str] = "KAL"
    category: ClassVar[str] = "Statistical"
    accepts_lazy_rows: ClassVar[bool] = True

    process_noise: Positive = 0.125
    measurement_noise: NonNegative = 0.32
    initial_variance: Positive = 30.0
    prior: Literal["zero", "first"] = "zero"
    on_missing: Literal["predict", "skip"] = "predict"
    noise_per: Duration | None = None

    def validate(self) -> None:
        super().validate()
        if self.noise_per is not None and as_timedelta(self.noise_per) <= timedelta(0):
            raise ConfigError(f"noise_per must be longer than 0, got {self.noise_per!r}")

    def requires(self) -> Mapping[str, Requirement]:
        timed: dict[str, Requirement] = {} if self.noise_per is None else {"event_time": "any"}
        return {**super().requires(), **timed}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        if self.noise_per is not None:
            check_time_field(self.name(), schema)

    def state_fields(self) -> Mapping[str, StateField]:
        timed = {} if self.noise_per is None else {"last": StateField("int64", initial=NEVER)}
        return {
            "x": StateField("float64"),
            "p": StateField("float64", initial=self.initial_variance),
            "seen": StateField("bool", initial=False),
            **timed,
        }

    def validate_rows(self, batch: AnyRows, errors: RejectedRecords) -> AnyRows:
        batch = super().validate_rows(batch, errors)
        if self.noise_per is None or not batch.column("event_time").null_count:
            return batch
        batch = materialize(batch)
        present = valid_mask(batch.column("event_time"))
        errors.reject(batch, ~present, "no_event_time", "the time since the last record is unknown")
        return batch.filter(pa.array(present))

    def update(self, batch: AnyRows, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords) -> AnyRows:
        values, _ = floats(batch, self.value)
        out = np.empty(values.size)
        model = (self.process_noise, self.measurement_noise, self.on_missing == "predict", self.prior == "first")
        arrays = (values, slots, state["x"], state["p"], state["seen"])
        if self.noise_per is None:
            kalman(*arrays, *model, out)
        else:
            times, _ = microseconds(batch.column("event_time"))
            kalman_by_time(*arrays, *model, times, state["last"], to_microseconds(self.noise_per), out)
        missing = np.isnan(out) if count_missing(out) else NO_MASK
        return replace_field(batch, self.target, nullable_column(out, missing))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", "a", None, "b", "a"],
                "value": [10.0, -3.5, 12.0, None, float("nan"), 1e300, 4.0, 11.0],
            }
        )
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(by=("key",), prior="first", output="smooth"), batch)
        yield Case(cls(on_missing="skip", measurement_noise=0.0), batch)
        times = pa.array([5, 0, 7, 7, None, 60, 61, 6], pa.timestamp("s", tz="UTC"))
        timed = batch.append_column("event_time", times.cast(TIMESTAMP))
        yield Case(cls(by=("key",), noise_per=timedelta(seconds=10)), timed, "by time")
