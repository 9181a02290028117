"""Sets, names, stores and errors of the training tasks."""

from __future__ import annotations

import datetime as dt
import json
import random

import numpy as np
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier

import riot_ops as ro
from riot_ops import ConfigError
from riot_ops.models import LinearModel, ModelStore, TreeModel, fit_linear
from riot_ops.tasks import ClassifyDecisionTree, PredictLinearRegression, TrainDecisionTree, TrainLinearRegression
from riot_ops.testing import exact
from tests.reference.linear_regression import least_squares

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def records(n, seed=0, keys="ab"):
    choose = random.Random(seed)
    return [
        {
            "key": choose.choice(keys),
            "event_time": EPOCH + dt.timedelta(milliseconds=1000 + 10 * i, microseconds=900),
            "x": choose.choice([0.0, 1.0, 2.5, 4.0, -3.0]) + i / 8,
            "y": choose.choice([0.25, 0.5, 2.0]),
            "target": choose.uniform(-1, 1),
        }
        for i in range(n)
    ]


def test_a_model_per_so_many_records():
    rows = records(100)
    session = TrainLinearRegression(inputs=("x", "y"), size=30, dataset="TAXI").session()
    out = session.push_many(rows)
    assert [r["model"] for r in out] == ["TAXI-MLR-1290.model", "TAXI-MLR-1590.model", "TAXI-MLR-1890.model"]
    assert [(r["start_ms"], r["end_ms"], r["rows"]) for r in out] == [
        (1000, 1290, 30),
        (1300, 1590, 30),
        (1600, 1890, 30),
    ]
    for i, row in enumerate(out):
        part = rows[30 * i : 30 * i + 30]
        model = LinearModel.from_bytes(row["content"])
        wanted = least_squares([(r["x"], r["y"]) for r in part], [r["target"] for r in part])
        assert [model.intercept, *model.coefficients] == pytest.approx(wanted, rel=1e-6)
        assert json.loads(row["metrics"]) == model.metrics
        assert (model.start_ms, model.end_ms, model.rows) == (row["start_ms"], row["end_ms"], row["rows"])
        assert row["event_time"] == part[-1]["event_time"]


def test_models_of_keys_have_names_of_their_own(tmp_path):
    task = TrainLinearRegression(inputs=("x",), size=5, by=("key",), store=str(tmp_path))
    out = task.session().push_many([{**r, "event_time": EPOCH} for r in records(60)])
    names = [r["model"] for r in out]
    assert len(names) == len(set(names)) == len(ModelStore.open(tmp_path).names()) >= 10
    for row in out:
        assert row["model"].startswith("CITY~") and row["model"].split("-")[1] == "MLR"
    of_a = [int(r["model"].rpartition("-")[2].removesuffix(".model")) for r in out if r["key"] == "a"]
    assert of_a == list(range(len(of_a))), "ends at the same time, names one after the other"


def test_a_tree_per_so_many_records_as_scikit_learn_grows_it():
    rows = [{**r, "target": "high" if r["x"] + r["y"] > 4 else "low"} for r in records(40, seed=3)]
    task = TrainDecisionTree(inputs=("x", "y"), size=20, classes=("low", "ü", "high"), seed=7)
    out = task.session().push_many(rows)
    assert [r["kind"] for r in out] == ["DTC", "DTC"]
    for i, row in enumerate(out):
        part = rows[20 * i : 20 * i + 20]
        x = np.array([(r["x"], r["y"]) for r in part])
        theirs = DecisionTreeClassifier(criterion="entropy", min_samples_leaf=2, random_state=7)
        theirs.fit(x, [r["target"] for r in part])
        model = TreeModel.from_bytes(row["content"])
        assert [model.classes[c] for c in model.predict(x)] == theirs.predict(x).tolist()
        np.testing.assert_array_equal(model.leaves(x), theirs.apply(x))


@pytest.mark.parametrize(
    ("options", "leaves"),
    [
        ({"min_leaf": 1}, 4),  # low · high · low · high
        ({}, 2),  # the lone records in the middle cannot be leaves
        ({"min_leaf": 3}, 1),
        ({"min_leaf": 1, "pruning": 10.0}, 1),
        ({"min_leaf": 1, "max_depth": 1}, 2),
    ],
)
def test_options_of_trees_by_hand(options, leaves):
    levels = ["low", "low", "high", "low", "high"]
    rows = [{"event_time": i, "x": float(i), "target": level} for i, level in enumerate(levels)]
    (row,) = TrainDecisionTree(inputs=("x",), size=5, **options).session().push_many(rows)
    assert json.loads(row["metrics"])["leaves"] == leaves
    assert np.unique(TreeModel.from_bytes(row["content"]).leaves(np.arange(5.0)[:, None])).size == leaves


def test_numeric_classes_are_taken_as_text():
    rows = [{"event_time": 5, "x": float(i), "target": float(i > 3)} for i in range(8)]
    out = TrainDecisionTree(inputs=("x",), size=8).session().push_many(rows)
    assert TreeModel.from_bytes(out[0]["content"]).classes == ("0", "1")


def test_a_record_that_holds_a_whole_set():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    record = {"seq": 3, "from": 10, "to": 20, "a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "target": y.tolist()}
    task = TrainLinearRegression(inputs=("a", "b"), size=None, start_field="from", end_field="to")
    out = task.session().push(record)[0]
    assert (out["seq"], out["model"], out["start_ms"], out["rows"]) == (3, "CITY-MLR-20.model", 10, 200)
    assert out["content"] == fit_linear(x, y, ["a", "b"], "target", start_ms=10, end_ms=20).to_bytes()
    labels = {**record, "target": np.where(y > 0, "up", "down").tolist()}
    tree = TrainDecisionTree(inputs=("a", "b"), size=None, start_field="from", end_field="to").session().push(labels)[0]
    assert (tree["model"], tree["rows"], json.loads(tree["metrics"])["accuracy"] > 0.6) == (
        "CITY-DTC-20.model",
        200,
        True,
    )


def test_missing_values_inside_a_set_are_left_out():
    record = {"from": 1, "to": 2, "x": [0.0, 1.0, None, 2.0, 3.0, 4.0], "target": [1.0, 3.0, 5.0, None, np.inf, 9.0]}
    task = TrainLinearRegression(inputs=("x",), size=None, start_field="from", end_field="to")
    out = task.session().push(record)[0]
    model = LinearModel.from_bytes(out["content"])
    assert out["rows"] == 3
    assert [model.intercept, *model.coefficients] == pytest.approx([1.0, 2.0], abs=1e-6)


@pytest.mark.parametrize(
    ("change", "reason", "text"),
    [
        ({"target": [1.0, 1.0, 1.0]}, "untrainable", "constant: 1.0"),
        ({"x": [1.0, 2.0], "target": [1.0, 2.0, 3.0]}, "uneven", "differ in length"),
        ({"x": [1.0], "target": [1.0]}, "untrainable", "the 1 rows up to here: 1 rows are too few"),
        ({"x": [], "target": []}, "untrainable", "0 rows"),
        ({"x": None}, "missing_value", "missing"),
        ({"to": None}, "missing_value", "missing"),
        ({"from": 9}, "untrainable", "start_ms = 9"),
        ({"x": [1e-300, 2e-300, 4e-300], "target": [1e300, -1e300, 7e300]}, "untrainable", "finite"),
    ],
)
def test_sets_that_cannot_be_trained_on(change, reason, text):
    record = {"from": 1, "to": 2, "x": [1.0, 2.0, 4.0], "target": [1.0, 2.0, 3.0], **change}
    session = TrainLinearRegression(inputs=("x",), size=None, start_field="from", end_field="to").session()
    assert session.push(record) == []
    assert [e["reason"] for e in session.errors] == [reason]
    assert text in session.errors[0]["message"]


def test_untrainable_sets_of_records_are_dropped_and_the_next_are_not():
    task = TrainLinearRegression(inputs=("x",), size=3, ridge=0.0)
    session = task.session()
    flat = [{"seq": i, "event_time": 1000 * i, "x": 1.0, "target": float(i)} for i in range(3)]
    good = [{"seq": i, "event_time": 1000 * i, "x": float(i), "target": float(i)} for i in range(3, 6)]
    out = session.push_many(flat + good)
    assert [r["model"] for r in out] == ["CITY-MLR-5.model"]
    assert [(e["seq"], e["reason"]) for e in session.errors] == [(2, "untrainable")]
    assert "depend on each other" in session.errors[0]["message"]


def test_unknown_classes_are_rejected_one_by_one():
    session = TrainDecisionTree(inputs=("x",), size=2, classes=("a", "b")).session()
    rows = [{"event_time": i, "x": float(i), "target": label} for i, label in enumerate(["a", "c", None, "b"])]
    assert len(session.push_many(rows)) == 1
    assert [e["reason"] for e in session.errors] == ["unknown_class", "missing_value"]
    sets = TrainDecisionTree(inputs=("x",), size=None, classes=("a", "b")).session()
    sets.push({"event_time": 1, "x": [1.0, 2.0], "target": ["a", "c"]})
    assert [e["reason"] for e in sets.errors] == ["untrainable"]


def test_the_store_gets_the_models_and_a_replay_changes_nothing(tmp_path):
    rows = records(30)
    task = TrainLinearRegression(inputs=("x",), size=10, store=str(tmp_path / "models"))
    first, again = task.session(), task.session()
    out = first.push_many(rows)
    assert again.push_many(rows) == out and not again.errors
    store = ModelStore.open(tmp_path / "models")
    assert store.names() == [r["model"] for r in reversed(out)]
    assert store.load(out[0]["model"]).to_bytes() == out[0]["content"]
    other = TrainLinearRegression(inputs=("x",), size=10, ridge=5.0, store=str(tmp_path / "models")).session()
    assert other.push_many(rows) == []
    assert {e["reason"] for e in other.errors} == {"name_taken"}


def test_what_is_trained_predicts(tmp_path):
    # trained models as updates of the predictions of the same stream
    task = TrainLinearRegression(inputs=("x",), size=50, store=str(tmp_path))
    rows = [{"event_time": i, "x": float(i % 7), "target": 3.0 * (i % 7) + 1} for i in range(50)]
    name = task.session().push_many(rows)[0]["model"]
    predict = PredictLinearRegression(inputs=("x",), store=str(tmp_path), updates="model").session()
    predict.push({"x": None, "model": name})
    assert predict.push({"x": 10.0})[0]["prediction"] == pytest.approx(31.0)
    trees = TrainDecisionTree(inputs=("x",), size=50, store=str(tmp_path))
    name = trees.session().push_many([{**r, "target": "big" if r["x"] > 3 else "small"} for r in rows])[0]["model"]
    classify = ClassifyDecisionTree(inputs=("x",), store=str(tmp_path), model=name).session()
    assert [classify.push({"x": x})[0]["class"] for x in (3.0, 4.0)] == ["small", "big"]


def test_the_clean_rows_of_the_taxi_stream(shared_data):
    inputs = ("trip_time_in_secs", "trip_distance")
    flow = ro.Dataflow("train")
    rows = flow.source("taxi") >> ro.tasks.ParseSenML(schema="taxi", layout="wide")
    # no trip without time or distance, and not the flat fare to the airport
    clean = rows >> ro.filter(lambda r: r["trip_time_in_secs"] * r["trip_distance"] != 0 and r["fare_amount"] != 52)
    train = TrainLinearRegression(inputs=inputs, target_field="fare_amount", size=945, dataset="TAXI")
    flow.sink("out", clean.to(train, id="train"))
    path = shared_data / "riotbench" / "TAXI_sample_data_senml.csv"
    (row,) = flow.run(ro.streams.replay(path))["train"].to_pylist()
    model = LinearModel.from_bytes(row["content"])
    assert [model.intercept, *model.coefficients] == pytest.approx([2.026, 0.004777, 2.1601], rel=3e-4)
    assert model.metrics["rmse"] == pytest.approx(0.88, abs=0.005)


@pytest.mark.spark
def test_spark_trains_the_same_models(spark, tmp_path):
    task = TrainLinearRegression(inputs=("x", "y"), size=9, by=("key",), store=str(tmp_path))
    table = pa.Table.from_pylist(records(80))
    flow = ro.Dataflow("train")
    schema = {f.name: f.type for f in table.schema}
    flow.sink("out", flow.source("in", schema=schema).to(task, id="train"))
    query = flow.start(spark, table, max_records=25)
    query.wait(timeout_s=120)
    assert not query.active
    local = flow.run(table)
    assert sorted(map(exact, query["train"].to_pylist())) == sorted(map(exact, local["train"].to_pylist()))
    assert local["train"].num_rows > 5 and not local["errors"].num_rows


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"inputs": ()}, "needs inputs"),
        ({"inputs": ("x", "target")}, "'target' is among the inputs"),
        ({"dataset": "a/b"}, "dataset = 'a/b'"),
        ({"dataset": "a-b"}, "dataset = 'a-b'"),
        ({"by": ("model",)}, "writes the field 'model'"),
        ({"size": 1}, "size must be more than"),
        ({"size": 0}, "size"),
        ({"ridge": -1.0}, "ridge"),
        ({"store": "s3://x"}, "store"),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, text):
    with pytest.raises(ConfigError, match=text):
        TrainLinearRegression(**{"inputs": ("x",), **wrong})


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"classes": ("a", "a")}, {"criterion": "log"}, {"max_depth": 0}])
def test_wrong_parameters_of_trees_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        TrainDecisionTree(inputs=("x",), **wrong)


@pytest.mark.parametrize(
    ("size", "kinds", "text"),
    [
        (None, {"x": pa.float64()}, "lists of numbers in the field 'x'"),
        (None, {"target": pa.list_(pa.string())}, "lists of numbers in the field 'target'"),
        (None, {"x": pa.list_(pa.list_(pa.float64()))}, "lists of numbers in the field 'x'"),
        (None, {"event_time": pa.string()}, "times or milliseconds"),
        (9, {"event_time": pa.float64()}, "times or milliseconds"),
        (9, {"target": pa.string()}, "number in the field 'target'"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(size, kinds, text):
    item = pa.float64() if size else pa.list_(pa.float64())
    schema = pa.schema({"event_time": pa.int64(), "x": item, "target": item, **kinds}.items())
    with pytest.raises(ConfigError, match=text):
        TrainLinearRegression(inputs=("x",), size=size).output_schema(schema)


def test_labels_of_single_records_are_no_lists():
    schema = pa.schema({"event_time": pa.int64(), "x": pa.float64(), "target": pa.list_(pa.string())}.items())
    with pytest.raises(ConfigError, match=r"a value in the field 'target', got list<.*>; size=None takes lists"):
        TrainDecisionTree(inputs=("x",), size=9).output_schema(schema)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_span_in_any_unit_of_time(unit):
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = {name: pa.array([at * factor for at in seconds], pa.timestamp(unit, "UTC"))
             for name, seconds in (("from", [7, 5, 6]), ("to", [17, 19, 18]))}  # fmt: skip
    batch = pa.RecordBatch.from_pydict({**times, "x": [1.0, 2.0, 4.0], "target": [1.0, 3.0, 5.0]})
    task = TrainLinearRegression(inputs=("x",), size=3, start_field="from", end_field="to")
    (row,) = task.session().push_batch(batch).to_pylist()
    assert (row["start_ms"], row["end_ms"], row["model"]) == (5000, 19000, "CITY-MLR-19000.model")


def test_inputs_that_add_nothing_may_be_left_out():
    rows = [
        {"x": float(i % 7), "z": float(i * i % 5), "y": 3.0 * (i % 7) + (-1) ** i, "event_time": i} for i in range(70)
    ]
    found = {}
    for selection in ("none", "m5"):
        task = TrainLinearRegression(inputs=("x", "z"), target_field="y", size=70, selection=selection)
        found[selection] = LinearModel.from_bytes(task.session().push_many(rows)[0]["content"]).coefficients
    assert found["none"][1] != 0.0 and found["m5"][1] == 0.0
    assert found["m5"][0] == pytest.approx(3.0, abs=0.05)
