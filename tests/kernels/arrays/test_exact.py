"""Pairs of float64 hold numbers and times of 64 bits; compared with Python's integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.exact import (
    exact_columns,
    exact_numbers,
    exact_pair,
    exact_result,
    exact_type,
    is_untyped,
    normalized,
    with_type,
)

EDGES = [0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63 - 513, -(2**63), -(2**53) - 1]
UNSIGNED = [0, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64 - 1025]


def back(column, dtype):
    high, rest = exact_numbers(column)
    return exact_result(high, rest if rest.size else np.zeros(len(column)), np.isnan(high), dtype)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([*EDGES, None], pa.int64()),
        pa.array([*UNSIGNED, None], pa.uint64()),
        pa.array([None, 1, 255], pa.uint8()),
        pa.array([True, None, False]),
        pa.array([*EDGES, None], pa.int64()).cast(pa.timestamp("ns", "UTC")),
        pa.array(EDGES, pa.int64()).cast(pa.timestamp("us")),
        pa.array(EDGES, pa.int64()).cast(pa.duration("ns")),
        pa.array([0, -1, None], pa.int32()).cast(pa.date32()),
        pa.array([86_400_000, None], pa.int64()).cast(pa.date64()),
        pa.array([1, None], pa.int32()).cast(pa.time32("s")),
        pa.array([2**40, None], pa.int64()).cast(pa.time64("ns")),
        pa.array([0.1, None, 1e300]),
        pa.array([], pa.int64()),
        pa.array([None, 2**63 - 1, 5], pa.int64())[1:],
    ],
    ids=lambda column: str(column.type),
)
def test_columns_survive_a_roundtrip(column):
    found = back(column, column.type)
    assert found.type == column.type
    assert found.equals(column)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_pair_has_the_value_of_the_integer(numbers):
    high, rest = exact_numbers(pa.array(numbers, pa.int64()))
    rest = rest if rest.size else np.zeros(len(numbers))
    assert [int(Fraction(h) + Fraction(r)) for h, r in zip(high.tolist(), rest.tolist(), strict=True)] == numbers
    order = np.lexsort((rest, high)).tolist()
    assert [numbers[i] for i in order] == sorted(numbers)  # pairs compare like the numbers
    assert all(exact_pair(n) == (h, r) for n, h, r in zip(numbers, high.tolist(), rest.tolist(), strict=True))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_sum_of_two_parts_is_exact(numbers):
    total = sum(numbers)
    rest = total - int(float(total))
    high, low = normalized(np.array([float(total)]), np.array([float(rest)]))
    missing = np.zeros(1, bool)
    wanted = total if -(2**63) <= total < 2**63 else None
    assert exact_result(high, low, missing, pa.int64()).to_pylist() == [wanted]


def test_rests_are_left_out_where_float64_is_exact():
    assert exact_numbers(pa.array([1, 2**53]))[1].size == 0
    assert exact_numbers(pa.array([1, 2**53 + 1]))[1].tolist() == [0.0, 1.0]
    high, rest = exact_columns([pa.array([1.5]), pa.array([2])])
    assert (high.tolist(), rest.shape) == ([[1.5], [2.0]], (2, 0))
    high, rest = exact_columns([pa.array([1.5]), pa.array([2**53 + 1])])
    assert rest.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("number", [2**53 + 1, 2**64 - 1, -(2**63)])
def test_result_without_a_type_gets_it_later(number):
    missing = np.array([False, True])
    high, rest = (np.array([part, 0.0]) for part in exact_pair(number))
    untyped = exact_result(high, rest, missing, None)
    kind = pa.uint64() if number > 2**63 else pa.int64()
    assert with_type(untyped, kind).equals(pa.array([number, None], kind))
    assert with_type(untyped, pa.float64()).to_pylist() == [float(number), None]
    if rest.any():
        assert is_untyped(untyped.type)
        assert with_type(untyped, None).to_pylist() == [number, None]


def test_result_that_never_gets_a_type_keeps_its_fraction():
    column = exact_result(
        np.array([1e16, 1.5, np.nan]), np.array([0.5, 0.0, 0.0]), np.array([False, False, True]), None
    )
    assert with_type(column, None).to_pylist() == [1e16, 1.5, None]


def test_result_of_float64_becomes_each_type():
    found = exact_result(np.array([1.0, 0.0]), np.zeros(2), np.array([False, True]), None)
    assert found.type == pa.float64()
    for dtype in (pa.int8(), pa.date32(), pa.timestamp("ns"), pa.bool_(), pa.float64()):
        typed = with_type(found, dtype)
        assert typed.type == dtype
        assert [str(v) for v in typed.cast(pa.int32() if dtype == pa.date32() else dtype).to_pylist()][1] == "None"
    assert with_type(pa.array(["x"]), None).to_pylist() == ["x"]


def test_unrepresentable_result_is_null():
    missing = np.zeros(3, bool)
    found = exact_result(np.array([2.0**63, 2.0**63, -(2.0**64)]), np.array([-1.0, 0.0, 0.0]), missing, pa.int64())
    assert found.to_pylist() == [2**63 - 1, None, None]
    found = exact_result(np.array([-1.0, 2.0**64, 2.0**64]), np.array([0.0, 0.0, -1.0]), missing, pa.uint64())
    assert found.to_pylist() == [None, None, 2**64 - 1]


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        (None, pa.float64()),
        (pa.null(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.int16(), pa.int16()),
        (pa.bool_(), pa.bool_()),
        (pa.timestamp("ns"), pa.timestamp("ns")),
    ],
)
def test_value_has_the_type_of_its_field(dtype, wanted):
    assert exact_type(dtype) == wanted
