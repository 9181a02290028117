"""Sets, names, stores and errors of the training tasks."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import ConfigError
from riot_ops.models import LinearModel, ModelStore, fit_linear
from riot_ops.tasks import Classify, PredictLinearRegression, TrainDecisionTree, TrainLinearRegression
from riot_ops.testing import exact
from tests.reference.linear_regression import least_squares
from tests.tasks.predict.training_records import EPOCH, records


def test_model_per_size_records():
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


def test_models_of_each_key_have_own_names(tmp_path):
    task = TrainLinearRegression(inputs=("x",), size=5, by=("key",), store=str(tmp_path))
    out = task.session().push_many([{**r, "event_time": EPOCH} for r in records(60)])
    names = [r["model"] for r in out]
    assert len(names) == len(set(names)) == len(ModelStore.open(tmp_path).names()) >= 10
    for row in out:
        assert row["model"].startswith("CITY~") and row["model"].split("-")[1] == "MLR"
    of_a = [int(r["model"].rpartition("-")[2].removesuffix(".model")) for r in out if r["key"] == "a"]
    assert of_a == list(range(len(of_a))), "ends at the same time, names one after the other"


def test_record_may_hold_a_whole_training_set():
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


def test_missing_values_inside_a_set_are_skipped():
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
        ({"x": [1.0], "target": [1.0]}, "untrainable", "the 1 rows of this set: 1 rows are too few"),
        ({"x": [], "target": []}, "untrainable", "0 rows"),
        ({"x": None}, "missing_value", "missing"),
        ({"to": None}, "missing_value", "missing"),
        ({"from": 9}, "untrainable", "start_ms = 9"),
        ({"x": [1e-300, 2e-300, 4e-300], "target": [1e300, -1e300, 7e300]}, "untrainable", "finite"),
    ],
)
def test_untrainable_sets_are_rejected(change, reason, text):
    record = {"from": 1, "to": 2, "x": [1.0, 2.0, 4.0], "target": [1.0, 2.0, 3.0], **change}
    session = TrainLinearRegression(inputs=("x",), size=None, start_field="from", end_field="to").session()
    assert session.push(record) == []
    assert [e["reason"] for e in session.errors] == [reason]
    assert text in session.errors[0]["message"]


def test_untrainable_sets_of_records_are_dropped_and_the_next_are_not():
    task = TrainLinearRegression(inputs=("x",), size=3, alpha=0.0)
    session = task.session()
    flat = [{"seq": i, "event_time": 1000 * i, "x": 1.0, "target": float(i)} for i in range(3)]
    good = [{"seq": i, "event_time": 1000 * i, "x": float(i), "target": float(i)} for i in range(3, 6)]
    out = session.push_many(flat + good)
    assert [r["model"] for r in out] == ["CITY-MLR-5.model"]
    assert [(e["seq"], e["reason"]) for e in session.errors] == [(2, "untrainable")]
    assert "depend on each other" in session.errors[0]["message"]


def test_replay_leaves_the_store_unchanged(tmp_path):
    rows = records(30)
    task = TrainLinearRegression(inputs=("x",), size=10, store=str(tmp_path / "models"))
    first, again = task.session(), task.session()
    out = first.push_many(rows)
    assert again.push_many(rows) == out and not again.errors
    store = ModelStore.open(tmp_path / "models")
    assert store.names() == [r["model"] for r in reversed(out)]
    assert store.load(out[0]["model"]).to_bytes() == out[0]["content"]
    other = TrainLinearRegression(inputs=("x",), size=10, alpha=5.0, store=str(tmp_path / "models")).session()
    assert other.push_many(rows) == []
    assert {e["reason"] for e in other.errors} == {"name_taken"}


def test_trained_models_predict(tmp_path):
    # trained models as updates of the predictions of the same stream
    task = TrainLinearRegression(inputs=("x",), size=50, store=str(tmp_path))
    rows = [{"event_time": i, "x": float(i % 7), "target": 3.0 * (i % 7) + 1} for i in range(50)]
    name = task.session().push_many(rows)[0]["model"]
    predict = PredictLinearRegression(inputs=("x",), store=str(tmp_path), updates="model").session()
    predict.push({"x": None, "model": name})
    assert predict.push({"x": 10.0})[0]["prediction"] == pytest.approx(31.0)
    trees = TrainDecisionTree(inputs=("x",), size=50, store=str(tmp_path))
    name = trees.session().push_many([{**r, "target": "big" if r["x"] > 3 else "small"} for r in rows])[0]["model"]
    classify = Classify(inputs=("x",), store=str(tmp_path), model=name).session()
    assert [classify.push({"x": x})[0]["class"] for x in (3.0, 4.0)] == ["small", "big"]


@pytest.mark.spark
def test_spark_trains_the_same_models(spark, tmp_path):
    task = TrainLinearRegression(inputs=("x", "y"), size=9, by=("key",), store=str(tmp_path))
    table = pa.Table.from_pylist(records(80))
    flow = ro.Dataflow("train")
    schema = {f.name: f.type for f in table.schema}
    flow.sink("out", flow.source("in", schema=schema).to(task, id="train"))
    query = flow.start(spark, table, max_records=25)
    query.wait(timeout="2min")
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
        ({"alpha": -1.0}, "alpha"),
        ({"store": "s3://x"}, "store"),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, text):
    with pytest.raises(ConfigError, match=text):
        TrainLinearRegression(**{"inputs": ("x",), **wrong})


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
def test_unsuitable_inputs_are_refused(size, kinds, text):
    item = pa.float64() if size else pa.list_(pa.float64())
    schema = pa.schema({"event_time": pa.int64(), "x": item, "target": item, **kinds}.items())
    with pytest.raises(ConfigError, match=text):
        TrainLinearRegression(inputs=("x",), size=size).output_schema(schema)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_span_in_any_unit_of_time(unit):
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = {name: pa.array([at * factor for at in seconds], pa.timestamp(unit, "UTC"))
             for name, seconds in (("from", [7, 5, 6]), ("to", [17, 19, 18]))}  # fmt: skip
    batch = pa.RecordBatch.from_pydict({**times, "x": [1.0, 2.0, 4.0], "target": [1.0, 3.0, 5.0]})
    task = TrainLinearRegression(inputs=("x",), size=3, start_field="from", end_field="to")
    (row,) = task.session().push_batch(batch).to_pylist()
    assert (row["start_ms"], row["end_ms"], row["model"]) == (5000, 19000, "CITY-MLR-19000.model")
