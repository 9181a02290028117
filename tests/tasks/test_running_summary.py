"""Running figures of readings, against plain Python."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

values = st.none() | st.floats(-1e6, 1e6) | st.sampled_from([1e16, -1e16, 1e-9, 0.1, -0.0])
rows = st.lists(st.tuples(st.sampled_from("ab"), values), max_size=25)


def reference(rows):
    seen = {}
    for key, value in rows:
        its = seen.setdefault(key, [])
        if value is not None:
            its.append(value)
        total = math.fsum(its)
        some = (min(its), max(its), total, total / len(its)) if its else (None, None, 0.0, None)
        yield (key, len(its), *some)


def pushed(session, rows):
    batch = pa.RecordBatch.from_pydict({"k": [k for k, _ in rows], "v": pa.array([v for _, v in rows], pa.float64())})
    found = session.push_batch(batch)
    return list(zip(*(found[name].to_pylist() for name in ("k", "count", "min", "max", "sum", "mean")), strict=True))


@given(rows, st.integers(0, 25))
def test_figures_are_those_of_plain_python(rows, cut):
    session = t.RunningSummary(by=("k",), value="v").session()
    assert pushed(session, rows[:cut]) + pushed(session, rows[cut:]) == list(reference(rows))
    session = t.RunningSummary(by=("k",), value="v", emit="update").session()
    every = [(i, row) for i, row in enumerate(reference(rows))]
    for part in (every[:cut], every[cut:]):
        last = {row[0]: (i, row) for i, row in part}
        wanted = [row for _, row in sorted(last.values())]
        assert pushed(session, rows[part[0][0] : part[-1][0] + 1] if part else []) == wanted


def test_a_sum_beyond_doubles_comes_back():
    session = t.RunningSummary().session()
    big = np.finfo(float).max
    found = session.push_many([{"value": v} for v in (big, big, -big, -1.0)])
    assert [row["sum"] for row in found] == [big, None, big, big]
    assert [row["mean"] for row in found] == [big, None, big / 3, big / 4]
    assert session.push({"value": math.inf}) == []
    assert session.errors[0]["reason"] == "not_finite"


def test_names():
    row = t.RunningSummary(prefix="v_").session().push({"value": 2})[0]
    assert row == {"value": 2, "v_count": 1, "v_min": 2.0, "v_max": 2.0, "v_sum": 2.0, "v_mean": 2.0}
    with pytest.raises(ConfigError, match="prefix = '' gives a field the name 'min', which is taken"):
        t.RunningSummary(by=("min",))
