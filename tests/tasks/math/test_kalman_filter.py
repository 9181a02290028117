"""The Kalman filter against the specification's figures and a naive reference."""

import math
from datetime import UTC, datetime, timedelta

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


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "process_noise": st.just(0.5),
        "measurement_noise": st.sampled_from([0.0, 2.0]),
        "initial_variance": st.just(1.0),
        "prior": st.sampled_from(["zero", "first"]),
        "on_missing": st.sampled_from(["predict", "skip"]),
    },
)
SHORT = {
    "process_noise": "q",
    "measurement_noise": "r",
    "initial_variance": "p0",
    "prior": "initial",
    "on_missing": "missing",
}


@given(READINGS, st.integers(0, 60), OPTIONS)
def test_equals_the_reference_for_any_split_and_interleaving(readings, cut, options):
    task = KalmanFilter(by=("key",), **options)
    schema = pa.schema([("key", pa.string()), ("value", pa.float64())])
    session, got = task.session(), []
    for part in (readings[:cut], readings[cut:]):
        batch = pa.RecordBatch.from_pylist([{"key": k, "value": v} for k, v in part], schema=schema)
        got += session.push_batch(batch).column("value").to_pylist()
        again = task.session()
        again.restore(session.snapshot())
        session = again
    reference = Kalman(**{SHORT.get(name, name): value for name, value in options.items()})
    expected = [reference.push(k, v)[0] for k, v in readings]
    assert got == [None if x is None else pytest.approx(x, rel=1e-12) for x in expected]


@given(READINGS, st.integers(0, 60), OPTIONS, st.lists(st.integers(-3, 90), min_size=60, max_size=60))
def test_noise_by_elapsed_time_equals_the_reference(readings, cut, options, steps):
    task = KalmanFilter(by=("key",), noise_per="10s", **options)
    schema = pa.schema([("event_time", pa.timestamp("us", "UTC")), ("key", pa.string()), ("value", pa.float64())])
    times = [1_700_000_000 + sum(steps[: i + 1]) for i in range(len(readings))]
    rows = [{"event_time": s * 1_000_000, "key": k, "value": v} for s, (k, v) in zip(times, readings, strict=True)]
    session, got = task.session(), []
    for part in (rows[:cut], rows[cut:]):
        got += session.push_batch(pa.RecordBatch.from_pylist(part, schema=schema)).column("value").to_pylist()
        data, session = session.snapshot(), task.session()
        session.restore(data)
    reference = Kalman(noise_per=10, **{SHORT.get(name, name): value for name, value in options.items()})
    expected = [reference.push(k, v, s)[0] for s, (k, v) in zip(times, readings, strict=True)]
    assert got == [None if x is None else pytest.approx(x, rel=1e-9) for x in expected]


def test_noise_grows_with_the_time_between_readings():
    """By hand: P1 = 30 * 0.32 / 30.32; after 16 s at 0.125 per 2 s it has grown by 1."""
    session = KalmanFilter(prior="first", noise_per="2s").session()
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert session.push({"event_time": noon, "value": 0.0})[0]["value"] == 0.0
    variance = 30 * 0.32 / 30.32 + 1
    found = session.push({"event_time": noon + timedelta(seconds=16), "value": 1.0})[0]["value"]
    assert found == pytest.approx(variance / (variance + 0.32), rel=1e-12)
    assert session.push({"event_time": None, "value": 1.0}) == []
    assert [e["reason"] for e in session.errors] == ["no_event_time"]
    with pytest.raises(ConfigError, match="noise_per must be longer than 0"):
        KalmanFilter(noise_per="0s")
    with pytest.raises(ConfigError, match="event_time"):
        KalmanFilter(noise_per="1s").output_schema(pa.schema([("value", pa.float64())]))


def test_first_reading_as_prior_is_corrected_too():
    """P1 = (30 + 0.125) 0.32 / 30.445; K2 = (P1 + 0.125) / (P1 + 0.445); and so on by hand."""
    session = KalmanFilter(prior="first").session()
    assert [session.push({"value": v})[0]["value"] for v in (10.0, 12.0, 11.0)] == [
        10.0,
        pytest.approx(11.159704, abs=5e-7),
        pytest.approx(11.081048, abs=5e-7),
    ]
    # the second estimate gives the gain, and the gain the previous variance
    session = KalmanFilter(prior="first").session()
    gain = [session.push({"value": v})[0]["value"] for v in (0.0, 1.0)][1]
    assert 0.32 * gain / (1 - gain) - 0.125 == pytest.approx(9.64 / 30.445, rel=1e-12)  # 30.125 * 0.32 = 9.64


def estimates(readings, **options):
    session = KalmanFilter(**options).session()
    return [session.push({"value": v})[0]["value"] for v in readings]


def test_no_estimate_before_the_first_reading():
    skip = estimates((None, 10.0, None, 12.0), on_missing="skip")
    assert skip == [None, pytest.approx(9.894892, abs=5e-7), None, pytest.approx(11.115543, abs=5e-7)]
    assert estimates((None, 7.5, None), prior="first") == [None, 7.5, 7.5]
    assert estimates((None, 7.5), prior="first", on_missing="skip") == [None, 7.5]
    # the prior 0 has a variance that grows while readings are missing: 30 + 2 * 0.125, K = 30.25 / 30.57
    got = estimates((math.nan, 10.0, None))
    assert got == [None, *[pytest.approx(10 * 30.25 / 30.57, rel=1e-12)] * 2]
    # with the first reading as prior it does not
    assert estimates((None, None, 10.0, 12.0), prior="first")[2:] == estimates((10.0, 12.0), prior="first")


@pytest.mark.parametrize("wrong", [{"process_noise": 0}, {"measurement_noise": -1}, {"prior": "mean"}])
def test_wrong_parameters_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        KalmanFilter(**wrong)
