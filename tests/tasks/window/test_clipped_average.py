"""The clipped average, against a naive queue."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from tests.reference.dspbench.traffic_monitoring import Speed

values = st.lists(st.sampled_from([30.0, 30.5, 31.25, 36.0, 29.0, 90.0, -4.0]), max_size=40)


def clipped(task, values):
    out = task.session().push_batch(pa.RecordBatch.from_pydict({"value": pa.array(values, pa.float64())}))
    return list(zip(out["value"].to_pylist(), out["count"].to_pylist(), strict=True))


@given(values, st.sampled_from([2, 3, 5, 30]), st.sampled_from([0.5, 1.1, 2.0]), st.booleans())
def test_averages_equal_a_queue(values, window, sigma, whole):
    queue = Speed(window, sigma, whole)
    wanted = [(pytest.approx(average), count) for average, count in map(queue.add, values)]
    assert clipped(t.ClippedAverage(window=window, sigma=sigma, integer=whole), values) == wanted


def test_long_window_stays_exact():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(1e6, 1, 300), rng.normal(0, 3, 2000)]).round(3).tolist()
    queue = Speed(250, 1e9)
    wanted = [queue.add(v)[0] for v in values]
    got = [average for average, _ in clipped(t.ClippedAverage(window=250, sigma=1e9), values)]
    assert got == pytest.approx(wanted, rel=1e-12)
    assert got[600:] == pytest.approx(wanted[600:], abs=1e-13)  # the large values leave no error


def test_equal_values_are_never_outliers():
    assert clipped(t.ClippedAverage(window=7), [0.1] * 50)[-1] == (0.1, 7)


def test_missing_values():
    task = t.ClippedAverage(window=2, count="n", output="mean", by="key")
    session = task.session()
    rows = [("a", None), ("a", 2.0), ("a", math.nan), ("b", None), ("a", 4.0)]
    found = [session.push({"key": key, "value": value})[0] for key, value in rows]
    assert [(row["mean"], row["n"]) for row in found] == [(None, 0), (2.0, 1), (2.0, 1), (None, 0), (3.0, 2)]
    assert session.push({"key": "a", "value": math.inf}) == []
    assert session.errors[0]["reason"] == "not_finite"


def test_misuse_is_refused():
    for parameters, message in (
        ({"window": 1}, "window = 1"), ({"sigma": 0.0}, "sigma = 0.0"), ({"count": "value"}, "count must differ from 'value'"),
        ({"output": "count"}, "count must differ from 'count'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            t.ClippedAverage(**parameters)
