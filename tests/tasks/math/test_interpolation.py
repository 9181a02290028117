"""Interpolation: the benchmark's example, the reference, and records that must not change."""

from __future__ import annotations

from datetime import UTC, datetime

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.tasks.math.interpolation import Interpolation
from tests.reference import interpolation as reference
from tests.reference.splits import KEYS, run
from tests.search import depth

READINGS = st.one_of(st.none(), st.just(float("nan")), st.floats(-1e6, 1e6))


def filled(values, **parameters):
    return [r["value"] for r in Interpolation(**parameters).session().push_many({"value": v} for v in values)]


def test_example_of_the_benchmark():
    assert filled([None, 1.0, 2.0, None, 3.0]) == [None, 1.0, 2.0, 1.5, 3.0]


def test_estimates_do_not_enter_the_history():
    assert filled([3.0, None, None, 6.0, None], window=2) == [3.0, 3.0, 3.0, 6.0, 4.5]
    assert filled([1.0, 2.0, None, None, 8.0, None], method="linear") == [1.0, 2.0, 3.0, 4.0, 8.0, 10.0]


def test_a_line_through_readings_in_any_order_of_time():
    def last(*readings):
        rows = [{"event_time": datetime(2024, 5, 1, 0, 0, t, tzinfo=UTC), "value": v} for t, v in readings]
        return Interpolation(method="linear").session().push_many(rows)[-1]["value"]

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
    st.sampled_from(["mean", "linear"]),
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
    task = Interpolation(window=window, method=method, fields=fields, flag=True, by=("key",))
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


def test_a_single_type_needs_no_tuple():
    assert Interpolation(fields="t") == Interpolation(fields=("t",))


def test_other_observations_pass_unchanged():
    session = Interpolation(fields=("t",)).session()
    events = [("t", 1.0), ("h", 7.0), ("h", None), ("t", None), ("h", float("inf"))]
    out = session.push_many({"obs_type": k, "value": v} for k, v in events)
    assert [r["value"] for r in out] == [1.0, 7.0, None, 1.0, float("inf")]
    assert session.push({"obs_type": "t", "value": float("inf")}) == []
    assert session.errors[0]["reason"] == "not_finite"


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_any_text_type_selects(kind):
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["t", "ü", None]).cast(kind), pa.array([1.0, None, None])], names=["obs_type", "value"]
    )
    out = Interpolation(fields=("t", "ü")).session().push_batch(batch)
    assert out["value"].to_pylist() == [1.0, 1.0, None]


def test_the_largest_numbers():
    assert filled([1.7e308, 1.7e308, None]) == [1.7e308, 1.7e308, pytest.approx(1.7e308)]
    assert filled([-1.7e308, 1.7e308, None], method="linear")[2] is None


@pytest.mark.parametrize("parameters", [{"window": 0}, {"method": "cubic"}, {"fields": 3}])
def test_wrong_parameters_are_refused(parameters):
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        Interpolation(**parameters)
