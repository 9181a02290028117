"""Novelty flags, against a set; and filters that swap roles."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

names = st.sampled_from(["a", "b", "ü", "", None])


def batch_of(pairs):
    return pa.RecordBatch.from_pydict(
        {name: pa.array([pair[i] for pair in pairs], pa.string()) for i, name in enumerate(("a", "b"))}
    )


@given(st.lists(st.tuples(names, names), max_size=30), st.integers(1, 9))
def test_flags_equal_a_set(pairs, size):
    wanted = [pair not in pairs[:i] for i, pair in enumerate(pairs)]
    for task in (
        t.NoveltyFlag(by=("a", "b")),
        t.NoveltyFlag(fields=("a", "b"), capacity=1000),
        t.NoveltyFlag(by="a", fields="b", capacity=1000),
    ):
        session = task.session()
        batch = batch_of(pairs)
        parts = [session.push_batch(batch.slice(i, size)) for i in range(0, len(pairs), size)]
        assert [new for part in parts for new in part["new"].to_pylist()] == wanted


def test_full_detector_is_replaced_by_the_learner():
    task = t.NoveltyFlag(fields="n", capacity=1000, output="fresh")
    session = task.session()

    def new(first, last):
        return session.push_batch(pa.table({"n": list(range(first, last))}))["fresh"].to_pylist()

    bits = task.state_fields()["bits"].shape // 2 * 64
    assert abs(bits - 1000 * 7 / math.log(2)) <= 64
    full = round(1000 * 7 / math.log(2) * -math.log(1 - 1 / math.sqrt(2)) / 7)  # values that set 1/√2 of the bits
    assert 1750 < full < 1790
    assert sum(new(0, 1700)) > 1600
    assert not any(new(0, 1700))  # the detector is not yet full
    new(10_000, 10_400)  # now it is full, and so is the learner, which has the same values
    assert sum(new(0, 1000)) > 900


def test_error_rate_of_a_full_filter():
    session = t.NoveltyFlag(fields="n", capacity=2000, error=0.05).session()
    session.push_batch(pa.table({"n": list(range(2000))}))
    known = [not new for new in session.push_batch(pa.table({"n": list(range(5000, 5400))}))["new"].to_pylist()]
    assert 0.015 < sum(known) / 400 < 0.09


def test_sizes_of_the_specification():
    task = t.NoveltyFlag(fields=("a", "b"), capacity=180_000)
    assert task.state_fields()["bits"].shape == 2 * math.ceil(1_817_796 / 64)


def test_misuse_is_refused():
    for wrong, text in (
        ({}, "by"),
        ({"fields": ("a",)}, "capacity"),
        ({"capacity": 3}, "fields"),
        ({"capacity": 3, "fields": ("a", "a")}, "fields"),
        ({"capacity": 1 << 30, "fields": ("a",)}, "capacity"),
    ):
        with pytest.raises(ConfigError, match=text):
            t.NoveltyFlag(**wrong)
