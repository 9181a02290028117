"""Sliding sums, against exact sums."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

READINGS = st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.floats(-1e9, 1e9))), max_size=40)


@given(READINGS, st.integers(1, 5))
def test_sums_equal_the_latest_readings(readings, window):
    rows = (
        t.SlidingSum(by=("key",), window=window, value="x", output="sum")
        .session()
        .push_many({"key": key, "x": x} for key, x in readings)
    )
    history, wanted = {}, []
    for key, x in readings:
        if x is not None:
            history.setdefault(key, []).append(x)
            wanted.append((key, math.fsum(history[key][-window:])))
    assert [row["key"] for row in rows] == [key for key, _ in wanted]
    assert [row["sum"] for row in rows] == pytest.approx([s for _, s in wanted], rel=1e-12, abs=1e-6)


def test_no_error_builds_up():
    values = np.random.default_rng(1).normal(size=100_000) * 10.0 ** np.random.default_rng(2).integers(0, 12, 100_000)
    values[-10:] = 0.1
    sums = t.SlidingSum().session().push_batch(pa.table({"value": values}))["value"]
    assert sums[-1].as_py() == pytest.approx(1.0, rel=1e-15)


def test_overflowing_sum_is_null_and_forgotten():
    rows = t.SlidingSum(window=2).session().push_many({"value": v} for v in (1e308, 1e308, 1.0, 2.0))
    assert [row["value"] for row in rows] == [1e308, None, 1e308, 3.0]


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="window"):
        t.SlidingSum(window=0)
