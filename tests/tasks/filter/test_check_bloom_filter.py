"""Bloom filter check, its variant over several fields, and training."""

from __future__ import annotations

import json
import os
import pickle

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops import Secret
from riot_ops.core.errors import ConfigError
from riot_ops.sketches.bloom import BloomFilter
from riot_ops.task import Task
from riot_ops.tasks.filter.check_bloom_filter import CheckBloomFilter
from riot_ops.tasks.filter.train_bloom_filter import TrainBloomFilter
from tests.reference.check_bloom_filter import Bloom
from tests.reference.splits import KEYS, run
from tests.search import depth

IDS = st.one_of(st.none(), st.sampled_from(["a", "b", "", "ü", "c" * 20]), st.text(max_size=3))
CUTS = st.lists(st.integers(0, 30), max_size=3)


def batch_of(ids, kinds=None):
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(ids)), pa.int64()),
            "sensor_id": pa.array(ids, pa.string()),
            "kind": pa.array(kinds or ["x"] * len(ids), pa.string()),
            "value": pa.array([float(i) for i in range(len(ids))], pa.float64()),
        }
    )


@settings(deadline=None, max_examples=depth(60))
@given(st.lists(IDS, max_size=30), st.sampled_from(["drop", "null", "flag"]), CUTS)
def test_check_equals_the_reference(ids, on_error, cuts):
    members = ("a", "", "ü")
    known = Bloom(3, 0.2)
    for member in members:
        known.add(member)
    expected = []
    for row in batch_of(ids).to_pylist():
        passed = known.contains(row["sensor_id"])
        if on_error == "flag":
            expected.append({**row, "maybe_present": passed})
        elif passed:
            expected.append(row)
        elif on_error == "null":
            expected.append({**row, "value": None})
    task = CheckBloomFilter(models={"sensor_id": members}, error=0.2, on_error=on_error)
    assert run(task, batch_of(ids), cuts) == (expected, [])


@settings(deadline=None, max_examples=depth(60))
@given(st.lists(st.tuples(IDS, KEYS), max_size=30), st.sampled_from(["drop", "null", "flag"]), st.booleans())
def test_check_of_several_fields_equals_the_reference(events, on_error, own):
    models = {"sensor_id": ["a", "b"], "kind": ["a", "ü"]}
    known = {}
    for field in ("sensor_id", "kind"):
        known[field] = Bloom(2, 0.01)
        for member in models[field]:
            known[field].add(member)
    batch = batch_of([i for i, _ in events], [k for _, k in events])
    expected = []
    for row in batch.to_pylist():
        bad = [field for field in known if not known[field].contains(row[field])]
        if on_error == "flag":
            expected.append({**row, "known": not bad})
        elif not bad:
            expected.append(row)
        elif on_error == "null":
            expected.append({**row, **dict.fromkeys(bad if own else ["value"])})
    task = CheckBloomFilter(models=models, on_error=on_error, value=None if own else "value", output="known")
    assert run(task, batch) == (expected, [])


def test_check_of_an_absent_field_is_refused():
    task = CheckBloomFilter(models={"sensor_id": ["a"], "nowhere": ["a"]})
    with pytest.raises(ConfigError, match="nowhere"):
        task.output_schema(batch_of([]).schema)


@settings(deadline=None, max_examples=depth(60))
@given(st.lists(st.tuples(IDS, KEYS), max_size=30), st.booleans(), CUTS)
def test_training_equals_the_reference(events, keyed, cuts):
    filters: dict = {}
    for value, key in events:
        filters.setdefault(key if keyed else None, Bloom(8, 0.05)).add(value)
    task = TrainBloomFilter(capacity=8, error=0.05, by=("kind",) if keyed else ())
    out, errors = run_train(task, batch_of([v for v, _ in events], [k for _, k in events]), cuts)
    assert errors == []
    assert [(row.get("kind"), row["count"]) for row in out] == [(k, f.count) for k, f in filters.items()]
    for row, naive in zip(out, filters.values(), strict=True):
        made = BloomFilter.from_bytes(row["model"])
        assert (made.words.tolist(), made.count) == (naive.words(), naive.count)


def test_training_reads_the_named_field():
    session = TrainBloomFilter(capacity=5, field="taxi").session()
    session.push_many([{"taxi": "t1", "sensor_id": "s1"}, {"taxi": "t2", "sensor_id": "s1"}])
    naive = Bloom(5, 0.01)
    naive.add("t1")
    naive.add("t2")
    assert BloomFilter.from_bytes(session.flush()[0]["model"]).words.tolist() == naive.words()


def run_train(task, batch, cuts):
    if batch.num_rows == 0:
        return [], []
    return run(task, batch, cuts)


def test_training_inserts_only_the_value():
    session = TrainBloomFilter(capacity=1000).session()
    session.push({"sensor_id": "s1", "value": float("inf")})
    made = BloomFilter.from_bytes(session.flush()[0]["model"])
    assert made == BloomFilter.from_bytes(made.to_bytes())
    assert int(sum(int(w).bit_count() for w in made.words)) <= made.k
    assert session.errors == []


def test_model_file_is_reloaded_when_it_changes(tmp_path):
    path = tmp_path / "ids.bloom"
    BloomFilter.of(["a"]).save(path)
    session = CheckBloomFilter(models={"sensor_id": str(path)}).session()
    assert [len(session.push({"sensor_id": s})) for s in "ab"] == [1, 0]
    BloomFilter.of(["b"]).save(path)
    os.utime(path, ns=(1, 1))
    assert [len(session.push({"sensor_id": s})) for s in "ab"] == [0, 1]
    path.unlink()
    with pytest.raises(ConfigError, match=r"ids\.bloom"):
        session.push({"sensor_id": "a"})


@pytest.mark.parametrize(
    "make",
    [
        lambda: CheckBloomFilter(models={}),
        lambda: CheckBloomFilter(models={"a": ["a"]}, error=1.0),
        lambda: CheckBloomFilter(models={"a": [1]}),
        lambda: CheckBloomFilter(models={"a": ["a"]}, on_error="keep"),
        lambda: CheckBloomFilter(models={"a": 3}),
        lambda: CheckBloomFilter(models=[("a", "p"), ("a", "q")]),
        lambda: CheckBloomFilter(models="ab"),
        lambda: TrainBloomFilter(by=("model",)),
        lambda: TrainBloomFilter(capacity=0),
    ],
)
def test_wrong_parameters_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_nested_fields_are_refused():
    schema = pa.schema([("sensor_id", pa.list_(pa.string()))])
    for task in (CheckBloomFilter(models={"sensor_id": ["a"]}), TrainBloomFilter()):
        with pytest.raises(ConfigError, match=r"needs a key|text or numbers"):
            task.output_schema(schema)


@pytest.mark.parametrize(
    "task",
    [
        CheckBloomFilter(models={"sensor_id": ["a", "ü"]}, on_error="flag"),
        CheckBloomFilter(models={"b": ["x"], "a": "path"}),
        TrainBloomFilter(capacity=5, by=("kind",)),
    ],
)
def test_descriptor_restores_the_task(task):
    assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
    assert hash(pickle.loads(pickle.dumps(task))) == hash(task)
    assert eval(repr(task)) == task


def test_model_with_a_secret_is_read_only_with_it(tmp_path, monkeypatch):
    path, variable = str(tmp_path / "known.bloom"), "RIOT_OPS_TEST_MODEL_SECRET"
    trained = TrainBloomFilter(capacity=10, secret=Secret("s3cr3t")).session()
    trained.push({"sensor_id": "a"})
    (tmp_path / "known.bloom").write_bytes(trained.flush()[0]["model"])

    def passed(secret):
        task = CheckBloomFilter(models={"sensor_id": path}, secret=secret)
        return task.session().push_batch(batch_of(["a", "stranger"])).column("sensor_id").to_pylist()

    assert passed(Secret("s3cr3t")) == ["a"]
    monkeypatch.setenv(variable, "s3cr3t")
    assert passed(Secret.env(variable)) == ["a"]
    monkeypatch.setenv(variable, "another")  # a loaded filter is not used with a secret that does not fit
    for secret, wrong in ((Secret("other"), "another"), (Secret.env(variable), "another"), (None, "a")):
        with pytest.raises(ConfigError, match=f"made with {wrong} secret") as caught:
            passed(secret)
        assert "s3cr3t" not in str(caught.value)
