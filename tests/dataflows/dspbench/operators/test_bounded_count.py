"""Bounded counts, against an ordered dict."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import BoundedCount


def counted(pairs, capacity):
    """Count the latest values of each key by hand."""
    held = defaultdict(dict)
    for key, value in pairs:
        mine = held[key]
        if value not in mine and len(mine) == capacity:
            del mine[next(iter(mine))]
        mine[value] = mine.get(value, 0) + 1
        yield mine[value]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 11) | st.none()), max_size=60),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_counts_equal_an_ordered_dict(pairs, capacity, batch_size):
    flow = ro.Dataflow("volume")
    source = flow.source("in", schema={"key": "string", "value": "int64"})
    flow.sink("out", source.to(BoundedCount(by="key", capacity=capacity, output="times"), id="n"))
    table = flow.run([{"key": k, "value": v} for k, v in pairs], batch_size=batch_size)["n"]
    assert table["times"].to_pylist() == list(counted(pairs, capacity))


def test_many_values_added_and_removed():
    values = [i * i % 1009 for i in range(20_000)]
    batch = pa.RecordBatch.from_pydict({"value": values})
    out = BoundedCount(capacity=100).session().push_batch(batch)
    assert out["count"].to_pylist() == list(counted([(0, v) for v in values], 100))


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4)), max_size=9), max_size=4))
def test_updates_are_the_last_of_each_value_in_a_batch(batches):
    each, update = (BoundedCount(by="key", capacity=3, emit=emit).session() for emit in ("each", "update"))
    for pairs in batches:
        batch = pa.RecordBatch.from_pylist(
            [{"key": k, "value": v} for k, v in pairs], pa.schema([("key", pa.string()), ("value", pa.int64())])
        )
        every = each.push_batch(batch).to_pylist()
        last = [row for i, row in enumerate(every) if pairs[i] not in pairs[i + 1 :]]
        assert update.push_batch(batch).to_pylist() == last


def test_misuse_is_refused():
    for capacity in (0, (1 << 24) + 1):
        with pytest.raises(ConfigError, match="capacity"):
            BoundedCount(capacity=capacity)
    with pytest.raises(ConfigError, match="emit"):
        BoundedCount(emit="last")
    with pytest.raises(ConfigError, match="value"):
        BoundedCount().session().push({"minute": 1})
