"""Rate control: the formula, its use by a reader, and on Spark."""

from __future__ import annotations

import math
import os
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from pyspark.cloudpickle import dumps, loads

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.spark import rate_control, runner
from riot_ops.spark.features import ReadMaxRows
from riot_ops.spark.rate_control import RateController, RateLimit
from riot_ops.spark.sink import SinkCommitter
from riot_ops.spark.source import Reader


def limits(micro_batches, **options):
    """Return the limit after each micro-batch, given as (records, seconds), or as seconds if it was full."""
    limit = RateLimit(**options)
    found = []
    for one in micro_batches:
        limit.update(*(one if isinstance(one, tuple) else (limit.records, one)))
        found.append(limit.records)
    return found


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        ([1.25], [800]),  # 1000 · 1 / 1.25
        ([1.6, 1.6], [625, 391]),  # 390.6
        ([4.0, 4.0], [500, 250]),  # the formula gives a quarter, but at most a half is cut
        ([4.0, 0.1, 0.1], [500, 1000, 1000]),  # at most twice, and at most the highest limit
        ([2.0, 0.625], [500, 800]),
        ([1.2, 0.8, 1.0, 1.0], [1000] * 4),  # within 20 %
        ([1.21], [826]),
        ([2.0, 0.79], [500, 633]),
        ([9.0] * 8, [500, 250, 125, 62, 31, 16, 10, 10]),  # the lowest limit is a hundredth of the highest
        ([0.0, 9.0, 0.0, -1.0], [1000, 500, 1000, 1000]),  # a clock that was set back
        ([math.inf], [500]),
    ],
)
def test_limit_follows_durations(seconds, wanted):
    assert limits(seconds, target_s=1.0, max_records=1000) == wanted


def test_target_is_in_seconds():
    assert limits([0.5, 0.5, 0.25], target_s=0.25, max_records=64) == [32, 16, 16]


def test_lowest_limit():
    assert limits([9.0] * 3, target_s=1.0, max_records=1000, min_records=300) == [500, 300, 300]
    assert limits([9.0] * 4, target_s=1.0, max_records=10) == [5, 2, 1, 1]
    assert limits([9.0, 9.0, 0.1], target_s=1.0, max_records=2) == [1, 1, 2]


@pytest.mark.parametrize(
    ("micro_batches", "wanted"),
    [
        ([4.0, (10, 0.1)], [500, 500]),  # few records say nothing against 500
        ([4.0, (400, 0.5)], [500, 800]),  # 800 would take a second
        ([4.0, (400, 0.1)], [500, 800]),
        ([(100, 2.0)], [50]),  # a hundred took too long
        ([(100, 0.9)], [1000]),
        ([(1500, 2.0)], [500]),  # a source that delivered more than requested
        ([(None, 2.0), (None, 0.8)], [500, 500]),
        ([(None, 2.0), (None, 0.5)], [500, 1000]),  # a source that cannot count
    ],
)
def test_partly_filled_micro_batches(micro_batches, wanted):
    assert limits(micro_batches, target_s=1.0, max_records=1000) == wanted


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(rate_control, "time", SimpleNamespace(time=lambda: now[0]))
    return now


class Rows(ro.MemorySource):
    """Has as many records as are available now."""

    available = 10_000

    def __init__(self):
        super().__init__([{"value": 0.0}] * 10_000)

    def latest(self, start, limit=None):
        return super().latest(start, min(limit, self.available - start["row"]))


def reader_of(rate, source):
    return Reader(SimpleNamespace(stream="readings", source=source, max_records=1000), rate)


def taken(reader, at):
    """Return the records of the next micro-batch and its end; Spark always passes the same limit."""
    end = reader.latest_offset(at, ReadMaxRows(1000))
    return end["at"]["row"] - at["at"]["row"], end


def test_reader_adapts_limit_to_micro_batches(clock):
    source = Rows()
    reader = loads(dumps(reader_of(RateController(RateLimit(1.0, 1000)), source)))
    assert reader.read_limit() == ReadMaxRows(1000)
    at, found = reader.initial_offset(), []
    for seconds in (4.0, 2.0, 1.1, 0.5, 0.5):
        rows, at = taken(reader, at)
        found.append(rows)
        clock[0] += seconds
    assert found == [1000, 500, 250, 250, 500]
    assert taken(reader_of(RateController(RateLimit(1.0, 1000)), source), at)[0] == 1000  # a restart begins again


def test_idle_time_does_not_count(clock):
    source = Rows()
    source.available = 1000
    reader = reader_of(RateController(RateLimit(1.0, 1000)), source)
    rows, at = taken(reader, reader.initial_offset())
    clock[0] += 2.0
    assert (rows, taken(reader, at)[0]) == (1000, 0)
    clock[0] += 50.0
    assert taken(reader, at)[0] == 0
    source.available = 5000
    assert taken(reader, at)[0] == 500


def test_slow_offsets_do_not_count(clock):
    class Slow(Rows):
        def latest(self, start, limit=None):
            clock[0] += 7.0
            return super().latest(start, limit)

    reader = reader_of(RateController(RateLimit(1.0, 1000)), Slow())
    _, at = taken(reader, reader.initial_offset())
    clock[0] += 1.0
    assert taken(reader, at)[0] == 1000


def test_waiting_for_trigger_does_not_count(clock, tmp_path):
    note = tmp_path / "committed"
    reader = reader_of(RateController(RateLimit(1.0, 1000), note), Rows())
    at = reader.initial_offset()
    found = []
    for through, next_one in ((None, 2.0), (4.0, 5.0), (0.1, 5.0), (1.0, 5.0), (None, 4.0)):
        begun = clock[0]
        rows, at = taken(reader, at)
        found.append(rows)
        if through is not None:
            note.touch()
            os.utime(note, (begun + through, begun + through))
        clock[0] = begun + next_one
    # a micro-batch without a commit ends when the next one is requested
    assert found == [1000, 500, 250, 500, 500]
    assert taken(reader, at)[0] == 250


def test_commit_touches_note(tmp_path):
    note = tmp_path / "committed"
    before = time.time()
    SinkCommitter({}, str(tmp_path / "metrics"), note).commit([], 0)
    assert before - 0.1 <= note.stat().st_mtime <= time.time()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"target_duration": "0s"}, r"target_duration must be > 0 and at most 1e\+09 seconds, got 0\.0"),
        (
            {"target_duration": timedelta(seconds=-1)},
            r"target_duration must be > 0 and at most 1e\+09 seconds, got -1\.0",
        ),
        ({"target_duration": 1.0}, r"target_duration must be a timedelta or a text such as '10s' or '1h30m', got 1\.0"),
        ({"target_duration": "1 second"}, "target_duration: '1 second' is not a duration"),
        ({"target_duration": True}, "target_duration must be a timedelta or a text such as '10s' or '1h30m', got True"),
        ({"target_duration": "1s", "max_records": None}, "target_duration = 1 s needs max_records"),
        ({"target_duration": timedelta(seconds=1), "min_records": 0}, "min_records must be a whole number >= 1, got 0"),
        ({"target_duration": "1s", "min_records": 101}, "min_records must be <= max_records, got 101 and 100"),
        ({"min_records": 5}, "min_records = 5 needs target_duration, whose limit it bounds, got None"),
    ],
)
def test_wrong_options(options, text):
    flow = ro.Dataflow("paced")
    flow.sink("out", flow.source("in", schema={"value": "double"}))
    with pytest.raises(ConfigError, match=text):
        runner.start(flow, None, **({"max_records": 100} | options))


def values(flow):
    """Add a step that takes 2 ms for each record."""

    def slowly(row):
        time.sleep(0.002)
        return row

    flow.sink("out", flow.source("in", schema={"value": "double"}).to(ro.map(slowly), id="slow"))
    return flow


@pytest.mark.spark
@pytest.mark.parametrize("trigger", ["available now", "1 second"])
def test_micro_batches_on_spark_follow_target(spark, trigger):
    """The first takes at least 1.2 s; with an interval the waiting time does not count."""
    rows = [{"value": float(i)} for i in range(1000)]
    query = values(ro.Dataflow("paced")).start(
        spark,
        ro.MemorySource(rows),
        partitions=1,
        max_records=600,
        target_duration="300ms",
        min_records=40,
        trigger=trigger,
    )
    query.wait("1min")
    assert query["slow"]["value"].to_pylist() == [row["value"] for row in rows]
    found = [one["messages"] for one in query.micro_batches]
    assert found[:2] == [600, 300]  # at most halved after 1.2 s
    assert 40 <= found[2] <= 100


@pytest.mark.spark
def test_target_is_refused_for_streaming_dataframe(spark):
    frame = spark.readStream.format("rate").load().selectExpr("cast(value as double) value")
    with pytest.raises(
        ConfigError, match=r"target_duration = 0\.5 s is for sources of riot_ops; a streaming DataFrame has"
    ):
        values(ro.Dataflow("paced")).start(spark, frame, max_records=10, target_duration="500ms")
