"""Batches that are made many at once, beside each made by itself."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.selection import PAGE, Draft, Selection, drafted, finish, names_of, whole


def batch_of(n):
    return pa.RecordBatch.from_pydict(
        {"key": [None if i % 5 == 0 else f"s{i % 7}" for i in range(n)], "value": np.arange(n) / 2, "n": np.arange(n)}
    )


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 39)), st.booleans()), max_size=12))
def test_batches_made_together_are_those_made_alone(wanted):
    batches = Selection(batch_of(40)), Selection(batch_of(60))
    drafts, alone = [], []
    for place, (which, rows, whole_numbers) in enumerate(wanted):
        values = np.arange(len(rows)) + place if whole_numbers else np.arange(len(rows)) / 4
        fields = {"value": values, "count": np.full(len(rows), place)}
        drafts.append(Draft(batches[which], np.array(rows, np.int64), fields))
        kind = pa.int64() if whole_numbers else pa.float64()
        keys = batches[which].column("key").to_pylist()
        columns = {
            "key": pa.array([keys[row] for row in rows], pa.string()),
            "value": pa.array(values, kind),
            "n": pa.array(rows, pa.int64()),
            "count": pa.array([place] * len(rows), pa.int64()),
        }
        alone.append(pa.RecordBatch.from_pydict(columns))
    finish(drafts)
    for draft, expected in zip(drafts, alone, strict=True):
        assert names_of(draft) == expected.schema.names
        assert whole(draft).equals(expected)
        assert whole(draft) is whole(draft)


def test_what_is_kept_keeps_no_more_than_a_page():
    batch = Selection(batch_of(10))
    drafts = [Draft(batch, np.arange(10), {"value": np.zeros(10)}) for _ in range(1000)]
    finish(drafts)
    held = {draft.whole().column("n").buffers()[1].size for draft in drafts}
    assert max(held) <= 8 * (PAGE + 10)


@pytest.mark.parametrize("rows", [[0, 2], [0, 1, 2], []])
def test_a_draft_of_picked_rows_is_what_a_batch_of_them_gives(rows):
    batch = batch_of(6)
    some = Selection(batch, np.array([1, 3, 4]))
    fields = {"n": np.array([7.5, 8.5, 9.5])[rows]}
    got, alone = drafted(some, np.array(rows, np.int64), fields), drafted(whole(some), np.array(rows, np.int64), fields)
    assert isinstance(got, Draft)
    assert got.num_rows == len(rows)
    assert whole(got).equals(alone)
    assert alone.column("n").to_pylist() == fields["n"].tolist()
    assert alone.column("value").to_pylist() == [[0.5, 1.5, 2.0][row] for row in rows]
