"""Running variance: exact fractions, NumPy, and readings far from zero."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.tasks import Variance
from tests.reference import variance as reference
from tests.reference.splits import KEYS, run
from tests.search import depth

READINGS = st.one_of(st.none(), st.just(float("nan")), st.floats(-1e6, 1e6))


@pytest.mark.long
@given(
    st.lists(st.tuples(KEYS, READINGS), max_size=40), st.lists(st.integers(0, 40), max_size=3), st.sampled_from([0, 1])
)
@settings(max_examples=depth(100), deadline=None)
def test_agrees_with_the_reference(events, cuts, ddof):
    batch = pa.RecordBatch.from_pydict(
        {"key": pa.array([k for k, _ in events], pa.string()), "value": pa.array([v for _, v in events], pa.float64())}
    )
    task = Variance(ddof=ddof, by=("key",), output="variance")
    got, errors = run(task, batch, cuts)
    expected = reference.variances(batch.to_pylist(), ddof)
    assert not errors
    assert [r["variance"] is None for r in got] == [v is None for v in expected]
    # squares up to 1e12, each with a few roundings of 1e-16
    assert [r["variance"] or 0.0 for r in got] == pytest.approx([v or 0.0 for v in expected], rel=1e-9, abs=1e-3)
    assert run(task, batch, restart=False)[0] == got


@pytest.mark.parametrize("ddof", [0, 1])
def test_agrees_with_numpy_far_from_zero(ddof):
    values = 1e9 + np.random.default_rng(6).normal(0, 1, 1000)
    out = Variance(ddof=ddof).session().push_batch(pa.RecordBatch.from_pydict({"value": values}))["value"]
    for n in (2, 3, 10, 1000):
        assert out[n - 1].as_py() == pytest.approx(np.var(values[:n], ddof=ddof), rel=1e-6)


def test_square_beyond_float64_is_refused():
    session = Variance().session()
    out = session.push_many({"value": v} for v in (1.0, 1e300, 3.0))
    assert [r["value"] for r in out] == [0.0, 1.0]
    assert [e["reason"] for e in session.errors] == ["overflow"]


def test_missing_readings_carry_the_variance():
    out = Variance().session().push_many({"value": v} for v in (None, 1.0, 3.0, float("nan")))
    assert [r["value"] for r in out] == [None, 0.0, 1.0, 1.0]


def test_wrong_parameters_are_refused():
    with pytest.raises(ConfigError, match="ddof"):
        Variance(ddof=2)
