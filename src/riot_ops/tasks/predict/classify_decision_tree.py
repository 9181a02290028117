"""Classification by a decision tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.models.model import Model
from riot_ops.models.tree import TreeModel
from riot_ops.task import Case, register
from riot_ops.tasks.predict.classification_task import ClassificationTask

__all__ = ["ClassifyDecisionTree"]


@register
@dataclass(frozen=True, kw_only=True)
class ClassifyDecisionTree(ClassificationTask):
    """Classify each record with a decision tree, which can be replaced while the stream runs.

    From the root on, a record goes left at a node iff ``x[feature] <= threshold`` (x in single
    precision); the class is the most frequent one in its leaf among the training data.

    Parameters
    ----------
    inputs : tuple of str
        Numeric fields that the tree reads; a model with other inputs is refused.
    classes : tuple of str, default ()
        Labels in the order of their indexes: a model with other classes is refused, so that an index means
        the same in every model. (): the classes of the model in use.
    probability, probabilities : bool, default False
        Whether to add the share of the class in its leaf, and the shares of all classes.
    model : str or None, default None
        Initial model: its name in ``store`` (without a store the path of its file), or its JSON form.
        None: there is no model until the first update.
        A file is read once per run or session; on Spark it must not be replaced while a query runs.
    store : str or None, default None
        Folder or blob container of models.
    updates : str or None, default None
        Text field that marks a record as an update: it holds the name of a model in the store, and is
        null in observations. From the update on, in stream order, its key uses that model.
        None: all records are observations.
    output : str, default "class"
        Field for the label (string); ``<output>_index`` (int64) receives its index among the classes,
        ``<output>_probability`` (double) and ``<output>_probabilities`` (list of double) the shares.
    model_field : str or None, default None
        Field for the name of the model used (null for an inline JSON model); None: no such field.
    by, ttl
        Key and time to live, see :class:`PredictionTask`.

    Shapes and rates
    ----------------
    float64[n, k] -> class[n], 1:1 for observations and 1:0 for updates; O(depth) time. The state of a key is
    the name of its model; each model is loaded once per process.

    Missing values
    --------------
    A null or NaN input that would decide follows the model's ``missing``; where that has no way, the results are null.

    Errors
    ------
    See :class:`PredictionTask`: ``bad_model``, ``no_model`` and ``not_finite`` in the errors stream.

    References
    ----------
    .. [1] L. Breiman et al., *Classification and Regression Trees*, 1984.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task DTC.

    Examples
    --------
    >>> from riot_ops.models import fit_tree
    >>> tree = fit_tree([[1.0], [2.0], [8.0], [9.0]], ["low", "low", "high", "high"], ["x"], "level")
    >>> dtc = ClassifyDecisionTree(inputs=("x",), model=tree.to_json(), probabilities=True).session()
    >>> dtc.push({"x": 3.5})
    [{'x': 3.5, 'class': 'low', 'class_index': 1, 'class_probabilities': [0.0, 1.0]}]
    """

    code: ClassVar[str] = "DTC"
    model_type: ClassVar[type[Model]] = TreeModel

    def classify(self, model: Any, x: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], Any]:
        leaves = model.leaves(x)
        return model.winners(leaves), lambda: model.shares(leaves)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        model = TreeModel(
            inputs=("x", "y"),
            target="level",
            classes=("low", "ü", "high"),
            left=(1, -1, 3, -1, -1),
            right=(2, -1, 4, -1, -1),
            feature=(0, 0, 1, 0, 0),
            threshold=(0.5, 0.0, 2.0, 0.0, 0.0),
            value=((0.4, 0.3, 0.3), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5), (0.0, 0.75, 0.25), (0.0, 0.0, 1.0)),
        ).to_json()
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", None, "b", "a"],
                "x": [0.5, 0.6, None, float("nan"), 1e308, 4.0, -1.0],
                "y": [2.0, 0.0, 1.0, 3.0, -1e308, float("inf"), None],
                "model": pa.array([None, "", None, None, "CITY-DTC-1.model", None, None], pa.string()),
            }
        )
        yield Case(cls(inputs=("x", "y"), model=model), batch)
        options: dict[str, Any] = {"classes": ("low", "ü", "high"), "probabilities": True, "output": "level"}
        options["probability"] = True
        yield Case(cls(inputs=("x", "y"), model=model, by=("key",), **options), batch, "by key")
        yield Case(cls(inputs=("x", "y"), model=model, store="/no such folder", updates="model"), batch, "bad updates")
        yield Case(cls(inputs=("x",), store="/no such folder", updates="model"), batch, "no model")
