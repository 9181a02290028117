"""Interpolation: the benchmark's example, the reference, and records that must not change."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.tasks.math.interpolation import Interpolation
from tests.reference import interpolation as reference
from tests.reference.splits import KEYS, run
from tests.search import depth
from tests.simulated_query import SimulatedQuery

READINGS = st.one_of(st.none(), st.just(float("nan")), st.floats(-1e6, 1e6))


def filled(values, **parameters):
    return [r["value"] for r in Interpolation(**parameters).session().push_many({"value": v} for v in values)]


def test_example_of_the_benchmark():
    assert filled([None, 1.0, 2.0, None, 3.0]) == [None, 1.0, 2.0, 1.5, 3.0]


def test_estimates_do_not_enter_the_history():
    assert filled([3.0, None, None, 6.0, None], window=2) == [3.0, 3.0, 3.0, 6.0, 4.5]
    assert filled([1.0, 2.0, None, None, 8.0, None], method="extrapolate") == [1.0, 2.0, 3.0, 4.0, 8.0, 10.0]


def test_line_through_readings_in_any_order_of_time():
    def last(*readings):
        rows = [{"event_time": datetime(2024, 5, 1, 0, 0, t, tzinfo=UTC), "value": v} for t, v in readings]
        return Interpolation(method="extrapolate").session().push_many(rows)[-1]["value"]

    assert last((5, 3.0), (10, 1.0), (20, None)) == -3.0
    assert last((10, 1.0), (5, 3.0), (20, None)) == -3.0  # the same line
    assert last((10, 1.0), (5, 3.0), (0, None)) == 5.0
    assert last((5, 1.0), (5, 3.0), (20, None)) == 3.0  # no line


@pytest.mark.long
@given(
    st.lists(
        st.tuples(KEYS, st.sampled_from(["t", "h", "", None]), READINGS, st.one_of(st.none(), st.integers(-5, 30))),
        max_size=40,
    ),
    st.lists(st.integers(0, 40), max_size=3),
    st.integers(1, 4),
    st.sampled_from(["mean", "extrapolate"]),
    st.sampled_from([None, ("t", ""), ()]),
    st.booleans(),
)
@settings(max_examples=depth(200), deadline=None)
def test_agrees_with_the_reference(events, cuts, window, method, fields, timed):
    columns = {
        "key": pa.array([e[0] for e in events], pa.string()),
        "obs_type": pa.array([e[1] for e in events], pa.string()),
        "value": pa.array([e[2] for e in events], pa.float64()),
    }
    if timed:
        columns["event_time"] = pa.array([e[3] for e in events], pa.timestamp("s", tz="UTC"))
    batch = pa.RecordBatch.from_pydict(columns)
    task = Interpolation(window=window, method=method, fields=fields, flag="interpolated", by=("key",))
    got, errors = run(task, batch, cuts)
    rows = [{**row, "time": e[3]} for row, e in zip(batch.to_pylist(), events, strict=True)]
    expected = reference.interpolate(rows, window, method, fields, timed)
    assert not errors
    for row in expected:
        del row["time"]
    assert [{**r, "value": None} for r in got] == [{**r, "value": None} for r in expected]
    # extrapolation far from two close points magnifies a rounding of 1e6 by at most 35
    assert [r["value"] is None for r in got] == [r["value"] is None for r in expected]
    assert [r["value"] or 0.0 for r in got] == pytest.approx([r["value"] or 0.0 for r in expected], rel=1e-9, abs=1e-7)
    assert run(task, batch, restart=False)[0] == got


def test_single_type_needs_no_tuple():
    assert Interpolation(fields="t") == Interpolation(fields=("t",))


def test_other_observations_pass_unchanged():
    session = Interpolation(fields=("t",)).session()
    events = [("t", 1.0), ("h", 7.0), ("h", None), ("t", None), ("h", float("inf"))]
    out = session.push_many({"obs_type": k, "value": v} for k, v in events)
    assert [r["value"] for r in out] == [1.0, 7.0, None, 1.0, float("inf")]
    assert session.push({"obs_type": "t", "value": float("inf")}) == []
    assert session.errors[0]["reason"] == "not_finite"


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_types_may_be_of_any_text_type(kind):
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["t", "ü", None]).cast(kind), pa.array([1.0, None, None])], names=["obs_type", "value"]
    )
    out = Interpolation(fields=("t", "ü")).session().push_batch(batch)
    assert out["value"].to_pylist() == [1.0, 1.0, None]


def test_largest_numbers():
    assert filled([1.7e308, 1.7e308, None]) == [1.7e308, 1.7e308, pytest.approx(1.7e308)]
    assert filled([-1.7e308, 1.7e308, None], method="extrapolate")[2] is None


@pytest.mark.parametrize(
    "parameters", [{"window": 0}, {"method": "cubic"}, {"max_gap": 0}, {"method": "linear", "ttl": "1h"}, {"fields": 3}]
)
def test_wrong_parameters_are_refused(parameters):
    with pytest.raises(ConfigError, match=list(parameters)[-1]):
        Interpolation(**parameters)


# -- linear: on the line between two readings -------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_interior_gaps_equal_pandas(cut):
    rng = np.random.default_rng(4)
    n = 1000
    times = pd.to_datetime(np.sort(rng.choice(10**9, n, replace=False)) * 1000 + 1_714_564_800 * 10**9, utc=True)
    values = np.cumsum(rng.normal(0, 1, n))
    for start in rng.integers(0, n, 60):
        values[start : start + rng.integers(1, 12)] = np.nan
    keys = rng.integers(0, 3, n)
    frame = pd.DataFrame({"event_time": times.as_unit("us"), "key": keys, "value": values})
    task, rows = Interpolation(method="linear", by="key", flag="interpolated").session(), []
    batch = pa.RecordBatch.from_pandas(frame, preserve_index=False)
    for a in range(0, n, cut):
        rows += task.push_batch(batch.slice(a, cut)).to_pylist()
    rows += task.flush()
    assert len(rows) == n
    for key, mine in frame.groupby("key"):
        series = mine.set_index("event_time")["value"]
        wanted = series.interpolate(method="time", limit_area="inside")
        got = [row for row in rows if row["key"] == key]
        assert [row["event_time"] for row in got] == list(series.index)
        assert [np.nan if row["value"] is None else row["value"] for row in got] == pytest.approx(
            wanted.tolist(), rel=1e-9, abs=1e-9, nan_ok=True
        )
        assert [row["interpolated"] for row in got] == (series.isna() & wanted.notna()).tolist()


def test_gap_waits_for_its_reading():
    session = Interpolation(method="linear").session()
    pushed = [session.push({"value": v, "seq": i}) for i, v in enumerate([None, 1.0, None, None, 4.0, None, None])]
    assert [[row["value"] for row in rows] for rows in pushed] == [[None], [1.0], [], [], [2.0, 3.0, 4.0], [], []]
    assert [(row["seq"], row["ordinal"]) for row in pushed[4]] == [(4, 0), (4, 1), (4, 2)]
    assert [row["value"] for row in session.flush()] == [None, None]  # no later reading


def test_gap_beyond_its_maximum_stays_unfilled():
    session = Interpolation(method="linear", max_gap=2).session()
    values = [0.0, None, None, 3.0, None, None, None, None, 8.0, None, 10.0]
    pushed = [[row["value"] for row in session.push({"value": v})] for v in values]
    assert pushed == [[0], [], [], [1, 2, 3], [], [], [None] * 3, [None], [8], [], [9, 10]]


def test_records_of_other_types_and_without_time_keep_their_place():
    session = Interpolation(method="linear", fields="t", by="key").session()
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    rows = [(0, "t", 1.0), (1, "t", None), (2, "h", 5.0), (None, "t", 9.0), (4, "t", 5.0), (5, "h", None)]
    found = []
    for second, kind, value in rows:
        time = None if second is None else noon + timedelta(seconds=second)
        found.append(session.push({"key": "a", "event_time": time, "obs_type": kind, "value": value}))
    assert [[row["value"] for row in one] for one in found] == [[1.0], [], [], [], [2.0, 5.0, 9.0, 5.0], [None]]


def test_times_outside_of_the_two_readings_are_not_filled():
    session = Interpolation(method="linear").session()
    rows = [(10, 1.0), (5, None), (30, None), (15, None), (20, 3.0), (25, None), (20, 4.0)]
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    found = session.push_many({"event_time": noon + timedelta(seconds=s), "value": v} for s, v in rows)
    assert [row["value"] for row in found] == [1.0, None, None, 2.0, 3.0, None, 4.0]


def test_line_between_the_largest_numbers():
    session = Interpolation(method="linear").session()
    assert [row["value"] for row in session.push_many({"value": v} for v in (-1.7e308, None, 1.7e308))][1] == 0.0


@pytest.mark.long
@given(
    st.lists(
        st.tuples(KEYS, st.sampled_from(["t", "h", None]), READINGS, st.one_of(st.none(), st.integers(-5, 30))),
        max_size=40,
    ),
    st.lists(st.integers(0, 40), max_size=3),
    st.integers(1, 4),
    st.sampled_from([None, ("t",)]),
    st.booleans(),
)
@settings(max_examples=depth(200), deadline=None)
def test_lines_agree_with_the_reference(events, cuts, max_gap, fields, timed):
    columns = {
        "key": pa.array([e[0] for e in events], pa.string()),
        "obs_type": pa.array([e[1] for e in events], pa.string()),
        "value": pa.array([e[2] for e in events], pa.float64()),
        "n": pa.array(range(len(events)), pa.int64()),
    }
    if timed:
        columns["event_time"] = pa.array([e[3] for e in events], pa.timestamp("s", tz="UTC"))
    batch = pa.RecordBatch.from_pydict(columns)
    task = Interpolation(method="linear", max_gap=max_gap, fields=fields, flag="interpolated", by=("key",))
    got, errors = run(task, batch, cuts)
    rows = [{**row, "time": e[3]} for row, e in zip(batch.to_pylist(), events, strict=True)]
    expected = reference.on_lines(rows, max_gap, fields, timed)
    assert not errors
    assert [(r["n"], r["interpolated"], r["value"] is None) for r in got] == [
        (r["n"], r["interpolated"], r["value"] is None) for r in expected
    ]
    assert [r["value"] or 0.0 for r in got] == pytest.approx([r["value"] or 0.0 for r in expected], rel=1e-9, abs=1e-9)
    whole = run(task, batch, restart=False)[0]
    assert [(r["n"], r["value"]) for r in whole] == [(r["n"], r["value"]) for r in got]


@pytest.mark.parametrize("max_records", [1, 4, 50])
def test_lines_are_the_same_in_micro_batches(max_records):
    rng = np.random.default_rng(9)
    values = [None if rng.random() < 0.5 else float(v) for v in rng.integers(0, 9, 60)]
    schema = pa.schema(
        [("event_time", pa.timestamp("us", "UTC")), ("key", pa.int64()), ("n", pa.int64()), ("value", pa.float64())]
    )
    times = pa.array([1_714_564_800_000_000 + 1_000_000 * i for i in range(60)], schema.field("event_time").type)
    table = pa.table([times, pa.array([i % 3 for i in range(60)]), pa.array(range(60)), values], schema=schema)
    flow = ro.Dataflow("f")
    rows = flow.source("in", schema=schema)
    flow.sink("out", rows.to(Interpolation(method="linear", by="key", max_gap=3), id="fill"))
    wanted = flow.run(table)["fill"].sort_by("n").to_pylist()
    found = SimulatedQuery(flow, table, random.Random(max_records), max_records=max_records)["fill"]
    assert len(wanted) == 60
    assert found.sort_by("n").to_pylist() == wanted


@pytest.mark.parametrize("method", ["mean", "extrapolate", "linear"])
def test_unrepresentable_integer_is_rejected(method):
    batch = pa.record_batch({"value": pa.array([2**53, 2**53 + 1, None, 2**53 + 2], pa.int64())})
    session = Interpolation(method=method).session()
    rows = session.push_batch(batch).to_pylist()
    assert (rows[0]["value"], rows[-1]["value"]) == (2.0**53, 2.0**53 + 2)
    assert [(e["reason"], "value" in e["message"]) for e in session.errors] == [("out_of_range", True)]
