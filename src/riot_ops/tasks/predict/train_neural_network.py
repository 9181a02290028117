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
from riot_ops.tasks.predict.classifier_training_task import ClassifierTrainingTask, training_cases_batch
from riot_ops.tasks.predict.train_linear_regression import list_cases_batch

__all__ = ["TrainNeuralNetwork"]


@register
@dataclass(frozen=True, kw_only=True)
class TrainNeuralNetwork(ClassifierTrainingTask):
    """Train a multilayer perceptron on every ``size`` records, or on each record that holds a whole set.

    The inputs are standardised; scikit-learn minimises the cross entropy of the classes plus a penalty on the squared
    weights, with Adam.

    Parameters
    ----------
    inputs : tuple of str
        Numeric fields.
    target : str, default "target"
        Field with the class: text, or numbers taken as their text.
    classes : tuple of str, default ()
        Labels in the order of their indexes; a record of another class is rejected. (): the classes that occur
        in a set, sorted.
    hidden_layer_sizes : tuple of int >= 1, default (24,)
        Units of each hidden layer.
    activation : "identity", "logistic", "tanh" or "relu", default "relu"
                Activation of the hidden units.
    alpha : float >= 0, default 1e-4
        Weight of the penalty on squared weights.
    max_iter : int >= 1, default 200
        Maximum number of passes over a set.
    validation_fraction : float, 0 to below 1, default 0.1
        Share of a set that is held out to decide when to stop; 0: train while the loss falls.
    seed : int >= 0, default 0
        Seed of the initial weights, the order of records and the held-out records.
    size : int >= 1 or None, default 300
        Records of a key per model, one set after the other. None: each record is a set whose fields are lists of equal
        length.
    start_field, end_field : str, default "event_time"
        Fields with the times (or integer milliseconds since the epoch) that the data span, from the earliest start to
        the latest end in a set.
    dataset : str, default "CITY"
        Prefix of the models' names ``CITY-MLP-<end ms>.model``; with a key, the key's hash follows it. The end in a
        name is at least 1 ms after the end of the key's previous model.
    store : str or None, default None
        Folder or blob container to write the models to, see :meth:`ModelStore.open`; None: no store.
    by, ttl
        Key (each key has its own models) and time to live, see :class:`KeyedTask`.
    value, output
        Not used: ``inputs`` and ``target`` name the input, and the names of the results are fixed.

    Shapes and rates
    ----------------
    float64[n, k] -> model, N:1 (1:1 with ``size=None``): the last record of a set emits a record with its ``seq``,
    ``ordinal``, ``event_time`` and key, and ``model`` (the name), ``kind``, ``start_ms``, ``end_ms``, ``rows``,
    ``metrics`` (JSON: ``accuracy`` on the training data, ``loss``, ``epochs``) and ``content`` (the model's JSON). A
    multiplication per weight, record and epoch; the state of a key is at most its last ``size - 1`` records.

    Missing values
    --------------
    A record without a usable input, target or time is rejected. In a list, rows with a null, NaN or infinite value are
    skipped.

    Errors
    ------
    In the errors stream: ``missing_value``, ``not_finite``, ``unknown_class``; ``uneven``, lists that differ in length;
    ``untrainable``, the last record of a set on which no model can be trained (fewer than two classes, in a list a
    class that is not in ``classes``, too few records to hold some out), which drops the set; ``name_taken``, where the
    store has another model of the same name. Without scikit-learn the first set raises :class:`MissingExtraError`.

    References
    ----------
    .. [1] D. P. Kingma, J. Ba, *Adam: a method for stochastic optimization*, ICLR 2015.
    .. [2] M. Andreoni Lopez, A. Lobato, O. Duarte, *A performance comparison of open-source stream processing
       platforms*, GLOBECOM 2016.

    Examples
    --------
    >>> nnt = TrainNeuralNetwork(inputs=("x",), target="level", size=8, validation_fraction=0.0).session()
    >>> days = ((1.0, "low"), (2.0, "low"), (8.0, "high"), (9.0, "high")) * 2
    >>> rows = nnt.push_many({"x": x, "level": level, "event_time": 7000} for x, level in days)
    >>> rows[0]["model"], NetworkModel.from_bytes(rows[0]["content"]).sizes
    ('CITY-MLP-7.model', (1, 24, 1))
    """

    code: ClassVar[str] = "NNT"
    model_kind: ClassVar[str] = NetworkModel.kind

    hidden_layer_sizes: tuple[Count, ...] = (24,)
    activation: Activation = "relu"
    alpha: NonNegative = 1e-4
    max_iter: Count = 200
    validation_fraction: NonNegative = 0.1

    trainer = fit_network

    def validate(self) -> None:
        super().validate()
        if self.validation_fraction >= 1:
            raise ConfigError(f"validation must be at least 0 and below 1, got {self.validation_fraction!r}")

    def trainer_options(self) -> dict[str, Any]:
        names = ("hidden_layer_sizes", "activation", "alpha", "max_iter", "validation_fraction")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = training_cases_batch()
        few: dict[str, Any] = {"hidden_layer_sizes": (3,), "max_iter": 1, "validation_fraction": 0.0}
        yield Case(cls(inputs=("x", "y"), size=12, **few), batch)
        options: dict[str, Any] = {"classes": ("ü", "low", "high"), "activation": "tanh"}
        yield Case(cls(inputs=("x",), size=12, by=("key",), dataset="TAXI", **few, **options), batch, "by key")
        yield Case(
            cls(inputs=("x", "y"), size=None, start_field="from", end_field="to", **few),
            list_cases_batch(labels=True),
            "sets",
        )
