"""Training of networks, against scikit-learn; sets, classes and misuse."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pyarrow as pa
import pytest
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from riot_ops import ConfigError
from riot_ops.models import ModelStore, NetworkModel
from riot_ops.tasks import Classify, TrainNeuralNetwork

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def learnt():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)) * (1.0, 50.0, 0.01)
    labels = np.array(["BAD", "GOOD", "VERYGOOD"])[np.digitize(x[:, 0] + x[:, 1] / 50, (-0.5, 0.5))]
    net = MLPClassifier((6,), max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_pipeline(StandardScaler(), net).fit(x, labels), x, labels


@pytest.mark.long
def test_trained_network_predicts(learnt, tmp_path):
    _, x, labels = learnt
    options = {
        "hidden_layer_sizes": (5,),
        "activation": "tanh",
        "alpha": 0.01,
        "max_iter": 7,
        "validation_fraction": 0.0,
        "seed": 4,
    }
    task = TrainNeuralNetwork(inputs=NAMES, target="quality", size=150, store=str(tmp_path), **options)
    records = [
        dict(zip(NAMES, row, strict=True)) | {"quality": label, "event_time": 1000 * i}
        for i, (row, label) in enumerate(zip(x.tolist(), labels.tolist(), strict=True))
    ]
    made = task.session().push_many(records)
    assert [(row["model"], row["kind"], row["start_ms"], row["rows"]) for row in made] == [
        ("CITY-MLP-149.model", "MLP", 0, 150),
        ("CITY-MLP-299.model", "MLP", 150, 150),
    ]
    net = MLPClassifier((5,), activation="tanh", alpha=0.01, max_iter=7, random_state=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = make_pipeline(StandardScaler(), net).fit(x[:150], labels[:150])
    model = ModelStore.open(tmp_path).load(made[0]["model"])
    np.testing.assert_allclose(model.probabilities(x), theirs.predict_proba(x), rtol=0, atol=1e-9)
    assert json.loads(made[0]["metrics"])["epochs"] == 7
    use = Classify(inputs=NAMES, store=str(tmp_path), model=made[0]["model"]).session()
    assert [row["class"] for row in use.push_many(records[:50])] == theirs.predict(x[:50]).tolist()


def test_sets_and_classes():
    lists = {
        "x": [[1.0, 2.0, 8.0, 9.0] * 5],
        "y": [["low", "low", "high", "high"] * 5],
        "event_time": pa.array([5], pa.timestamp("us", "UTC")),
    }
    task = TrainNeuralNetwork(
        inputs=("x",), target="y", size=None, classes=("mid", "low", "high"), validation_fraction=0
    )
    (row,) = task.session().push_batch(pa.RecordBatch.from_pydict(lists)).to_pylist()
    model = NetworkModel.from_bytes(row["content"])
    assert model.classes == ("mid", "low", "high") and (model.probabilities([[1.0], [9.0]])[:, 0] == 0).all()
    session = TrainNeuralNetwork(inputs=("x",), size=2, classes=("a", "b")).session()
    assert session.push({"x": 1.0, "target": "c", "event_time": 1}) == []
    for label in "ab":  # too few to hold some out
        session.push({"x": 1.0, "target": label, "event_time": 1})
    assert [error["reason"] for error in session.errors] == ["unknown_class", "untrainable"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"activation": "step"}, "activation"),
        ({"alpha": -1.0}, "alpha"),
        ({"max_iter": 0}, "max_iter"),
        ({"validation_fraction": 1.0}, "validation must be at least 0 and below 1"),
        ({"validation_fraction": -0.1}, "validation_fraction"),
        ({"seed": -1}, "seed must be 0"),
        ({"classes": ("a", "a")}, "a class twice"),
    ],
)
def test_misuse_is_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        TrainNeuralNetwork(inputs=("x",), **wrong)
