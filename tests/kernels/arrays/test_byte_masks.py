"""Kernels over 64 bytes, compiled and as plain Python, against simple loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.byte_masks import (
    WIDTH,
    below64,
    copy64,
    equal64,
    low_bits,
    match64,
    outside_or_equal64,
    popcount,
)
from riot_ops.kernels.jit import kernel


@kernel
def _all_masks(data: Any, at: Any, value: Any, out: Any) -> None:
    """Call all of them from a kernel."""
    out[0] = equal64(data, at, value)
    out[1] = below64(data, at, value)
    out[2] = popcount(out[0])
    out[3] = low_bits(value)
    out[4] = outside_or_equal64(data, at, 32, value)
    out[5] = match64(data, at, data, 0)


@pytest.mark.parametrize("compiled", [True, False])
@given(st.binary(min_size=WIDTH, max_size=WIDTH + 40), st.integers(0, 255))
def test_masks_equal_loops_over_bytes(compiled: bool, text: bytes, value: int) -> None:
    data = readonly(np.frombuffer(text, np.uint8))
    at = len(text) - WIDTH
    out = np.zeros(6, np.uint64)
    (_all_masks if compiled else _all_masks.python)(data, at, value, out)
    same = sum(1 << i for i in range(WIDTH) if text[at + i] == value)
    below = sum(1 << i for i in range(WIDTH) if text[at + i] < value)
    strange = sum(1 << i for i in range(WIDTH) if not 32 <= text[at + i] < 128)
    again = sum(1 << i for i in range(WIDTH) if text[at + i] == text[i])
    assert out.tolist() == [same, below, same.bit_count(), (1 << min(value, 64)) - 1, same | strange, again]


@kernel
def _copy(data: Any, at: Any, out: Any, to: Any) -> None:
    copy64(data, at, out, to)


@pytest.mark.parametrize("compiled", [True, False])
@given(st.binary(min_size=WIDTH + 9, max_size=WIDTH + 9), st.integers(0, 9), st.integers(0, 5))
def test_copy64_copies_exactly_64_bytes(compiled: bool, text: bytes, at: int, to: int) -> None:
    out = np.full(WIDTH + 5, 7, np.uint8)
    (_copy if compiled else _copy.python)(readonly(np.frombuffer(text, np.uint8)), at, out, to)
    assert out.tobytes() == bytes([7] * to) + text[at : at + WIDTH] + bytes([7] * (5 - to))
