"""Bloom filter: bits by mmh3, the published false positive rate, a format that detects damage."""

from __future__ import annotations

import pickle
import struct
import zlib

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops import Secret
from riot_ops.core.errors import ConfigError
from riot_ops.sketches.bloom import BloomFilter, bloom_size
from tests.reference.check_bloom_filter import Bloom
from tests.reference.murmur3_collision import colliding_values
from tests.search import depth

VALUES = st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=30)


@pytest.mark.long
@settings(deadline=None, max_examples=depth(60))
@given(VALUES, VALUES, st.integers(1, 50), st.sampled_from([0.3, 0.01, 1e-6]))
def test_bits_equal_those_by_mmh3(inserted, asked, n, p):
    ours, naive = BloomFilter(n, p), Bloom(n, p)
    ours.add(pa.array(inserted, pa.string()))
    for value in inserted:
        naive.add(value)
    assert (ours.m, ours.k, ours.count) == (naive.m, naive.k, naive.count)
    assert ours.words.tolist() == naive.words()
    values = inserted + asked
    assert ours.contains(pa.array(values, pa.string())).tolist() == [naive.contains(v) for v in values]


def test_bloom_size_equals_the_specification():
    assert bloom_size(20_000_000, 0.01) == (191_701_168, 7)
    assert bloom_size(1, 0.9)[1] == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "p", "filters"),
    [
        (100, 0.01, 200),
        (1_000, 0.01, 50),
        (10_000, 0.01, 10),
        (100_000, 0.01, 3),
        (100_000, 0.1, 2),
        (300_000, 0.001, 2),
    ],
)
def test_false_positive_rate_at_design_load(n, p, filters):
    asked = 40_000
    strangers = pa.array(range(10**9, 10**9 + asked), pa.int64()).cast(pa.string())
    hits = 0
    for f in range(filters):
        made = BloomFilter(n, p)
        members = pa.array(range(f * n, (f + 1) * n), pa.int64()).cast(pa.string())
        made.add(members)
        assert made.contains(members).all()
        hits += int(np.count_nonzero(made.contains(strangers)))
    rate = hits / (filters * asked)
    assert rate <= 1.2 * p
    assert rate >= 0.7 * p  # and no bits are wasted


def test_merge_is_the_union():
    left, right, both = BloomFilter(100), BloomFilter(100), BloomFilter(100)
    left.add(pa.array(["a", "b"]))
    right.add(pa.array(["b", "ü"]))
    both.add(pa.array(["a", "b", "b", "ü"]))
    assert left.merge(right) == right.merge(left) == both
    assert left.count == 2
    with pytest.raises(ConfigError, match="capacity=99"):
        left.merge(BloomFilter(99))


def test_format_is_documented_and_portable(tmp_path):
    made = BloomFilter(10, 0.01)
    made.add(pa.array(["riot"]))
    naive = Bloom(10, 0.01)
    naive.add("riot")
    body = struct.pack("<4sHHQdQQ", b"RBLM", 1, 7, 10, 0.01, 96, 1) + struct.pack("<2Q", *naive.words())
    assert made.to_bytes() == body + struct.pack("<I", zlib.crc32(body))
    made.save(tmp_path / "f.bloom")
    assert BloomFilter.load(tmp_path / "f.bloom") == made
    assert [p.name for p in tmp_path.iterdir()] == ["f.bloom"]


@settings(deadline=None, max_examples=depth(100))
@given(st.data())
def test_damage_is_detected(data):
    good = BloomFilter.of(["a", "b"]).to_bytes()
    how = data.draw(st.sampled_from(["flip", "cut", "longer"]))
    if how == "flip":
        place, bit = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(0, 7))
        bad = bytearray(good)
        bad[place] ^= 1 << bit
    else:
        bad = good[: data.draw(st.integers(0, len(good) - 1))] if how == "cut" else good + b"\0"
    with pytest.raises(ConfigError, match="Bloom"):
        BloomFilter.from_bytes(bytes(bad))


@pytest.mark.parametrize(
    "header",
    [
        (2, 7, 10, 0.01, 96),
        (1, 6, 10, 0.01, 96),
        (1, 7, 10, 2.0, 96),
        (1, 7, 0, 0.01, 96),
        (1, 7, 10, float("nan"), 96),
        (1, 7, 11, 0.01, 96),
    ],
)
def test_inconsistent_headers_are_refused(header):
    body = struct.pack("<4sHHQdQQ", b"RBLM", *header, 0) + bytes(16)
    with pytest.raises(ConfigError):
        BloomFilter.from_bytes(body + struct.pack("<I", zlib.crc32(body)))


def test_invalid_parameters_and_files_are_refused(tmp_path):
    for n, p in ((0, 0.1), (1.5, 0.1), (True, 0.1), (5, 0.0), (5, 1.0), (5, float("nan"))):
        with pytest.raises(ConfigError):
            BloomFilter(n, p)
    with pytest.raises(ConfigError, match=r"nothing\.bloom"):
        BloomFilter.load(tmp_path / "nothing.bloom")


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.int32(), pa.dictionary(pa.int32(), pa.string())]
)
def test_values_of_other_types_are_hashed_as_text(kind):
    made = BloomFilter.of(["12", "-3"])
    text = pa.array(["12", "-3", "4", None])
    column = text.dictionary_encode() if pa.types.is_dictionary(kind) else text.cast(kind)
    assert made.contains(column).tolist() == [True, True, False, False]
    assert made.contains(column.slice(1)).tolist() == [True, False, False]
    assert made.contains(pa.nulls(2)).tolist() == [False, False]


SECRET, OTHER = Secret("s3cr3t"), Secret("another")


def test_forged_collision_is_no_member_under_a_secret():
    member, *forged = colliding_values(5)
    fixed, keyed = BloomFilter(100), BloomFilter(100, secret=SECRET)
    fixed.add([member])
    keyed.add([member])
    assert fixed.contains(forged).all()
    assert member in keyed and not keyed.contains(forged).any()


def test_secret_changes_the_bits_and_none_does_not():
    fixed, keyed, other = (BloomFilter.of(["a", "b"], secret=secret) for secret in (None, SECRET, OTHER))
    assert fixed == BloomFilter.of(["a", "b"])
    assert fixed.words.tolist() != keyed.words.tolist() != other.words.tolist() != fixed.words.tolist()
    again = BloomFilter(2, secret=SECRET)
    again.add(["a", "b"])
    assert keyed == again


def test_file_is_readable_only_with_its_secret(tmp_path):
    path = tmp_path / "known.bloom"
    for made, other, wrong in (
        (SECRET, OTHER, "made with another secret"),
        (SECRET, None, "made with a secret"),
        (None, SECRET, "made without a secret"),
    ):
        bloom = BloomFilter.of(["a", "b"], secret=made)
        bloom.save(path)
        assert b"s3cr3t" not in path.read_bytes()
        loaded = BloomFilter.load(path, secret=made)
        assert loaded == bloom and loaded.contains(["a", "b"]).all() and not loaded.contains(["c"]).any()
        with pytest.raises(ConfigError, match=rf"known\.bloom was {wrong}") as caught:
            BloomFilter.load(path, secret=other)
        assert "s3cr3t" not in str(caught.value)


def test_damaged_file_with_a_secret_is_refused():
    data = BloomFilter.of(["a"], secret=SECRET).to_bytes()
    for end in range(0, len(data), 5):
        with pytest.raises(ConfigError, match=r"not a Bloom|damaged"):
            BloomFilter.from_bytes(data[:end], secret=SECRET)
    cut = data[:45]  # a header of format 2 and no whole tag, with a checksum that fits
    with pytest.raises(ConfigError, match="Bloom filter"):
        BloomFilter.from_bytes(cut + struct.pack("<I", zlib.crc32(cut)), secret=SECRET)


def test_filters_with_different_secrets_are_not_merged():
    keyed, more = BloomFilter(10, secret=SECRET), BloomFilter(10, secret=SECRET)
    keyed.add(["a"])
    more.add(["b"])
    merged = keyed.merge(more)
    assert merged.contains(["a", "b"]).all() and BloomFilter.from_bytes(merged.to_bytes(), secret=SECRET) == merged
    for other in (BloomFilter(10), BloomFilter(10, secret=OTHER)):
        with pytest.raises(ConfigError, match="different values of secret"):
            keyed.merge(other)


def test_secret_is_not_shown():
    keyed = BloomFilter(10, secret=SECRET)
    assert repr(keyed) == "BloomFilter(capacity=10, error=0.01, secret=Secret('***'))"
    assert pickle.loads(pickle.dumps(keyed)) == keyed
    for attempt in (
        BloomFilter,
        lambda *_, **k: BloomFilter.of(["a"], **k),
        lambda *_, **k: BloomFilter.load("x", **k),
    ):
        with pytest.raises(ConfigError, match=r"secret must be a Secret|cannot be read") as caught:
            attempt(10, secret="s3cr3t")
        assert "s3cr3t" not in str(caught.value)
