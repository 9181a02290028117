"""Accuracy of a classifier: its confusion matrix, and the measures computed from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ConfigError

__all__ = ["ClassificationReport", "evaluate"]


@dataclass(frozen=True)
class ClassificationReport:
    """Result of a classifier on records whose class is known.

    Attributes
    ----------
    classes : tuple of str
        Labels, in the order of their indexes.
    confusion : array of int64, shape (k, k)
        Number of records by true class (row) and predicted class (column).
    """

    classes: tuple[str, ...]
    confusion: npt.NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        """Share of the records that were classified correctly; NaN without records."""
        total = int(self.confusion.sum())
        return float(np.trace(self.confusion) / total) if total else float("nan")

    @property
    def precision(self) -> dict[str, float]:
        """By class: share of the records predicted as this class that belong to it; 0 without any."""
        return self._shares(0)

    @property
    def recall(self) -> dict[str, float]:
        """By class: share of its records that were predicted as this class; 0 without any."""
        return self._shares(1)

    @property
    def f1(self) -> dict[str, float]:
        """By class: the harmonic mean of precision and recall; 0 where both are 0."""
        found = zip(self.classes, self.precision.values(), self.recall.values(), strict=True)
        return {name: 2 * p * r / (p + r) if p + r else 0.0 for name, p, r in found}

    def _shares(self, axis: int) -> dict[str, float]:
        right, whole = np.diag(self.confusion), self.confusion.sum(axis=axis)
        return dict(zip(self.classes, (right / np.maximum(whole, 1)).tolist(), strict=True))


def evaluate(truth: npt.ArrayLike, found: npt.ArrayLike, classes: Sequence[str]) -> ClassificationReport:
    """Compare the indexes of the true and the predicted classes.

    >>> report = evaluate([0, 0, 1, 1], [0, 1, 1, 1], ("no", "yes"))
    >>> report.accuracy, report.precision["yes"], report.recall["no"], report.f1["yes"]
    (0.75, 0.666, 0.5, 0.8)
    >>> report.confusion.tolist()
    [[1, 1], [0, 2]]
    """
    k = len(classes)
    rows, columns = np.asarray(truth), np.asarray(found)
    if rows.shape != columns.shape or rows.ndim != 1:
        raise ConfigError(f"truth and found must be as long as each other, got {rows.shape} and {columns.shape}")
    for name, one in (("truth", rows), ("found", columns)):
        if one.size and (not np.array_equal(one, one.astype(np.int64)) or one.min() < 0 or one.max() >= k):
            raise ConfigError(f"{name} must be indexes of the {k} classes {', '.join(classes)}")
    cells = rows.astype(np.int64) * k + columns.astype(np.int64)
    return ClassificationReport(tuple(classes), np.bincount(cells, minlength=k * k).reshape(k, k).astype(np.int64))
