"""Trained models as data, where they are kept, and how they are made."""

from riot_ops.models.fit import fit_linear, fit_tree
from riot_ops.models.markov import MarkovModel
from riot_ops.models.model import LinearModel, Model, TreeModel, model_from_bytes
from riot_ops.models.road_files import read_roads
from riot_ops.models.roads import Roads, grid_roads
from riot_ops.models.store import ModelFiles, ModelName, ModelStore, check_store, file_model, stored_model
from riot_ops.models.word_table import WordTable

__all__ = [
    "LinearModel",
    "MarkovModel",
    "Model",
    "ModelFiles",
    "ModelName",
    "ModelStore",
    "Roads",
    "TreeModel",
    "WordTable",
    "check_store",
    "file_model",
    "fit_linear",
    "fit_tree",
    "grid_roads",
    "model_from_bytes",
    "read_roads",
    "stored_model",
]
