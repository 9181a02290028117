"""Multilayer perceptron models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ModelError
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.models.model import MAX_NAMES, Model, check_finite, library_version
from riot_ops.models.scikit_learn import check_conversion, check_input_names, probe_rows

__all__ = ["ACTIVATIONS", "NetworkModel"]

#: Maximum number of weights.
MAX_WEIGHTS = 1_000_000
Activation = Literal["identity", "logistic", "tanh", "relu"]
ACTIVATIONS: tuple[Activation, ...] = ("identity", "logistic", "tanh", "relu")
#: Bias of a class that the network was not trained on, so that its probability is 0.
UNSEEN = -1e300


@kernel
def logistic(z: Any) -> Any:
    """``1 / (1 + exp(-z))`` without overflow."""
    if z >= 0.0:
        return 1.0 / (1.0 + math.exp(-z))
    e = math.exp(z)
    return e / (1.0 + e)


@kernel
def forward(
    x: Any,
    mean: Any,
    scale: Any,
    sizes: Any,
    weights: Any,
    biases: Any,
    activation: Any,
    here: Any,
    there: Any,
    out: Any,
) -> None:
    """Write the class probabilities of each row, NaN if an input is missing or a unit of the last layer overflows.

    ``here`` and ``there`` have room for a layer. The inputs of a unit are added in order, so that the result of a row
    does not depend on its batch.
    """
    last = sizes.size - 2
    for i in range(x.shape[0]):
        for j in range(sizes[0]):
            here[j] = (x[i, j] - mean[j]) / scale[j]
        w = 0
        b = 0
        for layer in range(last + 1):
            n = sizes[layer + 1]
            for j in range(n):
                there[j] = biases[b + j]
            for k in range(sizes[layer]):
                value = here[k]
                for j in range(n):
                    there[j] += value * weights[w + j]
                w += n
            b += n
            if layer < last:
                for j in range(n):
                    if activation == 1:
                        there[j] = logistic(there[j])
                    elif activation == 2:
                        there[j] = math.tanh(there[j])
                    elif activation == 3 and there[j] < 0.0:  # a NaN stays
                        there[j] = 0.0
            here, there = there, here
        if sizes[last + 1] == 1:
            out[i, 1] = logistic(here[0]) if np.isfinite(here[0]) else np.nan
            out[i, 0] = 1.0 - out[i, 1]
            continue
        maximum = -np.inf
        good = True
        for j in range(out.shape[1]):
            good = good and np.isfinite(here[j])
            maximum = max(maximum, here[j])
        total = 0.0
        for j in range(out.shape[1]):
            out[i, j] = math.exp(here[j] - maximum) if good else np.nan
            total += out[i, j]
        for j in range(out.shape[1]):
            out[i, j] /= total


class NetworkModel(Model, frozen=True, kw_only=True, tag="MLP"):
    """A multilayer perceptron classifier, with a scaler of its inputs.

    ``h0 = (x - mean) / scale``, ``hk = act(hk-1 Wk + bk)``, and the softmax of the last layer. If the last layer has
    one unit, its logistic function is the probability of the second of two classes.

    Parameters
    ----------
    classes : tuple of str
        Labels of two or more classes, in the order of their indexes.
    mean, scale : tuple of float
        Subtracted from each input, and divisor of the difference, above 0.
    activation : "identity", "logistic", "tanh" or "relu"
        Activation of the units of all layers but the last.
    weights : tuple of matrices
        Wk of each layer, with a row per input and a column per unit.
    biases : tuple of tuple of float
        bk of each layer.

    Examples
    --------
    >>> net = NetworkModel(inputs=("x",), target="level", classes=("low", "high"), mean=(10.0,), scale=(2.0,),
    ...                    activation="relu", weights=(((1.0, -1.0),), ((2.0,), (-2.0,))), biases=((0.0, 0.0), (0.0,)))
    >>> net.probabilities([[10.0], [11.0], [float("nan")]]).round(3).tolist()
    [[0.5, 0.5], [0.269, 0.731], [nan, nan]]
    >>> NetworkModel.from_bytes(net.to_bytes()) == net
    True
    """

    kind: ClassVar[str] = "MLP"

    classes: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    activation: Activation
    weights: tuple[tuple[tuple[float, ...], ...], ...]
    biases: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= len(self.classes) <= MAX_NAMES or len(set(self.classes)) < len(self.classes):
            raise ModelError(f"classes must be 2 to {MAX_NAMES} different labels, got {len(self.classes)}")
        for name in ("mean", "scale"):
            if len(getattr(self, name)) != len(self.inputs):
                raise ModelError(f"{name} has {len(getattr(self, name))} numbers for {len(self.inputs)} inputs")
            check_finite(name, getattr(self, name))
        if min(self.scale) <= 0:
            raise ModelError(f"scale must be above 0, got {min(self.scale)}")
        if self.activation not in ACTIVATIONS:
            raise ModelError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}")
        if not self.weights or len(self.weights) != len(self.biases):
            raise ModelError(
                f"{len(self.weights)} layers of weights and {len(self.biases)} of biases are not a network"
            )
        sizes = self.sizes
        for k, (matrix, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if not bias or len(matrix) != sizes[k] or any(len(row) != len(bias) for row in matrix):
                raise ModelError(f"the weights of layer {k} must be {sizes[k]} rows of {len(bias)}, one unit at least")
        if sizes[-1] != len(self.classes) and (sizes[-1], len(self.classes)) != (1, 2):
            raise ModelError(f"the last layer has {sizes[-1]} units for {len(self.classes)} classes")
        if sum(a * b for a, b in pairwise(sizes)) > MAX_WEIGHTS:
            raise ModelError(f"a network has at most {MAX_WEIGHTS} weights, got layers of {sizes} units")
        *_, weights, biases = self._arrays
        if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
            raise ModelError("weights and biases must be finite numbers")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inputs, and of units of each layer."""
        return (len(self.inputs), *map(len, self.biases))

    @classmethod
    def from_sklearn(
        cls, estimator: Any, inputs: Sequence[str], target: str, classes: Sequence[str] = (), **facts: Any
    ) -> NetworkModel:
        """Convert a fitted ``MLPClassifier``, or a pipeline of a ``StandardScaler`` and an ``MLPClassifier``.

        Parameters
        ----------
        classes : sequence of str
            Labels in the order wanted, including all of the estimator; by default those of the estimator. A class that
            it was not trained on has the probability 0.
        facts
            Further fields of :class:`Model`.
        """
        steps = [step for _, step in getattr(estimator, "steps", [("", estimator)])]
        try:
            *before, net = steps
            (scaler,) = before or (None,)
            known = [str(label) for label in net.classes_]
            weights, biases = [np.array(w) for w in net.coefs_], [np.array(b) for b in net.intercepts_]
            activation, many = str(net.activation), net.out_activation_ == "logistic" and net.n_outputs_ > 1
            k = len(inputs)
            mean, scale = np.zeros(k), np.ones(k)
            if scaler is not None:
                # it has a mean even if it does not subtract it
                mean = np.asarray(scaler.mean_) if scaler.with_mean else mean
                scale = np.asarray(scaler.scale_) if scaler.with_std else scale
        except (AttributeError, TypeError, ValueError):
            name = " and ".join(type(step).__name__ for step in steps)
            raise ModelError(f"{name} is not a fitted multilayer classifier, with or without a scaler") from None
        if many or len(weights[0]) != k:
            raise ModelError(f"the network has {len(weights[0])} inputs, expected {k}, and one class for each row")
        check_input_names(estimator, inputs)
        labels = list(classes) or known
        if not set(known) <= set(labels):
            raise ModelError(f"the network knows classes that are not given: {sorted(set(known) - set(labels))}")
        if labels != known:
            weights[-1], biases[-1] = _extended(
                weights[-1], biases[-1], [labels.index(label) for label in known], labels
            )
        model = cls(
            inputs=tuple(inputs),
            target=target,
            classes=tuple(labels),
            mean=tuple(mean.tolist()),
            scale=tuple(scale.tolist()),
            activation=activation,  # type: ignore[arg-type]  # checked by the constructor
            weights=tuple(tuple(map(tuple, w.tolist())) for w in weights),
            biases=tuple(tuple(b.tolist()) for b in biases),
            **{"made_by": library_version("scikit-learn"), **facts},
        )
        order = [labels.index(label) for label in known]
        rows = mean + scale * probe_rows(k)
        # an estimator that was fitted in single precision also predicts in it
        check_conversion(estimator, "predict_proba", rows, lambda x: model.probabilities(x)[:, order], tolerance=1e-4)
        return model

    def probabilities(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the probability of each class for each row; NaN where an input is missing."""
        rows = self.matrix(x)
        out = np.empty((len(rows), len(self.classes)))
        here, there = np.empty((2, max(self.sizes)))
        arguments: tuple[Any, ...] = (rows, *self._arrays, ACTIVATIONS.index(self.activation), here, there, out)
        forward(*arguments)
        return out

    def predict(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the class index of each row, or -1."""
        return self.winners(self.probabilities(x))

    def winners(self, probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the index of the most probable class, the first of several; -1 if there is no probability."""
        missing = np.isnan(probabilities).any(axis=1)
        return np.where(missing, -1, np.argmax(probabilities, axis=1))

    @cached_property
    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """Mean, scale, sizes, and all weights and biases concatenated."""
        flat = [[v for row in matrix for v in row] for matrix in self.weights]
        floats = (self.mean, self.scale)
        return (
            *(readonly(np.array(a, np.float64)) for a in floats),
            readonly(np.array(self.sizes, np.int64)),
            readonly(np.array([v for layer in flat for v in layer], np.float64)),
            readonly(np.array([v for layer in self.biases for v in layer], np.float64)),
        )


def _extended(
    weights: npt.NDArray[np.float64], bias: npt.NDArray[np.float64], places: list[int], labels: list[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Extend a last layer to all labels: unit i becomes unit ``places[i]``."""
    if bias.size == 1:  # softmax(0, z) is the logistic function of z
        weights, bias = np.column_stack([np.zeros(len(weights)), weights]), np.append(0.0, bias)
    whole, low = np.zeros((len(weights), len(labels))), np.full(len(labels), UNSEEN)
    whole[:, places], low[places] = weights, bias
    return whole, low
