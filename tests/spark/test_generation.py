"""Restarts of changed dataflows on Spark: a new generation of the checkpoint."""

from __future__ import annotations

import os
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError, RiotError, StateError
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.spark import read_state
from riot_ops.spark.checkpoint import SparkCheckpoint
from riot_ops.spark.session import PARTITIONS
from riot_ops.testing import exact

pytestmark = pytest.mark.spark

SCHEMA = {"device": "string", "kind": "string", "value": "double"}
TABLE = pa.Table.from_pylist(
    [{"device": f"d{i % 7}", "kind": "ab"[i % 2], "value": float(i * i % 31)} for i in range(400)]
)


def flow_of(**tasks):
    """Return a dataflow with these tasks on one source, the later ones after a step ``smooth``."""
    flow = ro.Dataflow("changing")
    smooth = flow.source("readings", schema=SCHEMA).to(t.KalmanFilter(by=("device", "kind")), id="smooth")
    flow.sink("out", smooth, *(smooth.to(task, id=name) for name, task in tasks.items()))
    return flow


def changing(new=False):
    """Return a dataflow with a mean after ``smooth``, and then with a new step as well."""
    added = {"new": t.MovingAverage(by="device", window=4)} if new else {}
    return flow_of(mean=t.MovingAverage(by="kind", window=5), **added)


def run(flow, spark, rows, tmp_path, **options):
    """Run a dataflow over the first rows; returns the query and all output so far."""
    options = {"partitions": 2, "max_records": 60} | options
    source = MemorySource(TABLE.slice(0, rows))
    query = flow.start(
        spark, source, checkpoint=tmp_path / "checkpoint", out=tmp_path / "out", trigger="available now", **options
    )
    query.wait()
    return query


def rows(result, stream):
    return Counter(map(exact, result[stream].to_pylist()))


def test_changed_dataflow_with_more_partitions_goes_on(spark, tmp_path):
    mean = {"mean": t.MovingAverage(by="kind", window=5), "all": t.MovingAverage(window=3)}
    first = run(flow_of(**mean), spark, 130, tmp_path)
    assert first.restart is None
    changed = flow_of(**mean, new=t.MovingAverage(by="device", window=4))
    with pytest.raises(StateError, match='restart="compatible" keeps'):
        run(changed, spark, 400, tmp_path)
    query = run(changed, spark, 400, tmp_path, partitions=5, restart="compatible")
    assert query.restart.kept == ("smooth", "mean", "all") and query.restart.empty == {"new": "it is new"}
    assert query.restart.options["partitions"] == "2 to 5"
    whole = flow_of(**mean).run(TABLE)
    for stream in ("smooth", *mean):
        assert rows(query, stream) == rows(whole, stream), stream


def stream_of(spark, folder, *tables):
    """Return a streaming DataFrame of files, to which these tables are added."""
    folder.mkdir(exist_ok=True)
    for table in tables:
        place = len(list(folder.iterdir()))
        pq.write_table(table, folder / f"{place}.parquet")
        os.utime(folder / f"{place}.parquet", (1_000_000 + place, 1_000_000 + place))  # Spark reads them in this order
    fields = "device string, kind string, value double, seq long"
    return spark.readStream.schema(fields).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.mark.slow
def test_frames_of_a_changed_dataflow_go_on_with_more_partitions(spark, tmp_path):
    numbered = TABLE.append_column("seq", pa.array(range(TABLE.num_rows), pa.int64()))
    found, numbers = {}, []

    def keep(stream, df, number):
        numbers.append(number)
        found.setdefault(stream, []).extend(df.collect())

    def go(flow, *tables, **options):
        frames = flow.frames(stream_of(spark, tmp_path / "in", *tables))
        query = frames.write_each(keep, checkpoint=tmp_path / "kept", trigger="available now", **options)
        query.awaitTermination()
        return frames

    mean = {"mean": t.MovingAverage(by="kind", window=5)}
    changed = flow_of(**mean, new=t.MovingAverage(by="device", window=4))
    before = spark.conf.get(PARTITIONS)
    try:
        spark.conf.set(PARTITIONS, "2")
        go(flow_of(**mean), numbered.slice(0, 60), numbered.slice(60, 70))
        with pytest.raises(StateError, match="compatible"):
            go(changed)
        spark.conf.set(PARTITIONS, "3")
        frames = go(changed, numbered.slice(130), restart="compatible")
    finally:
        spark.conf.set(PARTITIONS, before)
    assert frames.restart.kept == ("smooth", "mean") and frames.restart.empty == {"new": "it is new"}
    whole = flow_of(**mean).run(numbered)
    for stream in ("smooth", "mean"):
        got = Counter(tuple(row[name] for name in ("seq", "device", "value")) for row in found[stream])
        wanted = Counter(tuple(row[name] for name in ("seq", "device", "value")) for row in whole[stream].to_pylist())
        assert got == wanted
    assert sorted({*numbers}) == [0, 1, 2]


def contents(folder):
    """Return the content of all files of a checkpoint but those of a new generation."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".riot_ops.lock" and "generation-" not in str(path.relative_to(folder))
    }


@pytest.mark.slow
def test_interrupted_change_is_done_again_and_the_old_checkpoint_is_untouched(spark, tmp_path, monkeypatch):
    mean = t.MovingAverage(by="kind", window=5)
    run(flow_of(mean=mean), spark, 130, tmp_path)
    before = contents(tmp_path / "checkpoint")
    changed = flow_of(mean=mean, new=t.MovingAverage(by="device", window=4))

    def fail(self, manifest):
        raise ConnectorError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(SparkCheckpoint, "_write", fail)
        with pytest.raises(ConnectorError, match="killed"):
            run(changed, spark, 400, tmp_path, restart="compatible")
    assert (tmp_path / "checkpoint" / "generation-1" / "commits" / "0").exists(), "it was interrupted at the end"
    assert contents(tmp_path / "checkpoint") == before
    run(flow_of(mean=mean), spark, 130, tmp_path)  # the old dataflow continues as well
    query = run(changed, spark, 400, tmp_path, restart="compatible")
    whole = flow_of(mean=mean).run(TABLE)
    assert rows(query, "mean") == rows(whole, "mean") and rows(query, "smooth") == rows(whole, "smooth")


@pytest.mark.slow
def test_planned_micro_batch_comes_again_although_its_sink_had_committed(spark, tmp_path):
    class Failing(ro.ParquetSink):
        def commit(self, batch_id, messages):
            super().commit(batch_id, messages)
            if batch_id == 2:
                raise OSError("the machine is gone")

    mean = t.MovingAverage(by="kind", window=5)
    options = {"checkpoint": tmp_path / "checkpoint", "max_records": 60, "partitions": 2}
    query = flow_of(mean=mean).start(spark, MemorySource(TABLE), sinks=Failing(tmp_path / "out"), **options)
    with pytest.raises(RiotError, match="the machine is gone"):
        query.wait()
    assert {p.name for p in (tmp_path / "checkpoint" / "offsets").iterdir()} >= {"0", "1", "2"}
    changed = flow_of(mean=mean, new=t.MovingAverage(by="device", window=4))
    query = changed.start(
        spark, MemorySource(TABLE), sinks=ro.ParquetSink(tmp_path / "out"), restart="compatible", **options
    )
    query.wait()
    whole = flow_of(mean=mean).run(TABLE)
    assert rows(query, "mean") == rows(whole, "mean") and rows(query, "smooth") == rows(whole, "smooth")
    assert next(one["batch"] for one in query.micro_batches) == 2
    assert query.summary.messages == 400 - 120


@pytest.mark.slow
def test_several_changes_in_a_row(spark, tmp_path):
    def flow(*names, steps=True):
        made = ro.Dataflow("sources")
        for name in names:
            stream = made.source(name, schema=SCHEMA)
            task = t.MovingAverage(by="device", window=3) if steps else t.RangeFilter(bounds={"x": (0, 1)}, by="kind")
            made.sink(f"{name}_out", stream.to(task, id=f"mean_{name}"))
        return made

    options = {"checkpoint": tmp_path / "checkpoint", "max_records": 60, "restart": "compatible"}

    def go(dataflow, partitions=2, **ends):
        sources = {name: MemorySource(TABLE.slice(0, end)) for name, end in ends.items()}
        query = dataflow.start(spark, sources, out=tmp_path / "out", partitions=partitions, **options)
        query.wait()
        return query

    go(flow("a"), a=100)
    query = go(flow("b", "a"), b=50, a=150)
    assert query.restart.added_sources == ("b",) and query.restart.kept == ("mean_a",)
    state = read_state(tmp_path / "checkpoint", "mean_a", spark=None)
    assert sorted(state.column("device").to_pylist()) == sorted({f"d{i}" for i in range(7)})
    query = go(flow("a", "b"), 3, b=90, a=200)
    folders = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    assert {"riot_ops.json", "generation-1", "generation-2"} <= folders and "state" not in folders
    for name, end in (("a", 200), ("b", 90)):
        whole = flow(name).run(TABLE.slice(0, end))
        assert rows(query, f"mean_{name}") == rows(whole, f"mean_{name}")
    query = go(flow("a"), 3, a=210)
    assert query.restart.removed_sources == ("b",) and query.restart.dropped == ("mean_b",)
    other = ro.Dataflow("other")
    other.sink("a_out", other.source("a", schema=SCHEMA).to(t.KalmanFilter(by="device"), id="mean_a"))
    with pytest.raises(StateError, match="now of task"):
        go(other, 3, a=220)
    whole = flow("a").run(TABLE.slice(0, 210))
    assert rows(query, "mean_a") == rows(whole, "mean_a")


@pytest.mark.slow
def test_dataflow_loses_and_gains_all_steps_with_state(spark, tmp_path):
    def filtered():
        flow = ro.Dataflow("filtered")
        kept = flow.source("readings", schema=SCHEMA).to(t.RangeFilter(bounds={"a": (0, 20), "b": (0, 9)}, by="kind"))
        flow.sink("out", kept)
        return flow

    run(flow_of(), spark, 100, tmp_path)
    query = run(filtered(), spark, 200, tmp_path, restart="compatible")
    assert query.restart.dropped == ("smooth",) and query.summary.messages == 100
    query = run(flow_of(), spark, 300, tmp_path, restart="compatible")
    assert query.restart.empty == {"smooth": "it is new"} and query.summary.messages == 100


def spark_rows(folder, stream_fields=("seq", "device", "value")):
    return Counter(tuple(row[n] for n in stream_fields) for row in pq.read_table(folder).to_pylist())


@pytest.mark.slow
def test_query_of_the_user_goes_on_after_changes(spark, tmp_path):
    numbered = TABLE.append_column("seq", pa.array(range(TABLE.num_rows), pa.int64()))

    def go(flow, *tables, restart="compatible"):
        frames = flow.frames(stream_of(spark, tmp_path / "in", *tables))
        place = frames.continue_from(tmp_path / "kept", restart=restart)
        writer = frames["mean"].writeStream.format("parquet").option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        return frames, place, query

    mean = {"mean": t.MovingAverage(by="kind", window=5)}
    changed = flow_of(**mean, new=t.MovingAverage(by="device", window=4))
    before = spark.conf.get(PARTITIONS)
    try:
        spark.conf.set(PARTITIONS, "2")
        frames, place, query = go(flow_of(**mean), numbered.slice(0, 60), numbered.slice(60, 70))
        assert frames.restart is None and place.endswith("/kept")
        kept = contents(tmp_path / "kept")
        with pytest.raises(StateError, match="keeps the state of 'smooth', 'mean'; starts 'new' empty: it is new"):
            go(changed, restart="same")
        spark.conf.set(PARTITIONS, "3")
        frames, place, again = go(changed, numbered.slice(130, 70), numbered.slice(200, 50))
        assert frames.restart.kept == ("smooth", "mean") and place.endswith("/kept/generation-1")
        assert contents(tmp_path / "kept") == kept
        assert again.id == query.id
        _, place, _ = go(changed, numbered.slice(250, 50), restart="same")
        assert place.endswith("/kept/generation-1")
        frames, place, _ = go(flow_of(**mean), numbered.slice(300))
        assert frames.restart.lost == {"new": 7} and place.endswith("/kept/generation-2")
    finally:
        spark.conf.set(PARTITIONS, before)
    whole = flow_of(**mean).run(numbered)["mean"].to_pylist()
    assert spark_rows(tmp_path / "out") == Counter(tuple(row[n] for n in ("seq", "device", "value")) for row in whole)


@pytest.mark.slow
def test_state_of_operators_of_spark_and_without_notes_is_refused(spark, tmp_path, monkeypatch):
    """What cannot be moved is named, and the checkpoint stays as it is."""
    from pyspark.sql import functions as f

    numbered = TABLE.append_column("seq", pa.array(range(TABLE.num_rows), pa.int64()))
    changed = flow_of(mean=t.MovingAverage(by="kind", window=5), new=t.MovingAverage(by="device", window=4))
    before = spark.conf.get(PARTITIONS)
    try:
        spark.conf.set(PARTITIONS, "2")
        frames = changing().frames(stream_of(spark, tmp_path / "in", numbered.slice(0, 60)))
        for name, counts in (("counted", True), ("plain", False)):
            place = frames.continue_from(tmp_path / name)
            rows = frames["mean"]
            if counts:
                rows = rows.groupBy("device").agg(f.count("*").alias("n"))
            writer = rows.writeStream.outputMode("complete" if counts else "append").format("memory")
            query = writer.option("checkpointLocation", place).queryName(name).trigger(availableNow=True).start()
            query.awaitTermination()
        kept = contents(tmp_path / "counted"), contents(tmp_path / "plain")
        other = changed.frames(stream_of(spark, tmp_path / "in"))
        with pytest.raises(
            StateError, match=r"counted has state of Spark's own operators \(stateStoreSave\).*new checkpoint"
        ):
            other.continue_from(tmp_path / "counted", restart="compatible")
        with pytest.raises(StateError, match="keeps the state of"):
            other.continue_from(tmp_path / "plain")
        monkeypatch.setattr("riot_ops.spark.user_checkpoint.read_notes", lambda *_: None)  # as an earlier version
        with pytest.raises(StateError, match=r"does not note what identifies its state.*continue it once"):
            other.continue_from(tmp_path / "plain", restart="compatible")
        assert kept == (contents(tmp_path / "counted"), contents(tmp_path / "plain"))
    finally:
        spark.conf.set(PARTITIONS, before)
