"""Spark's own repartition of the state of a checkpoint, from Spark 4.2 on."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.spark import features, read_state
from riot_ops.testing import exact

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not features.has("repartition of a checkpoint"), reason="from Spark 4.2 on"),
]

TABLE = pa.Table.from_pylist(
    [{"device": f"d{i % 7}", "kind": "ab"[i % 2], "value": float(i * i % 31)} for i in range(300)]
)


def dataflow():
    flow = ro.Dataflow("growing")
    readings = flow.source("readings", schema={"device": "string", "kind": "string", "value": "double"})
    smooth = readings.to(t.KalmanFilter(by=("device", "kind")), id="smooth")
    flow.sink("out", smooth, smooth.to(t.MovingAverage(by="kind", window=5), id="mean"))
    return flow


def test_query_continues_after_spark_has_repartitioned_its_state(spark, tmp_path):
    """It keeps its buckets, which are on other partitions then; their number can be changed afterwards as well."""

    def run(rows, **options):
        where = {"checkpoint": tmp_path / "checkpoint", "out": tmp_path / "out"}
        query = dataflow().start(spark, MemorySource(TABLE.slice(0, rows)), max_records=60, **where, **options)
        query.wait(timeout="3min")
        return query

    def state():
        found = read_state(tmp_path / "checkpoint", "smooth").sort_by([("device", "ascending"), ("kind", "ascending")])
        return found.to_pylist()

    run(120, partitions=2)
    before = state()
    spark._streamingCheckpointManager.repartition(str(tmp_path / "checkpoint"), 5)
    assert state() == before and len(before) == 14
    query = run(200)
    assert query.restart is None and query.summary.messages == 80
    assert {one["numShufflePartitions"] for one in query.streaming.lastProgress["stateOperators"]} == {5}
    query = run(300, partitions=3, restart="compatible")
    assert query.restart.kept == ("smooth", "mean") and query.restart.options["partitions"] == "2 to 3"
    whole = dataflow().run(TABLE)
    for stream in ("smooth", "mean"):
        assert Counter(map(exact, query[stream].to_pylist())) == Counter(map(exact, whole[stream].to_pylist())), stream
