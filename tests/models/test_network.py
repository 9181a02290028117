"""Multilayer perceptrons, against scikit-learn and by hand; their JSON form; invalid networks."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from riot_ops import ModelError
from riot_ops.models import NetworkModel, model_from_bytes
from riot_ops.testing.checks import uncompiled
from tests.search import depth

ACTIVATIONS = ("identity", "logistic", "tanh", "relu")


def network(**changes):
    fields = {
        "inputs": ("x", "ü"),
        "target": "y",
        "classes": ("a", "b", "ü"),
        "mean": (1.0, 0.0),
        "scale": (2.0, 1.0),
        "activation": "relu",
        "weights": (((1.0, -1.0), (0.5, 2.0)), ((1.0, 0.0, -1.0), (0.0, 2.0, 0.5))),
        "biases": ((0.0, 1.0), (0.1, 0.2, 0.3)),
    }
    return NetworkModel(**fields | changes)


def trained(rng, inputs, classes, hidden, activation, scaled=(True, True)):
    """A network of scikit-learn with weights of any size, and rows; ``scaled``: whether to centre and to scale."""
    x = rng.normal(size=(40, inputs)) * 10.0 ** rng.integers(-3, 4, inputs) + rng.normal(size=inputs)
    labels = np.array([f"c{i}" for i in range(classes)])[np.arange(40) % classes]
    net = MLPClassifier(hidden, activation=activation, max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, std = scaled or (False, False)
        scaler = StandardScaler(with_mean=mean, with_std=std)
        estimator = (make_pipeline(scaler, net) if scaled is not None else net).fit(x, labels)
    for part in (*net.coefs_, *net.intercepts_):
        part[...] = rng.normal(size=part.shape) * rng.choice([0.1, 1.0, 5.0])
    return estimator, x


@pytest.mark.long
@given(
    seed=st.integers(0, 2**32 - 1),
    inputs=st.integers(1, 6),
    classes=st.integers(2, 5),
    hidden=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    activation=st.sampled_from(ACTIVATIONS),
    scaled=st.none() | st.tuples(st.booleans(), st.booleans()),
)
@settings(max_examples=depth(40))
def test_probabilities_equal_scikit_learn(seed, inputs, classes, hidden, activation, scaled):
    rng = np.random.default_rng(seed)
    estimator, x = trained(rng, inputs, classes, hidden, activation, scaled)
    names = [f"f{i}" for i in range(inputs)]
    model = NetworkModel.from_bytes(NetworkModel.from_sklearn(estimator, names, "class").to_bytes())
    wanted = estimator.predict_proba(x)
    np.testing.assert_allclose(model.probabilities(x), wanted, rtol=0, atol=1e-9)
    clear = np.sort(wanted, axis=1)[:, -1] - np.sort(wanted, axis=1)[:, -2] > 1e-9
    assert [model.classes[i] for i in model.predict(x)[clear]] == estimator.predict(x)[clear].tolist()
    order = (*reversed(model.classes), "unseen")
    other = NetworkModel.from_sklearn(estimator, names, "class", classes=order)
    np.testing.assert_allclose(other.probabilities(x)[:, :-1], wanted[:, ::-1], rtol=0, atol=1e-9)
    assert (other.probabilities(x)[:, -1] == 0).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_probabilities_equal_a_computation_by_hand(activation):
    acts = {
        "identity": lambda z: z,
        "logistic": lambda z: 1 / (1 + math.exp(-z)),
        "tanh": math.tanh,
        "relu": lambda z: max(z, 0.0),
    }
    x, y = (4.0 - 1) / 2, -3.0
    one, two = (acts[activation](z) for z in (x + 0.5 * y, -x + 2 * y + 1))
    powers = [math.exp(z) for z in (one + 0.1, 2 * two + 0.2, -one + 0.5 * two + 0.3)]
    got = network(activation=activation).probabilities([[4.0, -3.0]])[0]
    assert got.tolist() == pytest.approx([p / sum(powers) for p in powers], abs=1e-12)


def test_row_gives_the_same_in_any_batch_compiled_or_not():
    x = np.random.default_rng(0).normal(size=(50, 2)) * 3
    whole = network(activation="tanh").probabilities(x)
    alone = np.concatenate([network(activation="tanh").probabilities(x[i : i + 1]) for i in range(50)])
    np.testing.assert_array_equal(whole, alone)
    with uncompiled():
        np.testing.assert_array_equal(network(activation="tanh").probabilities(x), whole)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("classes", [2, 3])
def test_missing_and_huge_inputs(activation, classes):
    last = ((1.0,), (2.0,)) if classes == 2 else ((1.0, 0.0, -1.0), (0.0, 2.0, 0.5))
    bias = (0.1,) if classes == 2 else (0.1, 0.2, 0.3)
    model = network(
        activation=activation,
        classes=("a", "b", "ü")[:classes],
        weights=(((1.0, -1.0), (0.5, 2.0)), last),
        biases=((0.0, 1.0), bias),
    )
    nan = math.nan
    found = model.probabilities([[nan, 1.0], [1.0, nan], [3e3, -2e3], [-3e3, 4e3]])
    assert np.isnan(found[:2]).all() and model.winners(found)[:2].tolist() == [-1, -1]
    assert np.isfinite(found[2:]).all() and found[2:].sum(axis=1) == pytest.approx(1.0)
    huge = model.probabilities([[1e308, 1e308], [-1e308, 1e308]])
    assert (np.isnan(huge).all(axis=1) | (np.abs(huge.sum(axis=1) - 1) < 1e-9)).all()
    assert model.probabilities(np.empty((0, 2))).shape == (0, classes)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_overflowing_last_layer_has_no_probabilities(classes, sign):
    last = ((1e200,), (0.0,)) if classes == 2 else ((1e200, 0.0, 0.0), (0.0, 1.0, 0.0))
    model = network(
        activation="identity",
        classes=("a", "b", "ü")[:classes],
        weights=(((sign, 0.0), (0.0, 1.0)), last),
        biases=((0.0, 0.0), (0.0,) * len(last[0])),
    )
    found = model.probabilities([[1e200, 0.0], [1e100, 0.0]])
    assert np.isnan(found[0]).all() and model.winners(found).tolist()[0] == -1
    assert found[1].sum() == 1.0, "a sum that a float can hold"


def test_first_of_equal_classes_wins():
    flat = network(weights=(((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),), biases=((1.0, 1.0, 1.0),))
    assert flat.predict([[1.0, 2.0]]).tolist() == [0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"classes": ("a",)}, "classes must be 2"),
        ({"classes": ("a", "b", "a")}, "classes must be 2"),
        ({"classes": ("a", "b")}, "3 units for 2 classes"),
        ({"mean": (1.0,)}, "mean has 1 numbers for 2"),
        ({"mean": (1.0, math.inf)}, "mean must be finite"),
        ({"scale": (1.0, math.nan)}, "scale must be finite"),
        ({"scale": (1.0, 0.0)}, "scale must be above 0, got 0"),
        ({"scale": (1.0, -2.0)}, "scale must be above 0"),
        ({"activation": "step"}, "'step'"),
        ({"weights": (), "biases": ()}, "0 layers"),
        ({"biases": ((0.0, 1.0),)}, "2 layers of weights and 1"),
        ({"biases": ((0.0, 1.0, 2.0), (0.1, 0.2, 0.3))}, "layer 0 must be 2 rows of 3"),
        ({"weights": (((1.0, -1.0),), ((1.0, 0.0, -1.0), (0.0, 2.0, 0.5)))}, "layer 0 must be 2 rows of 2"),
        ({"weights": (((), ()), ()), "biases": ((), (0.1, 0.2, 0.3))}, "one unit at least"),
        ({"biases": ((0.0, math.nan), (0.1, 0.2, 0.3))}, "must be finite"),
        ({"weights": (((math.inf, 0.0), (0.0, 0.0)), ((1.0, 0.0, -1.0), (0.0, 2.0, 0.5)))}, "must be finite"),
    ],
)
def test_invalid_networks_are_refused(wrong, message):
    with pytest.raises(ModelError, match=message):
        network(**wrong)
    if not any(math.isnan(v) or math.isinf(v) for v in _numbers(wrong)):
        with pytest.raises(ModelError, match=message):
            model_from_bytes(json.dumps(json.loads(network().to_json()) | wrong))


def _numbers(value):
    if isinstance(value, float):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [v for one in value for v in _numbers(one)] if isinstance(value, (list, tuple)) else []


def test_too_many_weights_are_refused(monkeypatch):
    monkeypatch.setattr("riot_ops.models.network.MAX_WEIGHTS", 9)
    with pytest.raises(ModelError, match="at most 9 weights"):
        network()


def test_json_round_trip(tmp_path):
    model = network(start_ms=1, end_ms=2, rows=3, metrics={"accuracy": 0.5}, made_by="hand")
    assert model_from_bytes(model.to_bytes()) == model and json.loads(model.to_json())["kind"] == "MLP"
    with pytest.raises(ModelError, match="damaged"):
        model_from_bytes(model.to_json().replace("relu", "step"))


@pytest.mark.parametrize(
    "other",
    [
        MLPClassifier(),
        MLPRegressor(hidden_layer_sizes=(1,), solver="lbfgs").fit([[0.0], [1.0]], [0.0, 1.0]),
        LogisticRegression().fit([[0.0], [1.0]], [0, 1]),
        make_pipeline(MinMaxScaler(), LogisticRegression()).fit([[0.0], [1.0]], [0, 1]),
        "text",
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_other_estimators_are_refused(other):
    with pytest.raises(ModelError, match="not a fitted multilayer classifier"):
        NetworkModel.from_sklearn(other, ("x",), "y")


@pytest.mark.filterwarnings("ignore")
def test_mismatched_classifiers_are_refused():
    net = MLPClassifier((2,), max_iter=1).fit([[0.0], [1.0]], ["a", "b"])
    with pytest.raises(ModelError, match="1 inputs, expected 2"):
        NetworkModel.from_sklearn(net, ("x", "y"), "z")
    with pytest.raises(ModelError, match=r"not given: \['b'\]"):
        NetworkModel.from_sklearn(net, ("x",), "z", classes=("a", "c"))
    many = MLPClassifier((2,), max_iter=1).fit([[0.0], [1.0]], [[0, 1], [1, 1]])
    with pytest.raises(ModelError, match="one class for each row"):
        NetworkModel.from_sklearn(many, ("x",), "z")
    plain = make_pipeline(StandardScaler(with_mean=False, with_std=False), net).fit([[0.0], [1.0]], ["a", "b"])
    model = NetworkModel.from_sklearn(plain, ("x",), "z")
    assert (model.mean, model.scale) == ((0.0,), (1.0,))
