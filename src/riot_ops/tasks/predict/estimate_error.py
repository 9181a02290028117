"""Relative error of predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, replace_column, with_field
from riot_ops.tasks.predict.prediction_task import infinite_rows, input_matrix

__all__ = ["EstimateError"]


@kernel
def relative_errors(
    predicted: Any, observed: Any, averages: Any, slots: Any, average: Any, used: Any, out: Any
) -> None:
    for i in range(predicted.size):
        s = slots[i]
        if not np.isnan(averages[i]):
            average[s] = averages[i]
        used[i] = average[s]
        scale = abs(average[s])
        if np.isnan(scale) or scale == 0.0:
            scale = abs(observed[i])
        out[i] = np.nan
        if scale > 0.0:
            error = abs(predicted[i] - observed[i]) / scale
            if np.isfinite(error):
                out[i] = error


@register
@dataclass(frozen=True, kw_only=True)
class EstimateError(KeyedTask):
    """Compute the error of each prediction relative to the latest average of its key.

    ``err = |p - o| / |avg|``; without an average, or where it is 0, ``|p - o| / |o|``.

    The input merges two streams: a record with an average replaces the average of its key and emits nothing, unless it
    also has a prediction; any other record is a prediction.

    Parameters
    ----------
    predicted : str, default "prediction"
        Numeric field p; null in a record that only has an average.
    observed : str, default "observed"
        Numeric field o.
    average : str, default "average"
        Numeric field avg; null in predictions, which receive the latest average of their key.
    output : str, default "error"
        Field for the error (a ratio, >= 0).
    by, ttl
        Key, by default ``("sensor_id",)``, and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[n], 1:1 for predictions and 1:0 for averages; O(1) time, 8 bytes of state
    per key.

    Missing values
    --------------
    The error is null where p or o is null or NaN, where both avg and o are 0 or missing, and where
    it is beyond float64.

    Errors
    ------
    A record with an infinite value goes to the errors stream as ``not_finite``.

    References
    ----------
    .. [1] A. Shukla, Y. Simmhan, *Benchmarking Distributed Stream Processing Platforms for IoT
       Applications*, TPCTC 2016, section 5.3, error estimate in PRED.

    Examples
    --------
    >>> errors = EstimateError().session()
    >>> prediction = {"sensor_id": "a", "prediction": 12.0, "observed": 10.0, "average": None}
    >>> errors.push(prediction)[0]["error"]
    0.2
    >>> errors.push({"sensor_id": "a", "prediction": None, "observed": None, "average": 8.0})
    []
    >>> errors.push(prediction)[0]["error"]
    0.25
    """

    code: ClassVar[str] = "ERR"
    category: ClassVar[str] = "Predictive"
    selectivity: ClassVar[str] = "1:0/1"
    state_free_parameters: ClassVar[frozenset[str]] = frozenset({"output"})

    by: Names = ("sensor_id",)
    predicted: str = "prediction"
    observed: str = "observed"
    average: str = "average"
    output: str = "error"

    def validate(self) -> None:
        names = (*self.by, self.predicted, self.observed, self.average, self.output)
        if len(set(names)) < len(names):
            raise ConfigError(f"by, predicted, observed, average and output must be different fields, got {names}")

    @property
    def _inputs(self) -> tuple[str, str, str]:
        return self.predicted, self.observed, self.average

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **dict.fromkeys(self._inputs, "number")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(with_field(schema, pa.field(self.average, pa.float64())), pa.field(self.output, pa.float64()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.average, self.output})

    def state_fields(self) -> Mapping[str, StateField]:
        return {"average": StateField("float64", initial=float("nan"))}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        infinite = infinite_rows(input_matrix(batch, self._inputs))
        if not infinite.any():
            return batch
        errors.reject(batch, infinite, "not_finite", f"one of {', '.join(self._inputs)} is infinite")
        return batch.filter(pa.array(~infinite))

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        predicted, observed, averages = (float_column(batch.column(name))[0] for name in self._inputs)
        used, out = np.empty(batch.num_rows), np.empty(batch.num_rows)
        relative_errors(predicted, observed, averages, slots, state["average"], used, out)
        predictions: npt.NDArray[np.bool_] = np.isnan(averages) | ~np.isnan(predicted)
        if not predictions.all():
            batch, used, out = batch.filter(pa.array(predictions)), used[predictions], out[predictions]
        return replace_column(replace_column(batch, self.average, used), self.output, out)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        nan = float("nan")
        batch = pa.RecordBatch.from_pydict(
            {
                "sensor_id": ["a", "ü", "a", "a", None, "ü", "a", "a", "a", "ü"],
                "prediction": [1.0, 2.0, None, 4.0, 1e308, None, -3.0, nan, 5.0, 1.0],
                "observed": [0.0, 1.0, None, 2.0, -1e308, 3.0, 0.0, 1.0, None, float("inf")],
                "average": [None, None, 4.0, None, None, 0.0, nan, None, -2.0, None],
            }
        )
        yield Case(cls(), batch)
        yield Case(cls(by=(), predicted="observed", observed="prediction", output="deviation"), batch, "other fields")
