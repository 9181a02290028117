"""Python values become columns without loss."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from riot_ops.core.python_values import from_values

TIME = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize("neighbour", [None, 3, -1, 2**64])
def test_integers_beyond_int64_are_read_beside_any_value(neighbour):
    large = 2**64 - 1
    for dtype, wanted in ((pa.uint64(), large), (pa.decimal128(38, 0), Decimal(large)), (pa.int64(), None)):
        column, problems = from_values([large, neighbour], dtype)
        assert column.to_pylist()[0] == wanted
        assert (0 in problems) == (wanted is None)
    assert from_values([large, neighbour], pa.float64())[0].to_pylist()[0] is None  # it would be rounded


@pytest.mark.parametrize(("want", "rounded"), [(pa.float32(), np.float32), (pa.float16(), np.float16)])
def test_python_floats_are_rounded_to_narrow_fields(want, rounded):
    values = [0.1, -2.5, 3, None, float("inf"), 1e300, float("nan")]
    column, problems = from_values(values, want)
    expected = [float(rounded(v)) for v in values[:3]]
    assert column.to_pylist()[:6] == [*expected, None, float("inf"), None]
    assert np.isnan(column[6].as_py())
    assert {i: p.reason for i, p in problems.items()} == {5: "out_of_range"}


@pytest.mark.parametrize(
    ("value", "want", "found"),
    [
        (np.datetime64("2024-05-01"), TIME, datetime(2024, 5, 1, tzinfo=UTC)),
        (np.datetime64("2024-05-01"), pa.date32(), date(2024, 5, 1)),
        (np.datetime64("2024-05-01T07", "h"), TIME, datetime(2024, 5, 1, 7, tzinfo=UTC)),
        (np.datetime64("2024-05-01T07:30", "m"), TIME, datetime(2024, 5, 1, 7, 30, tzinfo=UTC)),
        (np.datetime64("2024-05-01T07:30", "ms"), TIME, datetime(2024, 5, 1, 7, 30, tzinfo=UTC)),
        (np.datetime64("NaT"), TIME, None),
        (np.timedelta64(2, "h"), pa.duration("us"), timedelta(hours=2)),
        (np.timedelta64("NaT"), pa.duration("us"), None),
    ],
)
def test_times_of_numpy_are_read_in_any_unit(value, want, found):
    column, problems = from_values([value, None], want)
    assert column.to_pylist() == [found, None] and not problems


def test_month_of_numpy_is_no_time():
    column, problems = from_values([np.datetime64("2024-05", "M")], TIME)
    assert column.to_pylist() == [None] and problems[0].reason == "wrong_type"
