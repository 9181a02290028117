"""Classification by a stored model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ModelError
from riot_ops.core.parameters import Names
from riot_ops.models.model import Model
from riot_ops.models.network import NetworkModel
from riot_ops.models.tree import TreeModel
from riot_ops.task import Case, register
from riot_ops.tasks.predict.classifier_training_task import check_classes
from riot_ops.tasks.predict.prediction_task import PredictionTask

__all__ = ["Classify"]


@register
@dataclass(frozen=True, kw_only=True)
class Classify(PredictionTask):
    """Classify each record with a decision tree or a neural network, which can be replaced while the stream runs.

    Tree: from the root on, a record goes left at a node iff ``x[feature] <= threshold`` (x in single precision); the
    probability of a class is its share of the training data in the leaf. Multilayer perceptron: ``h0 = (x - mean) /
    scale``, ``hk = act(hk-1 Wk + bk)``; the probabilities are the softmax of the last layer (for two classes possibly
    the logistic function of one unit). The class is the most probable one.

    Parameters
    ----------
    inputs : tuple of str
        Numeric fields that the model reads; a model with other inputs is refused.
    classes : tuple of str, default ()
        Labels in the order of their indexes: a model with other classes is refused, so that an index means
        the same in every model. (): the classes of the model in use.
    probability, probabilities : bool, default False
        Whether to add the probability of the class, and the probabilities of all classes.
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
        ``<output>_probability`` (double) and ``<output>_probabilities`` (list of double) the probabilities.
    model_field : str or None, default None
        Field for the name of the model used (null for an inline JSON model); None: no such field.
    by, ttl
        Key and time to live, see :class:`PredictionTask`.

    Shapes and rates
    ----------------
    float64[n, k] -> class[n], 1:1 for observations and 1:0 for updates; O(depth) time for a tree, a multiplication
    per weight for a network. The state of a key is
    the name of its model; each model is loaded once per process.

    Missing values
    --------------
    Tree: a null or NaN input that would decide follows the model's ``missing``; where that has no way, the results are
    null. Network: they are null where an input is null or NaN, and where a sum of the last layer overflows float64.

    Errors
    ------
    See :class:`PredictionTask`: ``bad_model``, ``no_model`` and ``not_finite`` in the errors stream.

    References
    ----------
    .. [1] L. Breiman et al., *Classification and Regression Trees*, 1984.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task DTC.
    .. [3] D. E. Rumelhart, G. E. Hinton, R. J. Williams, *Learning representations by back-propagating errors*,
       Nature 323, 1986.
    .. [4] M. Andreoni Lopez, A. Lobato, O. Duarte, *A performance comparison of open-source stream processing
       platforms*, GLOBECOM 2016: threat detection by a neural network.

    Examples
    --------
    >>> from riot_ops.models import fit_tree
    >>> tree = fit_tree([[1.0], [2.0], [8.0], [9.0]], ["low", "low", "high", "high"], ["x"], "level")
    >>> dtc = Classify(inputs=("x",), model=tree.to_json(), probabilities=True).session()
    >>> dtc.push({"x": 3.5})
    [{'x': 3.5, 'class': 'low', 'class_index': 1, 'class_probabilities': [0.0, 1.0]}]
    >>> net = NetworkModel(inputs=("x",), target="level", classes=("low", "high"), mean=(5.0,), scale=(2.0,),
    ...                    activation="identity", weights=(((2.0,),),), biases=((0.0,),))
    >>> mlp = Classify(inputs=("x",), model=net.to_json(), probability=True).session()
    >>> row = mlp.push({"x": 6.0})[0]
    >>> row["class"], row["class_index"], round(row["class_probability"], 3)
    ('high', 1, 0.731)
    """

    code: ClassVar[str] = "CLS"
    model_types: ClassVar[tuple[type[Model], ...]] = (TreeModel, NetworkModel)

    classes: Names = ()
    probability: bool = False
    probabilities: bool = False
    output: str = "class"

    def validate(self) -> None:
        super().validate()
        check_classes(self.classes)

    def check_model(self, model: Any, name: str) -> None:
        if self.classes and model.classes != self.classes:
            raise ModelError(
                f"{name} has the classes {', '.join(model.classes)}; this task has {', '.join(self.classes)}"
            )

    def result_fields(self) -> list[pa.Field]:
        fields = [pa.field(self.output, pa.string()), pa.field(f"{self.output}_index", pa.int64())]
        if self.probability:
            fields.append(pa.field(f"{self.output}_probability", pa.float64()))
        if self.probabilities:
            fields.append(pa.field(f"{self.output}_probabilities", pa.list_(pa.float64())))
        return fields

    def results(self, model: Any, x: npt.NDArray[np.float64]) -> list[pa.Array]:
        if isinstance(model, TreeModel):
            leaves = model.leaves(x)
            found, shares = model.winners(leaves), None
        else:
            shares = model.probabilities(x)
            found = model.winners(shares)
        missing = found < 0
        mask = missing if missing.any() else None
        index = pa.array(found, mask=mask)
        columns = [pa.array(model.classes, pa.string()).take(index), index]
        if not (self.probability or self.probabilities):
            return columns
        every = model.shares(leaves) if shares is None else shares
        if self.probability:
            columns.append(pa.array(every[np.arange(len(x)), found], mask=mask))
        if self.probabilities:
            offsets = pa.array(np.arange(len(x) + 1, dtype=np.int32) * len(model.classes))
            columns.append(pa.ListArray.from_arrays(offsets, pa.array(every.ravel()), mask=pa.array(missing)))
        return columns

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
        network = NetworkModel(
            inputs=("x", "y"),
            target="level",
            classes=("low", "ü", "high"),
            mean=(1.0, -2.0),
            scale=(2.0, 0.5),
            activation="logistic",
            weights=(((0.5, -1.0), (0.25, 2.0)), ((1.0, 0.0, -1.0), (0.5, -0.5, 2.0))),
            biases=((0.1, -0.2), (0.0, 0.3, -0.3)),
        ).to_json()
        batch = pa.RecordBatch.from_pydict(
            {
                "key": ["a", "b", "a", "ü", None, "b", "a", "b"],
                "x": [0.5, 0.6, None, float("nan"), 1e308, 4.0, -1.0, 2.5],
                "y": [2.0, 0.0, 1.0, 3.0, -1e308, float("inf"), None, -7.0],
                "model": pa.array([None, "", None, None, "CITY-MLP-1.model", None, None, None], pa.string()),
            }
        )
        yield Case(cls(inputs=("x", "y"), model=network), batch, "network")
        yield Case(cls(inputs=("x", "y"), model=network, by=("key",), **options), batch, "network, by key")
        yield Case(
            cls(inputs=("x", "y"), model=network, store="/no such folder", updates="model"),
            batch,
            "network, bad updates",
        )
