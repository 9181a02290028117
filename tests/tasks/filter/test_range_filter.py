"""Range filter against the reference and the sample data."""

from __future__ import annotations

import json
import math

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import CITY
from riot_ops.task import Task
from riot_ops.tasks.filter.range_filter import RangeFilter
from tests.reference import range_filter as reference
from tests.reference.splits import run
from tests.samples import expected
from tests.search import depth

BOUNDS = {"a": (0.0, 10.0), "ü": (-1.0, -1.0), "light": (5.0, 7.5)}
VALUES = st.one_of(
    st.none(), st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, -0.0, 5.0, 7.5, 10.0]), st.floats(-12, 12)
)


def comparable(rows):
    return [{k: "nan" if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]


@settings(deadline=None, max_examples=depth(60))
@given(
    st.lists(st.tuples(st.sampled_from(["a", "ü", "light", "ligh", "lights", "", None]), VALUES), max_size=30),
    st.sampled_from(["drop", "null"]),
    st.lists(st.integers(0, 30), max_size=3),
    st.booleans(),
)
def test_long_form_equals_the_reference(events, on_error, cuts, dictionary):
    kinds = pa.array([k for k, _ in events], pa.string())
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(events)), pa.int64()),
            "obs_type": kinds.dictionary_encode() if dictionary else kinds,
            "value": pa.array([v for _, v in events], pa.float64()),
        }
    )
    out, errors = run(RangeFilter(bounds=BOUNDS, on_error=on_error), batch, cuts)
    expected = [row for event in batch.to_pylist() for row in reference.long(event, BOUNDS, on_error)]
    assert comparable(out) == comparable(expected)
    assert errors == []


@settings(deadline=None, max_examples=depth(40))
@given(
    st.lists(st.tuples(VALUES, st.one_of(st.none(), st.integers(-3, 12))), max_size=20),
    st.sampled_from(["drop", "null"]),
)
def test_wide_form_equals_the_reference(events, on_error):
    bounds = {"x": (0.0, 10.0), "n": (-1.0, 5.0)}
    batch = pa.RecordBatch.from_pydict(
        {
            "x": pa.array([x for x, _ in events], pa.float64()),
            "n": pa.array([n for _, n in events], pa.int64()),
        }
    )
    out, _ = run(RangeFilter(bounds=bounds, by=None, on_error=on_error), batch)
    expected = [row for event in batch.to_pylist() for row in reference.wide(event, bounds, on_error)]
    assert comparable(out) == comparable(expected)


def test_bounds_of_the_specification():
    session = RangeFilter(bounds={"x": (0, 10)}).session()
    passed = [bool(session.push({"obs_type": "x", "value": v})) for v in (0, 10, -0.001, 10.001)]
    assert passed == [True, True, False, False]


@pytest.mark.parametrize(
    "given_bounds",
    [
        {"b": (1, 2), "a": [0, 10]},
        [("a", 0, 10), ("b", 1, 2)],
        ["a:0:10", "b:1:2"],
        "a:0:10, b:1:2",
    ],
)
def test_all_forms_of_bounds_make_equal_tasks(given_bounds):
    task = RangeFilter(bounds=given_bounds)
    assert task.bounds == (("a", 0.0, 10.0), ("b", 1.0, 2.0))
    assert hash(task) == hash(RangeFilter(bounds="b:1:2,a:0:10"))
    assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
    assert eval(repr(task)) == task


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ("light:1", "light:1"),
        ({"a": (3, 2)}, "above its max"),
        ({"a": 3}, "name, min, max"),
        ("nowhere", "nowhere"),
        ({"a": ("x", 2)}, "name, min, max"),
        ({"a": (0, math.inf)}, "finite"),
        (["a:0:1", ("a", 0, 2)], "twice"),
        ({}, "must not be empty"),
        (3, "got 3"),
        ({"": (0, 1)}, "non-empty"),
        ("a:nan:1", "finite"),
    ],
)
def test_wrong_bounds_are_refused(bounds, text):
    with pytest.raises(ConfigError, match=text):
        RangeFilter(bounds=bounds)


@pytest.mark.parametrize(
    ("bounds", "part"),
    [
        ((0, 10), r"0 \(int\) is not"),
        ([(0, 10)], r"\(0, 10\) \(tuple\) is not"),
        ({"a": (1, 2, 3)}, "'a', 1, 2, 3"),
        (3, "got 3"),
        (None, "got None"),
    ],
)
def test_bounds_of_a_wrong_shape_show_the_right_ones(bounds, part):
    with pytest.raises(ConfigError, match=rf'bounds must be \{{"name": \(min, max\), …\}}, \[\("name".*{part}'):
        RangeFilter(bounds=bounds)


def test_missing_field_is_refused():
    with pytest.raises(ConfigError, match="obs_type"):
        RangeFilter().output_schema(pa.schema([("value", pa.float64())]))


def test_share_of_the_sample_data_within_bounds(sample_data):
    rows = []
    for line in (sample_data / "riotbench" / "SYS_sample_data_senml.csv").read_text().splitlines():
        entries = json.loads(line.split(",", 1)[1])["e"]
        rows.append({e["n"]: float(e["v"]) for e in entries if e["n"] in CITY.observed})
    batch = pa.RecordBatch.from_pylist(rows)
    passed = RangeFilter(by=None).session().push_batch(batch).num_rows
    assert passed == expected(sample_data, made=31, papers=639)  # of 50, and 1,000
    assert passed == sum(bool(reference.wide(row, CITY.bounds, "drop")) for row in rows)


def test_on_fail_reject_sends_records_to_the_errors():
    rejecting = RangeFilter(by=None, bounds={"n": (0, 5), "m": (0, 5)}, on_error="reject").session()
    rows = [{"n": 1.0, "m": 1.0}, {"n": 7.0, "m": 9.0}, {"n": 1.0, "m": -1.0}, {"n": math.nan, "m": None}]
    assert rejecting.push_many(rows) == rows[:1]
    assert [(e["reason"], e["message"]) for e in rejecting.errors] == [
        ("out_of_range", "m = 9 is not from 0 to 5"),
        ("out_of_range", "m = -1 is not from 0 to 5"),
        ("out_of_range", "n = nan is not from 0 to 5"),
    ]


@pytest.mark.parametrize("text", [pa.string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_message_names_value_and_range_of_its_kind(text):
    rejecting = RangeFilter(bounds={"wind": (0, 60), "heat": (-40.5, 60)}, on_error="reject").session()
    kinds = pa.array(["heat", "wind", "other", "heat"], pa.string()).cast(text)
    batch = pa.record_batch({"obs_type": kinds, "value": [-99.0, 61.5, 1e9, 20.0]})
    assert rejecting.push_batch(batch)["value"].to_pylist() == [1e9, 20.0]
    assert [e["message"] for e in rejecting.errors] == [
        "value = -99 is not from -40.5 to 60, the range of heat",
        "value = 61.5 is not from 0 to 60, the range of wind",
    ]


@pytest.mark.parametrize("bounds", ["v:9007199254740993:9007199254740995", {"v": (2**53 + 1, 2**53 + 3)}], ids=str)
def test_integer_bounds_beyond_float64_are_kept(bounds):
    task = RangeFilter(by=None, bounds=bounds)
    assert task.ranges == (("v", 2**53 + 1, 2**53 + 3),)
    assert Task.from_dict(task.to_dict()) == task
    values = [2**53 + i for i in range(5)]
    batch = pa.record_batch({"v": pa.array([*values, None], pa.int64())})
    assert task.session().push_batch(batch)["v"].to_pylist() == [*values[1:4], None]
    blank = RangeFilter(by=None, bounds=bounds, on_error="null").session().push_batch(batch)["v"].to_pylist()
    assert blank == [None, *values[1:4], None, None]


def test_names_of_ranges_are_in_one_field():
    assert RangeFilter(by="kind") == RangeFilter(by=("kind",)) == RangeFilter(by=["kind"])
    for by in ((), ("a", "b")):
        with pytest.raises(ConfigError, match="by must be one field, or None"):
            RangeFilter(by=by)
