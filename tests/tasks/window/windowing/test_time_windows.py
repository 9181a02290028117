"""Tumbling and hopping windows from the first event time on, and their results at multiples of a duration."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError
from riot_ops.runtime.state_table import state_table
from tests.simulated_query import SimulatedQuery

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
MICROSECOND, SECOND, HOUR = timedelta(microseconds=1), timedelta(seconds=1), timedelta(hours=1)
FIRST = w.Tumbling("10s", origin="first")


def reading(second, key="a"):
    return {"event_time": NOON + second * SECOND, "key": key}


def spans(rows):
    return sorted(
        ((r["window_start"] - NOON) / SECOND, (r["window_end"] - NOON) / SECOND, r["key"], r["count"]) for r in rows
    )


@pytest.mark.parametrize(
    ("frame", "wanted"),
    [
        (FIRST, [(3, 13, "a", 2), (3, 13, "b", 1), (13, 23, "b", 1), (23, 33, "a", 1)]),
        (w.Tumbling("10s"), [(0, 10, "a", 1), (10, 20, "a", 1), (10, 20, "b", 2), (20, 30, "a", 1)]),
        (
            w.Hopping("20s", "10s", origin="first"),
            [
                *((-7, 13, "a", 2), (-7, 13, "b", 1), (3, 23, "a", 2), (3, 23, "b", 2)),
                *((13, 33, "a", 1), (13, 33, "b", 1), (23, 43, "a", 1)),
            ],
        ),
    ],
    ids=["first", "epoch", "hopping"],
)
def test_windows_are_counted_from_their_origin(frame, wanted):
    session = t.Window(by="key", frame=frame).session()
    out = session.push_many(map(reading, (3, 12.5)))
    out += session.push_many([reading(12.999999, "b"), reading(13, "b"), reading(25)])
    assert spans(out + session.flush()) == wanted


def test_record_before_the_first_belongs_to_a_window_before_the_origin():
    session = t.Window(by="key", frame=FIRST, allowed_lateness="10s").session()
    assert session.push_many(map(reading, (3, 1, -8))) == []
    assert spans(session.flush()) == [(-7, 3, "a", 1), (3, 13, "a", 1)]
    assert [error["reason"] for error in session.errors] == ["late"]


RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), min_size=1, max_size=25)


@pytest.mark.long
@given(RECORDS, st.integers(1, 12), st.integers(1, 3), st.integers(0, 9))
def test_windows_on_spark_are_those_of_one_process(records, most, partitions, seed):
    rows = [reading(second, key) for key, second in records]
    flow = ro.Dataflow("first")
    source = flow.source("in", schema={"event_time": "timestamp[us, tz=UTC]", "key": "string"})
    flow.sink("out", source.to(t.Window(by="key", frame=FIRST), id="n"))
    local = flow.run(rows)
    query = SimulatedQuery(flow, rows, random.Random(seed), max_records=most, partitions=partitions)
    assert spans(query["n"].to_pylist()) == spans(local["n"].to_pylist())
    assert query["errors"].num_rows == local["errors"].num_rows
    assert all(
        (row["window_start"] - rows[0]["event_time"]) % (10 * SECOND) == 0 * SECOND for row in local["n"].to_pylist()
    )


# -- emission at multiples -------------------------------------------------------------------------


def in_time(task, records):
    """Compute the results at multiples, and the final ones, record by record; times are seconds from noon."""
    frame, tick = task.frame, task.emit // SECOND
    size, lateness = frame.size // SECOND, task.allowed_lateness // SECOND
    every = getattr(frame, "every", frame.size) // SECOND
    base = records[0][1] if frame.origin == "first" else 0
    now, windows, fresh, out = None, {}, set(), []

    def move(level):
        nonlocal now
        if now is not None and (level - base) // tick > (now - base) // tick:
            due = ((now - base) // tick + 1) * tick + base
            out.extend((due, *one, windows[one]) for one in fresh if one[1] + size > due)
            fresh.clear()
        now = level if now is None else max(now, level)
        for one in [one for one in windows if one[1] + size <= now]:
            out.append((one[1] + size, *one, windows.pop(one)))
            fresh.discard(one)

    for key, second in records:
        move(second - lateness)
        last = (second - base) // every * every + base
        for begin in range(last - size + every, last + 1, every):
            if begin + size > now:
                windows[key, begin] = windows.get((key, begin), 0) + 1
                fresh.add((key, begin))
    return sorted(out + [(begin + size, key, begin, n) for (key, begin), n in windows.items()])


def with_times(rows):
    return sorted(
        ((r["event_time"] + MICROSECOND - NOON) / SECOND, r["key"], (r["window_start"] - NOON) / SECOND, r["count"])
        for r in rows
    )


TICKING = [
    t.Window(by="key", frame="20s", emit="5s"),
    t.Window(by="key", frame="10s", emit="15s"),
    t.Window(by="key", frame=w.Tumbling("20s", origin="first"), emit="7s", allowed_lateness="3s"),
    t.Window(by="key", frame=w.Hopping("20s", "10s"), emit="4s", allowed_lateness="10s"),
]


@pytest.mark.long
@pytest.mark.parametrize("task", TICKING, ids=lambda task: f"{task.frame} {task.emit}")
@given(RECORDS, st.integers(1, 9), st.integers(1, 3), st.integers(0, 9))
def test_open_windows_have_results_at_multiples(task, records, cut, partitions, seed):
    rows, session, out = [reading(second, key) for key, second in records], task.session(), []
    for i in range(0, len(rows), cut):
        out += session.push_batch(rows[i : i + cut]).to_pylist()
        data, session = session.snapshot(), task.session()
        session.restore(data)
    out += session.flush()
    assert with_times(out) == in_time(task, records)
    flow = ro.Dataflow("ticks")
    source = flow.source("in", schema={"event_time": "timestamp[us, tz=UTC]", "key": "string"})
    flow.sink("out", source.to(task, id="n"))
    query = SimulatedQuery(flow, rows, random.Random(seed), max_records=cut, partitions=partitions)
    assert with_times(query["n"].to_pylist()) == with_times(out)


def test_open_days_have_results_each_six_hours():
    """Days of Apia, which is 13 hours ahead of UTC; the first one ends at 11:00."""
    session = t.Window(frame=w.Calendar("day", "Pacific/Apia"), emit="6h").session()
    rows = session.push_many({"event_time": NOON + hour * HOUR} for hour in (-1.5, -0.5, 1, 3, 7, 19))
    found = [
        (r["event_time"] + MICROSECOND - NOON, (r["window_end"] - r["window_start"]).days, r["count"]) for r in rows
    ]
    assert [(time / HOUR, days, n) for time, days, n in found] == [(-1, 1, 1), (0, 1, 1), (6, 1, 3), (12, 1, 4)]


def test_duration_is_for_windows_of_time():
    for frame in (w.Session("5s"), w.Count(3)):
        with pytest.raises(ConfigError, match=r"it has 'final' or 'each'$"):
            t.Window(frame=frame, emit="5s")
    with pytest.raises(ConfigError, match="'final' or 'each' or a duration longer than 0"):
        t.Window(frame="1min", emit="0s")


def test_open_windows_are_listed_with_their_begin():
    session = t.Window(by="key", frame=FIRST, allowed_lateness="10s").session()
    session.push_many([reading(3), reading(4, "b"), reading(14)])
    data, session = session.snapshot(), session.task.session()
    session.restore(data)
    session.push(reading(15, "c"))
    table = state_table([session.snapshot()])
    begins = {row["key"]: sorted((one["begin"] - NOON) / SECOND for one in row["open"]) for row in table.to_pylist()}
    assert begins == {"a": [3, 13], "b": [3], "c": [13]}
