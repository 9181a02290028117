"""Options of a run in process, and the latency that it tells."""

import time
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.clock import NEVER
from riot_ops.core.errors import ConfigError
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.runtime import local
from riot_ops.runtime.state_table import _live

READINGS = {"device": "string", "value": "double"}


def flow(task=None):
    made = ro.Dataflow("small")
    rows = made.source("in", schema=READINGS)
    return made.sink("out", rows.to(task or t.NoOp(), id="step"))


def rows(n):
    return [{"device": "a", "value": float(i)} for i in range(n)]


def rows_batch(n):
    return pa.RecordBatch.from_pylist([{"seq": i, **row} for i, row in enumerate(rows(n))])


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"buffering": "late"}, {"order": "seq"}])
def test_what_is_not_allowed(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        flow().run(rows(1), **wrong)
    usual = {"batch_size": 1, "buffering": "latency", "order": "event_time"}
    assert flow().run(rows(1), **usual)["step"]["value"].to_pylist() == [0.0]


class Trickle(MemorySource):
    """Has one record more at each look."""

    seen = 0

    def latest(self, start, limit=None):
        self.seen += 1
        end = super().latest(start, limit)
        return {"row": min(end["row"], max(self.seen, start["row"]))}


def test_a_batch_waits_for_more_records():
    for flush_ms, batches in ((60_000.0, 3), (0.0, 12)):
        result = flow().run(Trickle(rows(12)), batch_size=4, buffering=ro.Buffering(flush_ms=flush_ms))
        assert result.summary.batches == batches
        assert result["step"]["value"].to_pylist() == [float(i) for i in range(12)]


@pytest.mark.parametrize(("task", "cores", "most"), [(None, 1, 8), (None, 2, 4), (t.MapFunction(function=dict), 1, 4)])
def test_a_batch_is_longer_where_it_is_alone_and_waits_for_nobody(monkeypatch, task, cores, most):
    monkeypatch.setattr(local, "BATCH_SIZE", 4)
    monkeypatch.setattr(local, "BATCH_ALONE", 8)
    for given, batches in ((None, 24 // most), (3, 8)):
        buffering = ro.Buffering(flush_ms=60_000.0)
        summary = flow(task).run(rows(24), batch_size=given, cores=cores, buffering=buffering).summary
        assert summary.batches == batches


@pytest.mark.parametrize(("cores", "bytes_of_a_batch"), [(1, 1024), (2, 512)])
def test_bytes_of_a_batch_where_nothing_is_said(monkeypatch, cores, bytes_of_a_batch):
    monkeypatch.setattr(local, "GATHERED", ro.Buffering(capacity=512, queue=1024, flush_ms=60_000.0))
    monkeypatch.setattr(local, "GATHERED_ALONE", ro.Buffering(capacity=1024, queue=2048, flush_ms=60_000.0))
    summary = flow().run(rows(500), cores=cores).summary
    total = rows_batch(500).nbytes
    assert summary.batches == pytest.approx(total / bytes_of_a_batch, rel=0.5)


def test_the_latency_of_a_run():
    began = time.time()
    latency = flow().run(rows(20), batch_size=5).summary.latency
    blocks = latency.blocks()
    assert sum(n for _, _, n in blocks) == 20
    assert all(0 <= least <= greatest <= 1e6 * (time.time() - began) for least, greatest, _ in blocks)


def test_what_comes_at_the_end_has_no_latency():
    averages = t.MovingAverage(by=("device",), window=4, partial=True)
    result = flow(averages).run(rows(10), batch_size=2)
    assert result["step"].num_rows == 3
    assert sum(n for _, _, n in result.summary.latency.blocks()) == 2


@pytest.mark.parametrize(("ttl_us", "alive"), [(None, [1, 2, 3]), (10, [1, 2, 3]), (9, [2, 3]), (4, [3])])
def test_keys_live_so_long_behind_the_newest(ttl_us, alive):
    # the slot 0 is written twice, and the later row counts
    table = pa.table({"slot": [0, 0, 1, 2], "last": [99, 90, 95, 100], "h1": [1, 1, 2, 3], "h2": [7, 7, 7, 7]})
    ttl = None if ttl_us is None else timedelta(microseconds=ttl_us)
    assert np.asarray(table["h1"])[_live(table, ttl, NEVER)].tolist() == alive


def test_a_key_that_came_back_counts_once():
    table = pa.table({"slot": [0, 1, 2], "last": [10, 20, 30], "h1": [1, 2, 1], "h2": [7, 7, 7]})
    assert _live(table, timedelta(microseconds=100), NEVER).tolist() == [1, 2]
    assert _live(table, timedelta(microseconds=100), 120).tolist() == [1, 2]
    assert _live(table, timedelta(microseconds=100), 121).tolist() == [2]
    assert _live(table, None, 131).tolist() == [1, 2]
