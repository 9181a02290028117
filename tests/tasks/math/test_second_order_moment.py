"""Second frequency moments: exact while possible, unbiased after that, and mergeable sketches."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.runtime.state import KeyedState
from riot_ops.tasks.math.second_order_moment import SecondOrderMoment, times_mod
from tests.reference import second_order_moment as reference
from tests.reference.splits import KEYS, run
from tests.search import depth

READINGS = st.one_of(st.none(), st.just(float("nan")), st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.5, 1e300]))
EVENTS = st.lists(st.tuples(KEYS, READINGS), max_size=60)
CUTS = st.lists(st.integers(0, 60), max_size=3)


def batch_of(events):
    return pa.RecordBatch.from_pydict(
        {"key": pa.array([k for k, _ in events], pa.string()), "value": pa.array([v for _, v in events], pa.float64())}
    )


def moments(values, **parameters):
    out = (
        SecondOrderMoment(**parameters)
        .session()
        .push_batch(pa.RecordBatch.from_pydict({"value": pa.array(values, pa.float64())}))
    )
    return out["value"].to_pylist()


def check(events, cuts, task, count):
    batch = batch_of(events)
    got, errors = run(task, batch, cuts)
    assert not errors
    assert run(task, batch, restart=False)[0] == got
    for key in {k for k, _ in events}:
        assert [r["value"] for r in got if r["key"] == key] == pytest.approx(
            count([v for k, v in events if k == key]), rel=1e-12
        )


def test_example_of_the_benchmark():
    assert moments([1.0, 1.0, 2.0]) == [1.0, 4.0, 5.0]


def test_exact_up_to_the_size_of_the_reservoir():
    """Three ones, 2, 3 and 4: 9 + 1 + 1 + 1; the median of three groups would be 6."""
    assert moments([1.0, 1.0, 1.0, 2.0, 3.0, 4.0], size=6, median_of=3) == [1.0, 4.0, 9.0, 10.0, 11.0, 12.0]


@given(EVENTS, CUTS, st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**63 - 1))
@settings(max_examples=depth(100), deadline=None)
def test_reservoir_agrees_with_the_reference(events, cuts, share, groups, seed):
    size = share * groups
    check(
        events,
        cuts,
        SecondOrderMoment(size=size, median_of=groups, seed=seed, by=("key",)),
        lambda values: reference.reservoir(values, size, groups, seed),
    )


@given(EVENTS, CUTS)
@settings(max_examples=depth(60), deadline=None)
def test_exact_agrees_with_the_reference(events, cuts):
    check(events, cuts, SecondOrderMoment(method="exact", max_distinct=5, by=("key",)), reference.exact)
    check(events, cuts, SecondOrderMoment(size=60, by=("key",)), reference.exact)  # n <= s


@given(EVENTS, CUTS)
@settings(max_examples=depth(30), deadline=None)
def test_sketch_does_not_depend_on_the_split(events, cuts):
    task = SecondOrderMoment(method="tug_of_war", counters=8, by=("key",))
    assert run(task, batch_of(events), cuts) == run(task, batch_of(events), restart=False)


def stream(n=2000):
    return np.random.default_rng(2).zipf(1.5, n).clip(max=50).astype(float)


def test_reservoir_is_unbiased():
    values = stream(500)
    true = reference.exact(values)[-1]
    ends = np.array([moments(values, size=20, seed=s)[-1] for s in range(400)])
    assert abs(ends.mean() - true) < 4 * ends.std() / np.sqrt(ends.size)
    assert 0 < ends.std() / true < 0.3


def test_sketch_keeps_its_bound():
    values = stream()
    true = reference.exact(values)[-1]
    for width in (16, 64, 256):
        errors = np.array(
            [moments(values, method="tug_of_war", depth=1, counters=width, seed=s)[-1] / true - 1 for s in range(150)]
        )
        # sqrt(2 / width); 150 samples give the deviation to 6 %, the mean to 8 % of it
        assert errors.std() < 1.25 * np.sqrt(2 / width)
        assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(150)


def test_sketches_merge():
    task = SecondOrderMoment(method="tug_of_war", counters=32)
    values = stream(300)

    def counters(part):
        state = KeyedState(task)
        state.update(pa.RecordBatch.from_pydict({"value": part}), RejectedRecords("som"))
        return state.arrays["counters"][0]

    np.testing.assert_array_equal(counters(values), counters(values[:100]) + counters(values[100:]))


@given(st.integers(0, 2**61 - 2), st.integers(0, 2**61 - 2))
def test_product_modulo_the_prime(a, b):
    assert int(times_mod(np.uint64(a), np.uint64(b))) == a * b % (2**61 - 1)


def test_readings_are_compared_in_bins():
    assert moments([20.01, 19.98, 21.2], round_to=0.5) == [1.0, 4.0, 5.0]
    assert moments([1e308, -1e308, 1e308], round_to=1e-9) == [1.0, 2.0, 5.0]


@pytest.mark.parametrize("method", ["reservoir", "exact", "tug_of_war"])
def test_missing_readings_carry_the_estimate(method):
    assert moments([None, 1.0, float("nan"), 1.0], method=method) == [0.0, 1.0, 1.0, 4.0]


def test_too_many_values_are_refused():
    session = SecondOrderMoment(method="exact", max_distinct=2).session()
    out = session.push_many({"value": v} for v in (1.0, 2.0, 3.0, 2.0))
    assert [r["value"] for r in out] == [1.0, 2.0, 5.0]
    assert [e["reason"] for e in session.errors] == ["too_many_values"]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"median_of": 3}, "median_of must divide"),
        ({"counters": 100}, "power of two"),
        ({"seed": -1}, "seed"),
        ({"size": 0}, "size"),
        ({"round_to": 0.0}, "round_to"),
    ],
)
def test_wrong_parameters_are_refused(parameters, text):
    with pytest.raises(ConfigError, match=text):
        SecondOrderMoment(**parameters)
