"""Running variance of all readings so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, State, StateField, ValueTask, register, replace_column

__all__ = ["Variance"]


@kernel
def welford(values: Any, slots: Any, n: Any, mean: Any, square: Any, ddof: Any, bad: Any, out: Any) -> None:
    for i in range(values.size):
        s = slots[i]
        x = values[i]
        if not np.isnan(x):
            delta = x - mean[s]
            m = mean[s] + delta / (n[s] + 1)
            q = square[s] + delta * (x - m)  # sum of squared distances from the mean
            if not np.isfinite(q):
                bad[i] = True
                continue
            n[s] += 1
            mean[s] = m
            square[s] = q
        out[i] = square[s] / (n[s] - ddof) if n[s] > ddof else np.nan


@register
@dataclass(frozen=True, kw_only=True)
class Variance(ValueTask):
    """Compute the running variance of each key's readings.

    ``variance = Σ (x - mean)² / (n - ddof)``, updated by Welford's method:
    ``mean' = mean + (x - mean) / n;  Q' = Q + (x - mean) (x - mean')``.

    Parameters
    ----------
    ddof : 0 or 1, default 0
        0: population variance; 1: sample variance.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1; O(1) time, 24 bytes of state per key.

    Missing values
    --------------
    A null or NaN is skipped; its record carries the variance so far, which is null until there are more than ddof
    readings.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``, a reading whose squared distance overflows float64
    as ``overflow``; neither changes the state.

    References
    ----------
    .. [1] B. P. Welford, *Note on a Method for Calculating Corrected Sums of Squares and Products*,
       Technometrics 4(3), 1962.

    Examples
    --------
    >>> variance = Variance(ddof=1).session()
    >>> [variance.push({"value": v})[0]["value"] for v in (2.0, 4.0, 6.0)]
    [None, 2.0, 4.0]
    """

    code: ClassVar[str] = "VAR"
    category: ClassVar[str] = "Statistical"

    ddof: Literal[0, 1] = 0

    def state_fields(self) -> Mapping[str, StateField]:
        return {"n": StateField("int64"), "mean": StateField("float64"), "square": StateField("float64")}

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        values, _ = float_column(batch.column(self.value))
        out = np.empty(values.size)
        bad = np.zeros(values.size, np.bool_)
        welford(values, slots, state["n"], state["mean"], state["square"], self.ddof, bad, out)
        if bad.any():
            dead.reject(batch, bad, "overflow", f"{self.value} is too far from the mean to be squared")
            batch, out = batch.filter(pa.array(~bad)), out[~bad]
        return replace_column(batch, self.target, out)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", ""],
                "value": [10.0, -3.5, 12.0, None, float("nan"), 1e300, 4.0, 1e200, 5.0],
            }
        )
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(ddof=1, output="variance"), batch)
