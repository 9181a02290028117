"""Merging of sessions of sketches, by key."""

from datetime import UTC

import numpy as np
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import StateError
from riot_ops.sketches.bloom import BloomFilter
from riot_ops.sketches.hyperloglog import HyperLogLog


def sessions(task, *parts):
    found = []
    for rows in parts:
        found.append(task.session())
        if rows:
            found[-1].push_batch(rows)
    return found


@pytest.mark.parametrize("method", ["hyperloglog", "loglog"])
def test_merged_distinct_counts_by_key(method):
    count = t.DistinctCount(by=("k",), method=method)
    one = [{"k": "a", "value": float(i)} for i in range(500)]
    two = [{"k": k, "value": float(i)} for i in range(300, 900) for k in ("a", "b")]
    here, there, both = sessions(count, one, two, one + two)
    here.merge(there.snapshot())
    for key in ("a", "b", "c"):
        row = {"k": key, "value": None}
        assert here.push(row) == both.push(row)
    assert [r["k"] for r in there.push_many([{"k": "b", "value": 1.0}])] == ["b"]


def test_merged_count_equals_count_of_merged_sketches():
    values = np.random.default_rng(1).random(5_000)
    parts = [[{"value": float(v)} for v in p] for p in (values[:3000], values[2000:])]
    here, there = sessions(t.DistinctCount(precision=12), *parts)
    here.merge(there.snapshot())
    expected = HyperLogLog(12)
    expected.add(values)
    assert here.push({"value": None})[0]["value"] == pytest.approx(expected.estimate(), abs=0.5)


def test_merged_bloom_filter_knows_both_parts():
    train = t.TrainBloomFilter(capacity=100)
    here, there = sessions(train, [{"sensor_id": "a"}, {"sensor_id": "b"}], [{"sensor_id": "c"}])
    here.merge(there.snapshot())
    row = here.flush()[0]
    known = BloomFilter.from_bytes(row["model"])
    assert row["count"] == 3
    assert all(name in known for name in "abc")


def test_merged_moments_add_up():
    moment = t.SecondOrderMoment(method="tug_of_war", depth=3, counters=64)
    here, there, both = sessions(moment, [{"value": 1.0}] * 5, [{"value": 1.0}] * 7, [{"value": 1.0}] * 12)
    here.merge(there.snapshot())
    assert here.snapshot() == both.snapshot()
    assert here.push({"value": None}) == [{"value": 144.0}]


@pytest.mark.parametrize(
    ("task", "other"),
    [
        (t.KalmanFilter(), t.KalmanFilter()),
        (t.SecondOrderMoment(), t.SecondOrderMoment()),
        (t.DistinctCount(), t.DistinctCount(precision=11)),
        (t.DistinctCount(), t.KalmanFilter()),
    ],
)
def test_refused_merge_leaves_state_unchanged(task, other):
    here, there = sessions(task, [{"value": 1.0}], [])[0], sessions(other, [{"value": 2.0}])[0]
    before = here.snapshot()
    with pytest.raises(StateError, match=r"cannot be merged|other parameters|task"):
        here.merge(there.snapshot())
    assert here.snapshot() == before


def test_ttl_prevents_merging():
    from datetime import datetime, timedelta

    count = t.DistinctCount(by=("k",), ttl=timedelta(minutes=1))
    row = {"k": "a", "value": 1.0, "event_time": datetime(2024, 1, 1, tzinfo=UTC)}
    here, there = sessions(count, [row], [row])
    with pytest.raises(StateError, match="distinct_count cannot be merged"):
        here.merge(there.snapshot())
