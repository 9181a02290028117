"""Windows against their definition, and each option against figures computed by hand."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import windows as w
from riot_ops.core.clock import StepClock, common_resolution
from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.ingest.watermarks import generate_watermarks
from riot_ops.kernels.arrays.lazy_rows import Rows, materialize
from riot_ops.runtime.state import KeyedState
from riot_ops.sketches import HyperLogLog
from riot_ops.tasks import Aggregate, Window
from tests.reference import window as reference

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SECOND = 1_000_000
NUMBERS = {name: ("value", name) for name in ("sum", "mean", "min", "max", "first", "last", "std")}
ALL = {"n": "count", "values": ("value", "count"), **NUMBERS}
MORE = {
    "unique": ("value", "unique"),
    "above": ("value", "matches", ">", 1),
    "low": ("value", "share", "<=", 1),
    "bits": ("value", "matches", "&", 6),
    "duration": "duration",
    "value_duration": ("value", "duration"),
    "mean_gap": ("value", "mean_gap", -1),
    "std_gap": "std_gap",
}


def us(time):
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


# -- against the definition ------------------------------------------------------------------------


def random_case(choose):
    """Build a task, its reference, and messages of records out of order."""
    every, panes = choose.choice([1, 2, 5]), choose.choice([1, 1, 2, 3])
    allowed_lateness, ahead = choose.choice([0, 0, 3, 7]), choose.choice([None, None, 20, 4])
    shared = {
        "by": "key",
        "aggregates": ALL | MORE,
        "allowed_lateness": timedelta(seconds=allowed_lateness),
        "max_ahead": None if ahead is None else timedelta(seconds=ahead),
    }
    offset, first = 0, False
    if choose.random() < 0.6:
        offset, first = choose.choice([(0, False), (0, True), (every // 2, False)])
        step, begin = timedelta(seconds=every), (timedelta(seconds=offset), "first" if first else "epoch")
        frame = w.Tumbling(step, *begin) if panes == 1 else w.Hopping(panes * step, step, *begin)
        task = Window(frame=frame, **shared)
        kind, size = "time", every * panes
    else:
        task = Window(frame=w.Session(timedelta(seconds=8 * every)), **shared)
        kind, size = "session", 8 * every
    grain = common_resolution([task.clock()])
    naive = reference.Windows(
        kind,
        size * SECOND,
        every * SECOND,
        allowed_lateness * SECOND,
        None if ahead is None else ahead * SECOND,
        grain,
        offset * SECOND,
    )
    rows, time = [], choose.randint(-50, 50) * SECOND
    for number in range(choose.randint(1, 50)):
        time += choose.choice([0, 0, SECOND // 2, SECOND, 2 * SECOND, choose.choice([1, 1, 1, 30, -30]) * SECOND])
        for _ in range(choose.choice([1, 1, 1, 3])):
            off = choose.choice([0, 0, 0, -1, -3, -6, -12, choose.choice([0, 0, 9])]) * SECOND
            at = None if choose.random() < 0.05 else time + off + choose.randint(0, 3) * 250_000
            rows.append((number, at, choose.choice("abc"), choose.choice([1.0, 2.5, -3.0, None, 1e9])))
    if first:
        given = [(number, time) for number, time, *_ in rows if time is not None]
        naive.offset = max((time for number, time in given if number == given[0][0]), default=0) if given else 0
    return task, naive, grain, rows


def batch_of(rows):
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in rows], pa.int64()),
            pa.array([row[1] for row in rows], TIMESTAMP),
            pa.array([row[2] for row in rows], pa.string()),
            pa.array([row[3] for row in rows], pa.float64()),
        ],
        names=["seq", "event_time", "key", "value"],
    )


def results(task, grain, rows, choose, often, with_time=True):
    """Return records and errors of a stream cut between messages, with restarts; its watermarks arrive in pieces.

    The records are those that come because of time, or of records.
    """
    ahead = None if task.max_ahead is None else us(NOON + task.max_ahead) - us(NOON)

    lag, first = us(NOON + task.allowed_lateness) - us(NOON), task.clock().from_first
    clock = StepClock(("marks",), grain, 0, ahead, first, max_lag=lag)

    def fresh():
        return KeyedState(task, clock=clock)

    state, rejects, out = fresh(), RejectedRecords("window"), []
    last = rows[-1][0] + 1
    cuts = sorted({0, last} | {n for n in range(last) if choose.random() < often})
    for a, b in pairwise(cuts):
        batch = batch_of([row for row in rows if a <= row[0] < b])
        middle = choose.randint(0, batch.num_rows)
        parts = [part for part in (batch.slice(0, middle), batch.slice(middle)) if part.num_rows]
        watermarks = [generate_watermarks(part, grain, clock.cell, clock.votes_per_run) for part in parts]
        made = state.process([Rows(batch)], rejects, watermarks)
        found = [] if made is None else materialize(made).to_pylist()
        out += [row for row in found if (row.get("ordinal", 0) < 0) == with_time]
        if choose.random() < 0.3:
            data, state = state.snapshot(), fresh()
            state.restore(data)
    left = state.flush(rejects)
    return out + ([] if left is None else left.to_pylist()), [e for part in rejects.take() for e in part.to_pylist()]


def close(a, b):
    return a is b if a is None or b is None else math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-9)


@pytest.mark.long
@given(st.integers(0, 2**32))
def test_windows_equal_their_definition_for_any_split(seed):
    choose = random.Random(seed)
    task, naive, grain, rows = random_case(choose)
    for number, records in groupby(rows, key=lambda row: row[0]):
        naive.message(number, list(records))
    naive.close(naive.moved, everything=True)
    whole, errors = results(task, grain, rows, choose, 0)
    pane = naive.every if naive.kind == "time" else None
    # if stream time is set back, a window may be emitted twice
    wanted = sorted((*one[:5], reference.aggregates(one[5], pane, naive.offset)) for one in naive.results)
    found = sorted(whole, key=lambda row: (row["seq"], row["event_time"], row["key"], row["window_start"]))
    places = [(r["seq"], us(r["event_time"]) + 1, r["key"], us(r["window_start"]), us(r["window_end"])) for r in found]
    assert places == [one[:5] for one in wanted]
    for row, (*_, values) in zip(found, wanted, strict=True):
        assert all(close(row[name], value) for name, value in values.items()), (row, values)
    assert sorted((e["seq"], e["reason"]) for e in errors) == sorted(naive.bad)
    for often in (0.2, 1):
        assert results(task, grain, rows, choose, often)[0] == whole


@pytest.mark.long
@given(st.integers(0, 2**32))
def test_updates_equal_their_definition_for_any_split(seed):
    choose = random.Random(seed)
    task, naive, grain, rows = random_case(choose)
    task = replace(task, emit="each")
    for number, records in groupby(rows, key=lambda row: row[0]):
        naive.message(number, list(records))
    whole, errors = results(task, grain, rows, choose, 0, with_time=False)
    places = [(r["seq"], r["key"], us(r["window_start"]), us(r["window_end"])) for r in whole]
    assert places == [one[:4] for one in naive.updates]
    for row, (*_, values) in zip(whole, naive.updates, strict=True):
        wanted = reference.aggregates(values, naive.every if naive.kind == "time" else None, naive.offset)
        assert all(close(row[name], value) for name, value in wanted.items()), (row, values)
    assert sorted((e["seq"], e["reason"]) for e in errors) == sorted(naive.bad)
    assert results(task, grain, rows, choose, 1, with_time=False)[0] == whole


# -- by hand ---------------------------------------------------------------------------------------


def at(second, value=None, **fields):
    return {"event_time": NOON + timedelta(seconds=second), "value": value, **fields}


def spans(rows, *names):
    """Return seconds from noon to start and end of windows, with some results."""
    second = timedelta(seconds=1)
    return [
        ((r["window_start"] - NOON) / second, (r["window_end"] - NOON) / second, *(r[n] for n in names)) for r in rows
    ]


def window(**parameters):
    return Window(**{"aggregates": {"n": "count", "sum": ("value", "sum")}, **parameters}).session()


def test_tumbling_windows_close_when_any_key_moves_time():
    session = window(by="device", frame="10s")
    assert session.push_many([at(1, 1.0, device="a"), at(9, 2.0, device="b"), at(3, 4.0, device="a")]) == []
    closed = session.push(at(10, 8.0, device="b"))
    assert sorted((r["device"], *s) for r, s in zip(closed, spans(closed, "n", "sum"), strict=True)) == [
        ("a", 0, 10, 2, 5.0),
        ("b", 0, 10, 1, 2.0),
    ]
    assert {row["event_time"] for row in closed} == {NOON + timedelta(seconds=10, microseconds=-1)}
    assert session.push(at(9.5, 1.0, device="a")) == []
    assert [(e["reason"], e["event_time"]) for e in session.errors] == [("late", at(9.5)["event_time"])]


def test_hopping_windows_share_their_panes():
    session = window(frame=w.Hopping("30s", "10s"))
    assert spans(session.push_many([at(5, 1.0), at(15, 2.0)]), "sum") == [(-20, 10, 1.0)]
    assert spans(session.push(at(35, 4.0)), "sum") == [(-10, 20, 3.0), (0, 30, 3.0)]
    # 0..10 belongs to no open window any more; 15 only to the window that ends at 40
    session.push(at(6, 8.0))
    session.push(at(16, 16.0))
    assert [e["reason"] for e in session.errors] == ["late"]
    assert spans(session.flush(), "sum") == [(10, 40, 22.0), (20, 50, 4.0), (30, 60, 4.0)]


def test_windows_begin_at_their_offset():
    """Days from six to six, against pandas; hopping windows by hand."""
    seconds = [n * 7_919 % 400_000 for n in range(60)]
    rows = [at(second, float(second % 100), seq=n) for n, second in enumerate(sorted(seconds))]
    found = window(frame=w.Tumbling("1d", offset="6h"))
    out = [*found.push_many(rows), *found.flush()]
    frame = pd.DataFrame({"time": [row["event_time"] for row in rows], "value": [row["value"] for row in rows]})
    wanted = frame.resample("1D", on="time", offset="6h")["value"].agg(["count", "sum"])
    assert [(row["window_start"], row["n"], row["sum"]) for row in out] == [
        (start.to_pydatetime(), *values) for start, values in zip(wanted.index, wanted.values.tolist(), strict=True)
    ]
    assert all(row["window_start"].hour == 6 for row in out)
    assert spans(window(frame=w.Hopping("20s", "10s", offset="4s"), emit="each").push(at(3, 1.0)), "n") == [
        (-16, 4, 1),
        (-6, 14, 1),
    ]


def test_session_ends_a_gap_after_its_last_record():
    session = window(frame=w.Session("8s"), allowed_lateness="4s")
    closed = session.push_many([at(0, 1.0), at(7, 2.0), at(15, 4.0), at(25, 8.0)])
    assert spans(closed, "sum") == [(0, 15, 3.0)]
    assert closed[0]["event_time"] == NOON + timedelta(seconds=15, microseconds=-1)
    assert session.push(at(26.9, 16.0)) == []
    assert spans(session.push(at(27, 32.0)), "sum") == [(15, 23, 4.0)]
    assert spans(session.flush(), "sum") == [(25, 35, 56.0)]


def test_record_between_two_sessions_merges_them():
    session = window(frame=w.Session("8s"), allowed_lateness="20s")
    session.push_many([at(0, 1.0), at(12, 2.0), at(6, 4.0)])
    assert spans(session.flush(), "n", "sum") == [(0, 20, 3, 7.0)]
    apart = window(frame=w.Session("8s"), allowed_lateness="20s")
    apart.push_many([at(0, 1.0), at(8, 2.0)])  # a whole gap later
    assert spans(apart.flush(), "sum") == [(0, 8, 1.0), (8, 16, 2.0)]


@pytest.mark.parametrize(
    ("rows", "lateness", "late"),
    [
        ([(0, "a"), (6, "a"), (3, "a"), (20, "a")], "0s", [3]),  # between a closed session and an open one
        ([(0, "a"), (6, "b"), (3, "a"), (20, "b")], "0s", [3]),  # closed while another key moved time
        ([(0, "a"), (8, "b"), (4, "a"), (20, "b")], "3s", [4]),
        ([(0, "a"), (8, "b"), (5, "a"), (20, "b")], "3s", []),  # a gap after the closed one
        ([(9, "a"), (3, "b"), (5, "a"), (20, "b")], "6s", []),  # before an open one
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_record_of_closed_session_is_late(rows, lateness, late, together):
    session = window(by="key", frame=w.Session("5s"), allowed_lateness=lateness)
    rows = [at(second, key=key) for second, key in rows]
    out = session.push_many(rows) if together else [row for one in rows for row in session.push(one)]
    found = sorted(spans([row for row in [*out, *session.flush()] if row["key"] == "a"]))
    assert all(end <= start for (_, end), (start, _) in pairwise(found))
    assert [e["event_time"] for e in session.errors] == [at(second)["event_time"] for second in late]
    assert {e["reason"] for e in session.errors} <= {"late"}


@given(
    st.lists(st.tuples(st.integers(0, 120), st.sampled_from("ab")), max_size=40), st.integers(0, 20), st.integers(1, 9)
)
def test_sessions_of_a_key_are_a_gap_apart(arrivals, lateness, cut):
    """For any arrivals, accepted records of a key share a session exactly if they are less than a gap apart."""
    gap = 8
    task = {"by": "key", "frame": w.Session(f"{gap}s"), "allowed_lateness": f"{lateness}s"}
    rows = [at(second, key=key, seq=n) for n, (second, key) in enumerate(arrivals)]
    session, out, late = window(**task), [], set()
    for i in range(0, len(rows), cut):
        out += session.push_many(rows[i : i + cut])
        late |= {error["seq"] for error in session.errors}
        data, session = session.snapshot(), window(**task)
        session.restore(data)
    out += session.flush()
    newest = -math.inf
    for n, (second, _) in enumerate(arrivals):
        newest = max(newest, second)
        assert n not in late or second < newest - lateness
    for key in "ab":
        times = sorted(second for n, (second, k) in enumerate(arrivals) if k == key and n not in late)
        starts = [s for i, s in enumerate(times) if i == 0 or s - times[i - 1] >= gap]
        runs = [[s for s in times if a <= s < b] for a, b in pairwise([*starts, math.inf])]
        assert sorted(spans([row for row in out if row["key"] == key], "n")) == [
            (run[0], run[-1] + gap, len(run)) for run in runs
        ]


def test_allowed_lateness_keeps_windows_open():
    session = window(frame="10s", allowed_lateness="5s")
    session.push(at(1, 1.0))
    assert session.push_many([at(14, 2.0), at(2, 4.0)]) == []
    assert spans(session.push(at(15, 8.0)), "sum") == [(0, 10, 5.0)]


def test_clock_far_ahead_closes_no_window():
    session = window(frame="10s", max_ahead="20s")
    session.push_many([at(1, 1.0), at(2, 0.0)])
    assert session.push(at(10_000, 2.0)) == []
    assert session.errors[0]["reason"] == "from_the_future"
    assert session.push(at(2, 4.0)) == []
    assert spans(session.push(at(21, 8.0)), "sum") == [(0, 10, 5.0)]
    believed = window(frame="10s")
    believed.push_many([at(1, 1.0), at(2, 0.0)])
    assert spans(believed.push(at(10_000, 2.0)), "sum") == [(0, 10, 1.0)]


YEAR = 31_536_000


@pytest.mark.parametrize("cut", [1, 4, 100])
@pytest.mark.parametrize(
    ("wrong", "lost"),
    [
        ([-54 * YEAR], 0),  # a clock that has not been set yet
        ([12 * YEAR], 0),
        ([0, 12 * YEAR], 0),  # as believable as the first
        ([-54 * YEAR, -54 * YEAR + 1], 1),
        ([12 * YEAR, 12 * YEAR + 1, 12 * YEAR + 2, 12 * YEAR + 3], 2),
        ([-28_800, -28_799, -28_798, -28_797, -28_796], 2),  # a night without records
    ],
)
def test_stream_time_recovers_from_wrong_clocks(wrong, lost, cut):
    session, out = window(frame="1min", max_ahead="1h", by="key"), []
    rows = [at(second, 1.0, key="a") for second in [*wrong, *range(10, 2010, 10)]]
    for i in range(0, len(rows), cut):
        out += session.push_many(rows[i : i + cut])
        data, errors, session = session.snapshot(), session.errors, window(frame="1min", max_ahead="1h", by="key")
        session.restore(data)
        session.errors.extend(errors)
    out += session.flush()
    found = [row for row in out if row["window_start"] >= NOON and row["window_start"].year == 2024]
    assert sum(row["n"] for row in found) == 200 - lost + wrong.count(0)
    assert sum(row["n"] for row in out) == 200 - lost + len(wrong)
    assert len(session.errors) == lost
    assert {e["reason"] for e in session.errors} <= {"late", "from_the_future"}


def test_single_wrong_clocks_among_right_ones_move_nothing():
    session = window(frame="1min", max_ahead="1h")
    rows = [at(12 * YEAR if i % 3 == 2 else i, 1.0) for i in range(300)]
    out = [*session.push_many(rows), *session.flush()]
    assert spans(out, "n") == [(60 * i, 60 * i + 60, 40) for i in range(5)]
    assert [e["reason"] for e in session.errors] == ["from_the_future"] * 100


def test_windows_are_closed_before_stream_time_is_set_back():
    session = window(frame="10s", max_ahead="1h", by="key")
    rows = [at(second, 1.0, key="a", seq=n) for n, second in enumerate([86_400, 86_401, 86_402, 1, 2, 3, 4, 12])]
    out = session.push_many(rows)
    assert [(r["seq"], *s) for r, s in zip(out, spans(out, "n"), strict=True)] == [
        (5, 86_400, 86_410, 3),
        (7, 0, 10, 2),
    ]
    assert [(e["seq"], e["reason"]) for e in session.errors] == [(3, "late"), (4, "late")]


def test_count_windows():
    session = window(by="device", frame=2)
    rows = [at(0, 1.0, device="a", seq=0), at(3, 2.0, device="b", seq=1), at(1, None, device="a", seq=2)]
    assert session.push_many(rows) == [
        {
            "seq": 2,
            "event_time": NOON + timedelta(seconds=1),
            "device": "a",
            "window_start": NOON,
            "window_end": NOON + timedelta(seconds=1),
            "n": 2,
            "sum": 1.0,
        }
    ]
    assert session.flush() == []
    partial = window(by="device", frame=w.Count(2, partial=True))
    partial.push_many(rows)
    assert [(r["device"], r["seq"], r["n"], r["sum"]) for r in partial.flush()] == [("b", 1, 1, 2.0)]
    plain = window(frame=2)
    assert plain.push_many([{"value": 1.0}, {"value": 2.0}]) == [{"n": 2, "sum": 3.0}]


def test_idle_key_restarts_its_count_after_its_ttl():
    rows = [at(0, 1.0, device="a"), at(100, 2.0, device="b"), at(101, 4.0, device="a")]
    assert window(by="device", frame=2, ttl="60s").push_many(rows) == []
    assert [row["sum"] for row in window(by="device", frame=2).push_many(rows)] == [5.0]


def test_updates_emit_each_window_of_a_record():
    tumbling = window(frame="10s", emit="each")
    out = tumbling.push_many([at(1, 1.0, seq=4), at(2, 2.0, seq=5), at(11, 4.0, seq=6)])
    assert [(r["seq"], r["ordinal"], *s) for r, s in zip(out, spans(out, "n", "sum"), strict=True)] == [
        (4, 0, 0, 10, 1, 1.0),
        (5, 0, 0, 10, 2, 3.0),
        (6, 0, 10, 20, 1, 4.0),
    ]
    assert out[0]["event_time"] == at(1)["event_time"]
    assert tumbling.flush() == []
    hopping = window(frame=w.Hopping("20s", "10s"), emit="each")
    assert spans(hopping.push_many([at(1, 1.0), at(12, 2.0)]), "sum") == [
        (-10, 10, 1.0),
        (0, 20, 1.0),
        (0, 20, 3.0),
        (10, 30, 2.0),
    ]
    assert spans(hopping.push(at(5, 4.0)), "sum") == [(0, 20, 7.0)]
    sessions = window(frame=w.Session("8s"), allowed_lateness="9s", emit="each")
    assert spans(sessions.push_many([at(0, 1.0), at(9, 2.0), at(4, 4.0)]), "sum") == [
        (0, 8, 1.0),
        (9, 17, 2.0),
        (0, 17, 7.0),
    ]
    counts = window(frame=2, emit="each")
    assert [r["sum"] for r in counts.push_many([at(0, 1.0), at(1, 2.0), at(2, 4.0)])] == [1.0, 3.0, 4.0]


def test_aggregates_of_numbers():
    session = Window(frame="1min", aggregates=ALL).session()
    session.push_many([at(5, 4.0), at(1, 1.0), at(9, None), at(9, float("nan")), at(9, 7.0), at(9, 2.0)])
    (row,) = session.flush()
    assert {name: row[name] for name in ALL} == {
        "n": 6, "values": 4, "sum": 14.0, "mean": 3.5, "min": 1.0, "max": 7.0, "first": 1.0, "last": 2.0,
        "std": pytest.approx(math.sqrt(7.0)),  # (0.25 + 6.25 + 12.25 + 2.25) / 3
    }  # fmt: skip


def test_aggregates_of_times_relations_and_distinct_values():
    session = Window(frame=w.Hopping("1min", "30s"), aggregates=MORE | {"n": "count"}).session()
    rows = session.push_many([at(0, 1.0), at(2, 6.0), at(8, None), at(32, 8.0), at(35, 1.0)])
    first, both, last = [*rows, *session.flush()]
    assert {name: both[name] for name in MORE} == {
        "unique": 3, "above": 2, "low": 0.5, "bits": 1, "duration": 35.0, "value_duration": 35.0,
        "mean_gap": pytest.approx(35 / 3), "std_gap": pytest.approx(np.std([2, 6, 24, 3], ddof=1)),
    }  # fmt: skip
    assert [(one["duration"], one["mean_gap"]) for one in (first, last)] == [(8.0, 2.0), (3.0, 3.0)]


def test_aggregates_of_a_single_record():
    aggregates = {"std": ("value", "std", 0), "plain": ("value", "std"), "gap": (None, "std_gap", -2.0), **MORE}
    session = Window(frame="1min", aggregates=aggregates).session()
    session.push(at(5, 4.0))
    (row,) = session.flush()
    assert {name: row[name] for name in aggregates} == {
        "std": 0.0, "plain": None, "gap": -2.0, "unique": 1, "above": 1, "low": 0.0, "bits": 1, "duration": 0.0,
        "value_duration": 0.0, "mean_gap": -1.0, "std_gap": None,
    }  # fmt: skip
    session.push(at(65))
    (row,) = session.flush()
    assert [row[name] for name in ("unique", "above", "low", "duration", "value_duration", "mean_gap")] == [
        0, 0, None, 0.0, None, -1.0,
    ]  # fmt: skip


@pytest.mark.parametrize("relation", ["==", "!=", "<", "<=", ">", ">=", "&"])
@pytest.mark.parametrize("bound", [2, 3, 1.5])
def test_relations(relation, bound):
    values = [-3.0, -0.0, 1.5, 2.0, 2.5, 3.0, None, float("nan"), 6.0, 1e300]
    if relation == "&":
        bound, values = int(bound), [v for v in values if v != 1e300]
    holds = {
        "==": lambda v: v == bound, "!=": lambda v: v != bound, "<": lambda v: v < bound, "<=": lambda v: v <= bound,
        ">": lambda v: v > bound, ">=": lambda v: v >= bound, "&": lambda v: int(v) & bound != 0,
    }[relation]  # fmt: skip
    numbers = [v for v in values if v is not None and not math.isnan(v)]
    for some in (values, [None, *(int(v) for v in numbers if v != 1e300)]):
        session = Window(frame="1min", aggregates={"n": ("value", "matches", relation, bound)}).session()
        session.push_many(at(0, v) for v in some)
        assert session.flush()[0]["n"] == sum(holds(v) for v in some if v is not None and not math.isnan(v))


def test_distinct_values_are_counted_exactly_of_text_and_across_panes():
    names = [f"v{i * i % 397}" for i in range(2000)] + [None, "", "ü"]
    session = Window(frame=w.Hopping("1h", "30min"), by=("key",), aggregates={"n": ("name", "unique")}).session()
    times = [NOON + timedelta(seconds=i) for i in range(len(names))]
    keys = [i % 2 for i in range(len(names))]
    columns = {"event_time": pa.array(times, TIMESTAMP), "name": names, "key": keys}
    batch = pa.RecordBatch.from_pydict(columns)
    rows = [row for i in (0, 700) for row in session.push_batch(batch.slice(i, 700 if i == 0 else None)).to_pylist()]
    wanted = [len({n for i, n in enumerate(names) if i % 2 == key and n is not None}) for key in (0, 1)]
    rows += session.flush()
    assert sorted(row["n"] for row in rows if row["window_start"] == NOON) == sorted(wanted)


def test_count_windows_order_first_and_last_by_arrival():
    session = Window(frame=3, aggregates={"first": ("value", "first"), "last": ("value", "last")}).session()
    (row,) = session.push_many([at(5, 4.0), at(1, 1.0), at(3, 2.0)])
    assert (row["first"], row["last"]) == (4.0, 2.0)


def test_window_without_values_gives_nulls():
    session = Window(frame="1min", aggregates={**ALL, "median": ("value", "quantile", 0.5)}).session()
    session.push(at(1))
    (row,) = session.flush()
    assert {name for name in ("n", "values") if row[name] is not None} == {"n", "values"}
    assert [row[name] for name in (*NUMBERS, "median")] == [None] * 8


@pytest.mark.parametrize("accuracy", [0.01, 0.1])
@pytest.mark.parametrize("q", [0, 0.25, 0.5, 0.99, 1])
def test_quantiles_keep_their_accuracy(q, accuracy):
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.lognormal(0, 3, 3000), -rng.lognormal(0, 2, 1000), [0.0, 1e-9]])
    session = Window(frame=w.Hopping("1h", "20min"), aggregates={"q": ("value", "quantile", q, accuracy)}).session()
    times = [NOON + timedelta(seconds=float(s)) for s in rng.integers(0, 1200, values.size)]
    session.push_batch(pa.RecordBatch.from_pydict({"event_time": pa.array(times, TIMESTAMP), "value": values}))
    exact = np.sort(values)[int(q * (values.size - 1))]
    found = session.flush()[0]["q"]
    assert found == pytest.approx(exact, rel=accuracy)
    if accuracy == 0.1 and q == 0.5:  # a coarser accuracy has an effect
        assert abs(found / exact - 1) > 1e-4


def test_distinct_counts_equal_the_sketch():
    values = [f"v{i % 700}" for i in range(3000)]
    for precision in (6, 12):
        sketch = HyperLogLog(precision)
        sketch.add(values)
        session = Window(frame="1min", aggregates={"kinds": ("name", "distinct", precision)}).session()
        session.push_many(at(i % 60, name=value) for i, value in enumerate(values[:50]))
        session.push_batch(
            pa.RecordBatch.from_pydict(
                {"event_time": pa.array([NOON] * 3000, TIMESTAMP), "value": [0.0] * 3000, "name": values}
            )
        )
        assert session.flush()[0]["kinds"] == math.floor(sketch.estimate() + 0.5)


def test_most_frequent_values():
    names = ["x", "y", "x", "z", "y", "x", None, "ü"]
    session = Window(frame=w.Hopping("1h", "30min"), aggregates={"top": ("name", "top", 2)}).session()
    session.push_many(at(i, name=name) for i, name in enumerate(names))
    best = Counter(n for n in names if n).most_common(2)
    assert [[(p["value"], p["count"]) for p in row["top"]] for row in session.flush()] == [best, best]
    numbers = Window(frame="1h", aggregates={"top": ("value", "top", 1)}).session()
    numbers.push_many([at(0, 2.0), at(1, 5.0), at(2, 5.0)])
    assert numbers.flush()[0]["top"] == [{"value": 5.0, "count": 2}]


@pytest.mark.long
def test_custom_aggregate():
    def add(cell, x):
        cell[0] += math.log(x)
        cell[1] += 1

    def merge(cell, other):
        cell[0] += other[0]
        cell[1] += other[1]

    def result(cell):
        return math.exp(cell[0] / cell[1]) if cell[1] else math.nan

    geometric = Aggregate("geometric", (0.0, 0.0), add, merge, result)
    session = Window(frame=w.Hopping("20s", "10s"), aggregates={"g": ("value", geometric)}).session()
    session.push(at(1, None))
    assert [row["g"] for row in session.flush()] == [None, None]
    session = Window(frame=w.Hopping("20s", "10s"), aggregates={"g": ("value", geometric)}).session()
    assert [row["g"] for row in session.push_many([at(1, 2.0), at(11, 8.0)])] == pytest.approx([2.0])
    assert [row["g"] for row in session.flush()] == pytest.approx([4.0, 8.0])


def test_bad_records_change_nothing():
    session = window(frame="10s")
    session.push_many([at(1, 1.0), {"event_time": None, "value": 1.0}, at(2, math.inf)])
    assert [e["reason"] for e in session.errors] == ["no_event_time", "not_finite"]
    assert spans(session.flush(), "n") == [(0, 10, 1)]


def test_keys_without_open_windows_are_dropped():
    state = KeyedState(Window(by="device", frame="10s"))
    rejects = RejectedRecords("window")
    for start in range(0, 200, 10):
        rows = [at(start, 1.0, device=f"{start}-{i}") for i in range(1000)]
        state.update(pa.RecordBatch.from_pylist(rows), rejects)
    assert state.size < 8000


def test_large_jump_of_time_costs_no_more():
    session = window(frame=w.Hopping("1s", "1s"), by="device")
    session.push(at(0, 1.0, device="a"))
    assert len(session.push(at(400 * 86_400, 1.0, device="a"))) == 1


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"frame": 0.5}, "frame must be a duration .* windows.Session.*, got 0.5"),
        ({"frame": timedelta(0)}, "size must be longer than 0"),
        ({"frame": {"kind": "sesion", "gap": "1s"}}, 'did you mean "session"'),
        ({"frame": {"kind": "session"}}, "session.*gap"),
        ({"frame": "1s", "allowed_lateness": timedelta(-1)}, "allowed_lateness must not be negative"),
        ({"frame": 3, "allowed_lateness": "1s"}, "allowed_lateness = .* not for windows by arrival"),
        ({"frame": 3, "max_ahead": "1s"}, "max_ahead = .* not for windows by arrival"),
        ({"frame": 0}, "Count: size = 0"),
        ({"frame": "1s", "ttl": "1h"}, "ttl = .* is not for windows of time"),
        ({"frame": w.Hopping("365d", "1s")}, "the maximum is 100,000"),
        ({"frame": "1s", "emit": "update"}, "emit = 'update' is not for frame = Tumbling"),
        ({"frame": "1s", "emit": "first"}, "emit = 'first'"),
        ({"emit": "final"}, "emit = 'final' is not for frame = Unbounded"),
        ({"max_ahead": "1s"}, "max_ahead = .* not for windows by arrival"),
        ({"aggregates": {"x": "duration"}}, "'x' measures event times"),
        ({"aggregates": {"x": ("value", "top", 3)}}, "'x' = .* cannot be emitted at each record; with emit = 'update'"),
        ({"aggregates": {"x": ("value", "distinct")}}, "cannot be emitted at each record"),
        ({"frame": "1s", "aggregates": {}}, "aggregates must be a dict"),
        ({"frame": "1s", "aggregates": {"x": "coumt"}}, 'must be .field, function.*did you mean "count"'),
        ({"frame": "1s", "aggregates": {"x": ("value", "meen")}}, 'did you mean "mean"'),
        ({"frame": "1s", "aggregates": {"x": "mean"}}, "mean needs a field, as in .'value', 'mean'.*got None"),
        ({"frame": "1s", "aggregates": {"x": ("mean", "value")}}, "before the function: write .'value', 'mean'."),
        ({"frame": "1s", "aggregates": {"x": ("count", None)}}, "before the function: write 'count', got"),
        ({"frame": "1s", "aggregates": {"x": ("std_gap", None, 0)}}, "write .None, 'std_gap', 0."),
        ({"frame": "1s", "aggregates": {"x": ("value", "mean", 3)}}, "takes 0 options"),
        ({"frame": "1s", "aggregates": {"x": ("value", "quantile")}}, "from 0 to 1"),
        ({"frame": "1s", "aggregates": {"x": ("value", "quantile", 0.5, 2.0)}}, "accuracy"),
        ({"frame": "1s", "aggregates": {"x": ("value", "distinct", 40)}}, "precision"),
        ({"frame": "1s", "aggregates": {"x": ("value", "top")}}, "top needs a number"),
        (
            {"frame": "1s", "aggregates": {"x": ("value", "std", "0")}},
            "the replacement for a missing result must be a number",
        ),
        (
            {"frame": "1s", "aggregates": {"x": (None, "mean_gap", True)}},
            "the replacement for a missing result must be a number",
        ),
        (
            {"frame": "1s", "aggregates": {"x": (None, "std_gap", math.nan)}},
            "the replacement for a missing result must be a number",
        ),
        ({"frame": 3, "aggregates": {"x": "duration"}}, "'x' measures event times"),
        ({"frame": 3, "aggregates": {"x": ("value", "std_gap")}}, "'x' measures event times"),
        ({"frame": "1s", "aggregates": {"x": ("value", "matches", "=", 3)}}, "relation must be one of == < <="),
        ({"frame": "1s", "aggregates": {"x": ("value", "share")}}, "relation must be one of"),
        ({"frame": "1s", "aggregates": {"x": ("value", "share", "==", "a")}}, "compared with a number, got 'a'"),
        ({"frame": "1s", "aggregates": {"x": ("value", "share", "&", 1.5)}}, "bits must be a positive integer"),
        ({"frame": "1s", "aggregates": {"x": ("value", "matches", "&", 0)}}, "bits must be a positive integer"),
        ({"frame": "1s", "aggregates": {"x": (None, "matches", "==", 0)}}, "matches needs a field"),
        ({"frame": "1s", "aggregates": {"window_end": ("value", "mean")}}, "cannot be the name"),
        ({"frame": "1s", "by": "device", "aggregates": {"device": ("value", "mean")}}, "cannot be the name"),
        ({"frame": "1s", "by": ("a", "window_start")}, "by must not name 'window_start', which results of frame"),
        ({"frame": 3, "by": "window_end"}, "by must not name 'window_end', which results of frame"),
        ({"emit": ""}, "emit = ''"),
    ],
)
def test_wrong_parameters_are_refused(parameters, text):
    with pytest.raises(ConfigError, match=text):
        Window(**parameters)


def test_wrong_custom_aggregate_is_refused():
    with pytest.raises(ConfigError, match="identifier"):
        Aggregate("a b", (0.0,), print, print, print)
    with pytest.raises(ConfigError, match="at least one number"):
        Aggregate("a", (), print, print, print)
    with pytest.raises(ConfigError, match="merge must be a function"):
        Aggregate("a", (0.0,), print, 3, print)


@pytest.mark.parametrize(
    ("initial", "add", "message"),
    [
        ("x", print, r"initial must be a tuple of numbers, got 'x'"),
        (0.0, print, r"initial must be a tuple of numbers, got 0\.0"),
        ((0.0,), lambda cell: None, r"add must be a function of \(cell, x\)"),
    ],
)
def test_wrong_parts_of_custom_aggregate_are_refused(initial, add, message):
    with pytest.raises(ConfigError, match=message):
        Aggregate("a", initial, add, print, print)


def test_custom_aggregates_of_a_field_have_names_of_their_own():
    def keep(cell, x):
        cell[0] = x

    one, other = (Aggregate("a", (start,), keep, keep, max) for start in (0.0, 1.0))
    with pytest.raises(ConfigError, match="'v' has two Aggregates named 'a' that differ"):
        Window(frame=2, aggregates={"x": ("v", one), "y": ("v", other)})
    assert Window(frame=2, aggregates={"x": ("v", one), "y": ("v", one), "z": ("w", other)})


def test_custom_aggregate_that_cannot_run_is_told_by_name():
    def beyond(cell, x):
        cell[5] = x

    def text(cell, x):
        cell[0] = str(x) + "!"

    for add, error, message in (
        (text, ConfigError, "add of 'bad' cannot be compiled: "),
        (beyond, IndexError, "out of bounds"),
    ):
        bad = Aggregate("bad", (0.0,), add, lambda cell, other: None, lambda cell: cell[0])
        session = Window(frame=1, aggregates={"x": ("v", bad)}).session()
        with pytest.raises(error, match=message):
            session.push({"v": 1.0})


def test_time_window_needs_timestamps():
    schema = pa.schema({"value": pa.float64(), "event_time": pa.string()})
    with pytest.raises(ConfigError, match="needs a timestamp"):
        Window(frame="1s").output_schema(schema)
    with pytest.raises(ConfigError, match="reads the field 'event_time'"):
        Window(frame="1s").output_schema(pa.schema({"value": pa.float64()}))


def test_descriptor_gives_the_same_task():
    task = Window(frame=w.Hopping("1min", "10s"), aggregates={"m": ("value", "mean"), "t": ("name", "top", 3)})
    assert Window.from_dict(task.to_dict()) == task
