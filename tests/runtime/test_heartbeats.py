"""Heartbeats: a source that has nothing to deliver but knows how far time is."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.source import heartbeat, heartbeat_of
from riot_ops.testing import ABORT, ADVANCE, PAUSE, ScriptedSource
from tests.staged import Staged

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SCHEMA = {"event_time": TIMESTAMP, "device": "string"}
MINUTES = {"size": "1min", "by": ("device",), "aggregates": {"n": ("count", None)}}


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def rows(device, *seconds):
    return [{"event_time": at(s), "device": device} for s in seconds]


#: Behind the second step of time "a" comes too late, the third is behind time, the last closes nothing that is not closed.
SCRIPT = [
    rows("a", 10, 20),
    ADVANCE(at(59)),
    rows("b", 5) + rows("a", 58),
    ADVANCE(at(60)),
    rows("a", 59),
    ADVANCE(at(30)),
    rows("b", 70),
    ADVANCE(at(200)),
]
#: Number of the message behind which a window closes: so the window stands before the next one.
CLOSED = [(4, "a", 0, 3), (4, "b", 0, 1), (6, "b", 60, 1)]


def counting(*, source="readings", **window):
    flow = ro.Dataflow("beats")
    readings = flow.source(source, schema=SCHEMA)
    flow.sink("out", readings.to(t.Window(**MINUTES | window), id="n"))
    return flow


def closed(table):
    return sorted(
        (r["seq"], r["device"], (r["window_start"] - NOON).total_seconds(), r["n"]) for r in table.to_pylist()
    )


def late(table):
    return [(r["seq"], r["reason"]) for r in table.to_pylist()]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 2, 1000])
def test_a_step_of_time_closes_windows_of_silent_keys(cores, batch_size):
    result = counting().run(ScriptedSource(SCRIPT), cores=cores, batch_size=batch_size)
    assert closed(result["n"]) == CLOSED
    assert late(result.errors) == [(4, "late")]
    assert result.summary.messages == 6


@pytest.mark.parametrize("seed", range(8))
def test_in_stages_too(seed):
    staged = Staged(counting(), ScriptedSource(SCRIPT), random.Random(seed), max_records=1 + seed % 3)
    assert closed(staged["n"]) == CLOSED
    assert late(staged["errors"]) == [(4, "late")]


def test_time_that_a_parser_gives_goes_by_the_heartbeats_of_the_source_above_it():
    flow = ro.Dataflow("parsed")
    raw = flow.source("raw", schema={"text": "string"})
    parsed = raw.to(ro.map(lambda row: rows("a", float(row["text"]))[0], schema=SCHEMA), id="parsed")
    flow.sink("out", parsed.to(t.Window(**MINUTES), id="n"))
    script = [[{"text": "10"}], ADVANCE(at(61)), [{"text": "30"}, {"text": "70"}]]
    for result in (flow.run(ScriptedSource(script)), Staged(flow, ScriptedSource(script), random.Random(1))):
        assert closed(result["n"]) == [(1, "a", 0, 1), (1, "a", 60, 1)]  # left at the end: as time last moved
        assert late(result["errors"]) == [(1, "late")]


def test_windows_over_windows_close_too():
    flow = ro.Dataflow("two")
    minutes = flow.source("readings", schema=SCHEMA).to(t.Window(**MINUTES), id="minutes")
    hours = t.Window(size="1h", by=("device",), aggregates={"most": ("max", "n")})
    flow.sink("out", minutes.to(hours, id="hours"))
    script = [rows("a", 10, 20, 70), ADVANCE(at(3600)), PAUSE(), rows("a", 3700)]
    for result in (flow.run(ScriptedSource(script)), Staged(flow, ScriptedSource(script), random.Random(1))):
        assert [(r["seq"], r["most"]) for r in result["hours"].to_pylist()] == [(3, 2), (3, 1)]


def test_of_two_sources_the_foremost_counts():
    flow = ro.Dataflow("two")
    both = ro.merge(flow.source("x", schema=SCHEMA), flow.source("y", schema=SCHEMA))
    flow.sink("out", both.to(t.Window(**MINUTES), id="n"))
    schema = pa.schema([("seq", pa.int64()), *SCHEMA.items()]).set(2, pa.field("device", pa.string()))
    given = {"x": rows("a", 10), "y": ScriptedSource([ADVANCE(at(90))], schema)}
    result = flow.run(given)
    # in process x is read first; number 0 of y is 2 * 0 + 1, behind number 0 of x
    assert closed(result["n"]) == [(1, "a", 0, 1)]


def test_what_a_heartbeat_closes_is_written_while_the_source_is_silent(tmp_path):
    clock_reads = []

    def clock():  # the pause ends once the epoch that the heartbeat belongs to has been written
        clock_reads.append([*(tmp_path / "out" / "n").glob("*.parquet")])
        return 1e9 if clock_reads[-1] else 0.0

    script = [rows("a", 10), ADVANCE(at(60)), PAUSE(1), rows("a", 70)]
    counting().run(ScriptedSource(script, clock=clock), out=tmp_path / "out", epoch_s=0.05)
    assert not clock_reads[0]
    assert clock_reads[-1]


def test_a_heartbeat_beyond_max_ahead_moves_nothing():
    result = counting(max_ahead="1h").run(ScriptedSource([rows("a", 10), ADVANCE(at(7200)), rows("a", 59)]))
    assert closed(result["n"]) == [(0, "a", 0, 2)]


def test_a_run_goes_on_from_behind_a_heartbeat(tmp_path):
    source = ScriptedSource([rows("a", 10), ADVANCE(at(60)), ABORT, rows("a", 20, 70)])
    with pytest.raises(ConnectorError, match="ABORT"):
        counting().run(source, out=tmp_path / "out", checkpoint=tmp_path / "state", epoch_rows=1)
    counting().run(source, out=tmp_path / "out", checkpoint=tmp_path / "state")
    assert closed(_table(tmp_path / "out" / "n")) == [(1, "a", 0, 1), (1, "a", 60, 1)]
    assert late(_table(tmp_path / "out" / "errors")) == [(1, "late")]


def _table(folder):
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob("*.parquet"))])


def test_what_a_heartbeat_says():
    schema = pa.schema([("seq", pa.int64())], {"unit": "1"})
    beat = heartbeat(schema, -3, -5)
    assert heartbeat_of(beat) == (-3, -5)
    assert beat.schema.equals(schema)
    assert beat.schema.metadata[b"unit"] == b"1"
    assert heartbeat_of(pa.RecordBatch.from_pylist([], schema)) is None
    assert heartbeat_of(pa.RecordBatch.from_pylist([{"seq": 1}], beat.schema)) is None
    with pytest.raises(ConfigError, match="time zone"):
        ADVANCE(NOON.replace(tzinfo=None))
