"""Checks of models that were converted from scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ModelError

__all__ = ["check_conversion", "check_input_names", "probe_rows"]


def probe_rows(inputs: int) -> npt.NDArray[np.float64]:
    """Rows on which an estimator and its conversion are compared: the origin, both directions of each input, others."""
    few, others = np.eye(inputs)[:64], np.random.default_rng(0).normal(size=(32, inputs))
    return np.vstack([np.zeros((1, inputs)), few, -3.0 * few, 10.0 * others])


def check_input_names(estimator: Any, inputs: Sequence[str]) -> None:
    """Refuse inputs that are the names the estimator was fitted with in another order."""
    known = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    if known and list(inputs) != known and set(inputs) == set(known):
        raise ModelError(
            f"{type(estimator).__name__} was fitted with the inputs {', '.join(known)} in this order, "
            f"got {', '.join(inputs)}"
        )


def check_conversion(
    estimator: Any,
    method: str,
    rows: npt.NDArray[np.float64],
    converted: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    magnitude: npt.NDArray[np.float64] | float = 1.0,
    tolerance: float = 1e-12,
) -> None:
    """Raise :class:`ModelError` unless ``estimator.method`` gives the values of its conversion on these rows.

    They may differ by ``tolerance`` relative to ``magnitude``, the sum of the magnitudes of a value's terms.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # rows without the names that the estimator was fitted with are intended
        ours = converted(rows)
        try:
            theirs = np.asarray(getattr(estimator, method)(rows), np.float64).reshape(ours.shape)
        except (TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"{type(estimator).__name__} cannot be converted: {method} fails: {error}") from None
        same = np.abs(theirs - ours) <= tolerance * np.maximum(magnitude, np.abs(ours))
    if not (same | ~np.isfinite(theirs)).all():
        raise ModelError(
            f"{type(estimator).__name__} cannot be converted: its {method} gives {theirs[~same][0]} "
            f"where its parameters give {ours[~same][0]}"
        )
