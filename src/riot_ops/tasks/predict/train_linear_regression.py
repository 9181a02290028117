"""Training of linear regression models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import NonNegative
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.models.fit import fit_linear
from riot_ops.models.linear import LinearModel
from riot_ops.task import Case, Requirement, register
from riot_ops.tasks.predict.training_task import TrainingTask

__all__ = ["TrainLinearRegression"]


@register
@dataclass(frozen=True, kw_only=True)
class TrainLinearRegression(TrainingTask):
    """Train a multivariate linear model on every ``size`` records, or on each record that holds a whole set.

    ``b`` minimises ``Σ (y - b0 - Σ bi xi)² + λ Σ (si bi)²``, with si the standard deviation of xi.

    Parameters
    ----------
    inputs : tuple of str
        Numeric fields xi.
    target : str, default "target"
        Numeric field y.
    alpha : float >= 0, default 1e-8
        The λ above. With 0, linearly dependent inputs are untrainable.
    selection : "none" or "m5", default "none"
        Whether inputs that do not improve the model get the coefficient 0, see :func:`riot_ops.models.fit_linear`.
    size : int >= 1 or None, default 300
        Records of a key per model, one set after the other. None: each record is a set whose fields
        are lists of equal length.
    start_field, end_field : str, default "event_time"
        Fields with the times (or integer milliseconds since the epoch) that the data span, from the
        earliest start to the latest end in a set.
    dataset : str, default "CITY"
        Prefix of the models' names ``CITY-MLR-<end ms>.model``; with a key, the key's hash follows it.
        The end in a name is at least 1 ms after the end of the key's previous model.
    store : str or None, default None
        Folder or blob container to write the models to, see :meth:`ModelStore.open`; None: no store.
        Repeating the training writes the same model.
    by, ttl
        Key (each key has its own models) and time to live, see :class:`KeyedTask`.
    value, output
        Not used: ``inputs`` and ``target`` name the input, and the names of the results are fixed.

    Shapes and rates
    ----------------
    float64[n, k] -> model, N:1 (1:1 with ``size=None``): the last record of a set emits a record with its ``seq``,
    ``ordinal``, ``event_time`` and key, and ``model`` (the name), ``kind``, ``start_ms``, ``end_ms``, ``rows``,
    ``metrics`` (JSON: ``rmse``, ``median_absolute_error``, ``r2`` on the training data) and ``content`` (the model's
    JSON). O(n k²) time; the state of a key is at most its last ``size - 1`` records.

    Missing values
    --------------
    A record without a usable input, target or time is rejected. In a list, rows with a null, NaN or
    infinite value are skipped.

    Errors
    ------
    In the errors stream: ``missing_value``, ``not_finite``; ``uneven``, lists that differ in length; ``untrainable``,
    the last record of a set on which no model can be trained (fewer rows than unknowns, a constant target, dependent
    inputs without alpha, overflow), which drops the set; ``name_taken``, where the store has another model of the same
    name.

    References
    ----------
    .. [1] A. E. Hoerl, R. W. Kennard, *Ridge Regression*, Technometrics 1970.
    .. [2] J. R. Quinlan, *Learning with Continuous Classes*, AI 1992 (M5); as in WEKA's LinearRegression.
    .. [3] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task MLT.

    Examples
    --------
    >>> mlt = TrainLinearRegression(inputs=("x",), target="y", size=3).session()
    >>> rows = mlt.push_many({"x": x, "y": 2 * x + 1, "event_time": 1000 * x} for x in range(3))
    >>> rows[0]["model"], rows[0]["rows"]
    ('CITY-MLR-2.model', 3)
    >>> model = LinearModel.from_bytes(rows[0]["content"])
    >>> round(model.intercept, 6), round(model.coefficients[0], 6)
    (1.0, 2.0)
    """

    code: ClassVar[str] = "MLT"
    model_kind: ClassVar[str] = LinearModel.kind
    target_type: ClassVar[Requirement] = "number"

    alpha: NonNegative = 1e-8
    selection: Literal["none", "m5"] = "none"

    def validate(self) -> None:
        super().validate()
        if self.size is not None and self.size <= len(self.inputs):
            raise ConfigError(
                f"size must be more than the number of inputs, got {self.size} for {len(self.inputs)} inputs"
            )

    def usable_targets(self, targets: pa.Array) -> npt.NDArray[np.bool_]:
        return np.isfinite(float_column(targets)[0])

    def fit(self, inputs: npt.NDArray[np.float64], targets: pa.Array, **facts: Any) -> LinearModel:
        goal, _ = float_column(targets)
        return fit_linear(inputs, goal, self.inputs, self.target, alpha=self.alpha, selection=self.selection, **facts)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "event_time": pa.array([5, 1, 2, 3, 4, 9, 7, 8, 6], TIMESTAMP),
                "key": ["a", "ü", "a", "ü", "a", "a", "ü", "a", "a"],
                "x": [1.0, 2.0, -3.5, 1e9, 0.25, 4.0, -2.0, 8.0, 0.5],
                "y": [2.0, 2.0, 2.0, 3.0, -1.0, 4.0, 2.5, -1e9, 0.0],
                "target": [1.0, 0.5, 2.0, -7.0, 3.0, 5.0, 0.0, 1.5, 2.5],
            }
        )
        yield Case(cls(inputs=("x", "y"), size=4), batch)
        yield Case(cls(inputs=("x",), size=3, by=("key",), dataset="TAXI", alpha=0.0), batch, "by key")
        yield Case(cls(inputs=("x", "y"), size=None, start_field="from", end_field="to"), list_cases_batch(), "sets")


def list_cases_batch(labels: bool = False) -> pa.RecordBatch:
    """Build records that hold whole sets for the example cases of training tasks; most sets are untrainable."""
    dtype = pa.list_(pa.string() if labels else pa.float64())
    targets: list[list[float | None] | None] = [
        [1.0, 2.0, 5.0, 4.0],
        [1.0, None, 2.0, 2.0, float("nan"), 1.5],
        [3.0, 3.0, 3.0, 3.0],
        [1.0, 2.0, 3.0],
        [0.5],
        [],
        None,
        [None, None],
        [1.0, 2.0],
        [float("nan")],
    ]
    x = [[1.0, 2.0, 3.0, 5.0], [1.0, 2.0, 3.0, 4.0, 0.0, -1e39], [1.0, 2.0, 3.0, 5.0], [1.0, 2.0, 3.0], [1.0], []]
    y = [[0.0, 2.0, 0.0, 1.0], [1.0, 2.0, 0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 0.0, 1.0], [1.0], [1.0], []]
    more: list[list[float | None]] = [[1.0], [2.0, 4.0], [float("inf"), 1.0], [None]]
    rows = range(len(targets))
    return pa.RecordBatch.from_pydict(
        {
            "from": pa.array(rows, pa.int64()),
            "to": pa.array([None if i == 4 else i * i for i in rows], pa.int64()),
            "x": pa.array([*x, *more]),
            "y": pa.array([*y, *more]),
            "target": pa.array([t if t is None or not labels else [v and str(v) for v in t] for t in targets], dtype),
        }
    )
