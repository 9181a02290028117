"""Models as immutable data with a JSON form that any program can read and none executes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ModelError
from riot_ops.kernels.arrow import readonly
from riot_ops.kernels.jit import kernel

__all__ = ["MAX_BYTES", "LinearModel", "Model", "TreeModel", "model_from_bytes"]

FORMAT: Literal["riot_ops.model/1"] = "riot_ops.model/1"
#: Longest JSON that is read.
MAX_BYTES = 64 * 2**20
MAX_NODES = 1_000_000
MAX_NAMES = 10_000


@kernel
def linear(x: Any, intercept: Any, coefficients: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        y = intercept
        for j in range(coefficients.size):
            y += coefficients[j] * x[i, j]
        out[i] = y if np.isfinite(y) else np.nan


@kernel
def descend(x: Any, left: Any, right: Any, feature: Any, threshold: Any, leaves: Any) -> None:
    """The leaf of each row; -1 where a missing input would have to decide."""
    for i in range(x.shape[0]):
        node = 0
        while left[node] >= 0:
            value = x[i, feature[node]]
            if np.isnan(value):
                node = -1
                break
            # scikit-learn compares single precision with double: so the same branches are taken
            node = left[node] if np.float32(value) <= threshold[node] else right[node]
        leaves[i] = node


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", dict=True):
    """What every model has.

    Parameters
    ----------
    inputs : tuple of str
        Names of the inputs, in the order of the parameters.
    target : str
        Name of what is predicted.
    start_ms, end_ms : int, default 0
        Span of the training data (ms since the epoch).
    rows : int, default 0
        Number of training rows.
    metrics : mapping of str to float, default {}
        How well the model fits its training data.
    made_by : str, default ""
        Library and version that made it.
    format : str
        Version of the JSON form.
    """

    kind: ClassVar[str] = ""

    inputs: tuple[str, ...]
    target: str
    start_ms: int = 0
    end_ms: int = 0
    rows: int = 0
    metrics: dict[str, float] = {}
    made_by: str = ""
    format: Literal["riot_ops.model/1"] = FORMAT

    def __post_init__(self) -> None:
        if not 1 <= len(self.inputs) <= MAX_NAMES or len(set(self.inputs)) < len(self.inputs):
            raise ModelError(f"inputs must be 1 to {MAX_NAMES} different names, got {len(self.inputs)}")
        if self.target in self.inputs:
            raise ModelError(f"the target {self.target!r} is among the inputs")
        if self.rows < 0 or self.start_ms > self.end_ms:
            raise ModelError(f"rows = {self.rows}, start_ms = {self.start_ms}, end_ms = {self.end_ms} are no training")
        _finite("metrics", self.metrics.values())

    def to_bytes(self) -> bytes:
        """The JSON form; the same model gives the same bytes."""
        return msgspec.json.encode(self)

    def to_json(self) -> str:
        """The JSON form as text."""
        return self.to_bytes().decode()

    @classmethod
    def from_bytes(cls, data: bytes | str, where: str = "") -> Self:
        """The model of which :meth:`to_bytes` made the data; anything else is a :class:`ModelError`."""
        model = model_from_bytes(data, where)
        if not isinstance(model, cls):
            raise ModelError(f"the model{where} is of kind {model.kind}, expected {cls.kind}")
        return model

    def matrix(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The rows as a float64 matrix with a column per input."""
        rows = np.ascontiguousarray(x, np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.inputs):
            raise ModelError(f"expected rows of {len(self.inputs)} inputs, got an array of shape {rows.shape}")
        return readonly(rows)


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
        _finite("parameters", (self.intercept, *self.coefficients))

    @classmethod
    def from_sklearn(cls, estimator: Any, inputs: Sequence[str], target: str, **facts: Any) -> LinearModel:
        """The model of a fitted linear regression of scikit-learn; facts are the fields of :class:`Model`."""
        try:
            coefficients = np.asarray(estimator.coef_, np.float64)
            intercept = np.asarray(estimator.intercept_, np.float64)
        except (AttributeError, TypeError, ValueError):
            raise ModelError(f"{type(estimator).__name__} is not a fitted linear regression") from None
        if intercept.size != 1 or coefficients.size != len(inputs):
            raise ModelError(
                f"{type(estimator).__name__} has {coefficients.size} coefficients and {intercept.size} "
                f"intercepts, expected {len(inputs)} and 1"
            )
        return cls(
            inputs=tuple(inputs),
            target=target,
            intercept=float(intercept.ravel()[0]),
            coefficients=tuple(coefficients.ravel().tolist()),
            **{"made_by": library("scikit-learn"), **facts},
        )

    def predict(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Predictions for rows of inputs; NaN where an input is NaN."""
        rows = self.matrix(x)
        out = np.empty(rows.shape[0])
        linear(rows, self.intercept, self._array, out)
        return out

    @cached_property
    def _array(self) -> npt.NDArray[np.float64]:
        return readonly(np.array(self.coefficients, np.float64))


class TreeModel(Model, frozen=True, kw_only=True, tag="DTC"):
    """A binary decision tree over numbers: a row goes left at a node iff ``x[feature] <= threshold``.

    The comparison takes x in single precision, as scikit-learn does.

    Parameters
    ----------
    classes : tuple of str
        Labels of the classes; a class index is a place among them.
    left, right : tuple of int
        Children of each node, numbered above it; node 0 is the root, a leaf has -1 and -1.
    feature : tuple of int
        Place of the input that a node tests; of no meaning at a leaf.
    threshold : tuple of float
        What it is compared with; of no meaning at a leaf.
    value : tuple of tuple of float
        Share of each class in each node, summing to 1. The class of a leaf is the one with the
        largest share, the first of several.

    Examples
    --------
    >>> tree = TreeModel(inputs=("light",), target="day", classes=("no", "yes"), left=(1, -1, -1),
    ...                  right=(2, -1, -1), feature=(0, 0, 0), threshold=(10.0, 0.0, 0.0),
    ...                  value=((0.5, 0.5), (1.0, 0.0), (0.25, 0.75)))
    >>> [tree.classes[i] if i >= 0 else None for i in tree.predict([[3.0], [300.0], [float("nan")]])]
    ['no', 'yes', None]
    """

    kind: ClassVar[str] = "DTC"

    classes: tuple[str, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    value: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        n = len(self.left)
        if not 1 <= n <= MAX_NODES:
            raise ModelError(f"a tree has 1 to {MAX_NODES} nodes, got {n}")
        for name in ("right", "feature", "threshold", "value"):
            if len(getattr(self, name)) != n:
                raise ModelError(f"the tree has {n} nodes but {len(getattr(self, name))} entries in {name}")
        if not 1 <= len(self.classes) <= MAX_NAMES or len(set(self.classes)) < len(self.classes):
            raise ModelError(f"classes must be 1 to {MAX_NAMES} different labels, got {len(self.classes)}")
        if any(len(shares) != len(self.classes) for shares in self.value):
            raise ModelError(f"each node needs a share for each of {len(self.classes)} classes")
        try:
            left, right, feature, threshold, value = self._arrays
        except OverflowError:
            raise ModelError("a number of a node or an input does not fit 64 bits") from None
        leaf = (left == -1) & (right == -1)
        # children above their node: there is no cycle, every walk ends
        above = np.arange(n)
        inner = (left > above) & (right > above) & (left < n) & (right < n)
        if not (leaf | inner).all():
            raise ModelError(f"node {int(np.argmin(leaf | inner))} has children that are not above it in the tree")
        if (inner & ((feature < 0) | (feature >= len(self.inputs)))).any():
            raise ModelError(f"a node tests an input that is not among the {len(self.inputs)} inputs")
        if not np.isfinite(threshold).all():
            raise ModelError("a threshold is not finite")
        if not (np.isfinite(value).all() and (value >= 0).all() and np.allclose(value.sum(axis=1), 1, atol=1e-6)):
            raise ModelError("the shares of the classes in a node must be >= 0 and sum to 1")

    @classmethod
    def from_sklearn(
        cls, estimator: Any, inputs: Sequence[str], target: str, classes: Sequence[str] = (), **facts: Any
    ) -> TreeModel:
        """The model of a fitted ``DecisionTreeClassifier``; facts are the fields of :class:`Model`.

        Parameters
        ----------
        classes : sequence of str
            Labels in the order wanted, including all that the estimator knows; by default its own. In
            another order, leaves in which classes tie get the first in that order, so that the
            prediction there may differ from the estimator's.
        """
        try:
            tree, known = estimator.tree_, [str(label) for label in estimator.classes_]
        except (AttributeError, TypeError):
            raise ModelError(f"{type(estimator).__name__} is not a fitted classification tree") from None
        if tree.n_outputs != 1 or tree.n_features != len(inputs):
            raise ModelError(
                f"the tree has {tree.n_features} inputs and {tree.n_outputs} outputs, expected {len(inputs)} and 1"
            )
        labels = list(classes) or known
        if not set(known) <= set(labels):
            raise ModelError(f"the tree knows classes that are not given: {sorted(set(known) - set(labels))}")
        value = np.zeros((tree.node_count, len(labels)))
        value[:, [labels.index(label) for label in known]] = tree.value[:, 0, :]
        leaf = tree.children_left < 0
        return cls(
            inputs=tuple(inputs),
            target=target,
            classes=tuple(labels),
            left=tuple(tree.children_left.tolist()),
            right=tuple(tree.children_right.tolist()),
            feature=tuple(np.where(leaf, 0, tree.feature).tolist()),
            threshold=tuple(np.where(leaf, 0.0, tree.threshold).tolist()),
            value=tuple(map(tuple, value.tolist())),
            **{"made_by": library("scikit-learn"), **facts},
        )

    def leaves(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The number of the leaf of each row; -1 where a NaN would have to decide."""
        rows = self.matrix(x)
        out = np.empty(rows.shape[0], np.int64)
        left, right, feature, threshold, _ = self._arrays
        descend(rows, left, right, feature, threshold, out)
        return out

    def predict(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The class index of each row, or -1."""
        return self.winners(self.leaves(x))

    def winners(self, leaves: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The class index of each leaf; -1 where there is none."""
        return np.where(leaves < 0, -1, self._winners[leaves])

    def shares(self, leaves: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The share of each class in each leaf; NaN where there is none."""
        found: npt.NDArray[np.float64] = np.where((leaves < 0)[:, None], np.nan, self._arrays[4][leaves])
        return found

    @cached_property
    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        integers = (self.left, self.right, self.feature)
        floats = (self.threshold, self.value)
        return (
            *(readonly(np.array(a, np.int64)) for a in integers),
            *(readonly(np.array(a, np.float64)) for a in floats),
        )

    @cached_property
    def _winners(self) -> npt.NDArray[np.int64]:
        winners: npt.NDArray[np.int64] = np.argmax(self._arrays[4], axis=1)
        return winners


def model_from_bytes(data: bytes | str, where: str = "") -> LinearModel | TreeModel:
    """The model, of whatever kind, in its JSON form; anything else is a :class:`ModelError`."""
    if len(data) > MAX_BYTES:
        raise ModelError(f"the model{where} has {len(data)} bytes, allowed are {MAX_BYTES}")
    try:
        return msgspec.json.decode(data, type=LinearModel | TreeModel)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"the model{where} is damaged or not a riot_ops model: {error}") from None


@cache
def library(name: str) -> str:
    """A distribution with its version.

    >>> library("numpy").startswith("numpy ")
    True
    """
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name


def _finite(what: str, numbers: Any) -> None:
    if not all(math.isfinite(v) for v in numbers):
        raise ModelError(f"{what} must be finite numbers, got {list(numbers)}")
