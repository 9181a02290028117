"""Trained models as data: their types, training, and storage."""

from typing import TYPE_CHECKING

from riot_ops.core.lazy import lazy_names

if TYPE_CHECKING:
    from riot_ops.models.any_model import AnyModel, model_from_bytes
    from riot_ops.models.fit import fit_linear, fit_network, fit_tree
    from riot_ops.models.linear import LinearModel
    from riot_ops.models.markov import MarkovModel
    from riot_ops.models.model import Model
    from riot_ops.models.network import NetworkModel
    from riot_ops.models.road_files import read_roads
    from riot_ops.models.roads import Roads, grid_roads, winding_roads
    from riot_ops.models.store import ModelFiles, ModelName, ModelStore, check_store, file_model, stored_model
    from riot_ops.models.tree import TreeModel
    from riot_ops.models.word_table import WordTable

__all__ = [
    "AnyModel",
    "LinearModel",
    "MarkovModel",
    "Model",
    "ModelFiles",
    "ModelName",
    "ModelStore",
    "NetworkModel",
    "Roads",
    "TreeModel",
    "WordTable",
    "check_store",
    "file_model",
    "fit_linear",
    "fit_network",
    "fit_tree",
    "grid_roads",
    "model_from_bytes",
    "read_roads",
    "stored_model",
    "winding_roads",
]

#: The module of each name.
_MODULES = {
    "AnyModel": "riot_ops.models.any_model",
    "LinearModel": "riot_ops.models.linear",
    "MarkovModel": "riot_ops.models.markov",
    "Model": "riot_ops.models.model",
    "ModelFiles": "riot_ops.models.store",
    "ModelName": "riot_ops.models.store",
    "ModelStore": "riot_ops.models.store",
    "NetworkModel": "riot_ops.models.network",
    "Roads": "riot_ops.models.roads",
    "TreeModel": "riot_ops.models.tree",
    "WordTable": "riot_ops.models.word_table",
    "check_store": "riot_ops.models.store",
    "file_model": "riot_ops.models.store",
    "fit_linear": "riot_ops.models.fit",
    "fit_network": "riot_ops.models.fit",
    "fit_tree": "riot_ops.models.fit",
    "grid_roads": "riot_ops.models.roads",
    "model_from_bytes": "riot_ops.models.any_model",
    "read_roads": "riot_ops.models.road_files",
    "stored_model": "riot_ops.models.store",
    "winding_roads": "riot_ops.models.roads",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
