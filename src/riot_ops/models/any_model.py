"""The union of the model types, and its decoding from JSON."""

from __future__ import annotations

from riot_ops.models.linear import LinearModel
from riot_ops.models.model import decode
from riot_ops.models.network import NetworkModel
from riot_ops.models.tree import TreeModel

__all__ = ["AnyModel", "model_from_bytes"]

#: A model of any kind.
AnyModel = LinearModel | TreeModel | NetworkModel


def model_from_bytes(data: bytes | str, where: str = "") -> AnyModel:
    """Decode the JSON form of a model of any kind; raise :class:`ModelError` for anything else.

    Examples
    --------
    >>> from riot_ops import models
    >>> model = models.LinearModel(inputs=("x",), target="y", coefficients=(2.0,), intercept=1.0)
    >>> models.model_from_bytes(model.to_json()) == model
    True
    >>> models.model_from_bytes("{}")
    Traceback (most recent call last):
        ...
    riot_ops.core.errors.ModelError: the model is damaged or not a riot_ops model: Object missing ...
    """
    model: AnyModel = decode(data, AnyModel, where)
    return model
