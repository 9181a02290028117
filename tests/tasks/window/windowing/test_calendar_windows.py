"""Windows of local time against windows of UTC, pandas, and figures by hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.schema import TIMESTAMP
from tests.simulated_query import SimulatedQuery

SCHEMA = pa.schema([("event_time", TIMESTAMP), ("key", pa.string()), ("value", pa.float64())])
AGGREGATES = {"n": "count", "sum": ("value", "sum")}
#: Windows of UTC: one unit as a duration, and as a frame without zones.
IN_UTC = {
    "hour": w.Tumbling("1h"),
    "day": w.Tumbling("1d"),
    "week": w.Tumbling("7d", offset="4d"),
}


def results(task, rows, cut):
    """Return results and errors of a stream in pieces with restarts."""
    session, out, errors = task.session(), [], []
    for i in range(0, len(rows), cut):
        out += session.push_many(rows[i : i + cut])
        errors += [(error["seq"], error["reason"]) for error in session.errors]
        data, session = session.snapshot(), task.session()
        session.restore(data)
    return out + session.flush(), errors


@pytest.mark.long
@given(
    st.sampled_from(list(IN_UTC)),
    st.lists(st.tuples(st.integers(-100, 100), st.integers(0, 60), st.sampled_from("ab")), max_size=30),
    st.sampled_from(["0s", "6h", "3d"]),
    st.sampled_from(["final", "each"]),
    st.integers(1, 9),
)
def test_units_of_utc_are_tumbling_windows(unit, arrivals, lateness, emit, cut):
    start = datetime(2023, 12, 30, 23, 50, tzinfo=UTC)
    rows, time = [], start
    for n, (hours, minutes, key) in enumerate(arrivals):
        time += timedelta(hours=max(hours, -5 if n % 3 else -99) / 4, minutes=minutes)
        rows.append({"seq": n, "event_time": time, "key": key, "value": float(n)})
    parameters = {"by": "key", "aggregates": AGGREGATES, "allowed_lateness": lateness, "emit": emit}
    wanted = results(t.Window(frame=IN_UTC[unit], **parameters), rows, len(rows) or 1)
    assert results(t.Window(frame=w.Calendar(unit), **parameters), rows, cut) == wanted


@pytest.mark.parametrize(
    ("tz", "first"),
    [("Europe/Berlin", datetime(2024, 10, 1, tzinfo=UTC)), ("America/Sao_Paulo", datetime(2018, 10, 20, tzinfo=UTC))],
)
@pytest.mark.parametrize(("unit", "frequency"), [("day", "D"), ("week", "W-MON"), ("month", "MS"), ("hour", "h")])
def test_windows_equal_groups_of_pandas_for_any_cut(unit, frequency, tz, first):
    choose = random.Random(unit)
    times = sorted(first + timedelta(minutes=choose.randrange(60 * 24 * 60)) for _ in range(120))
    table = pa.table(
        {
            "event_time": pa.array(times, TIMESTAMP),
            "key": [choose.choice("ab") for _ in times],
            "value": [float(choose.randrange(9)) for _ in times],
        },
        schema=SCHEMA,
    )
    flow = ro.Dataflow("local")
    window = t.Window(by="key", frame=w.Calendar(unit, tz), aggregates=AGGREGATES)
    flow.sink("out", flow.source("in", schema=SCHEMA).to(window, id="w"))
    frame = table.to_pandas()
    frame["event_time"] = frame["event_time"].dt.tz_convert(tz)
    options = {"closed": "left", "label": "left"} if unit == "week" else {}
    groups = frame.groupby(["key", pd.Grouper(key="event_time", freq=frequency, **options)])["value"]
    wanted = {
        (key, time.tz_convert("UTC")): (n, total)
        for (key, time), n, total in groups.agg(["count", "sum"]).query("count > 0").itertuples()
    }
    wholes = flow.run(table)["w"], SimulatedQuery(flow, table, random.Random(3), max_records=17)["w"]
    for whole in wholes:
        rows = whole.to_pylist()
        assert {(r["key"], pd.Timestamp(r["window_start"])): (r["n"], r["sum"]) for r in rows} == wanted
        assert len(rows) == len(wanted)


def test_day_is_closed_at_local_midnight_less_lateness():
    session = t.Window(frame=w.Calendar("day", "Australia/Lord_Howe"), allowed_lateness="1h").session()
    # 2024-04-07 has 24.5 hours in Lord Howe: from 13:00 UTC on the 6th to 13:30 UTC on the 7th
    day = datetime(2024, 4, 6, 13, tzinfo=UTC)
    end = datetime(2024, 4, 7, 13, 30, tzinfo=UTC)
    assert session.push_many([{"event_time": day}, {"event_time": end - timedelta(minutes=1)}]) == []
    assert session.push_many([{"event_time": end + timedelta(minutes=44)}, {"event_time": day}]) == []
    assert session.advance(end + timedelta(minutes=59)) == []
    (row,) = session.push({"event_time": end + timedelta(hours=1)})
    assert (row["window_start"], row["window_end"], row["count"]) == (day, end, 3)
    assert row["event_time"] == end - timedelta(microseconds=1)
    session.push({"event_time": end - timedelta(microseconds=1)})
    assert [error["reason"] for error in session.errors] == ["late"]


def test_window_of_the_last_year_is_out_of_range_and_others_are_not():
    session = t.Window(frame=w.Calendar("year", "Asia/Tokyo")).session()
    times = [datetime(2, 3, 4, tzinfo=UTC), datetime(9998, 3, 4, tzinfo=UTC), datetime(9999, 12, 31, 20, tzinfo=UTC)]
    out = session.push_many([{"event_time": time} for time in times]) + session.flush()
    assert [row["window_start"] for row in out] == [
        datetime(1, 12, 31, 14, 41, 1, tzinfo=UTC),  # local mean time
        datetime(9997, 12, 31, 15, tzinfo=UTC),
    ]
    assert [error["reason"] for error in session.errors] == ["out_of_range"]


def test_far_record_is_from_the_future():
    session = t.Window(frame=w.Calendar("day", "Asia/Tokyo"), max_ahead="1h").session()
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    session.push_many([{"event_time": noon + timedelta(days=d)} for d in (0, 0, 0, 9, 0)])
    session.push({"event_time": None})
    assert [error["reason"] for error in session.errors] == ["from_the_future", "no_event_time"]
    assert [row["count"] for row in session.flush()] == [4]
