"""Classification by a multilayer perceptron."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.models.model import Model
from riot_ops.models.network import NetworkModel
from riot_ops.task import Case, register
from riot_ops.tasks.predict.classification_task import ClassificationTask

__all__ = ["ClassifyNeuralNetwork"]


@register
@dataclass(frozen=True, kw_only=True)
class ClassifyNeuralNetwork(ClassificationTask):
    """Classify each record with a multilayer perceptron, which can be replaced while the stream runs.

    ``h0 = (x - mean) / scale``, ``hk = act(hk-1 Wk + bk)``; the probabilities are the softmax of the last layer (for
    two classes possibly the logistic function of one unit), the class is the most probable one.

    Parameters
    ----------
    inputs : tuple of str
        Numeric fields that the network reads; a model with other inputs is refused.
    classes : tuple of str, default ()
        Labels in the order of their indexes: a model with other classes is refused, so that an index means the same in
        every model. (): the classes of the model in use.
    probability, probabilities : bool, default False
        Whether to add the probability of the class, and the probabilities of all classes.
    model : str or None, default None
        Initial model: its name in ``store`` (without a store the path of its file), or its JSON form.
        None: there is no model until the first update.
        A file is read once per run or session; on Spark it must not be replaced while a query runs.
    store : str or None, default None
        Folder or blob container of models.
    updates : str or None, default None
        Text field that marks a record as an update: it holds the name of a model in the store, and is null in
        observations. From the update on, in stream order, its key uses that model. None: all records are observations.
    output : str, default "class"
        Field for the label (string); ``<output>_index`` (int64) receives its index among the classes,
        ``<output>_probability`` (double) and ``<output>_probabilities`` (list of double) the probabilities.
    model_field : str or None, default None
        Field for the name of the model used (null for an inline JSON model); None: no such field.
    by, ttl
        Key and time to live, see :class:`PredictionTask`.

    Shapes and rates
    ----------------
    float64[n, k] -> class[n], 1:1 for observations and 1:0 for updates; a multiplication per weight and record. The
    state of a key is the name of its model; each model is loaded once per process.

    Missing values
    --------------
    The results are null where an input is null or NaN, and where a sum of the last layer overflows float64.

    Errors
    ------
    See :class:`PredictionTask`: ``bad_model``, ``no_model`` and ``not_finite`` in the errors stream.

    References
    ----------
    .. [1] D. E. Rumelhart, G. E. Hinton, R. J. Williams, *Learning representations by back-propagating errors*,
       Nature 323, 1986.
    .. [2] M. Andreoni Lopez, A. Lobato, O. Duarte, *A performance comparison of open-source stream processing
       platforms*, GLOBECOM 2016: threat detection by a neural network.

    Examples
    --------
    >>> net = NetworkModel(inputs=("x",), target="level", classes=("low", "high"), mean=(5.0,), scale=(2.0,),
    ...                    activation="identity", weights=(((2.0,),),), biases=((0.0,),))
    >>> mlp = ClassifyNeuralNetwork(inputs=("x",), model=net.to_json(), probability=True).session()
    >>> row = mlp.push({"x": 6.0})[0]
    >>> row["class"], row["class_index"], round(row["class_probability"], 3)
    ('high', 1, 0.731)
    """

    code: ClassVar[str] = "MLP"
    model_type: ClassVar[type[Model]] = NetworkModel

    def classify(self, model: Any, x: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], Any]:
        probabilities = model.probabilities(x)
        return model.winners(probabilities), lambda: probabilities

    @classmethod
    def cases(cls) -> Iterable[Case]:
        model = NetworkModel(
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
        yield Case(cls(inputs=("x", "y"), model=model), batch)
        options: dict[str, Any] = {"classes": ("low", "ü", "high"), "probabilities": True, "output": "level"}
        options["probability"] = True
        yield Case(cls(inputs=("x", "y"), model=model, by=("key",), **options), batch, "by key")
        yield Case(cls(inputs=("x", "y"), model=model, store="/no such folder", updates="model"), batch, "bad updates")
        yield Case(cls(inputs=("x",), store="/no such folder", updates="model"), batch, "no model")
