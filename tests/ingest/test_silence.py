"""Heartbeats in silences: when they come, what they close, and that a batch that is read again has the same ones."""

from __future__ import annotations

import itertools
import random
import threading
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.source import parse_heartbeat
from tests.simulated_query import SimulatedQuery

SCHEMA = pa.schema([("event_time", TIMESTAMP), ("device", pa.string())])
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Live(ro.MemorySource):
    """Some records, of which those up to ``until`` have come; it has ended once ``ended`` is set."""

    def __init__(self, times, until=None):
        rows = pa.table({"event_time": pa.array(times, TIMESTAMP), "device": ["a"] * len(times)}, schema=SCHEMA)
        super().__init__(rows)
        self.until = len(times) if until is None else until
        self.ended = threading.Event()

    def latest(self, start, limit=None):
        return super().latest(start, min(self.until - start["row"], limit or self.until))

    def finished(self, offset):
        return self.ended.is_set()


def beating(until=2):
    live, now = Live([NOON, NOON + timedelta(seconds=5), NOON + timedelta(seconds=9)], until), [1000.0]
    return live, now, ro.HeartbeatSource(live, "30s", clock=lambda: now[0])


def contents(source, start, end):
    """Return the number of records and the heartbeats of a range."""
    batches = [batch for split in source.splits(start, end, 1) for batch in source.read(split)]
    return [parse_heartbeat(batch) or batch.num_rows for batch in batches]


def test_heartbeats_begin_after_the_silence_and_come_once_per_second():
    live, now, source = beating()
    at = source.latest(source.initial())
    assert contents(source, source.initial(), at) == [2]
    beats = []
    for second in (0, 29.9, 30, 30.5, 31, 33):
        now[0] = 1000 + second
        after = source.latest(at)
        beats += contents(source, at, after)
        at = after
    assert beats == [(2, 1_030_000_000), (2, 1_031_000_000), (2, 1_033_000_000)]
    live.until = 3
    after = source.latest(at)
    assert contents(source, at, after) == [1]
    now[0] += 29
    assert source.latest(after) == after
    live.ended.set()
    now[0] += 60
    assert source.latest(after) == after and source.finished(after)


def test_range_read_again_has_the_same_heartbeat_between_the_same_records():
    live, now, source = beating()
    first = source.initial()
    start = source.latest(first)
    now[0] += 30
    beat = source.latest(start)
    live.until = 3
    end = source.latest(beat)
    again = ro.HeartbeatSource(Live([NOON] * 3), "30s")
    for one in (source, again):
        assert contents(one, start, beat) == [(2, 1_030_000_000)]
        assert contents(one, first, end) == [2, (2, 1_030_000_000), 1]
        assert (one.seq_at(beat), one.count(start, end)) == (2, 1)


def test_wait_ends_with_the_silence():
    class Subscribed(Live):
        def wait_time(self, offset, wake):
            return 100.0

    live, now = Subscribed([NOON]), [1000.0]
    source = ro.HeartbeatSource(live, "30s", clock=lambda: now[0])
    at = source.latest(source.initial())
    now[0] += 10
    assert source.wait_time(at, print) == 20
    now[0] += 20
    assert source.wait_time(source.latest(at), print) == 1
    live.ended.set()
    assert source.wait_time(at, print) == 100


@pytest.mark.parametrize("cores", [1, 2])
def test_window_of_a_silent_source_closes_by_the_wall_clock(cores):
    now = datetime.now(UTC)
    live = Live([now - timedelta(seconds=70), now - timedelta(seconds=65)])
    flow = ro.Dataflow("silent")
    window = t.Window(by="device", frame=timedelta(milliseconds=50))
    flow.sink("out", flow.source("in", schema=SCHEMA).to(window, id="w"))
    counts, end = [], time.monotonic() + 20

    def receive(stream, batch):
        counts.extend(batch.column("count").to_pylist())
        if len(counts) == 2:
            live.ended.set()

    watch = threading.Timer(20, live.ended.set)
    watch.start()
    flow.run(ro.HeartbeatSource(live, "50ms"), sinks=ro.CallbackSink(receive), cores=cores)
    watch.cancel()
    assert counts == [1, 1] and time.monotonic() < end


class Interrupted(ro.MemorySource):
    """Two records, a silence of some calls, and a third record."""

    calls = 0

    def latest(self, start, limit=None):
        self.calls += 1
        return super().latest(start, min((2 if self.calls < 9 else 3) - start["row"], limit or 3))


@pytest.mark.parametrize("idle", ["30s", "1d"])
def test_record_after_the_silence_is_late_also_in_micro_batches_that_are_repeated(idle):
    rows = [{"event_time": datetime(1970, 1, 1, 0, 16, s, tzinfo=UTC), "device": "a"} for s in (30, 31, 32)]
    seconds = itertools.count(1000, 10)
    source = ro.HeartbeatSource(Interrupted(rows), idle, clock=lambda: float(next(seconds)))
    flow = ro.Dataflow("late")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(t.Window(by="device", frame="1min"), id="w"))
    wanted = [2] if idle == "30s" else [3]
    query = SimulatedQuery(flow, source, random.Random(1))
    assert query["w"]["count"].to_pylist() == wanted


@pytest.mark.parametrize("idle", ["0s", timedelta(-1), 30, "soon", None])
def test_wrong_silence_is_refused(idle):
    with pytest.raises(ConfigError, match=r"idle|not a duration"):
        ro.HeartbeatSource(ro.MemorySource([{"value": 1.0}]), idle)
