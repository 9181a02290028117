"""State read from checkpoints equals the state of a session over the same records."""

from __future__ import annotations

import random
import shutil
from collections import Counter

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.stats.accumulators import SCALE
from riot_ops.runtime.state import KeyedState
from riot_ops.spark import read_state
from riot_ops.spark.stage import Head, Link
from riot_ops.spark.state_reader import chain_snapshots
from tests.random_flows import SCHEMA, random_input
from tests.spark.test_frames import stream_of

pytestmark = pytest.mark.spark


def counting():
    def count(seen, row):
        return (seen or 0) + 1, row

    return ro.keyed(count, by="device")


#: A scalar state, two windowed ones, one of JSON values, and one that holds rows of all keys together.
TASKS = {
    "smooth": t.KalmanFilter(by=("device", "obs_type")),
    "average": t.MovingAverage(by=("device",), window=4),
    "window": t.Window(by=("device",), frame="10s", allowed_lateness="4s", aggregates={"mean": ("value", "mean")}),
    "count": counting(),
    "join": t.AssembleMessage(schema=None, fields=("light", "dust", "none"), by=("device",)),
}


def dataflow():
    flow = ro.Dataflow("state")
    rows = flow.source("in", schema=SCHEMA)
    flow.sink("out", *(rows.to(task, id=name) for name, task in TASKS.items()))
    return flow


@pytest.fixture(scope="module")
def rows():
    return random_input(random.Random(4), 150)


@pytest.fixture(scope="module")
def checkpoint(spark, rows, tmp_path_factory):
    """Run a query in three micro-batches, whose chains have a base and deltas."""
    folder = tmp_path_factory.mktemp("state")
    stream = stream_of(spark, folder / "in", [rows.slice(i * 50, 50) for i in range(3)])
    frames = dataflow().frames(stream, partitions=2, fuse="exact")
    query = frames.write_each(lambda *_: None, checkpoint=folder / "checkpoint", trigger="available now")
    assert query.awaitTermination(120)
    return folder / "checkpoint"


def held(name, rows):
    """Return the state of a task over the rows, by key."""
    state = KeyedState(TASKS[name])
    state.update(rows.combine_chunks().to_batches()[0], RejectedRecords(name))
    if name == "window":
        session = TASKS[name].session()
        session.push_batch(rows)
        return _open_windows(session.flush())
    arrays = {n: list(state.arrays[n][: state.size]) for n in state.fields}
    if name == "average":
        scale = 0.25  # so that no sum of four readings overflows
        arrays["total"] = [(a + b) / scale for a, b in zip(arrays["total"], arrays.pop("rest"), strict=True)]
    keys = state.keys().to_pylist() or [{}]
    return [{**key, **{n: _plain(array[i]) for n, array in arrays.items()}} for i, key in enumerate(keys[: state.size])]


def _open_windows(flushed):
    """Return the flushed windows by key."""
    found = {}
    for row in flushed:
        found.setdefault(row["device"], []).append((row["window_start"], row["mean"]))
    return [{"device": device, "open": sorted(windows, key=repr)} for device, windows in found.items()]


def _plain(value):
    if isinstance(value, pa.RecordBatch):
        return value.to_pylist()
    return value.tolist() if hasattr(value, "tolist") else value


def assert_held(name, table, rows):
    found, wanted = table.to_pylist(), held(name, rows)
    if name == "join":  # each bucket has its own pool
        found, wanted = ([row for pool in pools for row in pool["held"] or ()] for pools in (found, wanted))
    elif name == "window":
        found = [_means(row) for row in found if row["open"]]
    elif name == "count":
        found = [{**row, "state": msgspec.json.decode(row["state"])} for row in found]
    assert len(wanted) > 3
    assert Counter(map(repr, map(_sorted, found))) == Counter(map(repr, map(_sorted, wanted)))


def _means(row):
    cells = [(w["begin"], w["n.value"], w["total.value"] / SCALE) for w in row["open"]]
    means = [(begin, total / n if n else None) for begin, n, total in cells]
    return {"device": row["device"], "open": sorted(means, key=repr)}


def _sorted(row):
    return sorted(row.items())


@pytest.mark.parametrize("name", TASKS)
def test_state_of_query(spark, checkpoint, rows, name):
    assert_held(name, read_state(checkpoint, name), rows)


def test_state_as_dataframe(spark, checkpoint, rows):
    frame = read_state(f"file:{checkpoint}", "average", spark)
    table = read_state(checkpoint, "average")
    assert frame.columns == table.column_names
    key = lambda row: repr(row["device"])  # noqa: E731
    assert sorted((r.asDict() for r in frame.collect()), key=key) == sorted(table.to_pylist(), key=key)


@pytest.mark.parametrize("name", TASKS)
def test_state_of_local_run(spark, rows, tmp_path, name):
    flow = ro.Dataflow("one")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(TASKS[name], id=name))
    flow.run(rows, checkpoint=tmp_path / "checkpoint")
    table = read_state(tmp_path / "checkpoint", name)
    if name == "window":  # all windows were closed at the end
        assert table.num_rows > 3 and not any(table["open"].to_pylist())
        return
    assert_held(name, table, rows)
    if name == "smooth":
        assert read_state(tmp_path / "checkpoint", name, spark).count() == len(table)


def test_state_of_processor_by_key(spark, rows, tmp_path):
    stream = stream_of(spark, tmp_path / "in", [rows.slice(0, 90), rows.slice(90)])
    processor = TASKS["smooth"].stateful_processor(stream.schema)
    query = stream.groupBy("device", "obs_type").transformWithStateInPandas(
        processor, outputStructType=processor.output_schema, outputMode="append", timeMode="None"
    )
    query = (
        query.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    )
    assert query.start().awaitTermination(120)
    assert_held("smooth", read_state(tmp_path / "c", "kalman_filter"), rows)


def test_other_content_is_refused(spark, checkpoint, tmp_path, monkeypatch):
    with pytest.raises(KeyError, match=r"no state of a step .*smoth.*; there are .*smooth.*did you mean"):
        read_state(checkpoint, "smoth")
    with pytest.raises(StateError, match=r"is no checkpoint"):
        read_state(tmp_path, "smooth")
    shutil.copytree(checkpoint, tmp_path / "damaged")
    for file in (tmp_path / "damaged" / "state").rglob("*.zip"):
        file.write_bytes(b"no archive")
    for file in (tmp_path / "damaged" / "state").rglob("*.changelog"):
        file.write_bytes(b"no changelog")
    with pytest.raises(StateError, match="is no checkpoint that Spark can read"):
        read_state(tmp_path / "damaged", "smooth")
    flow = ro.Dataflow("one")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(TASKS["smooth"], id="smooth"))
    flow.run([{"device": "a", "value": 1.0, "obs_type": "x", "event_time": None}], checkpoint=tmp_path / "run")
    with pytest.raises(KeyError, match="no state of a step"):
        read_state(tmp_path / "run", "window")
    for file in (tmp_path / "run").glob("state-*"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(StateError, match="damaged: the checksum does not fit"):
        read_state(tmp_path / "run", "smooth")
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    with pytest.raises(ConfigError, match="needs a session"):
        read_state(checkpoint, "smooth")


def test_incomplete_chain_is_refused():
    links = [Link("", "a", {"s": b"0", "": b"[]"}), Link("a", "b", {"s": b"1"}), Link("b", "c", {"s": b"2"})]
    stored = {i: msgspec.msgpack.encode(link) for i, link in enumerate(links)}
    stored[-1] = msgspec.msgpack.encode(Head(2, 0, 0, 1, 1, "c"))
    assert chain_snapshots(stored, "it") == {"s": [b"0", b"1", b"2"]}
    for change, text in (
        ({1: None}, "a link is missing"),
        ({-1: None}, "a link is missing"),
        ({1: msgspec.msgpack.encode(Link("x", "b", {}))}, "link 1 is not of the chain"),
        ({2: msgspec.msgpack.encode(Link("b", "x", {}))}, "its newest link is not the last written one"),
        ({0: b"\xc1"}, "it: .*"),
    ):
        with pytest.raises(StateError, match=f"it: .*{text}" if not text.startswith("it") else text):
            chain_snapshots({k: v for k, v in {**stored, **change}.items() if v is not None}, "it")
