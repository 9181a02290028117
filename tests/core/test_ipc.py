"""Record batches as Arrow IPC bytes, with and without compression."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.ipc import decode, encode

codecs = st.sampled_from([None, "lz4", "zstd"])


@given(st.lists(st.binary(max_size=200), max_size=30), codecs, st.sampled_from([None, 0.05, 0.2, 0.5, 1.0]))
def test_decode_reverses_encode(values, codec, ratio):
    batch = pa.record_batch({"payload": pa.array(values, pa.binary())})
    buffering = ro.Buffering(codec=codec, ratio=None if codec is None else ratio)
    assert decode(encode([batch, batch], buffering)) == [batch, batch]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_batch_above_the_ratio_is_not_compressed(codec):
    rng = np.random.default_rng(3)
    constant = pa.record_batch({"payload": [b"0" * 100] * 200})
    random = pa.record_batch({"payload": [rng.bytes(100) for _ in range(200)]})
    for batch in (constant, random):
        raw = len(encode([batch], ro.Buffering(codec=None)))
        total = len(encode([batch], ro.Buffering(codec=codec)))
        for ratio in (0.01, 0.2, 0.5, 1.0):
            size = len(encode([batch], ro.Buffering(codec=codec, ratio=ratio)))
            assert size == (total if total <= ratio * raw else raw)
    assert total > 0.9 * raw
    assert len(encode([constant], ro.Buffering(codec=codec, ratio=0.2))) < 0.2 * raw
