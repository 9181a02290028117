"""Training of multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, NonNegative
from riot_ops.models.fit import fit_network
from riot_ops.models.network import Activation, NetworkModel
from riot_ops.task import Case, register
from riot_ops.tasks.predict.classification import ClassTrainingTask, labelled
from riot_ops.tasks.predict.train_linear_regression import sets

__all__ = ["TrainNeuralNetwork"]


@register
@dataclass(frozen=True, kw_only=True)
class TrainNeuralNetwork(ClassTrainingTask):
    """Train a multilayer perceptron on every so many records, or on each record that holds a whole set.

    The inputs are standardised; the weights minimise the cross entropy of the classes and a penalty on their squares,
    by Adam; trained by scikit-learn.

    Parameters
    ----------
    inputs : tuple of str
        Numeric fields.
    target_field : str, default "target"
        Field with the class: text, or numbers taken as their text.
    classes : tuple of str, default ()
        Labels in the order of their indexes; a record of another class is rejected. (): those that occur in a set,
        sorted.
    hidden : tuple of int >= 1, default (24,)
        Units of each hidden layer.
    activation : "identity", "logistic", "tanh" or "relu", default "relu"
        Of the hidden units.
    penalty : float >= 0, default 1e-4
        What the squares of the weights cost.
    epochs : int >= 1, default 200
        Passes over a set at most.
    validation : float, 0 to below 1, default 0.1
        Share of a set by which is told when to stop; 0: as long as the loss falls.
    seed : int >= 0, default 0
        Decides the first weights, the order of records, and which are held back.
    size : int >= 1 or None, default 300
        Records of a key per model, one set after the other. None: each record is a set, its fields being lists of equal
        length.
    start_field, end_field : str, default "event_time"
        Fields with the times (or integer milliseconds since the epoch) that the data span: of the earliest start to the
        latest end in a set.
    dataset : str, default "CITY"
        Beginning of the models' names ``CITY-MLP-<end ms>.model``; with a key, its hash follows. The end in a name is
        at least 1 ms after that of the key's model before.
    store : str or None, default None
        Folder or blob container to write the models to, see :meth:`ModelStore.open`; None: none.
    by, ttl
        Key (models of its own for each key) and time to live, see :class:`KeyedTask`.
    value, output
        Not used: ``inputs`` and ``target_field`` name the input, and the results have names of their own.

    Shapes and rates
    ----------------
    float64[n, k] -> model, N:1 (1:1 with ``size=None``): a record per model at the arrival of a set's last, with that
    record's ``seq``, ``ordinal``, ``event_time`` and key, and ``model`` (the name), ``kind``, ``start_ms``, ``end_ms``,
    ``rows``, ``metrics`` (JSON: ``accuracy`` on the training data, ``loss``, ``epochs``) and ``content`` (the model's
    JSON). A multiplication per weight, record and epoch; the state of a key is its last ``size - 1`` records at most.

    Missing values
    --------------
    A record without a usable input, target or time is rejected. In a list, rows with a null, NaN or infinite value are
    left out.

    Errors
    ------
    In the errors stream: ``missing_value``, ``not_finite``, ``unknown_class``; ``uneven``, lists that differ in length;
    ``untrainable``, for the record that completed a set from which nothing can be learnt (fewer than two classes, in a
    list one that is not among ``classes``, too few to hold some back), which drops that set; ``name_taken``, where the
    store has another model of the same name. Without scikit-learn the first set raises :class:`MissingExtraError`.

    References
    ----------
    .. [1] D. P. Kingma, J. Ba, *Adam: a method for stochastic optimization*, ICLR 2015.
    .. [2] M. Andreoni Lopez, A. Lobato, O. Duarte, *A performance comparison of open-source stream processing
       platforms*, GLOBECOM 2016.

    Examples
    --------
    >>> nnt = TrainNeuralNetwork(inputs=("x",), target_field="level", size=8, validation=0.0).session()
    >>> days = ((1.0, "low"), (2.0, "low"), (8.0, "high"), (9.0, "high")) * 2
    >>> rows = nnt.push_many({"x": x, "level": level, "event_time": 7000} for x, level in days)
    >>> rows[0]["model"], NetworkModel.from_bytes(rows[0]["content"]).sizes
    ('CITY-MLP-7.model', (1, 24, 1))
    """

    code: ClassVar[str] = "NNT"
    model_kind: ClassVar[str] = NetworkModel.kind

    hidden: tuple[Count, ...] = (24,)
    activation: Activation = "relu"
    penalty: NonNegative = 1e-4
    epochs: Count = 200
    validation: NonNegative = 0.1

    trainer = fit_network

    def validate(self) -> None:
        super().validate()
        if self.validation >= 1:
            raise ConfigError(f"validation must be from 0 to below 1, got {self.validation!r}")

    def options(self) -> dict[str, Any]:
        names = ("hidden", "activation", "penalty", "epochs", "validation")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = labelled()
        few: dict[str, Any] = {"hidden": (3,), "epochs": 1, "validation": 0.0}
        yield Case(cls(inputs=("x", "y"), size=12, **few), batch)
        options: dict[str, Any] = {"classes": ("ü", "low", "high"), "activation": "tanh"}
        yield Case(cls(inputs=("x",), size=12, by=("key",), dataset="TAXI", **few, **options), batch, "by key")
        yield Case(
            cls(inputs=("x", "y"), size=None, start_field="from", end_field="to", **few), sets(labels=True), "sets"
        )
