"""The tools that run a task and compare its output."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from riot_ops.kernels.jit import kernel
from riot_ops.testing import exact, task_run


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (float("nan"), -float("nan"), True),
        (0.0, -0.0, False),
        (1, 1.0, False),
        (True, 1, False),
        (None, "None", False),
        ([1.0, None], [1.0, None], True),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, False),
        (b"x", "x", False),
    ],
)
def test_exact_compares_to_the_last_bit(a, b, equal):
    assert (exact(a) == exact(b)) is equal


def test_row_numbers_count_from_zero():
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b"]})
    assert task_run.with_row_numbers(batch).column("seq").to_pylist() == [0, 1]


def test_difference_is_reported_with_its_row():
    task_run.assert_identical((["1", "2"], [], []), (["1", "2"], [], []), "twice")
    with pytest.raises(AssertionError, match=r"twice: rows\[1\] differ"):
        task_run.assert_identical((["1", "2"], [], []), (["1", "3"], [], []), "twice")
    with pytest.raises(AssertionError, match="twice: 1 rows, expected 2"):
        task_run.assert_identical((["1"], [], []), (["1", "2"], [], []), "twice")


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_kernels_run_as_python_within_the_block():
    step = kernel(lambda number: number + 1)
    largest = 2**63 - 1
    assert step(largest) == -(2**63), "machine code computes modulo 2^64"
    with task_run.uncompiled():
        assert step(largest) == 2**63
    assert step(largest) == -(2**63)
