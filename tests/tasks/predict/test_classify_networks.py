"""Classification by networks, against scikit-learn and by hand; replacing a network while the stream runs."""

from __future__ import annotations

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
from riot_ops.models import ModelStore, NetworkModel, TreeModel
from riot_ops.tasks import Classify

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
    """Build a network that always predicts the same of two classes."""
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
    task = Classify(inputs=NAMES, model=model, probability=True, probabilities=True)
    out = task.session().push_batch(batch)
    assert out.column("class").to_pylist() == net.predict(x).tolist()
    shares = np.stack(out.column("class_probabilities").to_pylist())
    np.testing.assert_allclose(shares, net.predict_proba(x), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(np.asarray(out.column("class_probability")), shares.max(axis=1))
    np.testing.assert_array_equal(np.asarray(out.column("class_index")), shares.argmax(axis=1))
    bare = Classify(inputs=NAMES, model=model, output="q").session().push_batch(batch)
    assert bare.schema.names == [*NAMES, "q", "q_index"]
    # inputs in another order than the model's
    turned = Classify(inputs=NAMES[::-1], model=model).session().push_batch(batch)
    assert turned.column("class").to_pylist() == out.column("class").to_pylist()


def test_missing_and_infinite_inputs():
    session = Classify(inputs=("x",), model=constant("yes").to_json(), probability=True, probabilities=True).session()
    rows = [session.push({"x": x})[0] for x in (1.0, None, math.nan)]
    assert [row["class"] for row in rows] == ["yes", None, None]
    assert rows[1] == {"x": None, **dict.fromkeys(("class", "class_index"), None)} | {
        "class_probability": None,
        "class_probabilities": None,
    }
    assert rows[0]["class_probability"] == pytest.approx(1 / (1 + math.exp(-4)))
    assert session.push({"x": math.inf}) == [] and session.errors[0]["reason"] == "not_finite"


def test_network_is_replaced_while_the_stream_runs(tmp_path):
    store = ModelStore.open(tmp_path)
    names = [store.save(constant(label, i), "NET") for i, label in enumerate(("yes", "no"))]
    other = store.save(constant("no", 7, inputs=("x", "y")), "NET")
    task = Classify(
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
    assert ask("NET-MLR-1.model") is None and len(session.errors) == 2, "a regression is for another task"
    restored = task.session()
    restored.restore(session.snapshot())
    assert restored.push({"x": 1.0, "update": None})[0]["used"] == names[1]
    with pytest.raises(ConfigError, match="a class twice"):
        Classify(inputs=("x",), model="m", classes=("a", "a"))


def test_without_updates_the_task_is_stateless(tmp_path):
    name = ModelStore.open(tmp_path).save(constant("yes"), "NET")
    task = Classify(inputs=("x",), store=str(tmp_path), model=name, model_field="used")
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
    # a model without updates survives its ttl
    for given, keyed in (({"updates": "update"}, True), ({"ttl": "1h"}, False)):
        flow, _ = run(task.replace(**given), {**schema, "event_time": "timestamp[us, tz=UTC]"})
        assert [stage.steps[-1].keyed for stage in plan(flow).stages][-1] is keyed
    infinite = ro.Dataflow("infinite")
    infinite.sink("out", infinite.source("rows", schema=schema).to(task, id="judge"))
    result = infinite.run([{**records[0], "x": x} for x in (math.inf, 1.0)])
    assert (result["judge"].num_rows, result["errors"]["reason"].to_pylist()) == (1, ["not_finite"])


def test_network_replaces_a_tree_while_the_stream_runs(tmp_path):
    store = ModelStore.open(tmp_path)
    tree = TreeModel(
        inputs=("x",), target="level", classes=("no", "yes"), left=(-1,), right=(-1,), feature=(0,), threshold=(0.0,),
        value=((1.0, 0.0),),
    )  # fmt: skip
    names = store.save(tree, "CITY"), store.save(constant("yes", 5), "CITY")
    task = Classify(inputs=("x",), store=str(tmp_path), model=names[0], updates="model", probability=True)
    rows = pa.RecordBatch.from_pydict({"x": [1.0, None, 1.0], "model": [None, names[1], None]})
    out = task.session().push_batch(rows)
    assert out["class"].to_pylist() == ["no", "yes"]
    assert out["class_probability"].to_pylist() == pytest.approx([1.0, 1 / (1 + math.exp(-4.0))])
