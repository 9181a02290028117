"""Rows of columns and batches, beside what Python's lists give."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.rows import filtered, taken, taken_or_null

TEXT = st.none() | st.text(max_size=40) | st.sampled_from(["", "a" * 15, "b" * 16, "c" * 17, "d" * 33])
#: Numbers that are places in a list of any length but none.
PLACES = st.lists(st.integers(0, 10**6), max_size=60)


@given(st.lists(TEXT, min_size=1, max_size=30), st.integers(0, 5), PLACES, st.booleans())
def test_texts_at_some_rows(values, skipped, places, as_bytes):
    """Also of a part of a column, whose texts do not begin where its bytes do."""
    kind = pa.binary() if as_bytes else pa.string()
    column = pa.array(["before"] * skipped + values + ["behind"], pa.string()).cast(kind).slice(skipped, len(values))
    rows = np.array([place % len(values) for place in places], np.int64)
    found = taken(column, rows)
    found.validate(full=True)
    assert found.type == kind
    assert found.cast(pa.string()).to_pylist() == [values[row] for row in rows]
    known = rows % 3 != 0
    either = taken_or_null(column, np.where(known, rows, -1), known).cast(pa.string()).to_pylist()
    assert either == [values[row] if there else None for row, there in zip(rows, known, strict=True)]


@given(st.lists(st.tuples(TEXT, st.none() | st.integers(-9, 9), st.booleans()), max_size=40), st.sampled_from((1, 9)))
def test_few_rows_pass_as_many_do(records, often):
    texts, numbers, _ = zip(*records, strict=True) if records else ((), (), ())
    batch = pa.RecordBatch.from_pydict(
        {"text": pa.array(texts, pa.string()), "number": pa.array(numbers, pa.int64()), "same": ["x"] * len(records)}
    )
    passes = np.array([flag or (often == 9 and i % 9 != 0) for i, (*_, flag) in enumerate(records)], np.bool_)
    found = filtered(batch, passes)
    found.validate(full=True)
    wanted = [row for row, there in zip(batch.to_pylist(), passes, strict=True) if there]
    assert found.to_pylist() == wanted and found.schema == batch.schema
