"""Heartbeats: stream time from a source that has no records to deliver."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.source import heartbeat, parse_heartbeat
from riot_ops.testing import ABORT, ADVANCE, PAUSE, ScriptedSource
from tests.search import depth
from tests.simulated_query import SimulatedQuery

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SCHEMA = {"event_time": TIMESTAMP, "device": "string"}
NUMBERED = pa.schema([("seq", pa.int64()), ("event_time", TIMESTAMP), ("device", pa.string())])
MINUTES = {"frame": "1min", "by": ("device",), "aggregates": {"n": "count"}}


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
    hours = t.Window(frame="1h", by=("device",), aggregates={"most": ("n", "max")})
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

    script = [rows("a", 10), ADVANCE(at(60)), PAUSE("1s"), rows("a", 70)]
    counting().run(ScriptedSource(script, clock=clock), out=tmp_path / "out", epoch="50ms")
    assert not clock_reads[0]
    assert clock_reads[-1]


def test_heartbeat_beyond_max_ahead_is_ignored():
    # of two records, since one alone would not have more votes than the heartbeat
    result = counting(max_ahead="1h").run(ScriptedSource([rows("a", 10, 20), ADVANCE(at(7200)), rows("a", 59)]))
    assert [row[1:] for row in closed(result["n"])] == [("a", 0, 3)]


def test_far_heartbeat_after_single_record_is_believed_under_any_cut():
    # one vote against one, before the next record takes time back
    for pauses in ((), (PAUSE(),)):
        script = [rows("a", 10), *pauses, ADVANCE(at(7200)), *pauses, rows("a", 59)]
        for batch_size in (None, 1):
            result = counting(max_ahead="1h").run(ScriptedSource(script), batch_size=batch_size)
            assert closed(result["n"]) == [(1, "a", 0, 1), (1, "a", 0, 1)]


def test_records_between_heartbeats_end_their_votes():
    # a parser's records are one batch, where most of their times would move nothing without the heartbeats
    flow = ro.Dataflow("parsed")
    parsed = flow.source("readings", schema=SCHEMA).to(ro.map(lambda row: row, schema=SCHEMA), id="parsed")
    flow.sink("out", parsed.to(t.Window(**MINUTES, max_ahead="1h"), id="n"))
    script = [rows("a", 10, 20, 30), *(part for s in range(31, 40) for part in (ADVANCE(at(7200)), rows("a", s)))]
    assert [row[1:] for row in closed(flow.run(ScriptedSource(script))["n"])] == [("a", 0, 12)]


@pytest.mark.parametrize("seed", range(4))
def test_heartbeats_before_one_message_keep_their_order_on_simulated_spark(seed):
    # the first is believed, the second takes that back: the window is open twice
    script = [rows("a", 70), ADVANCE(at(7200)), ADVANCE(at(100)), rows("a", 80)]
    for results in (
        counting(max_ahead="1h").run(ScriptedSource(script)),
        SimulatedQuery(counting(max_ahead="1h"), ScriptedSource(script), random.Random(seed)),
    ):
        assert closed(results["n"]) == [(1, "a", 60, 1), (1, "a", 60, 1)]


items = st.one_of(
    st.builds(rows, st.sampled_from("ab"), st.integers(0, 400), st.integers(0, 150)),
    st.builds(rows, st.sampled_from("ab"), st.integers(0, 150)),
    st.builds(lambda s: ADVANCE(at(s)), st.integers(0, 900)),
)


def over_windows(**window):
    """Windows over windows, so that time also passes timer output."""
    flow = counting(**window)
    hours = t.Window(frame="2min", by=("device",), aggregates={"most": ("n", "max"), "k": "count"})
    flow.sink("all", flow.stream("n").to(hours, id="most"))
    return flow


def outcome(results):
    return [sorted(map(str, results[name].to_pylist())) for name in ("n", "most")], late(results["errors"])


@settings(max_examples=depth(80, 8))
@given(st.lists(items, max_size=8), st.sampled_from([None, "2min"]), st.data())
def test_heartbeats_act_alike_under_any_cut_and_runner(script, max_ahead, data):
    flow = over_windows(max_ahead=max_ahead)
    apart = [part for item in script for part in (item, PAUSE())]
    source = partial(ScriptedSource, schema=NUMBERED)
    wanted = outcome(flow.run(source(apart), batch_size=1))
    size = data.draw(st.sampled_from([1, 2, 1000]))
    assert outcome(flow.run(source(script), batch_size=size)) == wanted
    paused = [part for item in script for part in (item, *data.draw(st.sampled_from([(), (PAUSE(),)])))]
    assert outcome(flow.run(source(paused), batch_size=size)) == wanted
    choose = random.Random(data.draw(st.integers(0, 99)))
    assert outcome(SimulatedQuery(flow, source(paused), choose, max_records=size)) == wanted


@settings(max_examples=depth(60, 6))
@given(
    st.lists(st.lists(items, max_size=5), min_size=2, max_size=2),
    st.sampled_from(["number", "sequence"]),
    st.sampled_from([None, "2min"]),
    st.sampled_from([1, 2, 1000]),
    st.integers(0, 99),
    st.booleans(),
)
def test_heartbeats_of_merged_sources_act_alike_under_any_cut_and_runner(
    scripts, merging, max_ahead, size, seed, parsed
):
    flow = ro.Dataflow("two", merging=merging)
    both = ro.merge(flow.source("x", schema=SCHEMA), flow.source("y", schema=SCHEMA))
    if parsed:  # then the records of both make one stream of watermarks
        both = both.to(ro.map(lambda row: row, schema=SCHEMA), id="parsed")
    flow.sink("out", both.to(t.Window(**MINUTES, max_ahead=max_ahead), id="n"))

    def given(pauses):
        parts = [[part for item in script for part in (item, *pauses)] for script in scripts]
        return {name: ScriptedSource(part, NUMBERED) for name, part in zip("xy", parts, strict=True)}

    def outcome(results):
        return sorted(map(str, results["n"].to_pylist())), sorted(late(results["errors"]))

    wanted = outcome(flow.run(given([PAUSE()]), batch_size=1))
    assert outcome(flow.run(given([]), batch_size=size)) == wanted
    assert outcome(SimulatedQuery(flow, given([]), random.Random(seed), max_records=size)) == wanted


#: Both sources have heartbeats before one message; in the last script Spark reads them in different parts.
BOTH_BEAT = [
    [
        [ADVANCE(at(7200)), ADVANCE(at(100)), rows("a", 0, 400, 0), ADVANCE(at(200)), rows("a", 600), rows("a", 0, 0)],
        [*[ADVANCE(at(7200))] * 2, rows("b", 100), ADVANCE(at(400)), rows("b", 600), rows("b", 50)],
    ],
    [
        [ADVANCE(at(60)), rows("a", 0, 50, 400), rows("a", 600, 100), rows("a", 600)],
        [ADVANCE(at(900)), rows("b", 400, 0, 600), rows("b", 600, 600)],
    ],
    [
        [rows("a", 10), ADVANCE(at(900)), rows("a", 900)],
        [rows("b", 10), ADVANCE(at(60)), rows("b", 900), rows("b", 70), rows("b", 70)],
    ],
]


@pytest.mark.long
@pytest.mark.parametrize("scripts", BOTH_BEAT)
def test_heartbeats_before_one_message_count_in_the_order_of_their_sources(scripts):
    flow = ro.Dataflow("two", merging="number")
    both = ro.merge(flow.source("x", schema=SCHEMA), flow.source("y", schema=SCHEMA))
    flow.sink("out", both.to(t.Window(**MINUTES, max_ahead="2min"), id="n"))

    def given(*paused):
        """Return the sources; one that is paused has its next item later than the other."""
        return {
            name: ScriptedSource(
                [part for item in script for part in ((PAUSE(), item) if name in paused else (item,))], NUMBERED
            )
            for name, script in zip("xy", scripts, strict=True)
        }

    found = [
        run
        for paused in ((), ("x",), ("y",))
        for run in (flow.run(given(*paused), batch_size=1), SimulatedQuery(flow, given(*paused), random.Random(1)))
    ]
    wanted = closed(found[0]["n"]), sorted(late(found[0]["errors"]))
    assert any(wanted)
    assert all((closed(run["n"]), sorted(late(run["errors"]))) == wanted for run in found)


def test_votes_of_sources_parsed_together_are_counted_in_order_of_messages():
    flow = ro.Dataflow("two", merging="number")
    both = ro.merge(flow.source("x", schema=SCHEMA), flow.source("y", schema=SCHEMA))
    parsed = both.to(ro.map(lambda row: row, schema=SCHEMA), id="parsed")  # its records make the watermarks
    flow.sink("out", parsed.to(t.Window(**MINUTES, max_ahead="2min"), id="n"))
    seconds = {"x": [10] * 6, "y": [500, 500, 500, 10, 10, 900]}
    whole, single = (
        flow.run({name: [*rows(name, *given)] for name, given in seconds.items()}, batch_size=size)
        for size in (None, 1)
    )
    assert closed(whole["n"]) == closed(single["n"])
    assert late(whole.errors) == late(single.errors)


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
