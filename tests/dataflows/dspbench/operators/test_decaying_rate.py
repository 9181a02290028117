"""Decaying rates, against the sum over all events."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.dataflows.dspbench.operators import DecayingRate

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
US = 1_000_000

gaps = st.sampled_from([0, 1, 500_000, US, 10 * US, 61 * US, 5000 * US, 90_000 * US])
events = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), gaps, st.sampled_from([0.0, 1.0, 2.5, None]), st.booleans()),
    max_size=25,
)


def batch_of(rows):
    times, now = [], 0
    for _, gap, *_ in rows:
        now += gap
        times.append(now)
    return pa.RecordBatch.from_pydict(
        {
            "event_time": pa.array(times, TIMESTAMP),
            "key": pa.array([row[0] for row in rows], pa.string()),
            "amount": pa.array([row[2] for row in rows], pa.float64()),
            "adds": pa.array([row[3] for row in rows], pa.bool_()),
        }
    )


def summed(batch, decay):
    """Compute ``λ Σ amount decay^(t - t_i)`` at each event."""
    rows = batch.to_pylist()
    for i, row in enumerate(rows):
        before = [r for r in rows[: i + 1] if r["key"] == row["key"] and r["adds"] and r["amount"] is not None]
        ages = [(row["event_time"] - r["event_time"]).total_seconds() for r in before]
        yield -math.log(decay) * math.fsum(r["amount"] * decay**age for r, age in zip(before, ages, strict=True))


@given(events, st.sampled_from([0.9672, 0.9917, 0.5, 0.001, 0.999999]), st.integers(1, 9), st.sampled_from([3, 10]))
def test_rates_are_sums_over_all_events(rows, decay, size, per_word):
    batch = batch_of(rows)
    wanted = list(summed(batch, decay))
    common = {"decay": decay, "weight": "amount", "flag": "adds"}
    sketch = DecayingRate(fields=("key",), capacity=500, per_word=per_word, **common)
    for task in (DecayingRate(by="key", **common), sketch):
        session = task.session()
        out = [x for i in range(0, len(rows), size) for x in session.push_batch(batch.slice(i, size)).to_pylist()]
        assert [row["rate"] for row in out] == pytest.approx(wanted, rel=1e-9, abs=1e-100)


def test_example_of_the_specification():
    session = DecayingRate(by="caller", flag="made").session()

    def rate(second, made=True):
        row = {"event_time": NOON + timedelta(seconds=second), "caller": "a", "made": made}
        return session.push(row)[0]["rate"]

    assert [round(rate(s), 7) for s in (0, 10, 10)] == [0.03335, 0.0572423, 0.0905923]
    assert round(rate(40, made=False), 7) == 0.0333104


@pytest.mark.parametrize("sketch", [False, True])
def test_late_records_count_with_their_decayed_share(sketch):
    common = {"decay": 0.5, "flag": "adds"}
    task = DecayingRate(fields=("key",), capacity=100, **common) if sketch else DecayingRate(by="key", **common)
    session = task.session()

    def rate(second, adds=True):
        return session.push({"event_time": NOON + timedelta(seconds=second), "key": "a", "adds": adds})[0]["rate"]

    one = math.log(2)
    assert rate(10) == pytest.approx(one)
    assert rate(8, adds=False) == pytest.approx(one)
    assert rate(8) == pytest.approx(1.25 * one)
    assert rate(10, adds=False) == pytest.approx(1.25 * one)
    assert rate(12, adds=False) == pytest.approx(1.25 / 4 * one)
    assert rate(-500) == pytest.approx(1.25 * one)


def test_sketch_query_of_another_key():
    session = DecayingRate(fields=("callee",), asks=("caller",), capacity=100).session()
    calls = [("a", "b"), ("b", "a"), ("b", "a")]
    rates = [session.push({"event_time": NOON, "caller": a, "callee": b})[0]["rate"] for a, b in calls]
    assert rates == pytest.approx([0.0, -math.log(0.9672), -math.log(0.9672)])


def test_narrow_sketch_never_underestimates():
    names = [f"caller {i % 40}" for i in range(400)]
    times = [NOON + timedelta(seconds=i) for i in range(400)]
    batch = pa.RecordBatch.from_pydict({"event_time": pa.array(times, TIMESTAMP), "caller": names})
    exact = DecayingRate(by="caller").session().push_batch(batch)["rate"].to_pylist()
    narrow = DecayingRate(fields=("caller",), capacity=15, per_word=4).session().push_batch(batch)["rate"].to_pylist()
    wide = DecayingRate(fields=("caller",), capacity=2000).session().push_batch(batch)["rate"].to_pylist()
    assert all(n >= e * (1 - 1e-12) for n, e in zip(narrow, exact, strict=True))
    assert sum(narrow) > 1.01 * sum(exact)
    assert wide == pytest.approx(exact, rel=1e-12)


def test_sizes_of_a_sketch():
    fields = DecayingRate(fields=("x",), capacity=180_000).state_fields()
    assert (fields["times"].shape, fields["buckets"].shape) == (112_501, 1_800_016)
    fields = DecayingRate(fields=("x",), capacity=10, per_element=4, per_word=8).state_fields()
    assert (fields["times"].shape, fields["buckets"].shape) == (7, 56)


def test_rejected_records():
    session = DecayingRate(weight="n", output="n").session()
    good = {"event_time": NOON, "n": 2.0}
    for wrong in ({"event_time": None}, {"n": -1.0}, {"n": float("inf")}):
        session.push({**good, **wrong})
    assert [error["reason"] for error in session.errors] == ["no_event_time", "out_of_range", "not_finite"]
    assert session.push(good)[0]["n"] == pytest.approx(-2 * math.log(0.9672))


def test_misuse_is_refused():
    for wrong, text in (
        ({"fields": ("a",)}, "fields"),
        ({"asks": ("a",)}, "asks"),
        ({"capacity": 5}, "fields"),
        ({"decay": 1.0}, "decay"),
        ({"capacity": 1 << 40, "fields": ("a",)}, "capacity"),
    ):
        with pytest.raises(ConfigError, match=text):
            DecayingRate(**wrong)
    with pytest.raises(ConfigError, match="made"):
        DecayingRate(flag="made").output_schema(pa.schema({"event_time": TIMESTAMP, "made": pa.string()}))
