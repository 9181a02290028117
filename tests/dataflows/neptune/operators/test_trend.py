"""Trends, against NumPy over the whole window."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.neptune.operators import Trend

HOUR = 3_600_000_000_000


def wanted(times, values, size, growth=0.01, baseline="min"):
    for i, now in enumerate(times):
        old = values[:i][times[:i] > now - size]
        base = {"min": np.min, "first": lambda v: v[0], "mean": np.mean}[baseline](old) if old.size else np.inf
        inside = times[: i + 1] > now - size
        x, y = (times[: i + 1][inside] - times[: i + 1][inside][0]) / HOUR, values[: i + 1][inside]
        line = (None, None)
        if x[-1] > x[0]:
            line = tuple(np.polyfit(x, y, 1))
        yield y.size, y.mean(), y.min(), y.max(), *line, bool(values[i] > (1 + growth) * base)


def found(task, times, values, cuts=()):
    session, rows = task.session(), []
    batch = pa.RecordBatch.from_pydict({"ts": pa.array(times, pa.int64()), "value": values})
    edges = [0, *cuts, len(times)]
    for a, b in itertools.pairwise(edges):
        rows += session.push_batch(batch.slice(a, b - a)).to_pylist()
    names = ("count", "mean", "min", "max", "slope", "intercept", "alarm")
    return [tuple(row[name] for name in names) for row in rows]


def close(row):
    return tuple(pytest.approx(one, rel=1e-9, abs=1e-9) if isinstance(one, float) else one for one in row)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=30),
    st.sampled_from([1, 4, 1000]),
    st.sampled_from(["min", "first", "mean"]),
    st.integers(0, 30),
)
def test_windows_equal_numpy(steps, hours, baseline, cut):
    times = np.cumsum([step for step, _ in steps]) * HOUR
    values = np.array([float(v) for _, v in steps])
    task = Trend(time="ts", window=f"{hours}h", baseline=baseline, growth=0.1)
    got = found(task, times, values, (min(cut, len(steps)),))
    assert got == [close(row) for row in wanted(times, values, hours * HOUR, 0.1, baseline)]


@pytest.mark.long
def test_long_stream_stays_exact():
    rng = np.random.default_rng(3)
    times = 1_600_000_000_000_000_000 + np.cumsum(rng.integers(1, 120_000_000_000, 3000))
    values = (2e8 + rng.normal(0, 5e6, 3000)).round()
    got = found(Trend(time="ts", window="5h"), times, values)
    want = list(wanted(times, values, 5 * HOUR))
    for place in (0, 1, 2, 3, 6):
        assert [row[place] for row in got] == pytest.approx([row[place] for row in want], rel=1e-12)
    for place in (4, 5):
        assert [row[place] for row in got[30:]] == pytest.approx([row[place] for row in want[30:]], rel=1e-6)
    whole = found(Trend(time="ts", window="5h"), times, values, tuple(range(100, 3000, 171)))
    assert whole == got  # to the last bit


def exact_slope(times, values):
    x, y = ([Fraction(one) for one in column] for column in (times, values))
    n, sx, sy = len(x), sum(x), sum(y)
    over = n * sum(a * b for a, b in zip(x, y, strict=True)) - sx * sy
    return float(over / (n * sum(a * a for a in x) - sx * sx) * HOUR)


@pytest.mark.long
@pytest.mark.parametrize("first", [0, 30], ids=["what values count from", "one of many"])
def test_outlier_leaves_no_rounding_error(first):
    """The outlier cost the sums digits, or was their origin."""
    minute = HOUR // 60
    times = np.arange(300) * minute
    values = np.sin(np.arange(300)) + 0.01 * np.arange(300)
    values[first] = 1e9
    got = found(Trend(time="ts", window="100min"), times, values)
    for i in range(first + 100, 300):
        inside = slice(i - 99, i + 1)
        assert got[i][4] == pytest.approx(exact_slope(times[inside].tolist(), values[inside].tolist()), rel=1e-11)
        assert got[i][1] == pytest.approx(math.fsum(values[inside]) / 100, rel=1e-13)


def test_timestamps_and_keys():
    times = pa.array([0, 0, 3_600_000_000, 3_600_000_000], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b", "a", "b"], "event_time": times, "value": [1, 5, 3, 4]})
    rows = Trend(by="key", growth=1.0).session().push_batch(batch).to_pylist()
    assert [(row["slope"], row["alarm"]) for row in rows[2:]] == [(2.0, True), (-1.0, False)]


def test_rejected_records():
    session = Trend(time="ts").session()
    for ts, value, reason in ((5, 1.0, None), (4, 1.0, "late"), (None, 1.0, "missing"), (6, None, "missing"), (7, float("inf"), "not_finite"), (5, 2.0, None)):  # fmt: skip
        assert len(session.push({"ts": ts, "value": value})) == (reason is None)
        assert reason is None or session.errors[-1]["reason"] == reason
    assert session.push({"ts": 9, "value": 3.0})[0]["count"] == 3


@pytest.mark.parametrize(
    ("parameters", "error_text"),
    [
        ({"window": "0s"}, "window"),
        ({"value": "event_time"}, "different"),
        ({"baseline": "max"}, "baseline"),
        ({"growth": -1.0}, "growth"),
    ],
    ids=str,
)
def test_misuse_is_refused(parameters, error_text):
    with pytest.raises(ConfigError, match=error_text):
        Trend(**parameters)
    with pytest.raises(ConfigError, match="needs timestamps or integers"):
        Trend(time="ts").session().push({"ts": 1.5, "value": 1.0})
