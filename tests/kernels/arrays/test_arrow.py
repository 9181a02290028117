"""Columns as arrays and back, against Arrow's own functions."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.arrow import (
    count_column,
    float_column,
    nullable_column,
    numpy_values,
    truth_codes,
    valid_mask,
)
from tests.kernels.arrays.columns import COLUMNS, slices


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: str(c.type))
def test_valid_mask_equals_is_valid(column):
    for part in slices(column):
        found = valid_mask(part)
        assert found.dtype == np.bool_
        assert found.tolist() == part.is_valid().to_pylist()


NUMBERS = [
    pa.array([1, 0, 3, 4, 5]).cast(dtype)
    for dtype in (*(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
                  *(pa.float32(), pa.float64(), pa.bool_()))
]  # fmt: skip


@pytest.mark.parametrize("column", [*NUMBERS, pa.array([1, None, 3]), pa.array([None, 2.5])], ids=lambda c: str(c.type))
def test_numpy_values_equal_those_of_arrow(column):
    for part in (*slices(column), pa.chunked_array([column, column])):
        found, wanted = numpy_values(part), part.to_numpy(zero_copy_only=False)
        assert found.dtype == wanted.dtype and not found.flags.writeable and found.flags.c_contiguous
        np.testing.assert_array_equal(found, wanted)


def test_numpy_values_share_memory():
    column = pa.array(np.arange(100.0))
    assert numpy_values(column[3:]).ctypes.data == column.buffers()[1].address + 24
    values = numpy_values(pa.array(np.arange(100.0)))  # the column is gone
    assert values.tolist() == list(range(100))


@pytest.mark.parametrize("column", [c for c in COLUMNS if c.type in (pa.float64(), pa.int64(), pa.uint8())], ids=str)
def test_float_column_has_nan_for_nulls(column):
    for part in slices(column):
        values, valid = float_column(part)
        wanted = [np.nan if v is None else float(v) for v in part.to_pylist()]
        np.testing.assert_array_equal(values, wanted)
        assert valid.tolist() == (part.is_valid().to_pylist() if part.null_count else [])


@pytest.mark.parametrize("values", [np.arange(20.0), np.arange(20), np.arange(40.0)[::2], np.arange(0.0)], ids=str)
def test_nullable_column_equals_arrow_with_a_mask(values):
    for missing in (np.arange(values.size) % 3 == 1, np.ones(values.size, bool), np.zeros(values.size, bool)):
        column = nullable_column(values, missing)
        column.validate(full=True)
        assert column.equals(pa.array(values, mask=missing))


@given(st.lists(st.one_of(st.none(), st.booleans()), max_size=20), st.integers(0, 9))
def test_truth_codes_of_booleans_and_nulls(values, at):
    wanted = [-1 if v is None else int(v) for v in values[at:]]
    assert truth_codes(pa.array(values, pa.bool_()).slice(at)).tolist() == wanted
    assert truth_codes(pa.nulls(3)).tolist() == [-1, -1, -1]


def test_counts_beyond_int64_are_clipped():
    assert count_column(pa.array([2**64 - 1, 3, None], pa.uint64())).tolist()[1:] == [3, 0]
    assert count_column(pa.array([2**64 - 1], pa.uint64()))[0] > 2**62
    assert count_column(pa.array([1e300, -1e300, 2.5])).tolist() == [2**63 - 1024, -(2**63) + 1024, 2]
