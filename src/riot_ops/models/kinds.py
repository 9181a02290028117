"""The kinds of model, and how one is told from its JSON."""

from __future__ import annotations

from riot_ops.models.linear import LinearModel
from riot_ops.models.model import decoded
from riot_ops.models.network import NetworkModel
from riot_ops.models.tree import TreeModel

__all__ = ["AnyModel", "model_from_bytes"]

#: A model of whatever kind.
AnyModel = LinearModel | TreeModel | NetworkModel


def model_from_bytes(data: bytes | str, where: str = "") -> AnyModel:
    """The model, of whatever kind, in its JSON form; anything else is a :class:`ModelError`."""
    model: AnyModel = decoded(data, AnyModel, where)
    return model
