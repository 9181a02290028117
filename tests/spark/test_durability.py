"""Durability of queries: locks, damaged checkpoints, stops from outside, and input that has grown."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, RiotError, StateError
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.folder_lock import LOCK
from riot_ops.core.sink import CallbackSink
from riot_ops.streams.files import write as write_stream
from riot_ops.testing import exact
from tests.core.test_file_sink import ROWS
from tests.core.test_sink import branched, check_result_streams
from tests.limited_sink import LimitedSink
from tests.recovery import job
from tests.recovery.test_restart import assert_equal, file_contents, result_contents

pytestmark = pytest.mark.spark


def test_checkpoint_locks_and_damage(spark, tmp_path):
    folder = tmp_path / "the checkpoint"
    place = {"checkpoint": f"file://{tmp_path}/the%20checkpoint", "partitions": 1}

    def start(until=400, **options):
        options = {"out": f"file://{tmp_path}/out", **place} | options
        return job.dataflow().start(spark, job.GatedSource(job.table(400), until), **options)

    query = start(100)
    with pytest.raises(ConnectorError, match=rf"{folder} is in use by this process on this host since"):
        start(out=tmp_path / "other")
    with pytest.raises(ConnectorError, match=rf"{tmp_path}/out/average is in use by this process on this host since"):
        start(checkpoint=tmp_path / "other")
    while not query.poll().messages:
        time.sleep(0.05)
    query.streaming.stop()  # like another program with this session
    with pytest.raises(RiotError, match="was stopped from outside after 100 messages, before its sources had ended"):
        query.wait("1min")
    query = start(200)
    while not query.poll().messages:
        time.sleep(0.05)
    query.streaming.stop()  # unnoticed: its folders are free
    query = start()
    query.wait("2min")
    assert_equal(file_contents(tmp_path / "out"), result_contents(job.dataflow().run(job.table(400))))
    assert sum(file_contents(tmp_path / "out")["smooth"].values()) == query["smooth"].num_rows

    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    batch = max(int(p.name) for p in (folder / "commits").iterdir() if p.name.isdigit())
    manifest = json.loads((folder / "riot_ops.json").read_text())
    for damage, text in (
        (lambda: write(folder / "riot_ops.json", json.dumps(manifest | {"partitions": 2})), "riot_ops.json.*checksum"),
        (lambda: write(folder / "riot_ops.json", "[" * 100_000), "riot_ops.json is damaged"),
        ((folder / "offsets" / str(batch)).unlink, f"offsets/{batch} does not say where"),
        (lambda: write(folder / "offsets" / str(batch), "v1\n{}\n{}"), f"offsets/{batch} does not say where"),
        (lambda: write(folder / "offsets" / str(batch), 'v1\n{}\n{"at": {}, "ended": true}'), f"offsets/{batch} does"),
    ):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        damage()
        with pytest.raises(StateError, match=rf"the checkpoint.*{text}|the manifest .*{text}"):
            start()
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    shutil.rmtree(folder / "state")
    grown = job.GatedSource(pa.concat_tables([job.table(400), job.table(10)]), 410)
    query = job.dataflow().start(spark, grown, out=tmp_path / "out", **place)
    with pytest.raises(StateError, match=rf"its state cannot be read.*{folder}"):
        query.wait("2min")
    with pytest.raises(ConfigError, match="checkpoint has the scheme nosuch:"):
        start(checkpoint="nosuch://host/x")
    with pytest.raises(StateError, match="is of a query on Spark"):
        job.dataflow().run(job.table(10), checkpoint=kept)
    job.dataflow().run(job.table(10), checkpoint=tmp_path / "local")
    with pytest.raises(StateError, match="is of a local run"):
        start(checkpoint=tmp_path / "local", out=tmp_path / "other")


def write(path, text):
    path.write_text(text)
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def table(out, stream):
    return ParquetSink(out).table(stream).to_pylist()


def test_restart_over_grown_input_equals_local_run(spark, tmp_path):
    flow = ro.Dataflow("grown")
    smooth = flow.source("city").to(t.ParseSenML(schema="city"), id="parse")
    average = smooth.to(t.MovingAverage(by=("sensor_id", "obs_type"), window=7, partial=True), id="average")
    flow.sink("out", smooth, average)
    file = tmp_path / "city.txt"
    for messages in (30, 50, 50):
        write_stream(ro.streams.city(sensors=3, messages=messages), file)
        places = [{"out": tmp_path / r / "out", "checkpoint": tmp_path / r / "kept"} for r in ("local", "spark")]
        flow.run(ro.streams.replay(file), **places[0])
        flow.start(spark, ro.streams.replay(file), partitions=1, **places[1]).wait("2min")
        for stream in ("parse", "average"):
            there, here = (Counter(map(exact, table(p["out"], stream))) for p in places)
            assert there == here
    assert len(table(places[1]["out"], "parse")) == 5 * 50


def test_results_are_readable_and_latency_counts_from_due_times(spark, tmp_path):
    class Due(ro.MemorySource):
        """Records that were due long ago, those of the second split later than those of the first."""

        def splits(self, start, end, n):
            now = time.time() * 1e6
            return [
                s | {"due": [now - (1000 - 500 * i) * 1e6, now - (900 - 500 * i) * 1e6]}
                for i, s in enumerate(super().splits(start, end, n))
            ]

    seen = []
    sinks = {"out": ParquetSink(tmp_path), "other": CallbackSink(lambda s, b: seen.append(b.num_rows))}
    query = branched().start(spark, Due(ROWS), sinks=sinks, partitions=2)
    begun = time.time()
    summary = query.wait("2min")
    took = time.time() - begun
    check_result_streams(query, seen)
    least, most = summary.latency.quantiles(0.0, 1.0)
    # the keyed step's only bucket reads both splits, of 1000 to 400 seconds ago
    assert 400 <= least <= 440 + took
    assert 950 <= most <= 1000 + took


def test_stopped_session_is_reported(monkeypatch):
    class Stopped:
        _jsc = None

        class sparkContext:  # noqa: N801 (Spark's name)
            _jsc = None

    with pytest.raises(ConfigError, match="Spark session has been stopped"):
        job.dataflow().start(Stopped(), job.table(3))


def test_full_disk_is_named_and_a_restart_continues(spark, tmp_path):
    (tmp_path / "full").touch()
    flow = ro.Dataflow("full")
    readings = flow.source("in", schema={"device": "string", "value": "double"})
    flow.sink("out", readings, readings.to(t.KalmanFilter(by="device"), id="kalman"))
    records = [{"device": f"d{i % 7}", "value": float(i)} for i in range(300)]
    sink, checkpoint = LimitedSink(tmp_path / "out", "kalman"), str(tmp_path / "checkpoint")

    def run():
        query = flow.start(spark, ro.MemorySource(records), sinks=sink, checkpoint=checkpoint, max_records=150)
        query.wait("100s")

    for _ in range(2):  # the second start is not refused: no folder is in use
        with pytest.raises(ConnectorError, match=r"cannot write stream 'kalman' below .*: .*No space left on device"):
            run()
        assert not [path for path in (tmp_path / "out").rglob("*") if path.name != LOCK and path.is_file()]
    (tmp_path / "full").unlink()
    run()
    found, wanted = ro.ParquetSink(tmp_path / "out").table("kalman"), flow.run(records)["kalman"]
    assert sorted(map(exact, found.select(["device", "value"]).to_pylist()), key=str) == sorted(
        map(exact, wanted.select(["device", "value"]).to_pylist()), key=str
    )
    assert not [path for path in (tmp_path / "out").rglob(".part-*")]
    (tmp_path / "out" / "kalman" / ".part-000009-00000-1-100").write_bytes(b"of a batch that was not committed")
    assert spark.read.parquet(str(tmp_path / "out" / "kalman")).count() == 300
