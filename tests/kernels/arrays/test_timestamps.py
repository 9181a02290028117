"""Timestamps of any unit as microseconds."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops.kernels.arrays.timestamps import microseconds


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_rounded_down_to_microseconds(unit):
    numbers = [0, 1, -1, 1_999, -1_001, None]
    per_us = {"s": 1e-6, "ms": 1e-3, "us": 1, "ns": 1_000}[unit]
    times, present = microseconds(pa.array(numbers, pa.int64()).cast(pa.timestamp(unit, "UTC")))
    wanted = [n // 1000 if unit == "ns" else round(n / per_us) for n in numbers[:-1]]
    assert times.tolist()[:-1] == wanted
    assert present.tolist() == [True] * 5 + [False]
