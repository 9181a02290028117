"""Small models for tests."""

from __future__ import annotations

from riot_ops.models import LinearModel, TreeModel


def linear(**changes):
    return LinearModel(**{"inputs": ("x", "ü"), "target": "y", "intercept": 0.5, "coefficients": (2.0, -1.0)} | changes)


def stump(**changes):
    fields = {
        "inputs": ("x",),
        "target": "y",
        "classes": ("a", "ü"),
        "left": (1, -1, -1),
        "right": (2, -1, -1),
        "feature": (0, 0, 0),
        "threshold": (0.5, 0.0, 0.0),
        "value": ((0.5, 0.5), (1.0, 0.0), (0.0, 1.0)),
    }
    return TreeModel(**fields | changes)
