"""Spikes, against the formula."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

numbers = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 1.5, -1.0, -1.5, 2.0]))


@given(st.lists(st.tuples(numbers, numbers), max_size=20), st.sampled_from([0.0, 0.3, 0.5]), st.booleans())
def test_spikes_equal_the_formula(pairs, threshold, relative):
    task = t.SpikeFilter(value="x", expected="y", threshold=threshold, deviation="relative" if relative else "absolute")
    batch = pa.table(
        {
            "x": pa.array([x for x, _ in pairs], pa.float64()),
            "y": [y for _, y in pairs],
            "i": [*map(str, range(len(pairs)))],
        },
        schema=pa.schema({"x": pa.float64(), "y": pa.float64(), "i": pa.string()}),
    )
    wanted = [
        str(i)
        for i, (x, y) in enumerate(pairs)
        if x is not None and y is not None and abs(x - y) > threshold * (abs(y) if relative else 1)
    ]
    assert task.session().push_batch(batch)["i"].to_pylist() == wanted


def test_defaults():
    rows = t.SpikeFilter().session().push_many({"value": v, "expected": 100.0} for v in (103.0, 103.01, 97.0, 96.99))
    assert [row["value"] for row in rows] == [103.01, 96.99]


def test_infinite_reading_is_a_spike_and_nan_is_not():
    rows = t.SpikeFilter().session().push_many({"value": v, "expected": 1.0} for v in (math.inf, -math.inf, math.nan))
    assert [row["value"] for row in rows] == [math.inf, -math.inf]


def test_misuse_is_refused():
    for wrong in ({"threshold": -0.1}, {"deviation": "both"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            t.SpikeFilter(**wrong)
