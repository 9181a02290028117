"""Predictions with scikit-learn, as its tutorials do it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["predict_all_at_once", "predict_one_at_a_time"]


def predict_one_at_a_time(estimator: Any, rows: Iterable[list[float]]) -> list[Any]:
    """A prediction per message, when it comes."""
    return [estimator.predict([row])[0] for row in rows]


def predict_all_at_once(estimator: Any, rows: list[list[float]]) -> Any:
    """A prediction for many messages."""
    return estimator.predict(np.array(rows))
