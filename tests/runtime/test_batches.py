"""Merging of batches in order, with fields that have values in only some of them."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.runtime.batches import EVENT_TIME, concatenate, merge_sorted, sort_rows

KINDS = {
    "seq": pa.int64(), "event_time": pa.timestamp("us", "UTC"), "ordinal": pa.int64(), "text": pa.string(),
    "n": pa.int64(), "x": pa.float64(), "flag": pa.bool_(), "small": pa.int16(), "nothing": pa.null(),
}  # fmt: skip
VALUES = {
    "event_time": st.integers(0, 3), "text": st.sampled_from(["", "a", "ü"]), "n": st.integers(-2, 2),
    "x": st.sampled_from([0.5, -1.0]), "flag": st.booleans(), "small": st.integers(0, 3), "nothing": st.none(),
}  # fmt: skip


@st.composite
def batches(draw):
    """Some batches, not all in order, each with some fields of nulls only."""
    made = []
    for _ in range(draw(st.integers(1, 3))):
        n = draw(st.integers(0, 6))
        numbers = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), min_size=n, max_size=n))
        if draw(st.booleans()):
            numbers.sort()
        columns = {"seq": [a for a, _ in numbers], "ordinal": [b for _, b in numbers]}
        for name, values in VALUES.items():
            kept = draw(st.sampled_from([values, st.none(), values | st.none()]))
            columns[name] = draw(st.lists(kept, min_size=n, max_size=n))
        arrays = [pa.array([None] + columns[name], kind).slice(1) for name, kind in KINDS.items()]
        made.append(pa.RecordBatch.from_arrays(arrays, names=list(KINDS)))
    return made


@given(batches())
def test_merge_equals_sorted_concatenation(parts):
    found = merge_sorted(parts)
    found.validate(full=True)
    assert found.to_pylist() == sort_rows(concatenate(parts)).to_pylist()
    assert found.schema == parts[0].schema


def test_event_time_of_another_type_does_not_order():
    for kind in (["b", "a"], [2.5, 1.0]):
        batch = pa.RecordBatch.from_pydict({"seq": [1, 0], "event_time": kind})
        assert sort_rows(batch, EVENT_TIME)["seq"].to_pylist() == [0, 1]
