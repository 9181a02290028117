"""The Kalman filter against the specification's figures and a naive reference."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import ConfigError
from riot_ops.tasks import KalmanFilter
from tests.reference.kalman_filter import Kalman

READINGS = st.lists(
    st.tuples(st.sampled_from("abü"), st.one_of(st.none(), st.just(math.nan), st.floats(-1e6, 1e6))), max_size=60
)


def test_hand_computed_values():
    session = KalmanFilter().session()
    got = [session.push({"value": v})[0]["value"] for v in (10.0, 12.0, 11.0, 10.0, 9.0)]
    assert got == pytest.approx([9.894892, 11.115543, 11.058637, 10.562168, 9.840058], abs=5e-7)


def test_gain_reaches_its_limit():
    reference = Kalman()
    for _ in range(100):
        gain = reference.push("a", 1.0)[2]
    assert gain == pytest.approx(0.459494, abs=5e-7)


@given(READINGS, st.integers(0, 60))
def test_equals_the_reference_for_any_split_and_interleaving(readings, cut):
    task = KalmanFilter(by=("key",))
    schema = pa.schema([("key", pa.string()), ("value", pa.float64())])
    session, got = task.session(), []
    for part in (readings[:cut], readings[cut:]):
        batch = pa.RecordBatch.from_pylist([{"key": k, "value": v} for k, v in part], schema=schema)
        got += session.push_batch(batch).column("value").to_pylist()
        again = task.session()
        again.restore(session.snapshot())
        session = again
    reference = Kalman()
    assert got == pytest.approx([reference.push(k, v)[0] for k, v in readings], rel=1e-12)


def test_missing_readings():
    skip = KalmanFilter(missing="skip").session()
    assert [skip.push({"value": v})[0]["value"] for v in (None, 10.0)] == [None, pytest.approx(9.894892, abs=5e-7)]
    first = KalmanFilter(initial="first").session()
    assert [first.push({"value": v})[0]["value"] for v in (None, 7.5)] == [None, 7.5]


@pytest.mark.parametrize("wrong", [{"process_noise": 0}, {"measurement_noise": -1}, {"initial": "mean"}])
def test_wrong_parameters_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        KalmanFilter(**wrong)
