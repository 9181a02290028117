"""Hashes of texts, against mmh3; and the memo of hashes."""

from __future__ import annotations

import mmh3
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.hashing import HashMemo, hash_strings


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=20), st.integers(0, 1000))
def test_hash_strings_equals_mmh3(values, seed):
    found = hash_strings(pa.array(values, pa.binary()), seed)
    for value, *pair in zip(values, *(half.tolist() for half in found), strict=True):
        if value is not None:
            assert tuple(pair) == mmh3.hash64(value, seed, signed=False)


def test_memo_hashes_a_batch_once():
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b"]})
    memo, other = HashMemo(), HashMemo()
    assert memo.hash_rows(batch, ("key",))[0] is memo.hash_rows(batch, ("key",))[0]
    assert memo.hash_rows(batch, ("key",))[0] is not other.hash_rows(batch, ("key",))[0]
