"""Whole dataflows on DataFrames, compared with local runs."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import time
from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.core.schema import ERRORS
from riot_ops.spark import dataframe_transform
from riot_ops.spark.frames import CACHED_ROWS
from riot_ops.spark.session import PARTITIONS
from tests.random_flows import SCHEMA, assert_same, everything, ordered, random_flow, random_input
from tests.search import seeds

pytestmark = pytest.mark.spark

KALMAN = t.KalmanFilter(by=("device",))


class Collected(dict):
    """The rows of each stream, from any number of batches."""

    def take(self, name, frame, number=0):
        table = frame.toArrow()
        self.setdefault(name, []).append(table)
        self.setdefault("numbers", Counter())[name, number] += 1

    def __getitem__(self, name):
        return self.get(name) if name == "numbers" else pa.concat_tables(self.get(name))


def fork():
    """Two streams by different keys and rejected records (infinite values), with nothing to flush at the end."""
    flow = ro.Dataflow("fork")
    rows = flow.source("in", schema=SCHEMA)
    smooth = rows.to(KALMAN, id="smooth")
    by_type = smooth.to(t.MovingAverage(by=("obs_type",), window=3), id="by-type")
    flow.sink("out", smooth, by_type)
    flow.sink("copy", smooth)
    return flow


def line(*tasks):
    """Return a dataflow with one stream of results."""
    flow = ro.Dataflow("line")
    stream = flow.source("in", schema={"device": "string", "value": "double"})
    for i, task in enumerate(tasks):
        stream = stream.to(task, id=f"t{i}")
    flow.sink("out", stream)
    return flow


@pytest.fixture(scope="module")
def rows():
    return random_input(random.Random(11), 120)


def stream_of(spark, folder, tables):
    """Return a streaming DataFrame with a micro-batch for each table; later calls add tables."""
    folder.mkdir(exist_ok=True)
    for table in tables:
        i = len(list(folder.iterdir()))
        pq.write_table(table, folder / f"{i}.parquet")
        os.utime(folder / f"{i}.parquet", (1_000_000 + i, 1_000_000 + i))
    schema = spark.createDataFrame(tables[0].slice(0, 1)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.mark.parametrize("seed", seeds(4))
def test_batch_equals_local_run(spark, seed):
    choose = random.Random(seed)
    flow = random_flow(choose, sources=1 + seed % 2)
    tables = {s.id: random_input(choose, 40) for s in flow.nodes_of_kind("source")}
    frames = flow.frames(
        {name: spark.createDataFrame(table).repartition(2) for name, table in tables.items()},
        partitions=choose.choice([1, 3]),
        fuse=choose.choice(["exact", "coarse"]),
        order="arrival",
    )
    got = Collected()
    assert frames.write_each(got.take) is None
    assert got["numbers"] == Counter({(name, 0): 1 for name in frames.names})
    nodes = ordered(flow)
    assert_same(everything(got, flow, nodes), everything(flow.run(tables), flow, nodes), flow)


def test_names_and_schemas(spark, rows):
    flow = fork()
    frames = flow.frames(spark.createDataFrame(rows))
    assert frames.names == ("smooth", "by-type", "errors") == tuple(frames)
    assert "smooth" in frames and "in" not in frames and len(frames) == 3
    assert frames["errors"].schema.names == ERRORS.names
    wanted = everything(flow.run(rows), flow)
    for name in frames.names:  # a single stream has the same records
        assert everything({n: frames[name].toArrow() for n in wanted}, flow)[name] == wanted[name]
    with pytest.raises(KeyError, match=r"no stream .*smoth.*; streams are smooth, by-type, errors; did you mean"):
        frames["smoth"]
    with pytest.raises(KeyError, match=r"in.{1,2} ends in no sink"):
        frames["in"]


def test_stream_is_read_once_and_continued(spark, rows, tmp_path):
    flow, got = fork(), Collected()
    parts = [rows.slice(i * 30, 30) for i in range(4)]

    def run(tables, fn=got.take, **options):
        frames = flow.frames(stream_of(spark, tmp_path / "in", tables), **{"partitions": 2, **options})
        query = frames.write_each(fn, checkpoint=tmp_path / "checkpoint", trigger="available now")
        query.awaitTermination(120)
        return query

    query = run(parts[:2])
    assert sum(p["numInputRows"] for p in query.recentProgress) == 60, "read once for three streams"
    assert query.name == "fork"
    run(parts[2:3], lambda name, frame, number: name == "errors" and got.take(name, frame, number))
    run(parts[3:])  # the state of streams that the function ignored has advanced
    assert got["numbers"] == Counter({("errors", i): 1 for i in range(4)}) + Counter(
        {(name, i): 1 for name in ("smooth", "by-type") for i in (0, 1, 3)}
    )
    found, wanted = everything(got, flow), everything(flow.run(rows), flow)
    assert found["errors"] == wanted["errors"]
    missing = set(range(60, 90))
    for name in ("smooth", "by-type"):
        assert found[name] == Counter({row: n for row, n in wanted[name].items() if seq_of(row) not in missing})
    # another query is refused with the difference
    for options, text in (({"partitions": 3}, "partitions=2 and cannot"), ({"fuse": "exact"}, "fuse='coarse' and")):
        with pytest.raises(StateError, match=f"the checkpoint .*checkpoint was written with {text}"):
            run(parts[:1], **options)


@pytest.mark.parametrize("face", ["write_each", "transform"])
def test_stream_continues_after_the_session_changed_its_shuffle_partitions(spark, rows, tmp_path, face):
    flow, got, parts = line(KALMAN), Collected(), [rows.slice(i * 60, 60) for i in range(2)]
    before = spark.conf.get(PARTITIONS)
    try:
        for part, partitions in zip(parts, (3, 2), strict=True):
            spark.conf.set(PARTITIONS, partitions)
            stream = stream_of(spark, tmp_path / "in", [part])
            if face == "write_each":
                query = flow.frames(stream).write_each(
                    got.take, checkpoint=tmp_path / "checkpoint", trigger="available now"
                )
            else:
                writer = flow.transform(stream, on_error="drop").writeStream.trigger(availableNow=True)
                hand_over = functools.partial(got.take, "t0")
                query = (
                    writer.foreachBatch(hand_over).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
                )
            assert query.awaitTermination(120)
    finally:
        spark.conf.set(PARTITIONS, before)
    alone = flow.run(rows)["t0"]
    assert Counter(got["t0"]["value"].to_pylist()) == Counter(alone["value"].to_pylist())


def test_empty_stream_is_handed_over(spark):
    got, seen = Collected(), {}
    rows_together = spark.conf.get(CACHED_ROWS)

    def take(name, frame, number):
        assert frame.sparkSession.conf.get(CACHED_ROWS) == rows_together, "the setting is not restored"
        seen[name] = frame.rdd.getNumPartitions()
        got.take(name, frame)

    line(KALMAN).frames(spark.createDataFrame([("a", 1.0)], "device string, value double")).write_each(take)
    assert seen["t0"] > 0 == seen["errors"], "no task reads a stream without blocks"
    assert got["t0"].num_rows == 1
    assert got["errors"].num_rows == 0 and got["errors"].schema.names == ERRORS.names


def test_failure_restores_settings(spark):
    def failing(batches):
        raise ValueError("of the user")
        yield from batches

    rows_together = spark.conf.get(CACHED_ROWS)
    frame = spark.createDataFrame([("a", 1.0)], "device string, value double")
    frames = line(KALMAN).frames(frame.mapInArrow(failing, frame.schema))
    with pytest.raises(Exception, match="of the user"):
        frames.write_each(lambda *_: None)
    assert spark.conf.get(CACHED_ROWS) == rows_together and not frames.packed.is_cached


def wait_until(done):
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)


def seq_of(row):
    """Return the number of a record in the form of ``exact``."""
    return int(re.search(r"\bseq: int ([0-9]+)", row)[1])


def test_trigger_interval(spark, rows, tmp_path):
    frames = fork().frames(stream_of(spark, tmp_path / "in", [rows]))
    query = frames.write_each(lambda *_: None, checkpoint=f"file:{tmp_path}/c", trigger="1 hour")
    try:
        wait_until((tmp_path / "c" / "commits" / "0").exists)
        assert query.isActive, "it must wait for the next hour"
    finally:
        query.stop()
    with pytest.raises(ConfigError, match=r"trigger must be a timedelta or a text .* got 5"):
        frames.write_each(lambda *_: None, trigger=5)
    with pytest.raises(ConfigError, match=r"write_each needs a function .* got None"):
        frames.write_each(None)


def test_one_stream_with_its_errors(spark, tmp_path):
    def low(row):
        if row["value"] == 3.0:
            raise ro.RecordError("three", reason="unlucky")
        return row

    flow = line(ro.map(low), KALMAN)
    frame = spark.createDataFrame([(v,) for v in (1.0, float("inf"), 3.0)], "value double").selectExpr(
        "'a' device", "*"
    )
    out = flow.transform(frame.coalesce(1))
    assert out.columns == ["device", "value", "_error"], "no seq, as the input has none"
    wanted = KALMAN.session().push({"device": "a", "value": 1.0})[0]["value"]
    found = out.collect()
    assert [(r.device, r.value) for r in found if r._error is None] == [("a", wanted)]
    found_errors = sorted((json.loads(r._error)["task"], json.loads(r._error)["reason"]) for r in found if r._error)
    assert found_errors == [("t0", "unlucky"), ("t1", "not_finite")]
    dropped = flow.transform(frame, on_error="drop")
    assert dropped.columns == ["device", "value"] and dropped.count() == 1
    # rows rejected earlier bypass the dataflow, into the column or the errors stream
    again = flow.transform(flow.transform(frame.coalesce(1)))
    assert sorted(r._error for r in again.collect() if r._error) == sorted(r._error for r in found if r._error)
    letters = flow.frames(out)["errors"].collect()
    assert sorted((r.seq, r.task, r.reason, r.message) for r in letters) == sorted(
        (None, e["task"], e["reason"], e["message"]) for e in (json.loads(r._error) for r in found if r._error)
    )
    assert all('"value"' in r.raw for r in letters)
    own = spark.createDataFrame([("a", 1.0, "odd"), ("a", 1.0, None)], "device string, value double, _error string")
    assert [(r.task, r.reason, r.message) for r in flow.frames(own)["errors"].collect()] == [("", "rejected", "odd")]


def test_transform_of_stream(spark, rows, tmp_path):
    flow = ro.Dataflow("types")
    smooth = flow.source("in", schema=SCHEMA).to(KALMAN, id="smooth")
    flow.sink("out", smooth.to(t.MovingAverage(by=("obs_type",), window=3), id="by-type"))
    out = flow.transform(stream_of(spark, tmp_path / "in", [rows.slice(0, 70), rows.slice(70)]), on_error="drop")
    query = out.writeStream.format("memory").queryName("types").trigger(availableNow=True).start()
    query.awaitTermination(120)
    got = {name: spark.table("types").toArrow() for name in ("by-type", "errors")}
    wanted = everything(flow.run(rows), flow)
    assert everything(got, flow)["by-type"] == wanted["by-type"] and len(wanted["by-type"]) > 10


def test_order(spark):
    start = random_input(random.Random(0), 1)["event_time"][0].as_py()
    table = pa.Table.from_pylist(
        [{"seq": i, "event_time": start + timedelta(seconds=i * 7 % 10), "value": float(i * i)} for i in range(10)]
    )
    flow = ro.Dataflow("order")
    smooth = flow.source("in", schema={"event_time": SCHEMA["event_time"], "value": "double"})
    flow.sink("out", smooth.to(t.KalmanFilter(), id="smooth"))
    frame = spark.createDataFrame(table).coalesce(1)
    for order, numbered, by in (
        ("auto", True, "seq"),
        ("auto", False, "event_time"),
        ("arrival", False, "seq"),
        ("event_time", True, "event_time"),
    ):
        session = t.KalmanFilter().session()
        wanted = {r["event_time"]: session.push(r)[0]["value"] for r in sorted(table.to_pylist(), key=lambda r: r[by])}
        given = frame if numbered else frame.drop("seq")
        for out in (flow.transform(given, order=order, on_error="drop"), flow.frames(given, order=order)["smooth"]):
            assert {r.event_time.replace(tzinfo=start.tzinfo): r.value for r in out.collect()} == wanted


@pytest.fixture
def lines_by_turns(tmp_path):
    """A folder of eight text files; each four of them, a micro-batch, have the lines of ten seconds by turns."""
    folder = tmp_path / "lines"
    folder.mkdir()
    for number in range(8):
        seconds = range(10 * (number // 4) + number % 4, 10 * (number // 4) + 10, 4)
        lines = [json.dumps({"id": s, "at": f"2024-05-01T12:00:{s:02}Z"}) for s in seconds for _ in range(2)]
        (folder / f"{number}.txt").write_text("\n".join(lines))
        os.utime(folder / f"{number}.txt", (1_700_000_000 + number, 1_700_000_000 + number))
    return folder


def counted_by_second():
    flow = ro.Dataflow("seconds")
    parsed = flow.source("lines", schema={"value": "string"}).to(
        t.ParseJSON(schema={"event_time": ("at", "iso"), "id": ("id", "int64")}, field="value"), id="parsed"
    )
    once = parsed.to(t.Deduplicate(by="id", ttl="1min"), id="once")
    flow.sink("out", once, once.to(t.Window(frame="2s"), id="counts"))
    return flow


def test_rows_without_seq_are_in_order_of_a_parsed_event_time(spark, lines_by_turns, tmp_path):
    """On every face: the lines of a micro-batch are late only if they are taken as they come."""
    flow = counted_by_second()
    streamed = spark.readStream.schema("value string").option("maxFilesPerTrigger", 4).text(str(lines_by_turns))
    batch = spark.read.schema("value string").text(str(lines_by_turns)).repartition(2)
    query = flow.start(spark, streamed, trigger="available now")
    latency = query.wait().latency  # from the time at which Spark planned the micro-batch
    assert all(0 < seconds < 120 for seconds in latency.quantiles(0.0, 1.0))
    assert query["once"].num_rows == 20 and query["errors"].num_rows == 0
    kept = Collected()
    flow.frames(streamed).write_each(
        kept.take, checkpoint=tmp_path / "checkpoint", trigger="available now"
    ).awaitTermination(120)
    assert kept["once"].num_rows == 20 and kept["errors"].num_rows == 0
    assert sum(kept["counts"]["count"].to_pylist()) >= 18  # the last windows are open
    bounded = flow.start(spark, batch)
    assert bounded.wait().rows["counts"] == 10 and bounded["errors"].num_rows == 0
    assert flow.frames(batch)["errors"].count() == 0
    assert sum(flow.frames(batch)["counts"].toArrow()["count"].to_pylist()) == 20
    arrival = flow.start(spark, streamed, trigger="available now", order="arrival")
    arrival.wait()
    assert set(arrival["errors"]["reason"].to_pylist()) == {"late"}
    assert flow.frames(batch.coalesce(1), order="arrival")["errors"].count() > 0


def test_partitions_fuse_and_compression(spark, monkeypatch):
    asked = []
    pack = dataframe_transform.pack_stage_zero
    monkeypatch.setattr(
        dataframe_transform,
        "pack_stage_zero",
        lambda *a: (asked.append((len(a[0].stages), [len(v) for v in a[2].values()], a[4].codec)), pack(*a))[1],
    )
    flow = line(t.KalmanFilter(by=("device", "value")), t.KalmanFilter(by=("device",), output="x"))
    frame = spark.createDataFrame([("a", 1.0)], "device string, value double")
    for make in (flow.transform, flow.frames):
        make(frame, partitions=5, buffering=Buffering(codec="zstd"))
        make(frame, partitions=4, buffering=Buffering(codec=None))
        make(frame, partitions=4, fuse="exact")
        make(frame, partitions=5, fuse="coarse")
        make(frame)
    n = int(spark.conf.get("spark.sql.shuffle.partitions"))
    assert asked == 2 * [
        (3, [5, 5], "zstd"),
        (2, [4], None),
        (3, [4, 4], "lz4"),
        (2, [5], "lz4"),
        (2, [n], "lz4"),
    ]


def test_unsigned_types_are_widened(spark):
    flow = ro.Dataflow("wide")
    flow.sink("out", flow.source("in", schema={"a": "uint8", "b": "uint32", "c": "uint64"}))
    row = flow.frames(spark.createDataFrame([(7, 8, 9)], "a int, b long, c long"))["in"].collect()
    assert [tuple(r) for r in row] == [(7, 8, 9)]


def test_misuse(spark, rows, tmp_path):
    frame = spark.createDataFrame(rows)
    stream = stream_of(spark, tmp_path / "in", [rows])
    two = ro.Dataflow("two")
    two.sink("out", *(two.source(name, schema=SCHEMA).to(KALMAN, id=f"k-{name}") for name in "ab"))
    named = line(t.KalmanFilter(output="_error"))
    for flow, source, text in (
        (fork(), rows, "the source must be a Spark DataFrame, got "),
        (fork(), {"on": frame}, "has no source 'on'"),
        (fork(), None, "must be a Spark DataFrame, got None"),
        (two, frame, r"has 2 sources \(a, b\): pass a mapping"),
        (two, {"a": frame}, "needs a source for 'b'"),
        (two, {"a": frame, "b": stream}, "all streaming or all batch DataFrames, but a is batch, b is streaming"),
        (fork(), frame.drop("value"), "lacks the field 'value'; it has"),
        (fork(), frame.selectExpr("seq", "event_time", "device", "obs_type", "array(value) value"), "cannot be cast"),
        (fork(), frame.selectExpr("*", "1 _error"), "column '_error' .* is int32; rename it"),
    ):
        with pytest.raises(ConfigError, match=text):
            flow.frames(source)
    for flow, text in ((fork(), "streams smooth, by-type: use flow.frames"), (two, "sources a, b and")):
        with pytest.raises(ConfigError, match=text):
            flow.transform(frame)
    with pytest.raises(ConfigError, match="has a field '_error'"):
        named.transform(frame)
    for options, text in (
        ({"order": "seq"}, "order must be 'auto', 'arrival' or 'event_time', got 'seq'"),
        ({"partitions": 0}, "partitions must be a whole number >= 1, got 0"),
        ({"fuse": "some"}, "fuse must be 'auto', 'exact' or 'coarse', got 'some'"),
        ({"buffering": "late"}, "buffering must be a Buffering or one of throughput, latency, immediate, got 'late'"),
    ):
        for make in (line(KALMAN).transform, line(KALMAN).frames):
            with pytest.raises(ConfigError, match=text):
                make(frame, **options)
    with pytest.raises(ConfigError, match="on_error must be 'column' or 'drop', got 'raise'"):
        line(KALMAN).transform(frame, on_error="raise")


def test_results_have_ordinals_only_where_asked_for(spark, tmp_path):
    frame = spark.createDataFrame([("on off",)], "text string")
    for ordinals, wanted in ((False, []), (True, ["ordinal"])):
        flow = ro.Dataflow("words", ordinals=ordinals)
        flow.sink("out", flow.source("texts", schema={"text": "string"}).to(t.Tokenize(field="text"), id="words"))
        query = flow.start(spark, [{"text": "on off"}], out=tmp_path / f"{ordinals}")
        query.wait("1min")
        faces = [query["words"].schema.names]
        faces += [flow.frames(frame)["words"].columns, flow.transform(frame).columns]
        for names in faces:
            assert [name for name in names if name.startswith("ordinal")] == wanted, names
    assert "ordinal" not in t.Tokenize(field="text").transform(frame).columns  # without seq it orders nothing
