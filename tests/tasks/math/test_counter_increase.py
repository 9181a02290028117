"""Increments of counters against figures computed by hand and a reference in fractions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import ConfigError
from riot_ops.tasks import CounterIncrease
from tests.reference.counter_increase import Counter

INT = pa.int64()
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def increases(readings, kind=INT, **options):
    session = CounterIncrease(**options).session()
    batch = pa.RecordBatch.from_arrays([pa.array(readings, kind)], names=["value"])
    return session.push_batch(batch).column(-1).to_pylist(), [e["reason"] for e in session.errors]


def test_falling_counter_counts_as_reset():
    assert increases([100, 130, None, 130, 20, 25]) == ([None, 30.0, None, 0.0, 20.0, 5.0], [])
    assert increases([1.5, 2.25, 0.5], pa.float64()) == ([None, 0.75, 0.5], [])


def test_counter_of_limited_width_wraps():
    assert increases([65_530, 4, 65_535, 0], modulus=2**16) == ([None, 10.0, 65_531.0, 1.0], [])
    assert increases([2**64 - 3, 5], pa.uint64(), modulus=2**64) == ([None, 8.0], [])
    assert increases([7, -1, 10, 9], modulus=10) == ([None, 2.0], ["out_of_range", "out_of_range"])


def test_large_counters_are_subtracted_without_rounding():
    assert increases([2**60, 2**60 + 1, 2**60 + 3]) == ([None, 1.0, 2.0], [])


def test_rate_is_by_elapsed_event_time():
    session = CounterIncrease(per="1min", output="rate").session()
    rows = [(0, 100), (30, 110), (30, 120), (90, 140), (80, 150), (91, 0), (92, 1)]
    out = session.push_many({"event_time": NOON + timedelta(seconds=s), "value": v} for s, v in rows)
    assert [row["rate"] for row in out] == [None, 20.0, None, 30.0, 0.0, 60.0]
    assert session.push({"event_time": None, "value": 9}) == []
    assert [e["reason"] for e in session.errors] == ["late", "no_event_time"]


def test_growth_beyond_floats_is_rejected():
    assert increases([-1.7e308, 1.7e308, -1.6e308], pa.float64()) == ([None, pytest.approx(1e307)], ["overflow"])


def test_unsuitable_parameters_are_refused():
    with pytest.raises(ConfigError, match="per must be longer than 0"):
        CounterIncrease(per="0s")
    with pytest.raises(ConfigError, match="modulus = 0"):
        CounterIncrease(modulus=0)
    with pytest.raises(ConfigError, match="event_time"):
        CounterIncrease(per="1s").output_schema(pa.schema([("value", pa.int64())]))


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.one_of(st.none(), st.integers(0, 40), st.integers(2**62 - 4, 2**62 + 4)),
            st.integers(-1, 5),
        ),
        max_size=40,
    ),
    st.sampled_from([None, 30, 2**62]),
    st.sampled_from([None, 10]),
    st.integers(0, 40),
)
def test_increase_equals_the_reference_for_any_split(readings, modulus, per, cut):
    task = CounterIncrease(by="key", modulus=modulus, per=None if per is None else f"{per}s")
    schema = pa.schema([("event_time", pa.timestamp("us", "UTC")), ("key", pa.string()), ("value", pa.int64())])
    reference, second = Counter(modulus, per), 1_700_000_000
    rows, wanted = [], []
    for key, value, step in readings:
        second += step
        rows.append({"event_time": second * 1_000_000, "key": key, "value": value})
        wanted.append(reference.push(key, value, second))
    session, got, errors = task.session(), [], []
    for part in (rows[:cut], rows[cut:]):
        got += session.push_batch(pa.RecordBatch.from_pylist(part, schema=schema)).column("value").to_pylist()
        errors += [e["reason"] for e in session.errors]
        data, session = session.snapshot(), task.session()
        session.restore(data)
    assert got == [None if x is None else pytest.approx(x, rel=1e-12) for x in wanted if not isinstance(x, str)]
    assert sorted(errors) == sorted(x for x in wanted if isinstance(x, str))
