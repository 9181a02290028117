"""Tasks on DataFrames of one's own, alone and one behind the other, against naive references."""

from __future__ import annotations

import json
import math
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.spark import dataframe_transform as transform
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
    """Functions within one travel to Spark's workers, which do not know this module, as code."""

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
    """What the chain gives: (seq, value) of the rows that come out, (seq, task, reason) of those rejected."""
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
    """The same of rows of a result, which has one column of errors."""
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


def test_a_chain_over_a_batch(frame):
    out = frame
    for task in CHAIN:
        out = task.transform(out)
        assert out.columns.count("_error") == 1
    assert_naive(out.toArrow().to_pylist())


def test_a_chain_over_a_stream(spark, tmp_path):
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


def test_a_rejected_row_stays_as_it_is(frame):
    """Whatever the tasks behind it make of the fields of a row."""
    once = HALVED.transform(frame)
    (row,) = (r for r in once.where("_error is not null").collect() if r.seq == 35)
    told = json.loads(row["_error"])
    assert (told["reason"], told["message"]) == ("unlucky", "thirteen") and '"value": 13.0' in told["raw"]
    assert row.device is None and row.value is None
    wide = t.KalmanFilter(by=("device",), output="smooth").transform(once)
    (later,) = (r for r in wide.where("_error is not null").collect() if r.seq == 35)
    assert later.asDict() == {**row.asDict(), "smooth": None}


@pytest.mark.parametrize("last", [HALVED, KALMAN], ids=["stateless", "keyed"])
def test_rejected_rows_are_dropped_where_that_is_asked_for(frame, last):
    first = KALMAN if last is HALVED else HALVED
    out = transform(last, transform(first, frame), errors="drop")
    assert out.columns == frame.columns
    found = [r.seq for r in out.select("seq").collect()]
    unlucky = {r["seq"] for r in readings() if r["value"] == 13.0 and last is KALMAN}  # smoothed, none is
    assert sorted(found) == sorted({*range(90)} - {20, 64} - unlucky)


def test_a_column_of_that_name_but_another_kind_is_refused(spark):
    with pytest.raises(ConfigError, match=r"'_error' .*it is int64; rename"):
        transform(HALVED, spark.createDataFrame([(1, 2.0, 3)], "seq long, value double, _error long"))


def test_a_result_of_that_name_is_refused(frame):
    with pytest.raises(ConfigError, match=r"kalman_filter must not write the field '_error'"):
        transform(t.KalmanFilter(output="_error"), frame)
