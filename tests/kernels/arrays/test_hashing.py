"""Hashes of texts, against mmh3."""

from __future__ import annotations

import mmh3
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.hashing import hash_strings


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=20), st.integers(0, 1000))
def test_hashes_are_those_of_mmh3_also_at_the_end_of_the_text(values, seed):
    found = hash_strings(pa.array(values, pa.binary()), seed)
    for value, *pair in zip(values, *(half.tolist() for half in found), strict=True):
        if value is not None:
            assert tuple(pair) == mmh3.hash64(value, seed, signed=False)
