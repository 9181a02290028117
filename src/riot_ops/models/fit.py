"""Training: linear regressions, decision trees and neural networks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import MissingExtraError, ModelError
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.models.linear import LinearModel
from riot_ops.models.model import Model, library_version
from riot_ops.models.network import Activation, NetworkModel
from riot_ops.models.tree import TreeModel

__all__ = ["fit_linear", "fit_network", "fit_tree"]

M = TypeVar("M", bound=Model)
F64 = npt.NDArray[np.float64]

#: A direction whose diagonal element of the triangle is below this is undetermined.
SINGULAR = 1e-10
#: An input whose standardised coefficient is above this is considered collinear with others.
COLLINEAR = 1.5


@kernel
def rotate_rows(x: Any, r: Any) -> None:
    """QR by Givens rotations: add rows of [inputs, target] to the triangle r, one after the other."""
    m = r.shape[0]
    for i in range(x.shape[0]):
        for j in range(m):
            if x[i, j] != 0.0:
                h = np.sqrt(r[j, j] * r[j, j] + x[i, j] * x[i, j])
                c = r[j, j] / h
                s = x[i, j] / h
                for k in range(j, m):
                    upper = r[j, k]
                    r[j, k] = c * upper + s * x[i, k]
                    x[i, k] = c * x[i, k] - s * upper


@kernel
def back_substitute(r: Any, b: Any) -> None:
    """Solve R b = the last column of r, for the triangle R before it."""
    for j in range(b.size - 1, -1, -1):
        b[j] = r[j, b.size]
        for k in range(j + 1, b.size):
            b[j] -= r[j, k] * b[k]
        b[j] /= r[j, j]


def fit_linear(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    inputs: Sequence[str],
    target: str,
    *,
    alpha: float = 1e-8,
    selection: Literal["none", "m5"] = "none",
    **facts: Any,
) -> LinearModel:
    """Ridge least squares: ``b`` minimises ``Σ (y - b0 - Σ bi xi)² + λ Σ (si bi)²``, si the deviation of xi.

    Solved by QR over centred and scaled columns, so that inputs of any magnitude count alike, and constant or repeated
    inputs do no harm.

    Parameters
    ----------
    x, y : array of float
        Rows of inputs, and the target of each.
    inputs, target : names
        Their names.
    alpha : float >= 0, default 1e-8
        The λ above; with 0, linearly dependent inputs are refused.
    selection : "none" or "m5", default "none"
        "m5" sets some coefficients to 0, as in the M5 method. While the largest coefficient of a standardised input is
        above 1.5, this input is removed, because it is collinear with others. Then the input with the smallest
        coefficient is removed as long as this lowers ``SSE / SSE0 · (n - k0) + 2 k`` (Akaike's criterion), with the
        number of unknowns k, and SSE0 and k0 of the first model.
    facts
        Further fields of the model, such as the span of the data.

    Raises
    ------
    ModelError
        If there are fewer rows than unknowns, the target is constant, inputs are dependent, or numbers overflow.

    Examples
    --------
    >>> model = fit_linear([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0], ["x"], "y")
    >>> round(model.intercept, 6), [round(b, 6) for b in model.coefficients], round(model.metrics["rmse"], 6)
    (1.0, [2.0], 0.0)
    """
    rows, goal = _checked(x, y, inputs)
    n, k = rows.shape
    if n < k + 1:
        raise ModelError(f"{n} rows are too few for {k} coefficients and an intercept")
    if goal.min() == goal.max():
        raise ModelError(f"the target {target} is constant: {goal[0]}")
    with np.errstate(all="ignore"):
        table = np.column_stack([rows, goal])
        size = np.abs(table).max(axis=0)
        size[size == 0] = 1.0
        table /= size  # before squaring, so that nothing overflows
        mean = table.mean(axis=0)
        table -= mean
        scale = np.sqrt((table * table).mean(axis=0))
        scale[scale <= 1e-15] = 1.0  # a constant column, apart from rounding errors
        table /= scale
        triangle = np.zeros((k + 1, k + 1))
        np.fill_diagonal(triangle[:k, :k], np.sqrt(alpha))
        rotate_rows(table, triangle)
        if (np.abs(np.diag(triangle)[:k]) <= SINGULAR * np.sqrt(n)).any():
            raise ModelError("the inputs depend on each other; use an alpha > 0")
        b = _selected(triangle, n) if selection == "m5" else _solved(triangle, np.arange(k))[0]
        b *= scale[k] / scale[:k]
        intercept = mean[k] - float(np.sum(b * mean[:k]))
        coefficients = b * (size[k] / size[:k])
        model = LinearModel(
            inputs=tuple(inputs),
            target=target,
            intercept=float(intercept * size[k]),
            coefficients=tuple(coefficients.tolist()),
            rows=n,
            **{"made_by": library_version("riot_ops"), **facts},
        )
        error = (goal - model.predict(rows)) / size[k]
        spread = goal / size[k] - mean[k]
        return _with_metrics(
            model,
            rmse=float(np.sqrt(np.mean(error * error)) * size[k]),
            median_absolute_error=float(np.median(np.abs(error)) * size[k]),
            r2=float(1.0 - np.sum(error * error) / np.sum(spread * spread)),
        )


def _solved(triangle: F64, chosen: npt.NDArray[np.int64]) -> tuple[F64, float]:
    """Return the coefficients of standardised inputs, 0 for those not chosen; and the sum of squared errors."""
    k = len(triangle) - 1
    columns = np.append(chosen, k)
    smaller = np.zeros((columns.size, columns.size))
    rotate_rows(np.ascontiguousarray(triangle[:, columns]), smaller)
    b, some = np.zeros(k), np.empty(chosen.size)
    back_substitute(readonly(smaller), some)
    b[chosen] = some
    return b, float(smaller[-1, -1] ** 2)


def _selected(triangle: F64, n: int) -> F64:
    """Return the coefficients after the M5 method has removed inputs."""
    chosen = np.arange(len(triangle) - 1)
    b, error = _solved(triangle, chosen)
    while chosen.size and np.abs(b).max() > COLLINEAR:
        chosen = chosen[chosen != np.abs(b).argmax()]
        b, error = _solved(triangle, chosen)
    first, freedom = error, n - chosen.size - 1
    criterion = freedom + 2.0 * (chosen.size + 1)
    while chosen.size and first > 0.0:
        fewer = chosen[chosen != chosen[np.abs(b[chosen]).argmin()]]
        other, error = _solved(triangle, fewer)
        now = error / first * freedom + 2.0 * (fewer.size + 1)
        if now >= criterion:
            break
        chosen, b, criterion = fewer, other, now
    return b


def fit_tree(
    x: npt.ArrayLike,
    labels: Sequence[str],
    inputs: Sequence[str],
    target: str,
    *,
    classes: Sequence[str] = (),
    criterion: Literal["entropy", "gini"] = "entropy",
    max_depth: int | None = None,
    min_samples_leaf: int = 2,
    ccp_alpha: float = 0.0,
    seed: int = 0,
    **facts: Any,
) -> TreeModel:
    """Return a classification tree by recursive binary splits, grown by scikit-learn.

    Parameters
    ----------
    x : array of float
        Rows of inputs.
    labels : sequence of str
        The class of each row.
    inputs, target : names
        Their names.
    classes : sequence of str
        Labels in the order of their indexes; by default those that occur, sorted.
    criterion, max_depth, min_samples_leaf, ccp_alpha, seed
        ``criterion``, ``max_depth``, ``min_samples_leaf``, ``ccp_alpha`` and ``random_state`` of
        ``DecisionTreeClassifier``.
    facts
        Further fields of the model, such as the span of the data.

    Raises
    ------
    ModelError
        If there are fewer than two classes, or numbers beyond single precision.
    MissingExtraError
        If scikit-learn is not installed.

    Examples
    --------
    >>> tree = fit_tree([[1.0], [2.0], [8.0], [9.0]], ["low", "low", "high", "high"], ["x"], "level")
    >>> [tree.classes[i] for i in tree.predict([[0.0], [20.0]])], tree.threshold[0]
    (['low', 'high'], 5.0)
    """
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError:
        raise MissingExtraError("training a decision tree", "ml") from None
    rows, codes, known = _labelled(x, labels, inputs, target)
    if np.abs(rows).max() > np.finfo(np.float32).max:
        raise ModelError("an input exceeds single precision, in which trees are grown")
    grown = DecisionTreeClassifier(
        criterion=criterion,
        max_depth=max_depth,
        min_samples_leaf=min_samples_leaf,
        ccp_alpha=ccp_alpha,
        random_state=seed,
    ).fit(rows, np.asarray(labels))
    model = TreeModel.from_sklearn(grown, inputs, target, classes or known, missing="null", rows=len(rows), **facts)
    places = np.array([model.classes.index(label) for label in known])
    return _with_metrics(
        model,
        accuracy=float(np.mean(model.predict(rows) == places[codes])),
        leaves=float(grown.get_n_leaves()),
        depth=float(grown.get_depth()),
    )


def fit_network(
    x: npt.ArrayLike,
    labels: Sequence[str],
    inputs: Sequence[str],
    target: str,
    *,
    classes: Sequence[str] = (),
    hidden_layer_sizes: Sequence[int] = (24,),
    activation: Activation = "relu",
    alpha: float = 1e-4,
    max_iter: int = 200,
    validation_fraction: float = 0.1,
    seed: int = 0,
    **facts: Any,
) -> NetworkModel:
    """Return a multilayer perceptron over standardised inputs, trained by scikit-learn with Adam.

    Parameters
    ----------
    x : array of float
        Rows of inputs.
    labels : sequence of str
        The class of each row.
    inputs, target : names
        Their names.
    classes : sequence of str
        Labels in the order of their indexes; by default those that occur, sorted.
    hidden_layer_sizes : sequence of int >= 1, default (24,)
        Units of each hidden layer.
    activation : "identity", "logistic", "tanh" or "relu", default "relu"
        Activation of the hidden units.
    alpha : float >= 0, default 1e-4
        L2 penalty on the weights (``alpha`` of ``MLPClassifier``).
    max_iter : int >= 1, default 200
        Maximum number of passes over the rows.
    validation_fraction : float, 0 to below 1, default 0.1
        Share of the rows that is held out for early stopping; with 0 training stops when the loss no longer falls.
    seed : int >= 0, default 0
        Seed of the initial weights, the order of rows, and the choice of rows that are held out.
    facts
        Further fields of the model, such as the span of the data.

    Raises
    ------
    ModelError
        If there are fewer than two classes, or scikit-learn refuses the rows, such as too few to hold some out.
    MissingExtraError
        If scikit-learn is not installed.

    Examples
    --------
    >>> rows, levels = [[1.0], [2.0], [8.0], [9.0]] * 20, ["low", "low", "high", "high"] * 20
    >>> net = fit_network(rows, levels, ["x"], "level", hidden_layer_sizes=(4,), validation_fraction=0.0)
    >>> [net.classes[i] for i in net.predict([[0.0], [20.0]])], net.sizes
    (['low', 'high'], (1, 4, 1))
    """
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError:
        raise MissingExtraError("training a neural network", "ml") from None
    rows, codes, known = _labelled(x, labels, inputs, target)
    net = MLPClassifier(
        hidden_layer_sizes=tuple(hidden_layer_sizes),
        activation=activation,
        alpha=alpha,
        max_iter=max_iter,
        early_stopping=validation_fraction > 0,
        validation_fraction=validation_fraction or 0.1,
        random_state=seed,
    )
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)  # stopping after `max_iter` is intended
            trained = make_pipeline(StandardScaler(), net).fit(rows, np.asarray(labels))
    except ValueError as error:
        raise ModelError(f"no network can be trained on these {len(rows)} rows: {error}") from None
    model = NetworkModel.from_sklearn(trained, inputs, target, classes or known, rows=len(rows), **facts)
    places = np.array([model.classes.index(label) for label in known])
    return _with_metrics(
        model,
        accuracy=float(np.mean(model.predict(rows) == places[codes])),
        loss=float(net.loss_),
        epochs=float(net.n_iter_),
    )


def _labelled(
    x: npt.ArrayLike, labels: Sequence[str], inputs: Sequence[str], target: str
) -> tuple[F64, npt.NDArray[np.int64], list[str]]:
    """Return rows, the class index of each, and the classes; there must be at least two classes."""
    known = sorted(set(labels))
    if len(known) < 2:
        raise ModelError(f"the target {target} is constant: {known[0]!r}" if known else "0 rows are too few")
    rows, codes = _checked(x, np.searchsorted(known, labels), inputs)
    return rows, codes.astype(np.int64), known


def _checked(
    x: npt.ArrayLike, y: npt.ArrayLike, inputs: Sequence[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    rows, goal = np.ascontiguousarray(x, np.float64), np.ascontiguousarray(y, np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(inputs) or goal.shape != rows.shape[:1]:
        raise ModelError(f"{len(inputs)} inputs and a target do not fit arrays of shape {rows.shape} and {goal.shape}")
    if not len(rows):
        raise ModelError("0 rows are too few")
    if not (np.isfinite(rows).all() and np.isfinite(goal).all()):
        raise ModelError("the rows must be finite numbers")
    return rows, goal


def _with_metrics(model: M, **metrics: float) -> M:
    return msgspec.structs.replace(model, metrics={**model.metrics, **metrics})
