"""Prediction in batches with a fitted estimator of scikit-learn, or one with its interface."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, RecordError
from riot_ops.kernels.arrays.exact import inexact_rows
from riot_ops.task import Requirement
from riot_ops.tasks.functions.batch_function import BatchFunction

__all__ = ["EstimatorFunction", "predict"]

OnMissing = Literal["null", "pass"]


def predict(
    estimator: Any,
    inputs: str | Iterable[str] | None = None,
    output: str = "prediction",
    *,
    response_method: str = "predict",
    dtype: pa.DataType | str | None = None,
    on_missing: OnMissing = "null",
    label: str | None = None,
) -> BatchFunction:
    """Make a task that adds the predictions of a fitted estimator, a batch at a time.

    The estimator is a live object: the task runs in this process, and on Spark workers, to which Spark pickles
    it like a function. It cannot be part of a descriptor (``to_dict`` refuses it), since loading a pickle from
    elsewhere executes code. To store, send or replace a model in mid-stream, use
    :class:`PredictLinearRegression` or :class:`Classify`, whose models are data.

    Parameters
    ----------
    estimator
        A fitted object with the response_method: an estimator, a pipeline, or a model of another library with
        scikit-learn's interface.
    inputs : str or iterable of str, optional
        Fields in the order of the estimator's features; by default the feature names that it was fitted
        with. An estimator fitted with names gets a data frame, others a matrix of float64.
    output : str, default "prediction"
        Field for the result.
    response_method : str, default "predict"
        The estimator's response_method, such as ``predict_proba``.
    dtype : Arrow type or its name, optional
        Type of the result. By default: a list of numbers for ``predict_proba``, ``predict_log_proba`` and
        ``transform``, the type of a classifier's labels, else float64.
    on_missing : "null" or "pass", default "null"
        Whether a record with a null or NaN input gets null, or the input is passed to the estimator as NaN.
    label : str, default the estimator's class
        Name of the step in messages and diagrams.

    Notes
    -----
    A record with an infinite input is rejected as ``not_finite``, one for which the estimator fails as
    ``function_error``. See :class:`BatchFunction` for the rest.

    Raises
    ------
    ConfigError
        If the estimator is not fitted, lacks the response_method, or has other features.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> line = LinearRegression().fit([[1.0], [2.0], [3.0]], [3.0, 5.0, 7.0])
    >>> fare = predict(line, inputs=("miles",), output="fare").session()
    >>> fare.push({"miles": 10.0}), fare.push({"miles": None})
    ([{'miles': 10.0, 'fare': 21.0}], [{'miles': None, 'fare': None}])
    """
    wanted = (inputs,) if isinstance(inputs, str) else None if inputs is None else tuple(inputs)
    function = EstimatorFunction(estimator, _inputs(estimator, wanted), output, response_method, on_missing)
    return BatchFunction(
        function=function,
        adds={output: _result_type(estimator, response_method) if dtype is None else dtype},
        label=type(estimator).__name__ if label is None else label,
    )


@dataclass(frozen=True)
class EstimatorFunction:
    """A live estimator as a function of batches."""

    estimator: Any
    inputs: tuple[str, ...]
    output: str
    response_method: str
    on_missing: OnMissing

    #: The reason, in error messages, why it cannot be part of a descriptor.
    not_portable = (
        "loading a live estimator elsewhere would execute code: use LinearModel.from_sklearn, "
        "TreeModel.from_sklearn, or a module-level function that loads the estimator"
    )

    def __post_init__(self) -> None:
        if self.on_missing not in ("null", "pass"):
            raise ConfigError(f"on_missing must be 'null' or 'pass', got {self.on_missing!r}")
        if isinstance(self.estimator, type) or not callable(getattr(self.estimator, self.response_method, None)):
            raise ConfigError(
                f"estimator = {self.estimator!r} has no method {self.response_method!r}; pass a fitted estimator"
            )
        _check_fitted(self.estimator)

    def __call__(self, batch: pa.RecordBatch) -> Mapping[str, Any]:
        for name in self.inputs:
            if inexact_rows(batch.column(name)) is not None:
                raise RecordError(f"{name} has a number that float64 cannot hold", reason="out_of_range")
        columns = [_plain(batch.column(name)) for name in self.inputs]
        if any(pc.any(pc.is_inf(c)).as_py() for c in columns if pa.types.is_floating(c.type)):
            raise RecordError(f"one of {', '.join(self.inputs)} is infinite", reason="not_finite")
        known = np.ones(batch.num_rows, np.bool_)
        if self.on_missing == "null":
            for column in columns:
                known &= ~np.asarray(column.is_null(nan_is_null=True))
        rows = np.flatnonzero(known)
        if not rows.size:
            return {}
        if rows.size < batch.num_rows:
            columns = [column.filter(pa.array(known)) for column in columns]
        output = getattr(self.estimator, self.response_method)(self._argument(columns))
        output = np.asarray(output.toarray() if hasattr(output, "toarray") else output)  # it may be a sparse matrix
        if len(output) != rows.size:
            raise ConfigError(
                f"{self.response_method} returned {len(output)} rows for {rows.size}; one for each is needed"
            )
        if rows.size == batch.num_rows:
            return {self.output: output}
        results: list[Any] = [None] * batch.num_rows
        for row, value in zip(rows.tolist(), output.tolist(), strict=True):
            results[row] = value
        return {self.output: pa.array(results)}

    @property
    def reads(self) -> Mapping[str, Requirement]:
        """The fields that the function reads."""
        return dict.fromkeys(self.inputs, "any" if self._named else "number")

    @property
    def _named(self) -> bool:
        return hasattr(self.estimator, "feature_names_in_")

    def _argument(self, columns: list[pa.Array]) -> Any:
        """Return the columns as the estimator takes them: a data frame if it was fitted with one, else a matrix."""
        if self._named:
            return pa.table(dict(zip(self.inputs, columns, strict=True))).to_pandas()
        return np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)

    def __reduce__(self) -> tuple[Any, ...]:
        dumps = getattr(sys.modules.get("pyspark.cloudpickle"), "dumps", pickle.dumps)
        try:
            dumps(self.estimator)
        except Exception as error:
            raise ConfigError(
                f"{type(self.estimator).__name__} cannot be pickled for Spark's workers: {error}; run it in "
                "process, or load it inside a function"
            ) from None
        return EstimatorFunction, (self.estimator, self.inputs, self.output, self.response_method, self.on_missing)


def _plain(column: pa.Array) -> pa.Array:
    """Convert numbers to float64; other columns are returned unchanged."""
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_null(column.type)
    return column.cast(pa.float64(), safe=False) if numeric or pa.types.is_decimal(column.type) else column


def _check_fitted(estimator: Any) -> None:
    if "sklearn" not in sys.modules:  # then the estimator is not one of scikit-learn
        return
    from sklearn.base import BaseEstimator
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    if isinstance(estimator, BaseEstimator):
        try:
            check_is_fitted(estimator)
        except NotFittedError:
            raise ConfigError(f"estimator = {estimator!r} is not fitted: call fit first") from None


def _inputs(estimator: Any, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the fields in the order of the estimator's features."""
    cls = type(estimator).__name__
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        known = tuple(str(name) for name in names)
        if wanted is not None and set(wanted) != set(known):
            raise ConfigError(f"{cls} was fitted with {', '.join(known)}; inputs are {', '.join(wanted)}")
        return known
    if not wanted or len(set(wanted)) < len(wanted):
        raise ConfigError(f"{cls} needs inputs, the distinct names of at least one field; got {wanted!r}")
    features = getattr(estimator, "n_features_in_", len(wanted))
    if features != len(wanted):
        raise ConfigError(f"{cls} was fitted with {features} features; inputs are {', '.join(wanted)}")
    return wanted


def _result_type(estimator: Any, response_method: str) -> pa.DataType:
    """Return the default type of the results."""
    if response_method in ("predict_proba", "predict_log_proba", "transform"):
        return pa.list_(pa.float64())
    labels = getattr(estimator, "classes_", None)
    if response_method == "predict" and isinstance(labels, np.ndarray):
        dtype: pa.DataType = pa.array(labels.tolist()).type
        return dtype
    return pa.float64()
