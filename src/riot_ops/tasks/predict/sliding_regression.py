"""Sliding linear regression: extrapolate the latest readings along a straight line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.parameters import MAX_LENGTH, Length
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import NO_MASK, nullable_column
from riot_ops.kernels.arrays.lazy_rows import AnyRows, floats, materialize, take_columns
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, Lookback, State, StateField, ValueTask, register, replace_column, with_field

__all__ = ["SlidingRegression"]

FIELD = "predictions"
#: The type of the predictions of a reading.
LINE = pa.list_(pa.float64())


@kernel
def regress(
    values: Any, slots: Any, ring: Any, seen: Any, horizon: Any, first: Any, rows: Any, predictions: Any, means: Any
) -> Any:
    """Write the predictions from every full window and the row that completed it.

    Returns their number, and how many lines have an end or a mean that is not finite.

    ``seen`` counts a key's readings up to ``first``, the reading with the first output; from then on it cycles through
    the W values from ``first`` on, which only encode the position in the ring.
    """
    window = ring.shape[1]
    middle = 0.5 * (window - 1)
    square = window * (window * window - 1) / 12.0  # sum of (x - middle)^2
    out = 0
    beyond = 0
    for i in range(values.size):
        y = values[i]
        if np.isnan(y):
            continue
        s = slots[i]
        place = seen[s] % window
        ring[s, place] = y
        seen[s] += 1
        if seen[s] >= first + window:
            seen[s] -= window
        if seen[s] < first:
            continue
        old = place + 1 if place + 1 < window else 0  # the window runs from old to place
        new = place
        total = 0.0
        moment = 0.0  # sum of (x - middle) y, by pairs
        for j in range(window // 2):
            a = ring[s, old]
            b = ring[s, new]
            total += a + b
            moment += (middle - j) * (b - a)
            old = old + 1 if old + 1 < window else 0
            new = new - 1 if new > 0 else window - 1
        if window % 2 == 1:
            total += ring[s, old]
        mean = total / window
        slope = moment / square
        start = mean + slope * (window - 1 - middle)  # the line at the newest reading
        for h in range(horizon):
            predictions[out, h] = start + slope * (h + 1)
        means[out] = start + slope * (0.5 * (horizon + 1))
        rows[out] = i
        # finite ends imply a finite line
        if not (
            np.isfinite(means[out]) and np.isfinite(predictions[out, 0]) and np.isfinite(predictions[out, horizon - 1])
        ):
            beyond += 1
        out += 1
    return out, beyond


@register
@dataclass(frozen=True, kw_only=True)
class SlidingRegression(ValueTask):
    """Predict the next readings of each key by a least-squares line through the latest ones.

    Ordinary least squares of the last W readings against their positions ``x = 0 … W-1``, centred on the window:
    ``slope = 12 Σ (x - (W-1)/2) y / (W (W² - 1))``, and ``prediction[h] = mean(y) + slope (W - 1 + h - (W-1)/2)`` for
    ``h = 1 … H``.

    Parameters
    ----------
    window : int, 2 to 1,048,576, default 10
        Number W of readings to fit.
    horizon : int, 1 to 1,048,576, default 10
        Number H of predictions.
    strict_java : bool, default False
        Whether a key's first output comes one reading later, as in the benchmark's Java code.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> list<float64>[H] in ``predictions`` and their mean in the output field; one
    record per reading from the W-th of a key on. O(W + H) time; 8 W + 8 bytes of state per key.
    Every output is computed from the window alone, so that no error accumulates.

    Missing values
    --------------
    A null or NaN reading emits nothing and leaves the state unchanged. A prediction beyond float64 is null.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task SLR.

    Examples
    --------
    >>> line = SlidingRegression(window=3, horizon=2).session()
    >>> [line.push({"value": v}) for v in (1.0, 3.0, 5.0)]
    [[], [], [{'value': 8.0, 'predictions': [7.0, 9.0]}]]
    """

    code: ClassVar[str] = "SLR"
    category: ClassVar[str] = "Predictive"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "N:M"
    accepts_lazy_rows: ClassVar[bool] = True
    state_free_parameters: ClassVar[frozenset[str]] = frozenset({"horizon", "output"})

    window: Annotated[int, msgspec.Meta(ge=2, le=MAX_LENGTH)] = 10
    horizon: Length = 10
    strict_java: bool = False

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return with_field(super().output_schema(schema), pa.field(FIELD, LINE))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.target, FIELD})

    def lookback(self) -> Lookback | None:
        return Lookback(self.window - 1 + self.strict_java) if self.ttl is None else None

    def state_fields(self) -> Mapping[str, StateField]:
        return {"ring": StateField("float64", self.window), "seen": StateField("int64")}

    def update(
        self, batch: AnyRows, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        values, _ = floats(batch, self.value)
        n = values.size
        rows, means = np.empty(n, np.int64), np.empty(n)
        predictions = np.empty((n, self.horizon))
        found, beyond = regress(
            values,
            slots,
            state["ring"],
            state["seen"],
            self.horizon,
            self.window + self.strict_java,
            rows,
            predictions,
            means,
        )
        means, ahead = means[:found], predictions[:found].ravel()
        offsets = np.arange(0, (found + 1) * self.horizon, self.horizon, dtype=np.int32)
        lists = pa.Array.from_buffers(
            LINE,
            found,
            [None, pa.py_buffer(offsets)],
            0,
            children=[nullable_column(ahead, ~np.isfinite(ahead) if beyond else NO_MASK)],
        )
        out = materialize(batch) if found == n else take_columns(batch, rows[:found])
        mean = nullable_column(means, ~np.isfinite(means) if beyond else NO_MASK)
        return replace_column(replace_column(out, self.target, mean), FIELD, lists)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", "", "a"],
                "value": [10.0, -3.5, 12.0, None, float("nan"), 1e308, 4.0, 11.0, -1e308, 2.0],
            }
        )
        yield Case(cls(window=2, horizon=3, by=("key",)), batch)
        yield Case(cls(window=3, horizon=1, by=("key",), strict_java=True, output="mean"), batch)
        yield Case(cls(window=5), batch)
