"""Tasks on the user's DataFrames, alone and chained, compared with naive references."""

from __future__ import annotations

import json
import math
import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.spark import dataframe_transform, transform
from riot_ops.spark.session import (
    PARTITIONS,
)
from tests.reference import moving_average
from tests.reference.kalman_filter import Kalman

pytestmark = pytest.mark.spark

READINGS = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("device", pa.string()), ("value", pa.float64())])
BATCHES = 3


def readings():
    rows = [{"seq": i, "device": "abü"[i % 3], "value": float(i * 37 % 50)} for i in range(90)]
    for i, value in ((5, None), (20, math.inf), (35, 13.0), (62, 13.0), (64, -math.inf), (80, math.nan)):
        rows[i]["value"] = value
    return rows


def functions():
    """Return nested functions, which are pickled by value, as Spark's workers cannot import this module."""

    def halved(row):
        if row["value"] == 13.0:
            raise ro.RecordError("thirteen", reason="unlucky")
        return {**row, "value": None if row["value"] is None else row["value"] / 2}

    def low(row):
        if row["value"] > 14:
            raise ro.RecordError("too high", reason="high")
        return row

    return ro.map(halved), ro.map(low)


HALVED, LOW = functions()
KALMAN = t.KalmanFilter(by=("device",))
CHAIN = [HALVED, KALMAN, t.MovingAverage(by=("device",), window=4), LOW]


def naive(rows):
    """Return the chain's results: (seq, value) of its output, (seq, task, reason) of rejected rows."""
    kalman, smooth, errors = Kalman(), [], []
    for row in rows:
        value = row["value"]
        if value == 13.0:
            errors.append((row["seq"], "map_function", "unlucky"))
        elif value is not None and math.isinf(value):
            errors.append((row["seq"], "kalman_filter", "not_finite"))
        else:
            value = kalman.push(row["device"], None if value is None else value / 2)[0]
            smooth.append({"key": row["device"], "seq": row["seq"], "value": value})
    averages = moving_average.by_count(smooth, 4)
    errors += [(a["seq"], "map_function", "high") for a in averages if a["value"] > 14]
    return [(a["seq"], a["value"]) for a in averages if a["value"] <= 14], sorted(errors)


def outcome(rows):
    """Return the same for the rows of a result with a column of errors."""
    found = [(r["seq"], *(json.loads(r["_error"])[k] for k in ("task", "reason"))) for r in rows if r["_error"]]
    good = [(r["seq"], r["value"]) for r in rows if r["_error"] is None]
    return sorted(good), sorted(found)


def assert_naive(rows):
    good, errors = outcome(rows)
    wanted, rejected = naive(readings())
    assert [seq for seq, _ in good] == [seq for seq, _ in wanted]
    assert [v for _, v in good] == pytest.approx([v for _, v in wanted], rel=1e-12)
    assert errors == rejected
    assert {reason for _, _, reason in errors} == {"unlucky", "not_finite", "high"}, "all steps reject"


@pytest.fixture(scope="module")
def frame(spark):
    return spark.createDataFrame(pa.Table.from_pylist(readings(), schema=READINGS)).repartition(2)


def test_chain_over_batch(frame):
    out = frame
    for task in CHAIN:
        out = task.transform(out)
        assert out.columns.count("_error") == 1
    assert_naive(out.toArrow().to_pylist())


def test_chain_over_stream(spark, tmp_path):
    rows = readings()
    part = len(rows) // BATCHES
    (tmp_path / "in").mkdir()
    for i in range(BATCHES):
        file = tmp_path / "in" / f"{i}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[i * part : (i + 1) * part], schema=READINGS), file)
        os.utime(file, (1_000_000 + i, 1_000_000 + i))
    out = spark.readStream.schema("seq long, device string, value double")
    out = out.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    for task in CHAIN:
        out = transform(task, out)
    query = out.writeStream.format("memory").queryName("chain").outputMode("append").trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert sum(p["numInputRows"] > 0 for p in query.recentProgress) == BATCHES
    assert_naive([row.asDict() for row in spark.table("chain").collect()])


def test_rejected_row_is_passed_on_unchanged(frame):
    """Later tasks do not change it, even if they change the fields of rows."""
    once = HALVED.transform(frame)
    (row,) = (r for r in once.where("_error is not null").collect() if r.seq == 35)
    error = json.loads(row["_error"])
    assert (error["reason"], error["message"]) == ("unlucky", "thirteen") and '"value": 13.0' in error["raw"]
    assert row.device is None and row.value is None
    wide = t.KalmanFilter(by=("device",), output="smooth").transform(once)
    (later,) = (r for r in wide.where("_error is not null").collect() if r.seq == 35)
    assert later.asDict() == {**row.asDict(), "smooth": None}


@pytest.mark.parametrize("last", [HALVED, KALMAN], ids=["stateless", "keyed"])
def test_rejected_rows_are_dropped_on_request(frame, last):
    first = KALMAN if last is HALVED else HALVED
    out = transform(last, transform(first, frame), on_error="drop")
    assert out.columns == frame.columns
    found = [r.seq for r in out.select("seq").collect()]
    unlucky = {r["seq"] for r in readings() if r["value"] == 13.0 and last is KALMAN}  # smoothed, none is
    assert sorted(found) == sorted({*range(90)} - {20, 64} - unlucky)


def test_error_column_of_other_type_is_refused(spark):
    with pytest.raises(ConfigError, match=r"'_error' .*it is int64; rename"):
        transform(HALVED, spark.createDataFrame([(1, 2.0, 3)], "seq long, value double, _error long"))


def test_task_writing_error_column_is_refused(frame):
    with pytest.raises(ConfigError, match=r"kalman_filter must not write the field '_error'"):
        transform(t.KalmanFilter(output="_error"), frame)


def test_rows_of_partitions_have_distinct_numbers(monkeypatch):
    numbers = []
    for place in range(3):
        context = SimpleNamespace(partitionId=lambda place=place: place)
        monkeypatch.setattr(dataframe_transform.TaskContext, "get", staticmethod(lambda context=context: context))
        batches = [pa.RecordBatch.from_pydict({"value": np.zeros(40_000)})] * 3
        numbers.append(np.concatenate([b.column("seq").to_numpy() for b in dataframe_transform.with_seq(batches)]))
    joined = np.concatenate(numbers)
    assert joined.size == 3 * 120_000
    assert (np.diff(joined) > 0).all(), "repeated, or not in order of partition and row"


START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("order", "numbered", "by_time"),
    [("auto", True, False), ("arrival", True, False), ("event_time", True, True), ("auto", False, True)],
)
def test_order(spark, order, numbered, by_time):
    rows = [{"seq": i, "event_time": START + timedelta(seconds=i * 7 % 10), "value": float(i * i)} for i in range(10)]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows)).coalesce(1)
    out = transform(t.KalmanFilter(), frame if numbered else frame.drop("seq"), order=order, partitions=1)
    reference = Kalman()
    wanted = {
        r["event_time"]: reference.push("", r["value"])[0]
        for r in sorted(rows, key=lambda r: r["event_time" if by_time else "seq"])
    }
    got = {r["event_time"]: r["value"] for r in out.toArrow().to_pylist()}
    assert got == pytest.approx(wanted)


def test_partitions_and_compression(spark, monkeypatch):
    seen_settings = []
    pack = dataframe_transform.pack_stage_zero
    monkeypatch.setattr(
        dataframe_transform,
        "pack_stage_zero",
        lambda *a: (seen_settings.append((len(a[2][1]), a[4].codec)), pack(*a))[1],
    )
    frame = spark.createDataFrame([("a", 1.0)], "device string, value double")
    transform(t.KalmanFilter(by=("device",)), frame, partitions=3, buffering=Buffering(codec="zstd"))
    transform(t.KalmanFilter(by=("device",)), frame)
    transform(t.KalmanFilter(), frame, partitions=3, buffering=Buffering(codec=None))
    assert seen_settings == [(3, "zstd"), (int(spark.conf.get(PARTITIONS)), "lz4"), (1, None)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_error": "raise"}, "on_error must be 'column' or 'drop', got 'raise'"),
        ({"order": "seq"}, "order must be 'auto', 'arrival' or 'event_time', got 'seq'"),
        ({"partitions": 0}, "partitions must be a whole number >= 1, got 0"),
        ({"buffering": "late"}, "buffering must be a Buffering or one of throughput, latency, immediate, got 'late'"),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(ConfigError, match=text):
        transform(t.KalmanFilter(), None, **options)


def test_numbers_are_unique_over_partitions(spark):
    def numbers(batches):
        from riot_ops.spark.dataframe_transform import with_seq

        yield from with_seq(batches)

    rows = spark.range(0, 30, 1, 3).mapInArrow(numbers, "seq long, id long").collect()
    assert {r.id: r.seq for r in rows} == {i: (i // 10 << 40) + i % 10 for i in range(30)}


def test_stateless_task_rejects_rounded_numbers(spark):
    class Halves(t.StatelessTask):  # nested, so that it is pickled by value
        code = "HLV"

        def requires(self):
            return {"value": "number"}

        def apply(self, batch, rejects):
            return batch

    out = transform(Halves(), spark.createDataFrame([(1, 7), (2, 2**53 + 1)], "seq long, value long"))
    first, second = sorted(out.collect(), key=lambda row: row["seq"])
    assert (first["value"], first["_error"], second["value"]) == (7, None, None)
    assert json.loads(second["_error"])["reason"] == "out_of_range"
