"""Record batches as Arrow IPC bytes, with and without compression."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.ipc import MAX_SKIPPED, CompressionTrial, decode, encode, encode_with_flag

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


CONSTANT = pa.record_batch({"payload": [b"0" * 100] * 2000})
RANDOM = pa.record_batch({"payload": [np.random.default_rng(i).bytes(100) for i in range(2000)]})


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_incompressible_stream_is_tried_ever_more_rarely(codec):
    buffering, trial = ro.Buffering(codec=codec, ratio=0.5), CompressionTrial()
    tried = []
    for i in range(600):
        before = trial.trials
        payload, compressed = encode_with_flag([RANDOM], buffering, trial)
        assert not compressed and decode(payload) == [RANDOM]
        tried += [i] * (trial.trials - before)
    gaps = np.diff(tried).tolist()
    assert gaps == [2, 3, 5, 9, 17, 33, *[MAX_SKIPPED + 1] * (len(gaps) - 6)]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressible_stream_is_compressed_without_samples(codec, monkeypatch):
    calls, compress = [], pa.compress
    monkeypatch.setattr(pa, "compress", lambda *a, **o: (calls.append(0), compress(*a, **o))[1])
    buffering, trial = ro.Buffering(codec=codec, ratio=0.5), CompressionTrial()
    for _ in range(50):
        assert encode_with_flag([CONSTANT], buffering, trial) == encode_with_flag([CONSTANT], ro.Buffering(codec=codec))
    assert (trial.trials, calls) == (0, [])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_changed_stream_is_compressed_again_after_the_back_off(codec):
    buffering, trial = ro.Buffering(codec=codec, ratio=0.5), CompressionTrial()
    for _ in range(10):  # the last of these back-offs is 4
        encode([RANDOM], buffering, trial)
    flags = [encode_with_flag([CONSTANT], buffering, trial)[1] for _ in range(20)]
    assert flags.index(True) <= 8
    assert all(flags[flags.index(True) :])
    mixed = [encode_with_flag([one], buffering, trial)[1] for one in (CONSTANT, RANDOM, RANDOM, CONSTANT, CONSTANT)]
    assert mixed[:2] == [True, False]


@given(st.lists(st.sampled_from([CONSTANT, RANDOM, CONSTANT.slice(3, 1), RANDOM.slice(0, 0)]), max_size=40))
def test_compressed_batches_keep_the_ratio_in_any_order(batches):
    trial = CompressionTrial()
    for batch in batches:
        payload, compressed = encode_with_flag([batch], ro.Buffering(ratio=0.5), trial)
        raw = encode([batch], ro.Buffering(codec=None))
        assert decode(payload) == [batch]
        assert len(payload) <= 0.5 * len(raw) if compressed else payload == raw
