"""Python values become columns without loss."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from riot_ops.core.casting import from_values


@pytest.mark.parametrize("neighbour", [None, 3, -1, 2**64])
def test_integers_beyond_int64_are_read_whatever_stands_beside_them(neighbour):
    large = 2**64 - 1
    for dtype, wanted in ((pa.uint64(), large), (pa.decimal128(38, 0), Decimal(large)), (pa.int64(), None)):
        column, problems = from_values([large, neighbour], dtype)
        assert column.to_pylist()[0] == wanted
        assert (0 in problems) == (wanted is None)
    assert from_values([large, neighbour], pa.float64())[0].to_pylist()[0] is None  # it would be rounded
