"""Exponential averages against pandas' formula, ramps and weighted sums against theirs, and unpivoted records."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

numbers = st.one_of(st.floats(-1e6, 1e6), st.none(), st.just(float("nan")))


@given(st.lists(st.tuples(st.sampled_from("ab"), numbers), max_size=25), st.integers(0, 4), st.integers(1, 9))
def test_exponential_averages(rows, warmup, size):
    session = t.ExponentialAverage(by="key", span=4, warmup=warmup, output="mean").session()
    batch = pa.RecordBatch.from_pydict(
        {"key": pa.array([k for k, _ in rows], pa.string()), "value": pa.array([x for _, x in rows], pa.float64())}
    )
    out = [x for i in range(0, len(rows), size) for x in session.push_batch(batch.slice(i, size)).to_pylist()]
    seen, means = {"a": [], "b": []}, {}
    for (key, x), row in zip(rows, out, strict=True):
        if x is None or math.isnan(x):
            assert row["mean"] is None
            continue
        seen[key].append(x)
        many = len(seen[key])
        means[key] = sum(seen[key]) / many if many <= max(1, warmup) else means[key] + 0.4 * (x - means[key])
        assert row["mean"] == pytest.approx(means[key], rel=1e-9, abs=1e-6)


def test_a_span_of_one_is_the_last_reading():
    session = t.ExponentialAverage(span=1, warmup=0).session()
    assert [session.push({"value": x})[0]["value"] for x in (3.0, 5.0)] == [3.0, 5.0]
    session.push({"value": float("inf")})
    assert session.errors[0]["reason"] == "not_finite"
    with pytest.raises(ConfigError, match="span"):
        t.ExponentialAverage(span=0.5)
    with pytest.raises(ConfigError, match="warmup"):
        t.ExponentialAverage(span=2, warmup=-1)


@pytest.mark.parametrize(
    ("options", "row", "wanted"),
    [
        ({}, {"value": 0.25}, 0.25),
        ({}, {"value": -3.0}, 0.0),
        ({}, {"value": 3.0}, 1.0),
        ({"low": 2, "high": 10}, {"value": 4.0}, 0.25),
        ({"low": 2, "high": 10, "falling": True}, {"value": 4.0}, 0.75),
        ({"over": "a", "high": 10}, {"value": 6.0, "a": 2.0}, 0.3),
        ({"over": ("a", "b"), "high": 10}, {"value": 6.0, "a": 2.0, "b": 3.0}, 0.1),
        ({"over": ("a", "b"), "undefined": 0.5}, {"value": 6.0, "a": 2.0, "b": 0.0}, 0.5),
        ({"over": "a", "undefined": 0.5}, {"value": 0.0, "a": 0.0}, 0.5),
        ({"over": "a"}, {"value": 1.0, "a": None}, None),
        ({"value": "x", "output": "x"}, {"x": float("nan")}, None),
        ({"value": "x", "output": "x"}, {"x": 0.5}, 0.5),
    ],
)
def test_ramps(options, row, wanted):
    out = t.RampScore(**options).session().push(row)[0][options.get("output", "score")]
    assert out == (None if wanted is None else pytest.approx(wanted))


def test_a_ramp_is_checked():
    for wrong, text in (
        ({"low": 1.0}, "low must be below high, .* got 1.0 and 1.0"),
        ({"low": -1e308, "high": 1e308}, "their difference finite, got -1e[+]308 and 1e[+]308"),
        ({"undefined": 2.0}, "undefined .* got 2.0"),
        ({"undefined": -0.1}, "undefined .* got -0.1"),
        ({"high": math.inf}, "high"),
    ):
        with pytest.raises(ConfigError, match=text):
            t.RampScore(**wrong)
    for fields in ({"x": pa.float64()}, {"x": pa.float64(), "a": pa.string()}):
        with pytest.raises(ConfigError, match="'a'"):
            t.RampScore(value="x", over="a").output_schema(pa.schema(fields))


def test_weighted_sums():
    total = t.WeightedSum(weights={"a": 2, "b": -0.5}, output="total").session()
    assert [total.push({"a": a, "b": b})[0]["total"] for a, b in ((1.0, 4.0), (None, 1.0), (1e308, -1e308))] == [
        0.0,
        None,
        None,
    ]
    for wrong in ({}, {"a": "x"}, {"a": True}, {"a": math.inf}, ["a"]):
        with pytest.raises(ConfigError, match="weights"):
            t.WeightedSum(weights=wrong)


@given(st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from(["z", None])), max_size=9))
def test_unpivoted_records(rows):
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(rows)), pa.int64()),
            "a": pa.array([a for a, _ in rows], pa.string()),
            "b": pa.array([b for _, b in rows], pa.string()),
        }
    )
    out = t.Unpivot(fields={"b": 2, "a": 1}, label="which", value="text", keep=("a",)).session().push_batch(batch)
    assert out.to_pylist() == [
        {"seq": i, "a": a, "which": which, "text": text, "ordinal": place}
        for i, (a, b) in enumerate(rows)
        for place, (which, text) in enumerate(((2, b), (1, a)))
    ]
    named = t.Unpivot(fields=("a", "b")).session().push_batch(batch).to_pylist()
    assert [(row["name"], row["value"]) for row in named] == [(n, x) for a, b in rows for n, x in (("a", a), ("b", b))]


def test_unpivot_is_checked():
    for wrong, text in (
        ({"fields": ()}, "fields"),
        ({"fields": "a"}, "fields"),
        ({"fields": {"a": 1, "b": "x"}}, "labels"),
        ({"fields": ("a",), "label": "value"}, "twice"),
        ({"fields": ("a",), "keep": ("name",)}, "twice"),
    ):
        with pytest.raises(ConfigError, match=text):
            t.Unpivot(**wrong)
    with pytest.raises(ConfigError, match="one type"):
        t.Unpivot(fields=("a", "b")).output_schema(pa.schema({"a": pa.string(), "b": pa.int64()}))
