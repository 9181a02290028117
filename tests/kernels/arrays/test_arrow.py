"""Columns as arrays and back, beside what Arrow's own functions give."""

import numpy as np
import pyarrow as pa
import pytest

from riot_ops.kernels.arrays.arrow import float_column, masked, present, truth_column
from riot_ops.kernels.arrays.rows import filtered

COLUMNS = [
    pa.array([1.5, None, float("nan"), None, -0.0] * 5),
    pa.array([None, 2**53 + 1, None, -(2**63)] * 7),
    pa.array([1, None, 3] * 6, pa.uint8()),
    pa.array([True, None, False]),
    pa.array(["a", None, "ü", ""]),
    pa.array(["a", None, "ü"]).dictionary_encode(),
    pa.array([[1], None, []]),
    pa.array([{"a": 1}, None, {"a": None}]),
    pa.array([1, None], pa.timestamp("us", "UTC")),
    pa.nulls(9),
    pa.nulls(9, pa.float64()),
    pa.nulls(9, pa.string()),
    pa.array([1.0, 2.0]),
    pa.array([], pa.float64()),
    pa.array([1, 1, None]).cast(pa.int64()),
    pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([None, 1])),
    pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([None, 1]), pa.nulls(1)]
    ),
]


def pieces(column):
    return [column, column.slice(1), column.slice(min(3, len(column))), column.slice(0, 1), column.slice(2, 3)]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: str(c.type))
def test_what_is_there(column):
    for piece in pieces(column):
        found = present(piece)
        assert found.dtype == np.bool_
        assert found.tolist() == piece.is_valid().to_pylist()


@pytest.mark.parametrize("column", [c for c in COLUMNS if c.type in (pa.float64(), pa.int64(), pa.uint8())], ids=str)
def test_numbers_with_nulls(column):
    for piece in pieces(column):
        values, valid = float_column(piece)
        wanted = [np.nan if v is None else float(v) for v in piece.to_pylist()]
        np.testing.assert_array_equal(values, wanted)
        assert valid.tolist() == (piece.is_valid().to_pylist() if piece.null_count else [])


@pytest.mark.parametrize(
    "column", [c for c in COLUMNS if not pa.types.is_run_end_encoded(c.type)], ids=lambda c: str(c.type)
)
def test_rows_that_pass(column):
    for piece in pieces(column):
        batch = pa.record_batch({"n": pa.array(np.arange(len(piece))), "c": piece})
        for passes in (np.arange(len(piece)) % 2 == 0, np.ones(len(piece), bool), np.zeros(len(piece), bool)):
            out, mask = filtered(batch, passes), pa.array(passes, pa.bool_())
            assert repr(out.to_pylist()) == repr(batch.filter(mask).to_pylist())
            assert out.schema == batch.schema
            assert truth_column(passes).equals(mask)
    assert filtered(batch.select([]), passes).num_columns == 0


@pytest.mark.parametrize("values", [np.arange(20.0), np.arange(20), np.arange(40.0)[::2], np.arange(0.0)], ids=str)
def test_values_with_gaps(values):
    for missing in (np.arange(values.size) % 3 == 1, np.ones(values.size, bool), np.zeros(values.size, bool)):
        made = masked(values, missing)
        made.validate(full=True)
        assert made.equals(pa.array(values, mask=missing))
