"""What a secret does for every task that remembers values by their hash."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import mmh3
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import Secret
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.dataflows import click_analytics, etl, stats, voip_stream
from riot_ops.dataflows.dspbench.operators import BoundedCount
from riot_ops.dataflows.dspbench.operators.decaying_rate import DecayingRate
from riot_ops.runtime.fingerprint import fingerprint
from riot_ops.runtime.snapshot import task_identity
from riot_ops.sketches import BloomFilter
from riot_ops.task import SketchTask, Task, registered_tasks
from tests.reference.murmur3_collision import colliding_values

WORD, OTHER = "s3cr3t-pässword", "another-word"
VARIABLE = "RIOT_OPS_TEST_HASH_SECRET"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

#: Tasks with state, and what each gives for values that it takes for one, and for different ones.
WITH_STATE = {
    "deduplicate": (t.Deduplicate(fields="v", capacity=100, flag="out"), [True, False], [True, True]),
    "bounded_count": (BoundedCount(field="v", output="out"), [1, 2], [1, 1]),
    "decaying_rate": (
        DecayingRate(fields="v", capacity=100, output="out"),
        pytest.approx([0.03335, 0.0667], rel=1e-3),
        pytest.approx([0.03335, 0.03335], rel=1e-3),
    ),
    "distinct_count": (t.DistinctCount(field="v", output="out"), [1, 1], [1, 2]),
    **{
        f"window_{name}": (t.Window(frame=9, emit="each", aggregates={"out": ("v", name)}), [1, 1], [1, 2])
        for name in ("distinct", "unique")
    },
}
STATELESS = {
    "check_bloom_filter": t.CheckBloomFilter(models={"v": ["m"]}, on_error="flag", output="out"),
}
TRAINING = t.TrainBloomFilter(field="v", capacity=100)
KEYED = [pytest.param(task, id=name) for name, (task, *_) in WITH_STATE.items()] + [
    pytest.param(TRAINING, id="train_bloom_filter")
]
ALL = [*KEYED, *(pytest.param(task, id=name) for name, task in STATELESS.items())]


def batch(values):
    times = pa.array([NOON] * len(values), pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict({"v": pa.array(values), "event_time": times})


def state(task, values=("a", "b", "ü" * 20, "a")):
    session = task.session()
    session.push_batch(batch(list(values)))
    return session.snapshot()


def test_each_task_with_a_secret_is_tested_here():
    assert {kind.name() for kind in registered_tasks() if issubclass(kind, SketchTask)} == (
        {*(task.name() for task, *_ in WITH_STATE.values()), *STATELESS, TRAINING.name()}
    )


@pytest.mark.parametrize(("task", "one", "two"), WITH_STATE.values(), ids=[*WITH_STATE])
def test_forged_collision_is_none_under_a_secret(task, one, two):
    forged = colliding_values()
    assert len(set(forged)) == 2 and len({mmh3.hash64(v) for v in forged}) == 1
    assert task.session().push_batch(batch(forged)).column("out").to_pylist() == one
    for word in (WORD, OTHER):
        keyed = task.replace(secret=Secret(word))
        assert keyed.session().push_batch(batch(forged)).column("out").to_pylist() == two


def test_forged_members_of_a_trained_filter_are_none_under_a_secret():
    member, *forged = colliding_values(5)
    for secret, wanted in ((None, [True] * 5), (Secret(WORD), [True] + [False] * 4)):
        session = TRAINING.replace(secret=secret).session()
        session.push_batch(batch([member]))
        model = session.flush()[0]["model"]
        found = BloomFilter.from_bytes(model, secret=secret).contains([member, *forged])
        assert found.tolist() == wanted


def accidental_members(count):
    """Texts with the same bits as "m" in a filter of 10 bits and 7 hash functions."""

    def bits(text):
        h1, h2 = mmh3.hash64(text, signed=False)
        return {(h1 + i * h2) % 2**64 % 10 for i in range(7)}

    known, found, i = bits("m"), [], 0
    while len(found) < count:
        found += [f"x{i}"] if bits(f"x{i}") <= known else []
        i += 1
    return found


@pytest.mark.parametrize("task", STATELESS.values(), ids=[*STATELESS])
def test_accidental_members_are_strangers_under_a_secret(task):
    passing = accidental_members(50)

    def passed(one):
        out = one.session().push_batch(batch(["m", *passing]))
        return out.filter(out.column("out")).num_rows if "out" in out.schema.names else out.num_rows

    assert passed(task) == 51
    assert 1 <= passed(task.replace(secret=Secret(WORD))) < 26


@pytest.mark.parametrize("task", KEYED)
def test_restart_continues_with_the_same_secret_only(task, monkeypatch):
    monkeypatch.setenv(VARIABLE, WORD)
    keyed, other = task.replace(secret=Secret(WORD)), task.replace(secret=Secret(OTHER))
    whole = keyed.session()
    whole.push_batch(batch(["a", "b"]))
    for same in (keyed, task.replace(secret=Secret.env(VARIABLE))):
        again = same.session()
        again.restore(state(keyed, ["a", "b"]))
        assert again.snapshot() == whole.snapshot()
    for then, now in ((keyed, other), (keyed, task), (task, keyed)):
        with pytest.raises(StateError, match=rf"{task.name()}.*\bsecret was ") as caught:
            now.session().restore(state(then))
        assert WORD not in str(caught.value) and OTHER not in str(caught.value)


@pytest.mark.parametrize("task", KEYED)
def test_state_without_a_secret_does_not_mention_it(task):
    assert b"secret" not in state(task) and "secret" not in task.to_dict()
    assert "secret" not in json.dumps(fingerprint(flow(task)))


IN_ANOTHER_PROCESS = """
import hashlib, json, sys
from riot_ops import Secret
from riot_ops.task import Task
from tests.contract.test_hash_secrets import state
print(json.dumps([hashlib.sha256(state(Task.from_dict(d))).hexdigest() for d in json.loads(sys.argv[1])]))
"""


@pytest.mark.long
def test_equal_secrets_give_equal_state_in_another_process(monkeypatch):
    monkeypatch.setenv(VARIABLE, WORD)
    tasks = [one.values[0].replace(secret=Secret.env(VARIABLE)) for one in KEYED]
    run = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, json.dumps([task.to_dict() for task in tasks])],
        env={**os.environ, VARIABLE: WORD, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    here = [hashlib.sha256(state(task)).hexdigest() for task in tasks]
    assert json.loads(run.stdout) == here
    assert len(set(here)) == len(here)


def flow(task):
    made = ro.Dataflow("f")
    readings = made.source("readings", schema={"v": "string", "event_time": "timestamp[us, tz=UTC]"})
    made.sink("out", readings.to(task, id="step"))
    return made


@pytest.mark.parametrize("task", ALL)
def test_secret_is_not_shown(task, monkeypatch):
    monkeypatch.setenv(VARIABLE, WORD)
    given, named = task.replace(secret=Secret(WORD)), task.replace(secret=Secret.env(VARIABLE))
    shown = [repr(given), repr(named), repr(vars(given)), json.dumps(named.to_dict()), flow(named).to_json()]
    shown += [json.dumps(fingerprint(flow(given))), repr(pickle.dumps(named))]
    if not isinstance(task, tuple(type(one) for one in STATELESS.values())):
        shown.append(repr(state(given)))
    for text in shown:
        assert "s3cr3t" not in text
    assert json.loads(json.dumps(named.to_dict()))["secret"] == {"env": VARIABLE}
    assert Task.from_dict(named.to_dict()) == named
    for refused in (given.to_dict, flow(given).to_json):
        with pytest.raises(ConfigError, match=r"secret is a value.*Secret\.env") as caught:
            refused()
        assert "s3cr3t" not in str(caught.value)
    with pytest.raises(ConfigError, match="secret must be a Secret") as caught:
        task.replace(secret=WORD)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("task", ALL)
def test_missing_variable_is_reported_by_name(task, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=VARIABLE):
        task.replace(secret=Secret.env(VARIABLE)).session().push_batch(batch(["a"]))


@pytest.mark.parametrize("task", ALL)
def test_pickled_task_keeps_its_secret_and_no_key(task):
    keyed = task.replace(secret=Secret(WORD))
    assert keyed.hash_key.tag
    copy = pickle.loads(pickle.dumps(keyed))
    assert copy == keyed and "hash_key" not in vars(copy) and copy.hash_key == keyed.hash_key


@pytest.mark.parametrize("task", ALL)
def test_dataflow_restarts_with_the_same_secret_only(task, tmp_path):
    rows = [{"v": "a", "event_time": NOON}, {"v": "b", "event_time": NOON}]

    def run(secret):
        return flow(task.replace(secret=secret)).run(rows, checkpoint=tmp_path / "state", out=tmp_path / "out")

    run(Secret(WORD))
    run(Secret(WORD))
    for other in (Secret(OTHER), None):
        with pytest.raises(StateError, match=r"step 'step'.*secret was 'tag:"):
            run(other)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files and all(b"s3cr3t" not in file.read_bytes() for file in files)


@pytest.mark.parametrize(
    "make",
    [
        lambda secret: t.Deduplicate(by="v", secret=secret),
        lambda secret: DecayingRate(by="v", secret=secret),
    ],
)
def test_secret_without_a_capacity_is_refused(make):
    make(None)
    with pytest.raises(ConfigError, match="secret needs a capacity"):
        make(Secret(WORD))


def test_secret_of_a_window_without_hashes_is_refused():
    with pytest.raises(ConfigError, match="secret needs an aggregate that hashes values"):
        t.Window(frame=9, aggregates={"out": ("v", "mean")}, secret=Secret(WORD))


@pytest.mark.parametrize("frame", ["1min", w.Session("1min"), 2], ids=str)
@pytest.mark.parametrize("name", ["distinct", "unique"])
def test_windows_of_every_kind_hash_with_the_secret(frame, name):
    def count(secret):
        session = t.Window(frame=frame, aggregates={"out": ("v", name)}, secret=secret).session()
        return [row["out"] for row in [*session.push_batch(batch(colliding_values())).to_pylist(), *session.flush()]]

    assert count(None) == [1] and count(Secret(WORD)) == [2]


def test_state_of_a_window_with_functions_does_not_mention_a_secret():
    def ignore(*_):
        pass

    task = t.Window(frame=9, aggregates={"out": ("x", t.Aggregate("none", (0.0,), ignore, ignore, ignore))})
    assert "secret" not in json.dumps(task_identity(task))


BUILDERS = {
    "stats": (stats, {"known_sensors": ["m"]}, {"bloom", "dac"}),
    "etl": (etl, {"known_sensors": ["m"]}, {"bloom"}),
    "click_analytics": (click_analytics, {"capacity": 9}, {"repeat"}),
    "voip_stream": (voip_stream, {"exact": False}, None),
}


@pytest.mark.parametrize(("build", "options", "steps"), BUILDERS.values(), ids=[*BUILDERS])
def test_builders_give_the_secret_to_every_step_that_hashes(build, options, steps):
    for secret in (None, Secret(WORD)):
        made = build(**options, secret=secret)
        found = {id: n.task.secret for id, n in made.nodes.items() if isinstance(n.task, SketchTask)}
        assert {*found.values()} == {secret} and len(found) >= 1
        assert steps is None or {*found} == steps
    with pytest.raises(ConfigError, match=r"secret is a value") as caught:
        made.to_json()
    assert "s3cr3t" not in str(caught.value) + repr(made)


@pytest.mark.parametrize("build", [etl, click_analytics, voip_stream])
def test_secret_of_an_application_without_hashes_is_refused(build):
    with pytest.raises(ConfigError, match="secret needs "):
        build(secret=Secret(WORD))


def test_secret_of_a_loglog_count_is_refused():
    with pytest.raises(ConfigError, match="secret needs method='hyperloglog'"):
        t.DistinctCount(method="loglog", secret=Secret(WORD))


def test_queried_key_of_a_rate_is_hashed_with_the_secret_too():
    rate = DecayingRate(fields="v", asks="v", capacity=100, output="out", secret=Secret(WORD))
    assert rate.session().push_batch(batch(["a", "a"])).column("out").to_pylist() == pytest.approx(
        [0.03335, 0.0667], rel=1e-3
    )


def test_distinct_values_of_every_type_count_as_without_a_secret():
    big = 2**60
    columns = [
        pa.array(["a", "", "a", None, "x" * 40]),
        pa.array([1, 2, 1, None, big + 1, big + 2, big]),
        pa.array([0.0, -0.0, float("nan"), 1.5]),
        pa.array([NOON, None, NOON], pa.timestamp("us", "UTC")),
        pa.array([True, False, True]),
        pa.array(["a", "b", "a"]).dictionary_encode(),
    ]
    for column, wanted in zip(columns, (3, 5, 2, 1, 2, 2), strict=True):
        given = pa.RecordBatch.from_arrays([column], names=["v"])
        task = t.DistinctCount(field="v", output="out", precision=12)
        for one in (task, task.replace(secret=Secret(WORD))):
            assert one.session().push_batch(given).column("out")[-1].as_py() == wanted


@pytest.mark.long
def test_estimates_under_a_secret_are_as_good_as_without():
    values = [f"sensor-{i}" for i in range(20_000)]
    for given in (values, [float(i) for i in range(20_000)]):
        task = t.DistinctCount(field="v", output="out", secret=Secret(WORD))
        found = task.session().push_batch(batch(given)).column("out")[-1].as_py()
        assert found == pytest.approx(20_000, rel=4 * 0.0325)
    flags = t.Deduplicate(fields="v", capacity=20_000, flag="out", error=0.01, secret=Secret(WORD))
    fresh = flags.session().push_batch(batch(values)).column("out").to_pylist()
    assert fresh.count(False) <= 0.01 * 20_000


def sketches(word):
    made = ro.Dataflow("sketches")
    readings = made.source("readings", schema={"v": "string", "event_time": "timestamp[us, tz=UTC]"})
    for name, (task, *_) in WITH_STATE.items():
        made.sink(f"{name}_out", readings.to(task.replace(by="v", secret=Secret(word)), id=name))
    return made


@pytest.mark.spark
def test_spark_query_continues_with_the_same_secret_only(spark, tmp_path):
    table = pa.Table.from_batches([batch(["a", "b", "a", "ü" * 20, "b"])])

    def start(word):
        places = {"checkpoint": tmp_path / "state", "out": tmp_path / "out"}
        query = sketches(word).start(spark, table, **places)
        query.wait(timeout="4min")
        return query

    local, done = sketches(WORD).run(table), start(WORD)
    for name in WITH_STATE:
        found, wanted = (one[name].sort_by([("v", "ascending"), ("out", "ascending")]) for one in (done, local))
        assert found.select(["v", "out"]).to_pylist() == wanted.select(["v", "out"]).to_pylist()
    start(WORD)
    with pytest.raises(StateError, match=r"secret was 'tag:") as caught:
        start(OTHER)
    assert WORD not in str(caught.value) and OTHER not in str(caught.value)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files and all(b"s3cr3t" not in file.read_bytes() for file in files)
