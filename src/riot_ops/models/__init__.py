"""Trained models as data, where they are kept, and how they are made."""

from riot_ops.models.fit import fit_linear, fit_network, fit_tree
from riot_ops.models.kinds import AnyModel, model_from_bytes
from riot_ops.models.linear import LinearModel
from riot_ops.models.markov import MarkovModel
from riot_ops.models.model import Model
from riot_ops.models.network import NetworkModel
from riot_ops.models.road_files import read_roads
from riot_ops.models.roads import Roads, grid_roads
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
]
