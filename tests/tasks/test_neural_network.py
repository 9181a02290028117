"""Classification and training by networks, against scikit-learn and by hand; replacing a network in mid-stream."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pyarrow as pa
import pytest
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import riot_ops as ro
from riot_ops import ConfigError
from riot_ops.graph.plan import plan
from riot_ops.models import ModelStore, NetworkModel
from riot_ops.tasks import ClassifyNeuralNetwork, TrainNeuralNetwork

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


def constant(label, end_ms=0, inputs=("x",)):
    """A network that always says the same of two classes."""
    return NetworkModel(
        inputs=inputs,
        target="level",
        classes=("no", "yes"),
        mean=(0.0,) * len(inputs),
        scale=(1.0,) * len(inputs),
        activation="identity",
        weights=(tuple((0.0,) for _ in inputs),),
        biases=((4.0 if label == "yes" else -4.0,),),
        end_ms=end_ms,
    )


def test_equals_scikit_learn(learnt):
    net, x, _ = learnt
    model = NetworkModel.from_sklearn(net, NAMES, "quality").to_json()
    batch = pa.RecordBatch.from_pydict(dict(zip(NAMES, x.T, strict=True)))
    task = ClassifyNeuralNetwork(inputs=NAMES, model=model, probability=True, probabilities=True)
    out = task.session().push_batch(batch)
    assert out.column("class").to_pylist() == net.predict(x).tolist()
    shares = np.stack(out.column("class_probabilities").to_pylist())
    np.testing.assert_allclose(shares, net.predict_proba(x), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(np.asarray(out.column("class_probability")), shares.max(axis=1))
    np.testing.assert_array_equal(np.asarray(out.column("class_index")), shares.argmax(axis=1))
    bare = ClassifyNeuralNetwork(inputs=NAMES, model=model, output="q").session().push_batch(batch)
    assert bare.schema.names == [*NAMES, "q", "q_index"]
    # inputs in another order than those of the model
    turned = ClassifyNeuralNetwork(inputs=NAMES[::-1], model=model).session().push_batch(batch)
    assert turned.column("class").to_pylist() == out.column("class").to_pylist()


def test_missing_and_infinite_inputs():
    session = ClassifyNeuralNetwork(
        inputs=("x",), model=constant("yes").to_json(), probability=True, probabilities=True
    ).session()
    rows = [session.push({"x": x})[0] for x in (1.0, None, math.nan)]
    assert [row["class"] for row in rows] == ["yes", None, None]
    assert rows[1] == {"x": None, **dict.fromkeys(("class", "class_index"), None)} | {
        "class_probability": None,
        "class_probabilities": None,
    }
    assert rows[0]["class_probability"] == pytest.approx(1 / (1 + math.exp(-4)))
    assert session.push({"x": math.inf}) == [] and session.errors[0]["reason"] == "not_finite"


def test_a_network_is_replaced_in_mid_stream(tmp_path):
    store = ModelStore.open(tmp_path)
    names = [store.save(constant(label, i), "NET") for i, label in enumerate(("yes", "no"))]
    other = store.save(constant("no", 7, inputs=("x", "y")), "NET")
    task = ClassifyNeuralNetwork(
        inputs=("x",), store=str(tmp_path), model=names[0], updates="update", model_field="used", classes=("no", "yes")
    )
    session = task.session()

    def ask(update=None):
        rows = session.push({"x": None if update else 1.0, "update": update})
        return (rows[0]["class"], rows[0]["used"]) if rows else None

    assert ask() == ("yes", names[0])
    assert ask(names[1]) is None and ask() == ("no", names[1])
    for bad in (other, "NET-MLP-99.model"):
        assert ask(bad) is None
    assert [error["reason"] for error in session.errors] == ["bad_model"] * 2
    assert ask("NET-DTC-1.model") is None and len(session.errors) == 2, "a tree is for another task"
    restored = task.session()
    restored.restore(session.snapshot())
    assert restored.push({"x": 1.0, "update": None})[0]["used"] == names[1]
    with pytest.raises(ConfigError, match="a class twice"):
        ClassifyNeuralNetwork(inputs=("x",), model="m", classes=("a", "a"))


def test_without_updates_it_runs_wherever_records_are(tmp_path):
    name = ModelStore.open(tmp_path).save(constant("yes"), "NET")
    task = ClassifyNeuralNetwork(inputs=("x",), store=str(tmp_path), model=name, model_field="used")
    records = [{"key": "ab"[i % 2], "x": [1.0, None, 2.0][i % 3], "update": None} for i in range(9)]
    schema = {"key": "string", "x": "double", "update": "string"}

    def run(task, fields=schema, **options):
        flow = ro.Dataflow("judge")
        flow.sink("out", flow.source("rows", schema=fields).shuffle(2).to(task, id="judge"))
        return flow, flow.run(records, **options)["judge"].sort_by("seq").to_pylist()

    flow, rows = run(task, batch_size=2)
    assert [stage.steps[-1].keyed for stage in plan(flow).stages] == [False]
    session = task.session().push_many(records)
    assert [{k: v for k, v in row.items() if k not in ("seq", "ordinal", "event_time")} for row in rows] == session
    assert run(task.replace(by=("key",)))[1] == rows
    # a model that never changes is not forgotten either
    for given, keyed in (({"updates": "update"}, True), ({"ttl": "1h"}, False)):
        flow, _ = run(task.replace(**given), {**schema, "event_time": "timestamp[us, tz=UTC]"})
        assert [stage.steps[-1].keyed for stage in plan(flow).stages][-1] is keyed
    infinite = ro.Dataflow("infinite")
    infinite.sink("out", infinite.source("rows", schema=schema).to(task, id="judge"))
    result = infinite.run([{**records[0], "x": x} for x in (math.inf, 1.0)])
    assert (result["judge"].num_rows, result["errors"]["reason"].to_pylist()) == (1, ["not_finite"])


def test_training_and_use(learnt, tmp_path):
    _, x, labels = learnt
    options = {"hidden": (5,), "activation": "tanh", "penalty": 0.01, "epochs": 7, "validation": 0.0, "seed": 4}
    task = TrainNeuralNetwork(inputs=NAMES, target_field="quality", size=150, store=str(tmp_path), **options)
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
    use = ClassifyNeuralNetwork(inputs=NAMES, store=str(tmp_path), model=made[0]["model"]).session()
    assert [row["class"] for row in use.push_many(records[:50])] == theirs.predict(x[:50]).tolist()


def test_sets_and_classes():
    lists = {
        "x": [[1.0, 2.0, 8.0, 9.0] * 5],
        "y": [["low", "low", "high", "high"] * 5],
        "event_time": pa.array([5], pa.timestamp("us", "UTC")),
    }
    task = TrainNeuralNetwork(inputs=("x",), target_field="y", size=None, classes=("mid", "low", "high"), validation=0)
    (row,) = task.session().push_batch(pa.RecordBatch.from_pydict(lists)).to_pylist()
    model = NetworkModel.from_bytes(row["content"])
    assert model.classes == ("mid", "low", "high") and (model.probabilities([[1.0], [9.0]])[:, 0] == 0).all()
    session = TrainNeuralNetwork(inputs=("x",), size=2, classes=("a", "b")).session()
    assert session.push({"x": 1.0, "target": "c", "event_time": 1}) == []
    for label in "ab":  # too few to hold some back
        session.push({"x": 1.0, "target": label, "event_time": 1})
    assert [error["reason"] for error in session.errors] == ["unknown_class", "untrainable"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden": (0,)}, "hidden"),
        ({"activation": "step"}, "activation"),
        ({"penalty": -1.0}, "penalty"),
        ({"epochs": 0}, "epochs"),
        ({"validation": 1.0}, "validation must be from 0 to below 1"),
        ({"validation": -0.1}, "validation"),
        ({"seed": -1}, "seed must be 0"),
        ({"classes": ("a", "a")}, "a class twice"),
    ],
)
def test_misuse(wrong, message):
    with pytest.raises(ConfigError, match=message):
        TrainNeuralNetwork(inputs=("x",), **wrong)
