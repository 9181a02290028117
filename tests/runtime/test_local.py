"""Options of a local run, and its latency."""

import time

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.runtime import local

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
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        flow().run(rows(1), **wrong)
    usual = {"batch_size": 1, "buffering": "latency", "order": "event_time"}
    assert flow().run(rows(1), **usual)["step"]["value"].to_pylist() == [0.0]


class Trickle(MemorySource):
    """Has one more record at each poll."""

    seen = 0

    def latest(self, start, limit=None):
        self.seen += 1
        end = super().latest(start, limit)
        return {"row": min(end["row"], max(self.seen, start["row"]))}


def test_batch_waits_for_flush_time():
    for flush_after, batches in (("1min", 3), ("0s", 12)):
        result = flow().run(Trickle(rows(12)), batch_size=4, buffering=ro.Buffering(flush_after=flush_after))
        assert result.summary.batches == batches
        assert result["step"]["value"].to_pylist() == [float(i) for i in range(12)]


@pytest.mark.parametrize(
    ("task", "cores", "max_rows"), [(None, 1, 8), (None, 2, 4), (t.MapFunction(function=dict), 1, 4)]
)
def test_default_batch_size_is_larger_on_one_core(monkeypatch, task, cores, max_rows):
    monkeypatch.setattr(local, "BATCH_SIZE", 4)
    monkeypatch.setattr(local, "SINGLE_CORE_BATCH_SIZE", 8)
    for given, batches in ((None, 24 // max_rows), (3, 8)):
        buffering = ro.Buffering(flush_after="1min")
        summary = flow(task).run(rows(24), batch_size=given, cores=cores, buffering=buffering).summary
        assert summary.batches == batches


@pytest.mark.parametrize(("cores", "batch_bytes"), [(1, 1024), (2, 512)])
def test_default_bytes_of_a_batch(monkeypatch, cores, batch_bytes):
    monkeypatch.setattr(local, "DEFAULT_BUFFERING", ro.Buffering(capacity=512, queue=1024, flush_after="1min"))
    monkeypatch.setattr(local, "SINGLE_CORE_BUFFERING", ro.Buffering(capacity=1024, queue=2048, flush_after="1min"))
    summary = flow().run(rows(500), cores=cores).summary
    total = rows_batch(500).nbytes
    assert summary.batches == pytest.approx(total / batch_bytes, rel=0.5)


def test_latency_covers_each_record():
    began = time.time()
    latency = flow().run(rows(20), batch_size=5).summary.latency
    blocks = latency.blocks()
    assert sum(n for _, _, n in blocks) == 20
    assert all(0 <= least <= greatest <= 1e6 * (time.time() - began) for least, greatest, _ in blocks)


def test_flushed_records_have_no_latency():
    averages = t.MovingAverage(by=("device",), window=4, partial=True)
    result = flow(averages).run(rows(10), batch_size=2)
    assert result["step"].num_rows == 3
    assert sum(n for _, _, n in result.summary.latency.blocks()) == 2


class NamedSink(ro.MemorySink):
    """Notes what the runner tells it of the run."""

    def __init__(self):
        super().__init__()
        self.told = []

    def identify(self, run):
        self.told.append(run)

    def begin(self, overwrite):
        self.told.append("begin")

    def recover(self, batch_id):
        self.told.append(f"recover {batch_id}")


def test_identity_of_a_run_is_kept_by_its_checkpoint(tmp_path):
    def told(checkpoint):
        sink = NamedSink()
        flow().run(rows(1), sinks=sink, checkpoint=checkpoint)
        return sink.told

    (first, begun), (same, recovered), (other, _) = (told(tmp_path / name) for name in "aab")
    assert (begun, recovered) == ("begin", "recover 1")
    assert first and first == same != other
    (plain, _), (again, _) = told(None), told(None)
    assert plain != again
