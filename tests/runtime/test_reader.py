"""How often a run polls its sources: rarely while there are no records, and at once when there are."""

from __future__ import annotations

import math
import threading
import time

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.source import Source
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.ingest.pace import PacedSource
from riot_ops.runtime.input_buffer import WAKE, InputBuffer
from riot_ops.runtime.reader import Reader

SCHEMA = pa.schema([pa.field("seq", pa.int64(), nullable=False), pa.field("value", pa.float64())])


class Feed(Source):
    """Records that a test adds; counts how often it is asked."""

    latest_blocks = True

    def __init__(self, notifies=True):
        self.rows, self.over, self.asked = 0, False, 0
        self.notifies = notifies
        self.wake = lambda: None
        self.quiet = threading.Event()  # set when the run has to wait

    schema = SCHEMA

    def add(self, rows=1, over=False):
        self.rows += rows
        self.over = over
        self.wake()

    def initial(self):
        return {"row": 0}

    def latest(self, start, limit=None):
        self.asked += 1
        return {"row": self.rows if limit is None else min(self.rows, start["row"] + limit)}

    def finished(self, offset):
        return self.over and offset["row"] >= self.rows

    def waits(self):
        return True

    def wait_time(self, offset, wake):
        if not self.notifies:
            return super().wait_time(offset, wake)
        self.wake = wake
        self.quiet.set()
        return math.inf if offset["row"] >= self.rows and not self.over else 0.0

    def splits(self, start, end, n):
        return [{"start": start["row"], "end": end["row"]}]

    def read(self, split):
        rows = range(split["start"], split["end"])
        yield pa.RecordBatch.from_pydict({"seq": list(rows), "value": [float(r) for r in rows]}, SCHEMA)

    def count(self, start, end):
        return end["row"] - start["row"]


class Run:
    """A dataflow in a thread of its own."""

    def __init__(self, sources, **options):
        flow = ro.Dataflow("feed")
        for name in sources:
            flow.sink(f"{name}-sink", flow.source(name, schema=SCHEMA).to(t.NoOp(), id=f"{name}-out"))
        self.rows = 0
        self.arrived = threading.Condition()
        self.result = None
        self._thread = threading.Thread(
            target=lambda: setattr(self, "result", flow.run(sources, sinks=ro.CallbackSink(self._count), **options))
        )
        self._thread.start()

    def _count(self, stream, batch):
        with self.arrived:
            self.rows += batch.num_rows
            self.arrived.notify_all()

    def wait(self, rows):
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.rows >= rows, 20)

    def join(self):
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.result.summary


@pytest.mark.parametrize(("notifies", "most"), [(True, 3), (False, 110)])
def test_idle_source_is_asked_rarely_and_its_records_arrive(notifies, most):
    feed = Feed(notifies)
    run = Run({"in": feed})
    feed.add()
    run.wait(1)
    time.sleep(0.1)
    before = feed.asked
    time.sleep(1)
    assert feed.asked - before <= most
    feed.add(3)
    run.wait(4)
    feed.add(0, over=True)
    run.join()


def test_wake_of_one_source_reads_that_source():
    quiet, busy = Feed(), Feed()
    run = Run({"quiet": quiet, "busy": busy})
    for i in range(20):
        busy.add()
        run.wait(i + 1)
    assert quiet.asked <= 3 * 20 + 5
    for feed in (quiet, busy):
        feed.add(0, over=True)
    run.join()


def test_wake_between_question_and_wait_is_not_lost():
    feed = Feed()
    run = Run({"in": feed})
    for i in range(200):
        feed.quiet.wait(10)
        feed.quiet.clear()
        feed.add()
        run.wait(i + 1)
    feed.add(0, over=True)
    assert run.join().messages == 200


class CountedPace(PacedSource):
    asked = 0

    def latest(self, start, limit=None):
        CountedPace.asked += 1
        return super().latest(start, limit)


@pytest.mark.parametrize(("how", "most"), [({"rate": 20}, 2), ({"speed": 2}, 2)])
def test_paced_source_is_asked_when_records_are_due(how, most):
    n = 10
    records = [{"event_time": 100_000 * i, "value": float(i)} for i in range(n)]
    schema = pa.schema([("event_time", pa.timestamp("us", tz="UTC")), ("value", pa.float64())])
    CountedPace.asked = 0
    flow = ro.Dataflow("pace")
    flow.sink("sink", flow.source("in", schema=schema).to(t.NoOp(), id="out"))
    result = flow.run(CountedPace(MemorySource(records, schema), **how))
    assert result["out"]["value"].to_pylist() == [float(i) for i in range(n)]
    assert CountedPace.asked <= most * n + 3


def test_reader_does_not_wait_for_the_steps_where_no_record_is_due_soon(monkeypatch):
    waits = []
    monkeypatch.setattr(InputBuffer, "wait_until_empty", lambda self, seconds: waits.append(seconds))
    for rate, some in ((10, False), (1000, True)):
        waits.clear()
        flow = ro.Dataflow("pace")
        flow.sink("sink", flow.source("in", schema={"value": "double"}).to(t.NoOp(), id="out"))
        result = flow.run(PacedSource(MemorySource(pa.table({"value": [0.0] * 3})), rate=rate))
        assert result["out"].num_rows == 3
        assert bool(waits) == some


def test_records_of_a_high_rate_come_together_but_not_under_immediate():
    records = pa.table({"value": [0.0] * 1000})
    batches = {}
    for buffering in (None, "immediate"):
        flow = ro.Dataflow("pace")
        flow.sink("sink", flow.source("in", schema={"value": "double"}).to(t.NoOp(), id="out"))
        result = flow.run(PacedSource(MemorySource(records), rate=5000), buffering=buffering)
        batches[buffering] = result.summary.batches
        assert result["out"].num_rows == 1000
    assert batches[None] <= 60  # 0.2 s in steps of 5 ms
    assert batches["immediate"] == 1000


def test_records_do_not_wait_for_others_that_come_after_the_flush_time():
    records = MemorySource(pa.table({"value": [0.0] * 2}))
    buffering = ro.Buffering(capacity=1 << 20, flush_after="1h")
    for hours, found in ((2.0, 1), (0.5, None)):
        source = PacedSource(records, rate=1 / (3600 * hours))
        buffer = InputBuffer(buffering, 100)
        reader = Reader("reader", {"in": source}, {"in": source.initial()}, buffer, buffering)
        reader.start()
        try:
            batch = buffer.get(timeout=10 if found else 0.2)
            assert (batch is WAKE) if found is None else batch.rows == found
        finally:
            reader.stop()
