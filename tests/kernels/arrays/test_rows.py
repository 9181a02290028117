"""Rows of columns and batches, against Python lists and Arrow."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.arrow import boolean_column
from riot_ops.kernels.arrays.rows import filter_rows, repeat, scatter, take, take_or_null
from tests.kernels.arrays.columns import COLUMNS, slices

TEXT = st.none() | st.text(max_size=40) | st.sampled_from(["", "a" * 15, "b" * 16, "c" * 17, "d" * 33])
#: Numbers that become positions in a list of any length above 0.
PLACES = st.lists(st.integers(0, 10**6), max_size=60)


@pytest.mark.long
@given(st.lists(TEXT, min_size=1, max_size=30), st.integers(0, 5), PLACES, st.booleans())
def test_take_of_texts(values, skipped, places, as_bytes):
    """Also of slices, whose texts do not begin where the bytes of the column do."""
    kind = pa.binary() if as_bytes else pa.string()
    column = pa.array(["before"] * skipped + values + ["behind"], pa.string()).cast(kind).slice(skipped, len(values))
    rows = np.array([place % len(values) for place in places], np.int64)
    found = take(column, rows)
    found.validate(full=True)
    assert found.type == kind
    assert found.cast(pa.string()).to_pylist() == [values[row] for row in rows]
    known = rows % 3 != 0
    either = take_or_null(column, np.where(known, rows, -1), known).cast(pa.string()).to_pylist()
    assert either == [values[row] if there else None for row, there in zip(rows, known, strict=True)]


@given(st.lists(st.tuples(TEXT, st.none() | st.integers(-9, 9), st.booleans()), max_size=40), st.sampled_from((1, 9)))
def test_filter_rows_for_any_share_of_rows(records, often):
    texts, numbers, _ = zip(*records, strict=True) if records else ((), (), ())
    batch = pa.RecordBatch.from_pydict(
        {"text": pa.array(texts, pa.string()), "number": pa.array(numbers, pa.int64()), "same": ["x"] * len(records)}
    )
    passes = np.array([flag or (often == 9 and i % 9 != 0) for i, (*_, flag) in enumerate(records)], np.bool_)
    found = filter_rows(batch, passes)
    found.validate(full=True)
    wanted = [row for row, there in zip(batch.to_pylist(), passes, strict=True) if there]
    assert found.to_pylist() == wanted and found.schema == batch.schema


@pytest.mark.parametrize(
    "column", [c for c in COLUMNS if not pa.types.is_run_end_encoded(c.type)], ids=lambda c: str(c.type)
)
def test_filter_rows_equals_arrow(column):
    for part in slices(column):
        batch = pa.record_batch({"n": pa.array(np.arange(len(part))), "c": part})
        for passes in (np.arange(len(part)) % 2 == 0, np.ones(len(part), bool), np.zeros(len(part), bool)):
            out, mask = filter_rows(batch, passes), pa.array(passes, pa.bool_())
            assert repr(out.to_pylist()) == repr(batch.filter(mask).to_pylist())
            assert out.schema == batch.schema
            assert boolean_column(passes).equals(mask)
    assert filter_rows(batch.select([]), passes).num_columns == 0


@pytest.mark.parametrize("dtype", [pa.int64(), pa.timestamp("us", "UTC"), pa.bool_(), pa.string()], ids=str)
@pytest.mark.parametrize("given", [[1, 0, 1], [1, None, 0], [None] * 3, []], ids=str)
def test_repeat_and_scatter(dtype, given):
    column = pa.array(given, pa.int64()).cast(dtype)
    times = np.array([2, 0, 3][: len(given)], np.int64)
    wanted = [v for v, n in zip(column.to_pylist(), times.tolist(), strict=True) for _ in range(n)]
    assert repeat(column, times).to_pylist() == wanted
    assert repeat(column, times).type == dtype
    positions = np.array([1, 2, 4][: len(given)], np.int64)
    scattered = [None] * 5
    for position, value in zip(positions.tolist(), column.to_pylist(), strict=True):
        scattered[position] = value
    assert scatter(column, positions, 5).to_pylist() == scattered
