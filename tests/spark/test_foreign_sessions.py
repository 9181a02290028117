"""Sessions of the user: missing settings are reported at once with the remedy."""

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
from tests.random_flows import SCHEMA, assert_same, everything, random_input

pytestmark = pytest.mark.spark

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
KALMAN = t.KalmanFilter(by=("device",))


@pytest.fixture
def bare(spark):
    """Return a session with Spark's defaults and another time zone."""
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
    """Return a dataflow with records to flush at the end."""
    flow = ro.Dataflow("windows")
    rows = flow.source("in", schema=SCHEMA)
    average = rows.to(t.MovingAverage(window=4, partial=True, by=("device",)), id="average")
    flow.sink("out", average, rows.to(KALMAN, id="kalman"))
    return flow


@pytest.mark.parametrize(
    "make", [lambda s: s.builder, lambda s: SparkConf(loadDefaults=False)], ids=["builder", "conf"]
)
def test_configure_before_start(make):
    target = make(SparkSession)
    assert on_spark.configure(target) is target
    found = dict(target.getAll()) if isinstance(target, SparkConf) else target._options
    assert found == {PROVIDER: ROCKSDB, "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}


def test_configure_session(bare):
    zone = bare.conf.get("spark.sql.session.timeZone")
    assert on_spark.configure(bare) is bare
    assert bare.conf.get(PROVIDER) == ROCKSDB
    bare.conf.set(PROVIDER, HDFS)
    on_spark.configure(bare.conf)
    assert bare.conf.get(PROVIDER) == ROCKSDB
    assert bare.conf.get("spark.sql.session.timeZone") == zone
    with pytest.raises(ConfigError, match=r"configure needs .* got int"):
        on_spark.configure(3)


def test_state_without_rocksdb_is_refused(bare, tmp_path):
    rows = random_input(random.Random(1), 5)
    with pytest.raises(ConfigError, match=r"providerClass is .*HDFSBacked.*configure\(spark\)"):
        smoothing().start(bare, rows, checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()
    stream = (
        bare.readStream.format("rate").load().selectExpr("timestamp event_time", "'a' device", "double(value) value")
    )
    with pytest.raises(ConfigError, match=r"configure\(spark\)"):
        KALMAN.transform(stream)
    assert ro.map(lambda row: row).transform(stream).isStreaming, "no state needs no store"


def test_workers_without_riot_ops_are_reported(spark, tmp_path, monkeypatch):
    packages = sysconfig.get_paths()["purelib"]
    python = tmp_path / "python"  # sees all packages but riot_ops, which is installed by its own path
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(check, "CHECKED_CONTEXTS", set())
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    message = rf"workers \({python}\) lack riot_ops\. .*os\.environ\['PYSPARK_PYTHON'\] = sys\.executable"
    with pytest.raises(ConfigError, match=message):
        check.check_session(spark, keeps_state=True)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"workers .* do not start: .*PYSPARK_PYTHON"):
        check.check_session(spark, keeps_state=True)


def test_workers_are_checked_once(spark, monkeypatch):
    checked = []
    monkeypatch.setattr(check, "CHECKED_CONTEXTS", set())
    monkeypatch.setattr(check, "check_workers", checked.append)
    monkeypatch.setattr(check, "share_modules", lambda spark: False)
    for _ in range(2):
        check.check_session(spark, keeps_state=True)
    assert checked == [spark]


def test_stopped_session_is_reported(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)  # as stop() leaves it
    frame = type("Frame", (), {"sparkSession": spark, "isStreaming": True})
    for attempt in (lambda: smoothing().start(spark, []), lambda: on_spark.transform(KALMAN, frame)):
        with pytest.raises(ConfigError, match="session has been stopped"):
            attempt()


def test_times_are_independent_of_time_zone(spark, bare):
    on_spark.configure(bare)
    rows = random_input(random.Random(2), 30)
    wanted = everything(windows().run(rows), windows())
    query = windows().start(bare, bare.createDataFrame(rows), max_records=12)
    query.wait(timeout="3min")
    assert_same(everything(query, windows()), wanted, windows())
    times = {r["seq"]: r["event_time"] for r in rows.to_pylist()}
    out = KALMAN.transform(bare.createDataFrame(rows)).where("_error is null").toArrow()
    assert {r["seq"]: r["event_time"] for r in out.to_pylist()}.items() <= times.items()


def test_failed_start_can_be_repeated(spark, tmp_path):
    """Even if the setting that made it fail is in the checkpoint."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", HDFS)
    rows = random_input(random.Random(3), 20)
    flow = smoothing()
    options = {"checkpoint": tmp_path / "c", "out": tmp_path / "out", "max_records": 12}
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("riot_ops.spark.runner.check_session", lambda *_, **__: None)
            with pytest.raises(ro.RiotError):
                flow.start(spark, rows, partitions=1, **options).wait("2min")
    finally:
        on_spark.configure(spark)
    assert HDFS in (tmp_path / "c" / "offsets" / "0").read_text()
    spark.newSession().range(1).count()  # now Spark's active session
    query = flow.start(spark, rows, partitions=2, **options)
    query.wait("2min")
    assert query.summary.messages == 20


@pytest.mark.slow
def test_state_format_with_file_names_per_attempt(spark, tmp_path):
    """State format 2, which speculative copies need, can be continued like the default one."""
    session, flow, rows = on_spark.configure(spark.newSession()), windows(), random_input(random.Random(5), 60)
    session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    options = {"checkpoint": tmp_path / "c", "out": tmp_path / "out", "max_records": 12, "partitions": 1}
    first = flow.start(session, rows, **options)
    first.wait("2min", lambda query: query.summary.batches and query.stop())
    assert 0 < first.summary.messages < 60
    query = flow.start(session, rows, **options)
    query.wait("2min")
    assert first.summary.messages + query.summary.messages == 60
    assert_same(everything(query, flow), everything(flow.run(rows), flow), flow)
    state = tmp_path / "c" / "state" / "0" / "0"
    assert all("_" in path.name for path in state.rglob("*.changelog")), "each attempt has its own file name"


def test_batch_dataframe_is_bounded_run(spark, tmp_path):
    flow, rows = windows(), random_input(random.Random(4), 50)
    wanted = everything(flow.run(rows), flow)
    shuffled = spark.createDataFrame(rows.take(pa.array(random.Random(4).sample(range(50), 50))))
    frame = shuffled.withColumn("unused", shuffled.seq).repartition(3)
    query = flow.start(spark, frame, max_records=20, checkpoint=tmp_path / "c")
    query.wait("3min")
    assert not query.active, "the query did not end"
    assert (query.summary.messages, query.summary.batches) == (50, 3)
    assert_same(everything(query, flow), wanted, flow)


def test_additional_session_leaves_others_unchanged(spark, caplog):
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
def test_missing_extra_is_reported(library):
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
