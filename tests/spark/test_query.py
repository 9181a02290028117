"""The summary of a query counts the records in its sinks, even if Spark reports less progress."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming import StreamingQuery

import riot_ops as ro
from riot_ops import tasks as t

pytestmark = pytest.mark.spark


def start(spark, folder, messages):
    flow = ro.Dataflow("counted")
    flow.sink("out", flow.source("city") >> t.ParseSenML(schema="city"))
    return flow.start(
        spark,
        source=ro.streams.city(sensors=5, messages=messages),
        out=folder / "out",
        checkpoint=folder / "checkpoint",
        trigger="available now",
        max_records=100,
    )


def rows(folder):
    return sum(pq.read_metadata(f).num_rows for f in (folder / "out").rglob("*.parquet"))


@pytest.mark.parametrize("reported", [0, 2])
def test_micro_batches_without_progress_are_counted(spark, tmp_path, monkeypatch, reported):
    """Like a stop between the commit of a micro-batch and its progress report."""
    query = start(spark, tmp_path, 300)
    query.streaming.awaitTermination(180)
    everything = query.streaming.recentProgress
    monkeypatch.setattr(StreamingQuery, "recentProgress", property(lambda _: everything[:reported]))
    summary = query.poll()
    query.stop()
    assert (summary.messages, summary.batches) == (300, 3)
    assert repr(query).startswith(f"{query.flow.name} (ended): 300 messages in ")
    shown = query._repr_html_()
    assert f"{query.flow.name}: ended, on Spark, " in shown
    assert '<td>messages</td><td class="n">300</td>' in shown
    assert sum(summary.rows.values()) == rows(tmp_path) == 1500


@pytest.mark.parametrize("reported", [0, 1])
def test_continued_query_counts_its_own_micro_batches(spark, tmp_path, monkeypatch, reported):
    start(spark, tmp_path, 300).wait("1min")
    query = start(spark, tmp_path, 500)
    query.streaming.awaitTermination(180)
    everything = query.streaming.recentProgress
    monkeypatch.setattr(StreamingQuery, "recentProgress", property(lambda _: everything[:reported]))
    query.stop()
    assert (query.summary.messages, query.summary.batches) == (200, 2)
    assert (sum(query.summary.rows.values()), rows(tmp_path)) == (1000, 2500)
