"""Exponential averages, against pandas' formula."""

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


def test_span_of_one_is_the_last_reading():
    session = t.ExponentialAverage(span=1, warmup=0).session()
    assert [session.push({"value": x})[0]["value"] for x in (3.0, 5.0)] == [3.0, 5.0]
    session.push({"value": float("inf")})
    assert session.errors[0]["reason"] == "not_finite"
    with pytest.raises(ConfigError, match="span"):
        t.ExponentialAverage(span=0.5)
    with pytest.raises(ConfigError, match="warmup"):
        t.ExponentialAverage(span=2, warmup=-1)
