"""Watermarks and stream time: where time moves, which tasks it affects, and that no cut changes it."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.clock import FIRST_HEARTBEAT, NEVER, WATERMARKS, Clock, StepClock
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import TimerOutput
from riot_ops.core.order import with_timer_ordinals
from riot_ops.core.schema import TIMESTAMP
from riot_ops.graph.lowering import lower
from riot_ops.ingest.watermarks import WatermarkGenerator, generate_watermarks
from riot_ops.runtime.state_table import state_table
from riot_ops.runtime.watermarks import Watermark
from riot_ops.task import PeriodicTask, StateField
from riot_ops.testing import EOF, ScriptedSource, exact
from tests.search import depth
from tests.simulated_query import SimulatedQuery

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("seq", pa.int64()), ("event_time", TIMESTAMP), ("device", pa.string()), ("value", pa.float64())])


def seconds(*times):
    return [None if s is None else int(s * 1_000_000) for s in times]


def timed(times, numbers=None):
    return pa.RecordBatch.from_arrays(
        [pa.array(range(len(times)) if numbers is None else numbers, pa.int64()), pa.array(seconds(*times), TIMESTAMP)],
        names=["seq", "event_time"],
    )


def rounded(batch):
    return [(row["seq"], (row["event_time"] - EPOCH).total_seconds()) for row in batch.to_pylist()]


# -- watermarks -----------------------------------------------------------------------------------------


def test_watermarks_at_new_maxima():
    batch = timed([3.5, 1, None, 4.2, 9, 4.9, 9.9], [10, 11, 12, 13, 14, 15, 16])
    assert rounded(WatermarkGenerator(1_000_000).apply(batch)) == [(10, 3), (13, 4), (14, 9)]
    assert rounded(WatermarkGenerator(5_000_000).apply(batch)) == [(10, 0), (14, 5)]
    assert rounded(generate_watermarks(batch.select(["event_time"]), 5_000_000)) == [(0, 0), (4, 5)]
    assert rounded(WatermarkGenerator(1_000_000).apply(timed([-0.5]))) == [(0, -1)]
    assert WatermarkGenerator(1, 1, 3).apply(timed([None])).num_rows == 0


def test_watermarks_of_first_records_of_each_run_in_a_cell():
    batch = timed([3, 90, 90, 90, 91, 90, 4, 4.5, 90])
    seconds_apart, days = WatermarkGenerator(1_000_000, 1_000_000, 2), WatermarkGenerator(1_000_000, 100_000_000, 2)
    assert [row for row, _ in rounded(seconds_apart.apply(batch))] == [0, 1, 2, 4, 5, 6, 7, 8]
    assert rounded(days.apply(batch)) == [(0, 3), (1, 90), (4, 91)]


def naive_time(times, ahead, at_once=False, cell=1):
    """Return stream time after each row."""
    return [now for now, _ in naive_times(times, ahead, at_once, cell)]


def naive_times(times, ahead, at_once=False, cell=1):
    """Return stream time and sure time after each row: the state is one time, its support, and the votes against it."""
    now, support, votes, sure, out = None, 0, [], None, []
    for time in times:
        if time is not None and ahead is None:
            now = time if now is None else max(now, time)
        elif time is not None:

            def agree(a, b):
                return abs(a // cell - b // cell) <= ahead // cell

            if now is None:
                now, support = time, 1
            elif agree(time, now):
                now, support, votes = max(now, time), support + 1, []
            elif at_once and time > now:
                now, support, votes = time, 1, []
            else:
                votes = [*votes, time] if votes and agree(time, max(votes)) else [time]
                if len(votes) >= min(support, 3):
                    now, support, votes = max(votes), len(votes), []
            sure = now if support >= 3 else sure
        out.append((now if not at_once or sure is None or now is None else max(now, sure), sure))
    return out


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 60), st.integers(0, 6)), max_size=60),
    st.sampled_from([None, 3, 10, "aging"]),
    st.randoms(),
)
def test_stream_time_is_independent_of_pieces(times, ahead, choose):
    aging = ahead == "aging"
    clock = StepClock(
        ("x",), 1_000_000, 0, None if ahead is None or aging else ahead * 1_000_000, aging=10_000_000 if aging else 0
    )
    batch = timed(times)
    edges = sorted({0, len(times), *(choose.randint(0, len(times)) for _ in range(4))})
    pieces = [batch.slice(a, b - a) for a, b in pairwise(edges)]
    watermarks = [generate_watermarks(piece, 1_000_000, clock.cell, clock.votes_per_run) for piece in pieces]
    wanted = naive_time(times, 10 if aging else ahead, aging, 10 if aging else 1)
    if choose.random() < 0.5:
        choose.shuffle(watermarks)
        found = Watermark(clock).ticks(batch, watermarks).at_rows(len(times)).tolist()
    else:  # piece by piece, with restarts
        time, found = Watermark(clock), []
        for piece, marks in zip(pieces, watermarks, strict=True):
            found += time.ticks(piece, [marks]).at_rows(piece.num_rows).tolist()
            saved, time = time.snapshot(), Watermark(clock)
            time.restore(saved)
    assert [None if now < 0 else now // 1_000_000 for now in found] == wanted


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 60) | st.integers(0, 6)), max_size=30),
    st.sampled_from([None, 3, 10]),
    st.randoms(),
)
def test_heartbeat_counts_as_record_before_its_message(items, ahead, choose):
    """Stream time after each item is that of a stream of records alone, for any cut and order of the parts."""
    clock = StepClock(("x",), 1_000_000, 0, None if ahead is None else ahead * 1_000_000)
    generator = WatermarkGenerator(1_000_000, clock.cell, clock.votes_per_run)
    numbers = [sum(not beat for beat, _ in items[:i]) for i in range(len(items))]
    beats = itertools.count(FIRST_HEARTBEAT)
    edges = sorted({0, len(items), *(choose.randint(0, len(items)) for _ in range(4))})
    pieces = []
    for a, b in pairwise(edges):
        records, between = (
            [(n, time) for n, (beat, time) in zip(numbers[a:b], items[a:b], strict=True) if beat is wanted]
            for wanted in (False, True)
        )
        found = [timed([time for _, time in part], [n for n, _ in part]) for part in (records, between)]
        found[1] = found[1].append_column("heartbeat", pa.array([next(beats) for _ in between], pa.int64()))
        pieces.append((found[0], generator.merge(found[:1], found[1:])))
    time, seen = Watermark(clock), []
    if choose.random() < 0.5:
        whole = pa.concat_batches([piece for piece, _ in pieces] or [timed([])])
        marks = [watermarks for _, watermarks in pieces]
        choose.shuffle(marks)
        seen = time.ticks(whole, marks).at_rows(whole.num_rows).tolist()
    else:
        for piece, watermarks in pieces:
            seen += time.ticks(piece, [watermarks]).at_rows(piece.num_rows).tolist()
    wanted = naive_time([time for _, time in items], ahead)
    assert [now // 1_000_000 for now in seen] == [w for w, (beat, _) in zip(wanted, items, strict=True) if not beat]
    assert not items or time.now // 1_000_000 == wanted[-1]


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 60)), max_size=40),
    st.sampled_from([None, 10]),
    st.integers(0, 9),
    st.booleans(),
    st.randoms(),
)
def test_whole_periods_pass_at_same_rows_and_messages(times, ahead, lag, from_first, choose):
    """A clock of whole periods passes them at the same rows as a clock with every move, and ends at the same time."""
    batch, period = timed(times), 7_000_000
    cut = choose.randint(0, len(times))
    parts = [part for part in (batch.slice(0, cut), batch.slice(cut)) if part.num_rows]
    lagging = StepClock(("x",), 1, lag * 1_000_000, None if ahead is None else ahead * 1_000_000, from_first)
    seen = []
    for clock in (lagging, replace(lagging, period=period)):
        time, passed, moved = Watermark(clock), [], []
        for part in parts:
            ticks = time.ticks(part, [generate_watermarks(part, 1, clock.cell, clock.votes_per_run)])
            count = [None if m == NEVER else (m - ticks.origin) // period for m in ticks.moments.tolist()]
            passed += ticks.at_rows(part.num_rows, np.array(count, object)).tolist()
            moved += [n for n, a, b in zip(ticks.seq.tolist(), count, count[1:], strict=False) if a != b]
            size = ticks.times.size
        seen.append((passed, moved, time.now, time.seq, time.snapshot()))
        if clock.period and parts:
            assert size <= len(set(passed)) + 1
    assert seen[0] == seen[1]


def test_upstream_timer_output_precedes_the_watermark():
    """Stream time moves to 60 s at message 9: timer output due at 20 s and 40 s is processed just before these times."""
    due = [20_000_000 - 2**62, 40_000_000 - 2**62, 0]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([9, 9, 9], pa.int64()), pa.array(due, pa.int64()), pa.array(seconds(1, 2, 60), TIMESTAMP)],
        names=["seq", "ordinal", "event_time"],
    )
    time = Watermark(StepClock(("x",), 1))
    first = pa.RecordBatch.from_arrays(
        [pa.array([1]), pa.array(seconds(5), TIMESTAMP), pa.array([0])], schema=WATERMARKS
    )
    time.ticks(None, [first])
    mark = pa.RecordBatch.from_arrays(
        [pa.array([9]), pa.array(seconds(60), TIMESTAMP), pa.array([0])], schema=WATERMARKS
    )
    assert time.ticks(batch, [mark]).at_rows(3).tolist() == [19_999_999, 39_999_999, 60_000_000]


# -- a task that ticks -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EveryTenSeconds(PeriodicTask):
    """Emits the record count of each key every ten seconds, and passes records on."""

    code: ClassVar[str] = ""

    allowed_lateness: timedelta = timedelta(0)
    from_first: bool = False

    def clock(self):
        return Clock(timedelta(seconds=10), self.allowed_lateness, from_first=self.from_first)

    def state_fields(self):
        return {"n": StateField("int64")}

    def output_schema(self, schema):
        return with_timer_ordinals(schema).append(pa.field("n", pa.int64()))

    def update(self, batch, slots, state, rejects):
        np.add.at(state["n"], slots, 1)
        counts = [int((slots[: i + 1] == s).sum()) for i, s in enumerate(slots)]
        ahead = [int((slots == s).sum()) for s in slots]
        n = [int(state["n"][s]) - a + c for s, a, c in zip(slots, ahead, counts, strict=True)]
        return batch.append_column("n", pa.array(n, pa.int64()))

    def tick(self, keys, state, time, periods):
        slots = np.arange(keys.num_rows)
        rows = pa.RecordBatch.from_pydict({"n": state["n"].copy(), "value": pa.array([float(periods)] * slots.size)})
        return TimerOutput(slots, rows)


def ticking(allowed_lateness=0, from_first=False):
    flow = ro.Dataflow("ticking")
    task = EveryTenSeconds(by=("device",), allowed_lateness=timedelta(seconds=allowed_lateness), from_first=from_first)
    counted = flow.source("in", schema=SCHEMA).to(task, id="counted")
    flow.sink("out", counted, counted.to(t.KalmanFilter(), id="downstream"))
    return flow


def rows_of(choose, n):
    time = 0
    rows = []
    for i in range(n):
        time += choose.choice([0, 1, 1, 3, choose.choice([0, 0, 25])])
        at = None if choose.random() < 0.1 else EPOCH + timedelta(seconds=time - choose.choice([0, 0, 4]))
        rows.append({"seq": 3 * i, "event_time": at, "device": choose.choice("abü"), "value": float(i % 7)})
    return rows


def naive_ticks(rows, allowed_lateness, from_first=False):
    """Compute ``(message, time, device, count, periods)`` of ticks record by record."""
    counts, now, out, origin = {}, None, [], 0
    period, allowed_lateness = 10_000_000, allowed_lateness * 1_000_000
    for row in rows:
        if row["event_time"] is not None:
            time = (row["event_time"] - EPOCH) // timedelta(microseconds=1)
            origin = time if now is None and from_first else origin
            if now is None or time > now:
                passed = (time - allowed_lateness - origin) // period
                before = passed if now is None else (now - allowed_lateness - origin) // period
                if passed > before:
                    due = (period * passed + origin) / 1e6
                    out += [(row["seq"], due, d, n, passed - before) for d, n in counts.items()]
                now = time
        counts[row["device"]] = counts.get(row["device"], 0) + 1
    return out


@pytest.mark.long
@given(st.integers(0, 2**32), st.sampled_from([0, 7]), st.booleans(), st.integers(1, 20))
def test_ticks_between_records_for_all_keys(seed, allowed_lateness, from_first, batch_size):
    rows = rows_of(random.Random(seed), 40)
    for row in rows if from_first else ():  # the first time counts to the microsecond
        row["event_time"] = row["event_time"] and row["event_time"] + timedelta(microseconds=seed % 999)
    flow = ticking(allowed_lateness, from_first)
    flow.ordinals = True
    whole = flow.run(rows)
    ticks = [row for row in whole["counted"].to_pylist() if row["ordinal"] < 0]
    assert sorted(
        (
            r["seq"],
            (r["event_time"] - EPOCH + timedelta(microseconds=1)).total_seconds(),
            r["device"],
            r["n"],
            r["value"],
        )
        for r in ticks
    ) == sorted(naive_ticks(rows, allowed_lateness, from_first))
    cut = flow.run(rows, batch_size=batch_size, cores=2)
    for stream in ("counted", "downstream"):
        assert list(map(exact, cut[stream].to_pylist())) == list(map(exact, whole[stream].to_pylist()))


@pytest.mark.long
@settings(max_examples=depth(300, 8))
@given(st.integers(0, 2**32))
def test_periods_from_first_time_on_simulated_spark(seed):
    choose = random.Random(seed)
    rows, flow = rows_of(choose, 25), ticking(3, from_first=True)
    whole = flow.run(rows)["downstream"].to_pylist()
    query = SimulatedQuery(flow, rows, choose, max_records=choose.choice([1, 6]), partitions=choose.choice([1, 3]))
    assert sorted(map(repr, map(exact, query["downstream"].to_pylist()))) == sorted(map(repr, map(exact, whole)))


def test_periods_from_first_time_after_restart():
    flow = ticking(from_first=True)
    flow.ordinals = True
    rows = [{"event_time": EPOCH + timedelta(seconds=s), "device": "a", "value": 0.0} for s in (3, 9, 14, 24)]
    whole = [row for row in flow.run(rows)["counted"].to_pylist() if row["ordinal"] < 0]
    assert [row["event_time"] + timedelta(microseconds=1) for row in whole] == [
        EPOCH + timedelta(seconds=13),
        EPOCH + timedelta(seconds=23),
    ]
    session = EveryTenSeconds(by=("device",), from_first=True).session()
    session.push(rows[0])
    again = EveryTenSeconds(by=("device",), from_first=True).session()
    again.restore(session.snapshot())
    assert again.advance(EPOCH + timedelta(seconds=12)) == []
    assert len(again.advance(EPOCH + timedelta(seconds=13))) == 1


def test_session_advances_time():
    session = EveryTenSeconds(by=("device",)).session()
    session.push({"event_time": EPOCH, "device": "a", "value": 1.0})
    assert session.advance(EPOCH + timedelta(seconds=9)) == []
    assert [(row["device"], row["n"], row["value"]) for row in session.advance(EPOCH + timedelta(seconds=31))] == [
        ("a", 1, 3.0)
    ]
    assert session.advance(EPOCH + timedelta(seconds=20)) == []
    with pytest.raises(ConfigError, match="datetime with a time zone"):
        session.advance("2024-01-01")


def test_session_emits_timer_output_before_record():
    session = EveryTenSeconds(by=("device",)).session()
    rows = [{"event_time": EPOCH + timedelta(seconds=s), "device": "a", "value": 0.0} for s in (1, 11, 12)]
    assert session.push(rows[0])[0]["n"] == 1
    assert [(row["n"], row["value"]) for row in session.push(rows[1])] == [(1, 1.0), (2, 0.0)]
    numbered = EveryTenSeconds(by=("device",)).session()
    batch = pa.RecordBatch.from_pylist([{"seq": i, **row} for i, row in enumerate(rows)])
    assert [(row["n"], row["value"]) for row in numbered.push_batch(batch).to_pylist()] == [
        (1, 0.0),
        (1, 1.0),
        (2, 0.0),
        (3, 0.0),
    ]


# -- time to live ----------------------------------------------------------------------------------


def test_key_ages_by_stream_time_of_all_keys():
    task = t.MovingAverage(by=("device",), window=2, ttl="16s")
    session = task.session()

    def push(second, device, value):
        return session.push({"event_time": EPOCH + timedelta(seconds=second), "device": device, "value": value})

    push(0, "a", 1.0)
    push(40, "b", 1.0)
    assert push(10, "a", 3.0) == []  # by the times of its own records it would be alive
    assert push(41, "a", 5.0)[0]["value"] == 4.0


@pytest.mark.long
@given(st.integers(0, 2**32), st.integers(1, 9))
def test_aging_is_independent_of_batches(seed, batch_size):
    rows = rows_of(random.Random(seed), 60)
    flow = ro.Dataflow("aging")
    source = flow.source("in", schema=SCHEMA)
    smooth = source.to(t.KalmanFilter(by=("device",), ttl=timedelta(seconds=10)), id="smooth")
    flow.sink("out", smooth)
    whole, cut = (flow.run(rows, batch_size=n)["smooth"].to_pylist() for n in (1000, batch_size))
    assert list(map(exact, cut)) == list(map(exact, whole))


def naive_repetitions(rows, ttl):
    """Return which records are repetitions of a key within ``ttl`` seconds."""
    last, found, before, sure_before = {}, [], None, None
    days = naive_times([second for second, _ in rows], 86_400, at_once=True, cell=86_400)
    for (_, key), (now, sure) in zip(rows, days, strict=True):
        if before is not None and now < before:
            if sure_before is not None and now < sure_before:
                last = {k: seen for k, seen in last.items() if sure_before - seen <= ttl}
            last = {k: min(seen, now) for k, seen in last.items()}
        found.append(key in last and now - last[key] <= ttl)
        last[key] = now
        before, sure_before = now, sure
    return found


YEAR = 31_536_000


def pushed(task, rows, batch_size, restarts=True):
    """Push records in batches, with restarts; returns the seq of the records that come out, and the state."""
    session, out = task.session(), []
    for start in range(0, len(rows), batch_size):
        part = enumerate(rows[start : start + batch_size], start)
        given = [{"seq": n, "event_time": EPOCH + timedelta(seconds=s), "key": k} for n, (s, k) in part]
        out += [row["seq"] for row in session.push_many(given)]
        if restarts:
            data, session = session.snapshot(), task.session()
            session.restore(data)
    return out, session


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("wrong", [[12 * YEAR], [12 * YEAR] * 2, [12 * YEAR] * 5, [-12 * YEAR] * 5, [2 * 86_400]])
def test_time_to_live_recovers_from_wrong_clocks(wrong, batch_size):
    """Every other key repeats after five seconds, and some after 295 s, when they have been forgotten."""
    seconds = [1_700_000_000 + n for n in range(300)]
    rows = [(second, f"{n % 295 - n % 295 % 2 * 5}") for n, second in enumerate(seconds)]
    first = {}
    clean = []
    for n, (second, key) in enumerate(rows):
        if key not in first or second - first[key] > 16:
            clean.append(n)
        first[key] = second
    far = [(1_700_000_000 + 100 + off, f"far{i}") for i, off in enumerate(wrong)]
    mixed = [*rows[:100], *far, *rows[100:]]
    out, session = pushed(t.Deduplicate(by="key", ttl="16s"), mixed, batch_size)
    found = [n if n < 100 else n - len(far) for n in out if not 100 <= n < 100 + len(far)]
    believed = set(range(100, 117)) if len(wrong) >= 3 else set()  # then keys seen before have expired
    assert set(found) - believed == set(clean) - believed
    assert state_table([session.snapshot()]).num_rows < 30


@pytest.mark.long
@settings(max_examples=depth(400, 40))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 40),
            st.sampled_from([0, 0, 0, 0, 1, 1, 200_000, -200_000, 12 * YEAR]),
            st.sampled_from("abcd"),
        ),
        max_size=60,
    ),
    st.integers(1, 9),
)
def test_time_to_live_equals_its_definition(parts, batch_size):
    rows, now = [], 1_700_000_000
    for step, off, key in parts:
        now += step if off == 1 else 0
        rows.append((now + step + (off if abs(off) > 1 else 0), key))
    out, _ = pushed(t.Deduplicate(by="key", ttl="16s"), rows, batch_size)
    found = naive_repetitions(rows, 16)
    assert out == [n for n, repeated in enumerate(found) if not repeated]


@pytest.mark.long
@settings(max_examples=depth(200, 4))
@given(st.integers(0, 2**32))
def test_wrong_clocks_on_simulated_spark(seed):
    """Windows over windows, sessions, sorting and aging keys go back with stream time alike on both runners."""
    choose = random.Random(seed)
    rows = rows_of(choose, 60)
    wrong = 0
    for row in rows:
        wrong = max(wrong - 1, 0) if wrong or choose.random() < 0.9 else choose.choice([1, 2, 4, 8])
        if wrong and row["event_time"] is not None:
            row["event_time"] += timedelta(seconds=choose.choice([400, 400, 405, 30 * YEAR]))
    flow = ro.Dataflow("clocks")
    source = flow.source("in", schema=SCHEMA)
    sums = {"value": ("value", "sum"), "n": "count"}
    first = source.to(t.Window(by="device", frame="5s", max_ahead="60s", aggregates=sums), id="first")
    outs = [
        first,
        first.to(t.Window(frame="20s", aggregates=sums), id="second"),
        source.to(
            t.Window(by="device", frame=w.Session("8s"), allowed_lateness="4s", max_ahead="60s", aggregates=sums),
            id="visits",
        ),
        source.to(t.SortByEventTime(allowed_lateness="3s", max_ahead="60s"), id="sorted"),
        source.to(t.Deduplicate(by="device", ttl="16s"), id="once"),
        source.to(EveryTenSeconds(by=("device",)), id="ticks"),
    ]
    flow.sink("out", *outs)
    names = ["first", "second", "visits", "sorted", "once", "ticks", "errors"]
    whole = flow.run(rows)
    cut = flow.run(rows, batch_size=choose.randint(1, 9))
    query = SimulatedQuery(flow, rows, choose, max_records=choose.choice([1, 6]), partitions=choose.choice([1, 3]))
    for name in names:
        wanted = sorted(map(repr, map(exact, whole[name].to_pylist())))
        for found in (cut, query):
            assert sorted(map(repr, map(exact, found[name].to_pylist()))) == wanted, name


# -- in a dataflow ---------------------------------------------------------------------------------


def clocks(flow):
    return {step.id: step.clock for step in lower(flow) if step.clock is not None}


def test_watermarks_follow_last_writer_of_event_time():
    flow = ro.Dataflow("where")
    source = flow.source("in", schema=SCHEMA)
    kept = source.to(t.NoOp(), id="kept")
    shifted = kept.to(ro.map(lambda row: row), id="shifted")
    minute = t.Window(frame="1min", allowed_lateness="45s", by="device", aggregates={"value": ("value", "mean")})
    first = source.to(minute, id="first")
    flow.sink(
        "out",
        kept.to(minute, id="filtered"),
        shifted.to(minute, id="mapped"),
        first.to(t.Window(frame="1h", max_ahead="1d"), id="second"),
        source.to(t.Window(frame=3), id="counted"),
    )
    found = clocks(flow)
    assert {name: clock.streams for name, clock in found.items()} == {
        "first": ("in@time",),
        "filtered": ("in@time",),  # records that a filter drops have moved time as well
        "mapped": ("shifted@time",),
        "second": ("in@time",),
    }
    assert {clock.resolution for clock in found.values()} == {15_000_000}
    assert (found["first"].lag, found["second"].lag) == (0, 45_000_000)
    assert (found["first"].max_ahead, found["second"].max_ahead) == (None, 86_400_000_000)


def test_max_ahead_applies_to_downstream_windows():
    flow = ro.Dataflow("guarded")
    means = {"value": ("value", "mean")}
    minute = flow.source("in", schema=SCHEMA).to(
        t.Window(frame="10s", max_ahead="30s", by="device", aggregates=means), id="a"
    )
    flow.sink("out", minute, minute.to(t.Window(frame="20s", aggregates={"n": "count"}), id="b"))
    rows = [
        {"seq": i, "event_time": EPOCH + timedelta(seconds=s), "device": "d", "value": 1.0}
        for i, s in enumerate([0, 5, 9_000, 12, 25, 41])
    ]
    result = flow.run(rows, batch_size=2)
    assert [e["reason"] for e in result.errors.to_pylist()] == ["from_the_future"]
    assert result["b"]["n"].to_pylist() == [2, 1, 1]


def test_window_over_inputs_of_different_lateness():
    flow = ro.Dataflow("meeting")
    source = flow.source("in", schema=SCHEMA)
    means = {"value": ("value", "mean")}
    ten = source.to(t.Window(frame="10s", allowed_lateness="1min", by="device", aggregates=means), id="ten")
    fields = {"window_start": TIMESTAMP, "window_end": TIMESTAMP, "value": "double"}
    as_window = dict.fromkeys(["window_start", "window_end"], EPOCH)
    raw = source.to(ro.map(lambda row: {**as_window, "value": row["value"] * 100}, adds=fields), id="raw")
    both = t.Window(frame="20s", by="device", aggregates={"n": "count", "sum": ("value", "sum")})
    flow.sink("out", ro.merge(ten, raw).to(both, id="both"))
    rows = [
        {"seq": i, "event_time": EPOCH + timedelta(seconds=s), "device": "d", "value": 1.0}
        for i, s in enumerate([1, 12, 25, 61, 101, 9])
    ]
    for batch_size in (1, 4, 100):
        result = flow.run(rows, batch_size=batch_size)
        # 0-20 s: the raw 1 and 12 and two means of 1; it closes at 101 s, so the record of 9 s is late twice
        assert result["both"]["seq"][0].as_py() == 4
        assert result["both"].select(["n", "sum"]).to_pylist()[0] == {"n": 4, "sum": 202.0}
        assert result["both"]["n"].to_pylist() == [4, 2, 2, 2]
        assert [(e["seq"], e["task"], e["reason"]) for e in result.errors.to_pylist()] == [
            (5, "ten", "late"),
            (5, "both", "late"),
        ]


def test_stream_time_needs_event_time():
    flow = ro.Dataflow("timeless")
    source = flow.source("in", schema={"value": "double"})
    flow.sink("out", source.to(t.Window(frame="1s"), id="window"))
    with pytest.raises(ConfigError, match="event_time"):
        flow.validate()


def test_stream_time_of_several_sources():
    flow = ro.Dataflow("two")
    both = ro.merge(flow.source("a", schema=SCHEMA), flow.source("b", schema=SCHEMA))
    flow.sink("out", both.to(t.Window(frame="10s", aggregates={"n": "count"}), id="window"))
    assert clocks(flow)["window"].streams == ("a@time@0+1@time", "b@time@0+1@time"), "with the numbers of both"
    slow = [{"seq": i, "event_time": EPOCH + timedelta(seconds=i), "device": "s", "value": 0.0} for i in range(3)]
    fast = [{"seq": 10, "event_time": EPOCH + timedelta(seconds=95), "device": "f", "value": 0.0}]
    assert flow.run({"a": slow, "b": fast})["window"]["n"].to_pylist() == [3, 1]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"period": timedelta(0)}, "period must be longer"),
        ({"period": timedelta(1), "allowed_lateness": timedelta(-1)}, "allowed_lateness must not"),
        ({"period": timedelta(1), "max_ahead": timedelta(0)}, "max_ahead must be longer"),
        (
            {"period": timedelta(1), "allowed_lateness": timedelta(1), "whole_periods": True},
            "whole periods have no allowed_lateness",
        ),
    ],
)
def test_wrong_clock_is_refused(parameters, text):
    with pytest.raises(ConfigError, match=text):
        Clock(**parameters)


def window_flow(**parameters):
    flow = ro.Dataflow("windows", ordinals=True)
    task = t.Window(by="device", aggregates={"n": "count", "sum": ("value", "sum")}, **parameters)
    flow.sink("out", flow.source("in", schema=SCHEMA).to(task, id="window"))
    return flow


@pytest.mark.long
@pytest.mark.parametrize(
    "parameters",
    [
        {"frame": "10s"},
        {"frame": "10s", "emit": "each"},
        {"frame": w.Hopping("20s", "10s"), "emit": "each"},
        {"frame": w.Session("5s"), "emit": "each"},
        {"frame": w.Count(3, partial=True)},
        {"frame": 3, "emit": "each"},
    ],
    ids=repr,
)
def test_window_output_is_independent_of_batches(parameters):
    rows = rows_of(random.Random(5), 80)
    flow = window_flow(**parameters)
    whole = flow.run(rows)["window"]
    assert whole.num_rows > 10
    assert whole.schema.names == flow.schemas()["window"].names
    for batch_size in (1, 7):
        cut = flow.run(rows, batch_size=batch_size, cores=1)["window"]
        assert list(map(exact, cut.to_pylist())) == list(map(exact, whole.to_pylist()))


def test_event_time_order_avoids_late_records_in_batch():
    rows = [row for row in rows_of(random.Random(6), 60) if row["event_time"] is not None]
    ordered = sorted(rows, key=lambda row: row["event_time"])
    ordered = [{**row, "seq": i} for i, row in enumerate(ordered)]
    names = ["device", "window_start", "n", "sum"]
    keys = [(name, "ascending") for name in names]
    flow = window_flow(frame="5s")
    found, wanted = (flow.run(one, order=o) for one, o in ((rows, "event_time"), (ordered, "arrival")))
    assert found.errors.num_rows == 0
    assert found["window"].select(names).sort_by(keys) == wanted["window"].select(names).sort_by(keys)
    assert flow.run(rows).errors.num_rows > 0


def test_windows_over_windows_in_event_time_order():
    rows = [row for row in rows_of(random.Random(7), 80) if row["event_time"] is not None]
    flow = ro.Dataflow("twice")
    sums = {"value": ("value", "sum")}
    first = flow.source("in", schema=SCHEMA).to(
        t.Window(by="device", frame="5s", allowed_lateness="7s", aggregates=sums), id="first"
    )
    flow.sink("out", first, first.to(t.Window(frame="15s", aggregates={**sums, "n": "count"}), id="second"))
    result = flow.run(rows, order="event_time", batch_size=20)
    assert {e["reason"] for e in result.errors.to_pylist()} <= {"late"}
    assert sum(result["second"]["n"].to_pylist()) == result["first"].num_rows
    assert sum(result["second"]["value"].to_pylist()) == pytest.approx(sum(result["first"]["value"].to_pylist()))
    whole = flow.run(rows, order="event_time")
    assert whole.errors.num_rows == 0
    assert sum(whole["second"]["value"].to_pylist()) == pytest.approx(sum(row["value"] for row in rows))


# -- at the end ------------------------------------------------------------------------------------


def chained(allowed_lateness, size, every):
    """Windows over windows with lateness; each sums the number of records."""
    flow = ro.Dataflow("chained")
    first = t.Window(
        by="device", frame="10s", allowed_lateness=timedelta(seconds=allowed_lateness), aggregates={"n": "count"}
    )
    then = t.Window(
        frame=w.Hopping(timedelta(seconds=size), timedelta(seconds=every or size)), aggregates={"n": ("n", "sum")}
    )
    flow.sink("out", flow.source("in", schema=SCHEMA).to(first, id="first").to(then, id="then"))
    return flow


def naive_chain(rows, allowed_lateness, size, every):
    """Return ``{start of a window: records in its windows of ten seconds}`` for rows that are not late."""
    found = {}
    for row in rows:
        inner = (
            int((row["event_time"] - EPOCH).total_seconds()) // 10 * 10 + 9
        )  # a window ends a microsecond before the next
        for start in range(inner // every * every, inner - size, -every):
            found[start] = found.get(start, 0) + 1
    return found


@pytest.mark.long
@settings(max_examples=depth(300, 8))
@given(st.integers(0, 2**32), st.sampled_from([0, 25]), st.sampled_from([(20, None), (30, 10)]), st.integers(1, 12))
def test_windows_over_late_windows_are_complete_at_end(seed, allowed_lateness, window, batch_size):
    choose = random.Random(seed)
    rows = [row for row in rows_of(choose, 30) if row["event_time"] is not None]
    rows.sort(key=lambda row: row["event_time"])
    for i, row in enumerate(rows):
        row["seq"] = i
    size, every = window
    flow = chained(allowed_lateness, size, every)
    wanted = naive_chain(rows, allowed_lateness, size, every or size)
    results = [flow.run(rows, batch_size=batch_size), flow.run(rows, cores=2)]
    results.append(
        SimulatedQuery(flow, rows, choose, max_records=choose.choice([2, 40]), partitions=choose.choice([1, 2]))
    )
    for result in results:
        found = {int((r["window_start"] - EPOCH).total_seconds()): r["n"] for r in result["then"].to_pylist()}
        assert found == wanted


def test_stream_time_after_continued_end(tmp_path):
    flow = chained(20, 10, None)
    kept = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    times = (0, 10, 20, 30, 40, 45, 46, 90)
    rows = [
        {"seq": i, "event_time": EPOCH + timedelta(seconds=s), "device": "a", "value": 0.0} for i, s in enumerate(times)
    ]
    source = ScriptedSource([rows[:5], EOF, rows[5:]])
    assert sum(flow.run(source, **kept)["then"]["n"].to_pylist()) == 5
    result = flow.run(source, **kept)
    assert result.summary.reasons == {}  # the end of the stream does not close the window from 40 s
    assert sum(result["then"]["n"].to_pylist()) == 8
