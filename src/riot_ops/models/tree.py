"""Decision tree models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ModelError
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.models.model import MAX_NAMES, Model, library_version
from riot_ops.models.scikit_learn import check_conversion, check_input_names, probe_rows

__all__ = ["TreeModel"]

MAX_NODES = 1_000_000


@kernel
def descend(x: Any, left: Any, right: Any, feature: Any, threshold: Any, missing: Any, leaves: Any) -> None:
    """Write the leaf of each row; -1 if a missing input would have to decide where ``missing`` has no child."""
    for i in range(x.shape[0]):
        node = 0
        while left[node] >= 0:
            value = x[i, feature[node]]
            if np.isnan(value):
                node = missing[node]
                if node < 0:
                    break
                continue
            # like scikit-learn, compare single precision with double, so that rows take the same branches
            node = left[node] if np.float32(value) <= threshold[node] else right[node]
        leaves[i] = node


class TreeModel(Model, frozen=True, kw_only=True, tag="DTC"):
    """A binary decision tree over numbers: a row goes left at a node iff ``x[feature] <= threshold``.

    The comparison takes x in single precision, as scikit-learn does.

    Parameters
    ----------
    classes : tuple of str
        Labels of the classes, in the order of their indexes.
    left, right : tuple of int
        Children of each node, with higher numbers than the node; node 0 is the root, a leaf has -1 and -1.
    feature : tuple of int
        Index of the input that a node tests; unused at a leaf.
    threshold : tuple of float
        Number that the input is compared with; unused at a leaf.
    value : tuple of tuple of float
        Share of each class in each node; the shares of a node sum to 1. The class of a leaf is the first one with the
        largest share.
    missing : tuple of int, default ()
        The child of each node that a row goes to if the input is NaN, or -1: the row has no class. (): -1 everywhere.

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
    missing: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        n = len(self.left)
        if not 1 <= n <= MAX_NODES:
            raise ModelError(f"a tree has 1 to {MAX_NODES} nodes, got {n}")
        for name in ("right", "feature", "threshold", "value", "missing"):
            if len(getattr(self, name)) != n and not (name == "missing" and not self.missing):
                raise ModelError(f"the tree has {n} nodes but {len(getattr(self, name))} entries in {name}")
        if not 1 <= len(self.classes) <= MAX_NAMES or len(set(self.classes)) < len(self.classes):
            raise ModelError(f"classes must be 1 to {MAX_NAMES} different labels, got {len(self.classes)}")
        if any(len(shares) != len(self.classes) for shares in self.value):
            raise ModelError(f"each node needs a share for each of {len(self.classes)} classes")
        try:
            left, right, feature, missing, threshold, value = self._arrays
        except OverflowError:
            raise ModelError("a number of a node or an input does not fit 64 bits") from None
        leaf = (left == -1) & (right == -1)
        # children have higher numbers than their node, so there is no cycle
        above = np.arange(n)
        inner = (left > above) & (right > above) & (left < n) & (right < n)
        if not (leaf | inner).all():
            raise ModelError(f"node {int(np.argmin(leaf | inner))} has children that are not above it in the tree")
        if (inner & ((feature < 0) | (feature >= len(self.inputs)))).any():
            raise ModelError(f"a node tests an input that is not among the {len(self.inputs)} inputs")
        if not ((missing == -1) | inner & ((missing == left) | (missing == right))).all():
            raise ModelError("a missing input leads to a node that is not a child")
        if not np.isfinite(threshold).all():
            raise ModelError("a threshold is not finite")
        if not (np.isfinite(value).all() and (value >= 0).all() and np.allclose(value.sum(axis=1), 1, atol=1e-6)):
            raise ModelError("the shares of the classes in a node must be >= 0 and sum to 1")

    @classmethod
    def from_sklearn(
        cls,
        estimator: Any,
        inputs: Sequence[str],
        target: str,
        classes: Sequence[str] = (),
        missing: Literal["route", "null"] = "route",
        **facts: Any,
    ) -> TreeModel:
        """Convert a fitted ``DecisionTreeClassifier``; ``facts`` are further fields of :class:`Model`.

        Parameters
        ----------
        classes : sequence of str
            Labels in the order wanted, including all of the estimator; by default those of the estimator. At leaves
            with ties the first class in this order wins, so with another order predictions may differ there.
        missing : "route" or "null", default "route"
            Whether NaN takes the estimator's branch, if it accepts NaN, or leaves the row without a class.
        """
        if missing not in ("route", "null"):
            raise ModelError(f"missing must be 'route' or 'null', got {missing!r}")
        try:
            tree, known = estimator.tree_, [str(label) for label in estimator.classes_]
        except (AttributeError, TypeError):
            raise ModelError(f"{type(estimator).__name__} is not a fitted classification tree") from None
        if tree.n_outputs != 1 or tree.n_features != len(inputs):
            raise ModelError(
                f"the tree has {tree.n_features} inputs and {tree.n_outputs} outputs, expected {len(inputs)} and 1"
            )
        check_input_names(estimator, inputs)
        labels = list(classes) or known
        if not set(known) <= set(labels):
            raise ModelError(f"the tree knows classes that are not given: {sorted(set(known) - set(labels))}")
        value = np.zeros((tree.node_count, len(labels)))
        value[:, [labels.index(label) for label in known]] = tree.value[:, 0, :]
        leaf = tree.children_left < 0
        ways = np.full(tree.node_count, -1)
        if missing == "route" and _takes_missing(estimator):
            ways = np.where(leaf, -1, np.where(tree.missing_go_to_left, tree.children_left, tree.children_right))
        model = cls(
            inputs=tuple(inputs),
            target=target,
            classes=tuple(labels),
            left=tuple(tree.children_left.tolist()),
            right=tuple(tree.children_right.tolist()),
            feature=tuple(np.where(leaf, 0, tree.feature).tolist()),
            # a node that only separates missing inputs from others has an infinite threshold
            threshold=tuple(np.nan_to_num(np.where(leaf, 0.0, tree.threshold)).tolist()),
            value=tuple(map(tuple, value.tolist())),
            missing=tuple(ways.tolist()) if (ways >= 0).any() else (),
            **{"made_by": library_version("scikit-learn"), **facts},
        )
        order = [labels.index(label) for label in known]
        rows = probe_rows(len(inputs))
        if model.missing:
            rows = np.vstack([rows, np.where(np.random.default_rng(1).random(rows.shape) < 0.3, np.nan, rows)])
        check_conversion(estimator, "predict_proba", rows, lambda x: model.shares(model.leaves(x))[:, order])
        return model

    def leaves(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the leaf of each row; -1 if a NaN would have to decide where the tree has no way for it."""
        rows = self.matrix(x)
        out = np.empty(rows.shape[0], np.int64)
        left, right, feature, missing, threshold, _ = self._arrays
        descend(rows, left, right, feature, threshold, missing, out)
        return out

    def predict(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the class index of each row, or -1."""
        return self.winners(self.leaves(x))

    def winners(self, leaves: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the class index of each leaf; -1 for leaf -1."""
        return np.where(leaves < 0, -1, self._winners[leaves])

    def shares(self, leaves: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the share of each class in each leaf; NaN for leaf -1."""
        found: npt.NDArray[np.float64] = np.where((leaves < 0)[:, None], np.nan, self._arrays[-1][leaves])
        return found

    @cached_property
    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        integers = (self.left, self.right, self.feature, self.missing or (-1,) * len(self.left))
        floats = (self.threshold, self.value)
        return (
            *(readonly(np.array(a, np.int64)) for a in integers),
            *(readonly(np.array(a, np.float64)) for a in floats),
        )

    @cached_property
    def _winners(self) -> npt.NDArray[np.int64]:
        winners: npt.NDArray[np.int64] = np.argmax(self._arrays[-1], axis=1)
        return winners


def _takes_missing(estimator: Any) -> bool:
    """Whether an estimator predicts rows with NaN."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.predict(np.full((1, estimator.tree_.n_features), np.nan))
    except ValueError:
        return False
    return hasattr(estimator.tree_, "missing_go_to_left")
