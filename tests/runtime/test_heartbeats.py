"""Heartbeats: stream time from a source that has no records to deliver."""

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
from riot_ops.core.source import heartbeat, parse_heartbeat
from riot_ops.testing import ABORT, ADVANCE, PAUSE, ScriptedSource
from tests.simulated_query import SimulatedQuery

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SCHEMA = {"event_time": TIMESTAMP, "device": "string"}
MINUTES = {"size": "1min", "by": ("device",), "aggregates": {"n": ("count", None)}}


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def rows(device, *seconds):
    return [{"event_time": at(s), "device": device} for s in seconds]


#: The record of "a" after the second heartbeat is late, the third heartbeat lies in the past, the last closes nothing more.
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
#: Message after which each window closes: its result precedes the next message.
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
def test_heartbeat_closes_windows_of_silent_keys(cores, batch_size):
    result = counting().run(ScriptedSource(SCRIPT), cores=cores, batch_size=batch_size)
    assert closed(result["n"]) == CLOSED
    assert late(result.errors) == [(4, "late")]
    assert result.summary.messages == 6


@pytest.mark.parametrize("seed", range(8))
def test_heartbeat_closes_windows_on_simulated_spark(seed):
    query = SimulatedQuery(counting(), ScriptedSource(SCRIPT), random.Random(seed), max_records=1 + seed % 3)
    assert closed(query["n"]) == CLOSED
    assert late(query["errors"]) == [(4, "late")]


def test_stream_time_of_parser_follows_heartbeats_of_its_source():
    flow = ro.Dataflow("parsed")
    raw = flow.source("raw", schema={"text": "string"})
    parsed = raw.to(ro.map(lambda row: rows("a", float(row["text"]))[0], schema=SCHEMA), id="parsed")
    flow.sink("out", parsed.to(t.Window(**MINUTES), id="n"))
    script = [[{"text": "10"}], ADVANCE(at(61)), [{"text": "30"}, {"text": "70"}]]
    for result in (flow.run(ScriptedSource(script)), SimulatedQuery(flow, ScriptedSource(script), random.Random(1))):
        assert closed(result["n"]) == [
            (1, "a", 0, 1),
            (1, "a", 60, 1),
        ]  # flushed at the end, with the message that last moved time
        assert late(result["errors"]) == [(1, "late")]


def test_heartbeat_closes_windows_over_windows():
    flow = ro.Dataflow("two")
    minutes = flow.source("readings", schema=SCHEMA).to(t.Window(**MINUTES), id="minutes")
    hours = t.Window(size="1h", by=("device",), aggregates={"most": ("max", "n")})
    flow.sink("out", minutes.to(hours, id="hours"))
    script = [rows("a", 10, 20, 70), ADVANCE(at(3600)), PAUSE(), rows("a", 3700)]
    for result in (flow.run(ScriptedSource(script)), SimulatedQuery(flow, ScriptedSource(script), random.Random(1))):
        assert [(r["seq"], r["most"]) for r in result["hours"].to_pylist()] == [(3, 2), (3, 1)]


def test_stream_time_of_two_sources_is_their_maximum():
    flow = ro.Dataflow("two")
    both = ro.merge(flow.source("x", schema=SCHEMA), flow.source("y", schema=SCHEMA))
    flow.sink("out", both.to(t.Window(**MINUTES), id="n"))
    schema = pa.schema([("seq", pa.int64()), *SCHEMA.items()]).set(2, pa.field("device", pa.string()))
    given = {"x": rows("a", 10), "y": ScriptedSource([ADVANCE(at(90))], schema)}
    result = flow.run(given)
    # a local run reads x first; message 0 of y has the number 2 * 0 + 1, after message 0 of x
    assert closed(result["n"]) == [(1, "a", 0, 1)]


def test_closed_window_is_written_while_source_is_silent(tmp_path):
    clock_reads = []

    def clock():  # the pause ends once the epoch of the heartbeat has been written
        clock_reads.append([*(tmp_path / "out" / "n").glob("*.parquet")])
        return 1e9 if clock_reads[-1] else 0.0

    script = [rows("a", 10), ADVANCE(at(60)), PAUSE(1), rows("a", 70)]
    counting().run(ScriptedSource(script, clock=clock), out=tmp_path / "out", epoch_s=0.05)
    assert not clock_reads[0]
    assert clock_reads[-1]


def test_heartbeat_beyond_max_ahead_is_ignored():
    # of two records, since one alone would not have more votes than the heartbeat
    result = counting(max_ahead="1h").run(ScriptedSource([rows("a", 10, 20), ADVANCE(at(7200)), rows("a", 59)]))
    assert [row[1:] for row in closed(result["n"])] == [("a", 0, 3)]


def test_restart_continues_after_heartbeat(tmp_path):
    source = ScriptedSource([rows("a", 10), ADVANCE(at(60)), ABORT, rows("a", 20, 70)])
    with pytest.raises(ConnectorError, match="ABORT"):
        counting().run(source, out=tmp_path / "out", checkpoint=tmp_path / "state", epoch_rows=1)
    counting().run(source, out=tmp_path / "out", checkpoint=tmp_path / "state")
    assert closed(_table(tmp_path / "out" / "n")) == [(1, "a", 0, 1), (1, "a", 60, 1)]
    assert late(_table(tmp_path / "out" / "errors")) == [(1, "late")]


def _table(folder):
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob("*.parquet"))])


def test_heartbeat_round_trip():
    schema = pa.schema([("seq", pa.int64())], {"unit": "1"})
    beat = heartbeat(schema, -3, -5)
    assert parse_heartbeat(beat) == (-3, -5)
    assert beat.schema.equals(schema)
    assert beat.schema.metadata[b"unit"] == b"1"
    assert parse_heartbeat(pa.RecordBatch.from_pylist([], schema)) is None
    assert parse_heartbeat(pa.RecordBatch.from_pylist([{"seq": 1}], beat.schema)) is None
    with pytest.raises(ConfigError, match="time zone"):
        ADVANCE(NOON.replace(tzinfo=None))
