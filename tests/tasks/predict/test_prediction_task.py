"""Models replaced while the stream runs: at the exact record, in any batches, after a restart, and on Spark."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import ConfigError, ModelError
from riot_ops import tasks as t
from riot_ops.models import LinearModel, ModelStore, TreeModel
from riot_ops.task import Case
from riot_ops.testing import CHECKS, exact
from tests.reference.prediction import Switching
from tests.simulated_query import SimulatedQuery

INPUTS = ("x", "y")
SCHEMA = pa.schema([("key", pa.string()), ("x", pa.float64()), ("y", pa.float64()), ("model", pa.string())])
FILES = [f"CITY-MLR-{i}.model" for i in range(3)]
TREES = [f"CITY-DTC-{i}.model" for i in range(3)]
BAD = [
    "CITY-MLR-9.model",
    "CITY-MLR-77.model",
    "CITY-MLR-88.model",
    "CITY-MLR-99.model",
    "../../etc/passwd",
    "",
    "ü",
    '{"kind"',
]


def line(number):
    return lambda x, y: number + x + 2 * y


def tree(number):
    return lambda x, y: f"class {number if x <= number else 'ü'}"


def tree_model(number):
    return TreeModel(
        inputs=INPUTS,
        target="z",
        classes=(f"class {number}", "class ü"),
        left=(1, -1, -1),
        right=(2, -1, -1),
        feature=(0, 0, 0),
        threshold=(float(number), 0.0, 0.0),
        value=((0.5, 0.5), (1.0, 0.0), (0.0, 1.0)),
        end_ms=number,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Store three models of each kind, one with other inputs and a damaged one."""
    folder = tmp_path_factory.mktemp("models")
    store = ModelStore.open(folder)
    for i in range(3):
        store.save(
            LinearModel(inputs=INPUTS, target="z", intercept=float(i), coefficients=(1.0, 2.0), end_ms=i), "CITY"
        )
        store.save(tree_model(i), "CITY")
    other = LinearModel(inputs=("x", "z"), target="y", intercept=0.0, coefficients=(1.0, 2.0), end_ms=77)
    store.save(other, "CITY")
    (folder / "CITY-MLR-88.model").write_bytes(other.to_bytes()[:50])
    (folder / "CITY-MLR-99.model").write_bytes(tree_model(0).to_bytes())
    return str(folder)


def mixed(choose, n, *, names=FILES, bad=BAD, keys="ab"):
    """Generate observations and updates, good and bad."""
    rows = []
    for _ in range(n):
        row = {"key": choose.choice(keys), "x": choose.choice([1.0, 2.5, -3.0, 0.0]), "y": choose.choice([0.25, 4.0])}
        if choose.random() < 0.15:
            row[choose.choice(INPUTS)] = choose.choice([None, math.nan])
        if choose.random() < 0.3:
            row["model"] = choose.choice([*names, *names, *bad])
        rows.append({**dict.fromkeys(SCHEMA.names), **row})
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def expected(batch, models, initial=None, key=None):
    """Return predictions and error reasons in order."""
    switch = Switching(models, initial)
    rows, errors = [], []
    for row in batch.to_pylist():
        found = switch.push(row["key"] if key else None, row["model"], (row["x"], row["y"]))
        if found in ("bad_model", "no_model"):
            errors.append(found)
        elif found != "update":
            rows.append(found)
    return rows, errors


LINES = {name: line(i) for i, name in enumerate(FILES)}


@given(st.integers(0, 2**32), st.lists(st.integers(0, 40), max_size=5), st.booleans(), st.booleans())
def test_every_split_switches_at_the_same_record(store, seed, cuts, with_initial, by_key):
    batch = mixed(random.Random(seed), 40)
    task = t.PredictLinearRegression(
        inputs=INPUTS,
        model=FILES[0] if with_initial else None,
        store=store,
        updates="model",
        by=("key",) if by_key else (),
    )
    session, rows, reasons = task.session(), [], []
    edges = sorted({0, 40, *cuts})
    for a, b in itertools.pairwise(edges):
        rows += session.push_batch(batch.slice(a, b - a)).column("prediction").to_pylist()
        reasons += [e["reason"] for e in session.errors]
        data = session.snapshot()
        session = task.session()
        session.restore(data)
    wanted, errors = expected(batch, LINES, FILES[0] if with_initial else None, by_key)
    assert rows == wanted
    assert sorted(reasons) == sorted(errors)


def test_tree_with_other_classes_is_adopted(store):
    batch = mixed(random.Random(5), 60, names=TREES, bad=["CITY-DTC-77.model", "ü"])
    task = t.Classify(inputs=INPUTS, store=store, updates="model", probabilities=True)
    session = task.session()
    out = session.push_batch(batch)
    # y decides nothing, so it may be missing
    batch = batch.set_column(2, "y", pa.array([0.0] * 60))
    wanted, errors = expected(batch, {name: tree(i) for i, name in enumerate(TREES)})
    assert out.column("class").to_pylist() == wanted
    assert sorted(e["reason"] for e in session.errors) == sorted(errors)
    for row in out.to_pylist():
        if row["class"] is None:
            assert row["class_index"] is None and row["class_probabilities"] is None
        else:
            assert row["class_index"] == (row["class"] == "class ü")
            assert row["class_probabilities"] == ([0.0, 1.0] if row["class_index"] else [1.0, 0.0])


def test_tree_with_other_labels_than_the_configured_is_refused(store):
    task = t.Classify(inputs=INPUTS, store=store, updates="model", model=TREES[1], classes=("class 1", "class ü"))
    session = task.session()
    assert session.push({"x": 1.0, "y": 0.0, "model": TREES[2]}) == []
    assert session.errors[0]["reason"] == "bad_model" and "class 2" in session.errors[0]["message"]
    assert session.push({"x": 1.0, "y": 0.0})[0]["class"] == "class 1"


def test_bad_updates_are_errors_with_a_reason(store):
    task = t.PredictLinearRegression(inputs=INPUTS, store=store, updates="model", model=FILES[1])
    session = task.session()
    for name in BAD:
        assert session.push({"x": 1.0, "y": 1.0, "model": name}) == []
    assert {e["reason"] for e in session.errors} == {"bad_model"}
    messages = dict(zip(BAD, (e["message"] for e in session.errors), strict=True))
    assert "has no blob" in messages["CITY-MLR-9.model"]
    assert "reads x, z" in messages["CITY-MLR-77.model"]
    assert "damaged" in messages["CITY-MLR-88.model"]
    assert "of kind DTC" in messages["CITY-MLR-99.model"]
    assert "not the name of a model" in messages["../../etc/passwd"]
    assert session.push({"x": 1.0, "y": 1.0})[0]["prediction"] == 4.0, "the old one stays"


def test_names_may_be_binary(store):
    task = t.PredictLinearRegression(inputs=INPUTS, store=store, updates="model")
    batch = pa.RecordBatch.from_pydict(
        {"x": [0.0] * 3, "y": [0.0] * 3, "model": pa.array([FILES[2].encode(), b"\xff-MLR-1.model", None])}
    )
    session = task.session()
    assert session.push_batch(batch).column("prediction").to_pylist() == [2.0]
    assert [e["reason"] for e in session.errors] == ["bad_model"]


def test_missing_model_after_a_restart_stops_the_run(tmp_path):
    store = ModelStore.open(tmp_path)
    name = store.save(LinearModel(inputs=("x",), target="y", intercept=9.0, coefficients=(1.0,)), "CITY")
    task = t.PredictLinearRegression(inputs=("x",), store=str(tmp_path), updates="model")
    session = task.session()
    session.push({"x": 1.0, "model": name})
    data = session.snapshot()
    (tmp_path / name).rename(tmp_path / "elsewhere")
    ro.models.stored_model.cache_clear()  # as in another process
    again = task.session()
    again.restore(data)
    with pytest.raises(ModelError, match=r"CITY-MLR-0\.model cannot be read"):
        again.push({"x": 1.0})


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("kind", [t.PredictLinearRegression, t.Classify])
def test_contract_holds_with_updates(store, kind, check):
    names = FILES if kind is t.PredictLinearRegression else TREES
    batch = mixed(random.Random(11), 24, names=names, bad=["ü", names[0]])
    for by in ((), ("key",)):
        task = kind(inputs=INPUTS, store=store, updates="model", by=by, model=names[1] if by else None)
        check(Case(task, batch))


# -- in dataflows ----------------------------------------------------------------------------------


def swap(store, parallelism):
    """Distribute observations round-robin over the instances, and broadcast updates."""
    flow = ro.Dataflow("swap")
    source = flow.source("in", schema=SCHEMA)
    updates = source.to(ro.filter(lambda row: row["model"] is not None, label="updates"), id="updates")
    readings = source.to(ro.filter(lambda row: row["model"] is None, label="readings"), id="readings")
    mlr = flow.add(
        t.PredictLinearRegression(inputs=INPUTS, store=store, updates="model"),
        readings.shuffle(parallelism),
        updates.broadcast(parallelism),
        id="mlr",
    )
    flow.sink("out", mlr)
    return flow


def predictions(result):
    return {row["seq"]: row["prediction"] for row in result["mlr"].to_pylist()}


def by_seq(batch):
    switch, found = Switching(LINES), {}
    for seq, row in enumerate(batch.to_pylist()):
        value = switch.push(None, row["model"], (row["x"], row["y"]))
        if value not in ("update", "bad_model", "no_model"):
            found[seq] = value
    return found


def test_update_of_another_kind_is_ignored(store):
    session = t.PredictLinearRegression(inputs=INPUTS, store=store, model=FILES[1], updates="model").session()
    row = {"key": "a", "x": 1.0, "y": 1.0, "model": None}
    assert session.push({**row, "model": TREES[0]}) == []
    assert session.push(row)[0]["prediction"] == line(1)(1.0, 1.0)
    assert session.errors == []


def test_result_names_its_model(store):
    task = t.PredictLinearRegression(
        inputs=INPUTS, store=store, model=FILES[2], updates="model", by=("key",), model_field="used"
    )
    rows = task.session().push_batch(mixed(random.Random(2), 90)).to_pylist()
    assert {row["used"] for row in rows} == set(FILES)
    for row in rows:
        if row["prediction"] is not None:
            assert row["prediction"] == LINES[row["used"]](row["x"], row["y"])


def test_inline_model_has_no_name():
    task = t.Classify(inputs=INPUTS, model=tree_model(1).to_json(), model_field="used")
    assert task.session().push({"x": 1.0, "y": 1.0})[0] == {
        "x": 1.0,
        "y": 1.0,
        "class": "class 1",
        "class_index": 0,
        "used": None,
    }


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_all_instances_switch_at_the_update(store, parallelism, batch_size):
    batch = mixed(random.Random(1), 90)
    result = swap(store, parallelism).run(pa.Table.from_batches([batch]), batch_size=batch_size)
    assert predictions(result) == by_seq(batch)
    bad = [r for r in batch.column("model").to_pylist() if r in BAD]
    reasons = [e["reason"] for e in result["errors"].to_pylist()]
    assert reasons.count("bad_model") == parallelism * len(bad), "each instance refuses it"


def test_edges_into_one_task_need_the_same_number_of_instances(store):
    flow = ro.Dataflow("uneven")
    source = flow.source("in", schema=SCHEMA)
    same = source.to(t.Project(fields=("x", "y", "model")), id="same")
    task = t.PredictLinearRegression(inputs=INPUTS, store=store, updates="model")
    other = flow.add(task, source.shuffle(2), same.broadcast(3), id="mlr")
    flow.sink("out", other)
    with pytest.raises(ConfigError, match="over the same number of instances"):
        flow.validate()


def same_as_in_process(found, batch, flow):
    assert predictions(found) == by_seq(batch)
    local = flow.run(pa.Table.from_batches([batch]))
    for result in (found, local):
        assert result["mlr"].num_rows and result["errors"].num_rows
    assert sorted(map(exact, found["mlr"].to_pylist())) == sorted(map(exact, local["mlr"].to_pylist()))
    # the order of a rejected record's fields depends on the first block
    errors = (
        [row | {"raw": sorted(json.loads(row["raw"]).items())} for row in r["errors"].to_pylist()]
        for r in (found, local)
    )
    assert Counter(map(repr, next(errors))) == Counter(map(repr, next(errors)))


@pytest.mark.parametrize("size", [7, 25, 1000])
def test_stages_switch_at_the_same_place(store, size):
    batch, flow = mixed(random.Random(2), 60), swap(store, 2)
    same_as_in_process(
        SimulatedQuery(flow, pa.Table.from_batches([batch]), random.Random(size), max_records=size), batch, flow
    )


@pytest.mark.spark
def test_spark_switches_at_the_same_place(spark, store):
    batch, flow = mixed(random.Random(2), 60), swap(store, 2)
    query = flow.start(spark, pa.Table.from_batches([batch]), max_records=30)
    query.wait(timeout="4min")
    assert not query.active
    same_as_in_process(query, batch, flow)


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"inputs": ()}, "needs inputs"),
        ({"inputs": ("x", "x")}, "needs inputs"),
        ({"model": None}, "needs a model"),
        ({"updates": "model"}, "needs a store"),
        ({"output": None}, "output = None"),
        ({"output": "x"}, "'x', which it also reads"),
        ({"model_field": "x"}, "'x', which it also reads"),
        ({"model_field": "prediction"}, "the name of a result"),
        ({"store": "ftp://host/x"}, "store"),
        ({"store": ""}, "store must be"),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, text):
    good = {"inputs": ("x",), "model": "y.model"}
    with pytest.raises(ConfigError, match=text):
        t.PredictLinearRegression(**{**good, **wrong})


def test_wrong_initial_models_are_refused():
    model = tree_model(1)
    with pytest.raises(ModelError, match="is of kind DTC, predict_linear_regression needs MLR"):
        t.PredictLinearRegression(inputs=INPUTS, model=model.to_json())
    with pytest.raises(ModelError, match="inputs here are x"):
        t.Classify(inputs=("x",), model=model.to_json())
    with pytest.raises(ModelError, match="damaged"):
        t.Classify(inputs=("x",), model="{}")
    missing = t.Classify(inputs=("x",), model="no/such.model").session()
    with pytest.raises(ModelError, match=r"no/such\.model cannot be read"):
        missing.push({"x": 1.0})


def test_model_from_a_file_of_any_name(tmp_path):
    path = tmp_path / "my model.json"
    path.write_bytes(tree_model(1).to_bytes())
    task = t.Classify(inputs=INPUTS, model=str(path))
    assert task.session().push({"x": 0.0, "y": 0.0})[0]["class_index"] == 0


@pytest.mark.parametrize("options", [{}, {"ttl": "1h"}, {"by": ("y",), "ttl": "1h"}], ids=str)
@pytest.mark.parametrize("cores", [1, 2])
def test_file_replaced_during_a_run_counts_from_the_next(tmp_path, cores, options):
    path = tmp_path / "begun.model"
    flow = ro.Dataflow("replaced")
    task = t.PredictLinearRegression(inputs=INPUTS, model=str(path), **options)
    schema = pa.schema({"x": "double", "y": "double", "event_time": pa.timestamp("us", "UTC")})
    flow.sink("out", flow.source("in", schema=schema).to(task, id="line"))

    def run(batch_size):
        made = [LinearModel(inputs=INPUTS, target="z", intercept=i, coefficients=(0.0, 0.0)) for i in (0.0, 1.0)]
        path.write_bytes(made[0].to_bytes())
        rows = [{"x": float(i), "y": 0.0, "event_time": datetime(2024, 5, 1, i % 24, tzinfo=UTC)} for i in range(100)]
        steps = {"batch_size": batch_size, "epoch_rows": batch_size, "cores": cores}
        result = flow.run(rows, progress=lambda _: path.write_bytes(made[1].to_bytes()), **steps)
        assert result.summary.batches == 100 // batch_size
        return result["line"]["prediction"].to_pylist()

    assert run(2) == run(100) == [0.0] * 100
    path.write_bytes(LinearModel(inputs=INPUTS, target="z", intercept=7.0, coefficients=(0.0, 0.0)).to_bytes())
    last = {"x": 1.0, "y": 0.0, "event_time": None}
    assert flow.run([last])["line"]["prediction"].to_pylist() == [7.0]


@pytest.mark.parametrize("options", [{}, {"by": ("y",), "ttl": "1h"}], ids=str)
def test_file_replaced_during_a_session_counts_from_the_next(tmp_path, options):
    path, row = tmp_path / "begun.model", {"x": 1.0, "y": 0.0, "event_time": None}
    task = t.PredictLinearRegression(inputs=INPUTS, model=str(path), **options)
    sessions = []
    for i in (0.0, 1.0):
        made = LinearModel(inputs=INPUTS, target="z", intercept=i, coefficients=(0.0, 0.0))
        path.write_bytes(made.to_bytes())
        sessions.append(task.session())
        assert [session.push(row)[0]["prediction"] for session in sessions] == [0.0, 1.0][: len(sessions)]
        sessions[-1].restore(sessions[-1].snapshot())
    assert [session.push(row)[0]["prediction"] for session in sessions] == [0.0, 1.0]


def test_large_batch_with_many_versions(store):
    n = 20_000
    choose = np.random.default_rng(0)
    names = pa.array(FILES).take(pa.array(choose.integers(0, 3, n), mask=choose.random(n) > 0.05))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a"] * n), pa.array(choose.normal(size=n)), pa.array(choose.normal(size=n)), names], schema=SCHEMA
    )
    task = t.PredictLinearRegression(inputs=INPUTS, store=store, updates="model")
    session = task.session()
    got = session.push_batch(batch).column("prediction").to_pylist()
    assert got == pytest.approx(expected(batch, LINES)[0], rel=1e-12)
