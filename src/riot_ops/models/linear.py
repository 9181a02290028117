"""Linear regression models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ModelError
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.models.model import Model, check_finite, library_version
from riot_ops.models.scikit_learn import check_conversion, check_input_names, probe_rows

__all__ = ["LinearModel"]


@kernel
def linear_predictions(x: Any, intercept: Any, coefficients: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        y = intercept
        for j in range(coefficients.size):
            y += coefficients[j] * x[i, j]
        out[i] = y if np.isfinite(y) else np.nan


class LinearModel(Model, frozen=True, kw_only=True, tag="MLR"):
    """``y = b0 + Σ bi xi``.

    Parameters
    ----------
    intercept : float
        b0, in the unit of the target.
    coefficients : tuple of float
        bi, one for each input.

    Examples
    --------
    >>> fare = LinearModel(inputs=("secs", "miles"), target="fare", intercept=2.5, coefficients=(0.005, 2.0))
    >>> fare.predict([[600.0, 3.0], [60.0, float("nan")]]).tolist()
    [11.5, nan]
    >>> LinearModel.from_bytes(fare.to_bytes()) == fare
    True
    """

    kind: ClassVar[str] = "MLR"

    intercept: float
    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.coefficients) != len(self.inputs):
            raise ModelError(f"{len(self.coefficients)} coefficients for {len(self.inputs)} inputs")
        check_finite("parameters", (self.intercept, *self.coefficients))

    @classmethod
    def from_sklearn(cls, estimator: Any, inputs: Sequence[str], target: str, **facts: Any) -> LinearModel:
        """Convert a fitted linear regression of scikit-learn, whose ``predict`` is ``coef_ · x + intercept_``.

        Estimators that predict something else are refused: classifiers, regressions with a link function, or with
        inputs that they scale. ``facts`` are further fields of :class:`Model`.
        """
        name = type(estimator).__name__
        try:
            coefficients, intercept = estimator.coef_, estimator.intercept_
            if hasattr(coefficients, "toarray"):  # after sparsify()
                coefficients = coefficients.toarray()
            coefficients, intercept = np.asarray(coefficients, np.float64), np.asarray(intercept, np.float64)
        except (AttributeError, TypeError, ValueError):
            raise ModelError(f"{name} is not a fitted linear regression") from None
        if hasattr(estimator, "classes_"):
            raise ModelError(f"{name} is a classifier, not a linear regression")
        if intercept.size != 1 or coefficients.size != len(inputs):
            raise ModelError(
                f"{name} has {coefficients.size} coefficients and {intercept.size} "
                f"intercepts, expected {len(inputs)} and 1"
            )
        check_input_names(estimator, inputs)
        model = cls(
            inputs=tuple(inputs),
            target=target,
            intercept=float(intercept.ravel()[0]),
            coefficients=tuple(coefficients.ravel().tolist()),
            **{"made_by": library_version("scikit-learn"), **facts},
        )
        rows = probe_rows(len(inputs))
        magnitude = np.abs(rows) @ np.abs(coefficients.ravel()) + abs(model.intercept)
        check_conversion(estimator, "predict", rows, model.predict, magnitude)
        return model

    def predict(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Predictions for rows of inputs; NaN where an input is NaN."""
        rows = self.matrix(x)
        out = np.empty(rows.shape[0])
        linear_predictions(rows, self.intercept, self._array, out)
        return out

    @cached_property
    def _array(self) -> npt.NDArray[np.float64]:
        return readonly(np.array(self.coefficients, np.float64))
