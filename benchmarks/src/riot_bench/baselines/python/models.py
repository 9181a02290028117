"""Predictions with scikit-learn, as in its tutorials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["predict_batch", "predict_each"]


def predict_each(estimator: Any, rows: Iterable[list[float]]) -> list[Any]:
    """Predict each message when it arrives."""
    return [estimator.predict([row])[0] for row in rows]


def predict_batch(estimator: Any, rows: list[list[float]]) -> Any:
    """Predict many messages in one call."""
    return estimator.predict(np.array(rows))
