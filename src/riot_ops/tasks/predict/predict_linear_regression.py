"""Prediction by a linear regression model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.models.linear import LinearModel
from riot_ops.models.model import Model
from riot_ops.task import Case, register
from riot_ops.tasks.predict.prediction_task import PredictionTask

__all__ = ["PredictLinearRegression"]


@register
@dataclass(frozen=True, kw_only=True)
class PredictLinearRegression(PredictionTask):
    """Predict a number with a multivariate linear model, which can be replaced while the stream runs.

    ``y = b0 + Σ bi xi``

    Parameters
    ----------
    inputs : tuple of str
        Numeric fields xi that the model reads; a model with other inputs is refused.
    model : str or None, default None
        Initial model: its name in ``store`` (without a store the path of its file), or its JSON form.
        None: there is no model until the first update.
        A file is read once per run or session; on Spark it must not be replaced while a query runs.
    store : str or None, default None
        Folder or blob container of models.
    updates : str or None, default None
        Text field that marks a record as an update: it holds the name of a model in the store, and is
        null in observations. From the update on, in stream order, its key uses that model.
        None: all records are observations.
    output : str, default "prediction"
        Field for y.
    model_field : str or None, default None
        Field for the name of the model used (null for an inline JSON model); None: no such field.
    by, ttl
        Key and time to live, see :class:`PredictionTask`.

    Shapes and rates
    ----------------
    float64[n, k] -> float64[n], 1:1 for observations and 1:0 for updates; O(k) time. The state of a key is the
    name of its model; each model is loaded once per process.

    Missing values
    --------------
    A null or NaN input gives null, as does a y beyond float64.

    Errors
    ------
    See :class:`PredictionTask`: ``bad_model``, ``no_model`` and ``not_finite`` in the errors stream.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task MLR.

    Examples
    --------
    >>> fare = LinearModel(inputs=("secs", "miles"), target="fare", intercept=2.5, coefficients=(0.005, 2.0))
    >>> mlr = PredictLinearRegression(inputs=("secs", "miles"), model=fare.to_json()).session()
    >>> mlr.push({"secs": 600.0, "miles": 3.0})
    [{'secs': 600.0, 'miles': 3.0, 'prediction': 11.5}]
    """

    code: ClassVar[str] = "MLR"
    model_types: ClassVar[tuple[type[Model], ...]] = (LinearModel,)

    def result_fields(self) -> list[pa.Field]:
        return [pa.field(self.output, pa.float64())]

    def results(self, model: Any, x: npt.NDArray[np.float64]) -> list[pa.Array]:
        predicted = model.predict(x)
        return [pa.array(predicted, mask=np.isnan(predicted))]

    @classmethod
    def cases(cls) -> Iterable[Case]:
        model = LinearModel(inputs=("x", "y"), target="z", intercept=0.5, coefficients=(2.0, -0.1)).to_json()
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", None, "b"],
                "x": [1.0, -3.5, None, float("nan"), 1e308, 4.0],
                "y": [2.0, 0.0, 1.0, 3.0, -1e308, float("inf")],
                "model": pa.array([None, "../secret", None, None, "CITY-MLR-1.model", None], pa.string()),
            }
        )
        yield Case(cls(inputs=("x", "y"), model=model), batch)
        yield Case(cls(inputs=("y", "x"), model=model, by=("key",), output="z"), batch, "other order")
        options = {"inputs": ("x", "y"), "model": model, "store": "/no such folder", "updates": "model"}
        yield Case(cls(**options, model_field="used"), batch, "bad updates")  # type: ignore[arg-type]
        yield Case(cls(inputs=("x",), store="/no such folder", updates="model"), batch, "no model")
