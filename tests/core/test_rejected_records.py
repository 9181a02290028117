"""Rejected records as JSON text."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.rejected_records import MAX_ROWWISE, json_text, records_as_json

HARD = st.sampled_from(["", "a,b", 'say "no"', "back\\slash", "line\nbreak", "\x00", "\x1f", "\x7f", "ü € 😀", None])


@pytest.mark.long
@given(
    st.lists(st.tuples(HARD, HARD, st.integers(-5, 5) | st.none(), st.booleans()), min_size=16, max_size=40),
    st.sampled_from((1, 1 + MAX_ROWWISE // 16)),
)
def test_json_of_a_batch_equals_the_json_of_each_record(rows, often):
    text, payload, number, flag = (list(column) for column in zip(*rows, strict=True))
    times = [None if n is None else 1_700_000_000_000_000 + n * 250_000 for n in number]
    batch = pa.RecordBatch.from_pydict(
        {
            'a "name"': text,
            "payload": pa.array([None if p is None else p.encode() for p in payload], pa.binary()),
            "number": pa.array(number, pa.int64()),
            "flag": flag,
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "none": pa.nulls(len(rows)),
        }
    )
    batch = pa.concat_batches([batch] * often)
    assert records_as_json(batch).to_pylist() == [json_text(row) for row in batch.to_pylist()]


@pytest.mark.parametrize("size", [20, 20 * (1 + MAX_ROWWISE // 20)])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"\xff"] * 20),
        pa.array([2.5, float("nan"), 1e16, -0.0, None, -math.inf, 1e-7, 3.0, 0.1, 5e-324] * 2),
        pa.array([[1]] * 20),
        pa.array([2**62] * 20, pa.timestamp("us", "UTC")),
        pa.array([5] * 20, pa.timestamp("s")),
        pa.array(["x"] * 20).dictionary_encode(),
    ],
)
def test_json_of_other_types_does_not_depend_on_the_batch(column, size):
    column = pa.concat_arrays([column] * (size // 20))
    batch = pa.RecordBatch.from_arrays([column, pa.array(range(size))], names=["x", "y"])
    found = records_as_json(batch).to_pylist()
    assert found == [records_as_json(batch.slice(i, 1))[0].as_py() for i in range(size)]
    twice = pa.RecordBatch.from_arrays([column, column], names=["x", "x"])
    assert records_as_json(twice).to_pylist() == [records_as_json(twice.slice(i, 1))[0].as_py() for i in range(size)]
