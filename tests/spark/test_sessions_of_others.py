"""In a session of the user's own: what it lacks is said at once, with the remedy; what works, works."""

from __future__ import annotations

import random
import stat
import subprocess
import sys
import sysconfig

import pyarrow as pa
import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

import riot_ops as ro
from riot_ops import spark as on_spark
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, MissingExtraError
from riot_ops.spark import session_check as check
from riot_ops.spark.batch_source import Part, Written
from tests.random_flows import SCHEMA, assert_same, everything, random_input

pytestmark = pytest.mark.spark

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
KALMAN = t.KalmanFilter(by=("device",))


@pytest.fixture
def bare(spark):
    """A session as Spark makes it, in another time zone."""
    session = spark.newSession()
    session.conf.set(PROVIDER, HDFS)
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


def smoothing():
    flow = ro.Dataflow("smooth")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(KALMAN, id="kalman"))
    return flow


def windows():
    """A dataflow with something left at the end."""
    flow = ro.Dataflow("windows")
    rows = flow.source("in", schema=SCHEMA)
    average = rows.to(t.MovingAverage(window=4, partial=True, by=("device",)), id="average")
    flow.sink("out", average, rows.to(KALMAN, id="kalman"))
    return flow


@pytest.mark.parametrize(
    "make", [lambda s: s.builder, lambda s: SparkConf(loadDefaults=False)], ids=["builder", "conf"]
)
def test_configure_before_the_start(make):
    target = make(SparkSession)
    assert on_spark.configure(target) is target
    found = dict(target.getAll()) if isinstance(target, SparkConf) else target._options
    assert found == {PROVIDER: ROCKSDB, "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}


def test_configure_a_session(bare):
    zone = bare.conf.get("spark.sql.session.timeZone")
    assert on_spark.configure(bare) is bare
    assert bare.conf.get(PROVIDER) == ROCKSDB
    bare.conf.set(PROVIDER, HDFS)
    on_spark.configure(bare.conf)
    assert bare.conf.get(PROVIDER) == ROCKSDB
    assert bare.conf.get("spark.sql.session.timeZone") == zone
    with pytest.raises(ConfigError, match=r"configure needs .* got int"):
        on_spark.configure(3)


def test_state_without_rocksdb_is_refused_before_anything_starts(bare, tmp_path):
    rows = random_input(random.Random(1), 5)
    with pytest.raises(ConfigError, match=r"providerClass is .*HDFSBacked.*configure\(spark\)"):
        smoothing().start(bare, rows, checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()
    stream = (
        bare.readStream.format("rate").load().selectExpr("timestamp event_time", "'a' device", "double(value) value")
    )
    with pytest.raises(ConfigError, match=r"configure\(spark\)"):
        KALMAN.transform(stream)
    assert ro.map(lambda row: row).transform(stream).isStreaming, "no state, no store"


def test_workers_without_riot_ops(spark, tmp_path, monkeypatch):
    packages = sysconfig.get_paths()["purelib"]
    python = tmp_path / "python"  # knows all packages but this one, which is installed by a path of its own
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(check, "_SEEN", set())
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    message = rf"workers \({python}\) lack riot_ops\. .*os\.environ\['PYSPARK_PYTHON'\] = sys\.executable"
    with pytest.raises(ConfigError, match=message):
        check.check_session(spark, keeps_state=True)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"workers .* do not start: .*PYSPARK_PYTHON"):
        check.check_session(spark, keeps_state=True)


def test_a_look_at_the_workers_is_taken_once(spark, monkeypatch):
    asked = []
    monkeypatch.setattr(check, "_SEEN", set())
    monkeypatch.setattr(check, "_check_workers", asked.append)
    for _ in range(2):
        check.check_session(spark, keeps_state=True)
    assert asked == [spark]


def test_a_stopped_session(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)  # as stop() leaves it
    frame = type("Frame", (), {"sparkSession": spark, "isStreaming": True})
    for attempt in (lambda: smoothing().start(spark, []), lambda: on_spark.transform(KALMAN, frame)):
        with pytest.raises(ConfigError, match="session has been stopped"):
            attempt()


def test_times_are_the_same_in_any_time_zone(spark, bare):
    on_spark.configure(bare)
    rows = random_input(random.Random(2), 30)
    wanted = everything(windows().run(rows), windows())
    query = windows().start(bare, bare.createDataFrame(rows), max_records=12)
    query.wait(timeout_s=180)
    assert_same(everything(query, windows()), wanted, windows())
    times = {r["seq"]: r["event_time"] for r in rows.to_pylist()}
    out = KALMAN.transform(bare.createDataFrame(rows)).where("_error is null").toArrow()
    assert {r["seq"]: r["event_time"] for r in out.to_pylist()}.items() <= times.items()


def test_a_start_that_committed_nothing_can_be_begun_anew(spark, tmp_path):
    """Even if what made it fail was noted in the checkpoint."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", HDFS)
    rows = random_input(random.Random(3), 20)
    flow = smoothing()
    options = {"checkpoint": tmp_path / "c", "out": tmp_path / "out", "max_records": 12}
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("riot_ops.spark.runner.check_session", lambda *_, **__: None)
            with pytest.raises(ro.RiotError):
                flow.start(spark, rows, partitions=1, **options).wait(120)
    finally:
        on_spark.configure(spark)
    assert HDFS in (tmp_path / "c" / "offsets" / "0").read_text()
    spark.newSession().range(1).count()  # which is now the session that Spark takes for the active one
    query = flow.start(spark, rows, partitions=2, **options)
    query.wait(120)
    assert query.summary.messages == 20


@pytest.mark.slow
def test_state_in_files_of_its_own_for_each_attempt(spark, tmp_path):
    """What a session needs whose tasks may run twice at once: the state is found again all the same."""
    session, flow, rows = on_spark.configure(spark.newSession()), windows(), random_input(random.Random(5), 60)
    session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    options = {"checkpoint": tmp_path / "c", "out": tmp_path / "out", "max_records": 12, "partitions": 1}
    first = flow.start(session, rows, **options)
    first.wait(120, lambda query: query.summary.batches and query.stop())
    assert 0 < first.summary.messages < 60
    query = flow.start(session, rows, **options)
    query.wait(120)
    assert first.summary.messages + query.summary.messages == 60
    assert_same(everything(query, flow), everything(flow.run(rows), flow), flow)
    state = tmp_path / "c" / "state" / "0" / "0"
    assert all("_" in path.name for path in state.rglob("*.changelog")), "a name of its own for each attempt"


def test_a_batch_dataframe_is_a_run_that_ends(spark, tmp_path):
    flow, rows = windows(), random_input(random.Random(4), 50)
    wanted = everything(flow.run(rows), flow)
    shuffled = spark.createDataFrame(rows.take(pa.array(random.Random(4).sample(range(50), 50))))
    frame = shuffled.withColumn("unused", shuffled.seq).repartition(3)
    query = flow.start(spark, frame, max_records=20, checkpoint=tmp_path / "c")
    query.wait(180)
    assert not query.active, "it did not end"
    assert (query.summary.messages, query.summary.batches) == (50, 3)
    assert_same(everything(query, flow), wanted, flow)


def test_written_rows_are_numbered_and_cut_anywhere(tmp_path):
    schema = pa.schema([("value", pa.int64())])
    files = {"a.arrow": [[0, 1, 2], [3]], "b.arrow": [[]], "c.arrow": [[4, 5], [6, 7, 8, 9]]}
    for name, batches in files.items():
        with pa.ipc.new_file(str(tmp_path / name), schema) as out:
            for values in batches:
                out.write_batch(pa.RecordBatch.from_pydict({"value": pa.array(values, pa.int64())}))
    source = Written(tmp_path, [Part(n, sum(map(len, b))) for n, b in files.items()], schema)
    assert source.schema.names == ["seq", "value"]
    for a in range(11):
        for b in range(a, 11):
            got = [r for batch in source.read({"start": a, "end": b}) for r in batch.to_pylist()]
            assert got == [{"seq": i, "value": i} for i in range(a, b)]
    assert source.latest({"row": 3}, 4) == {"row": 7} and source.latest({"row": 3}) == {"row": 10}
    assert source.finished({"row": 10}) and not source.finished({"row": 9}) and not source.waits()
    assert source.splits({"row": 2}, {"row": 9}, 3) == [
        {"start": 2, "end": 4},
        {"start": 4, "end": 6},
        {"start": 6, "end": 9},
    ]
    assert source.count({"row": 2}, {"row": 9}) == 7


def test_one_more_session_leaves_the_others_alone(spark, caplog):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    before = spark.sparkContext.getConf().getAll(), spark.conf.getAll
    try:
        own = on_spark.session(3, settings={"spark.driver.memory": "9g", "spark.sql.ansi.enabled": "false"})
        assert own is not spark and own.sparkContext is spark.sparkContext
        assert (spark.sparkContext.getConf().getAll(), spark.conf.getAll) == before
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    names = ("session.timeZone", "shuffle.partitions", "ansi.enabled")
    assert [own.conf.get(f"spark.sql.{name}") for name in names] == ["UTC", "3", "false"]
    assert own.conf.get(PROVIDER) == ROCKSDB
    assert "spark.driver.memory cannot be set to 9g" in caplog.text and "ansi" not in caplog.text


@pytest.mark.parametrize("library", ["pyspark", "pandas", "google.protobuf"])
def test_without_the_extra(library):
    code = f"""
import sys, importlib.util as u
found = u.find_spec
u.find_spec = lambda name, package=None: None if name == {library!r} else found(name, package)
import riot_ops as ro
flow = ro.Dataflow("f")
flow.sink("out", flow.source("in", schema={{"value": "double"}}).to(ro.tasks.KalmanFilter(), id="k"))
for attempt in (lambda: flow.start(None, []), lambda: ro.tasks.KalmanFilter().transform(None)):
    try:
        attempt()
    except ro.MissingExtraError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [str(MissingExtraError("Spark", "spark"))] * 2, done.stderr
