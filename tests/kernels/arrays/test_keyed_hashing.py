"""Hashes of keys with a secret, against an independent SipHash; and keys made to collide without it, which do not."""

from __future__ import annotations

import time

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.hashing import hash_columns, hash_keys
from riot_ops.kernels.arrays.index import KeyIndex, key_numbers
from riot_ops.kernels.arrays.keyed_hashing import new_secret, siphash_1_3_128

MASK = 2**64 - 1
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def rotl(x, r):
    return (x << r | x >> (64 - r)) & MASK


# -- SipHash, from its paper -----------------------------------------------------------------------


def sip_round(v):
    for a, b, r, s in ((0, 1, 13, 32), (2, 3, 16, 0), (0, 3, 21, 0), (2, 1, 17, 32)):
        v[a] = (v[a] + v[b]) & MASK
        v[b] = rotl(v[b], r) ^ v[a]
        v[a] = rotl(v[a], s) if s else v[a]


def siphash_128(data, k0, k1, c, d):
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for i in range(0, len(padded), 8):
        m = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= m
        for _ in range(c):
            sip_round(v)
        v[0] ^= m
    halves = []
    for place, constant in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= constant
        for _ in range(d):
            sip_round(v)
        halves.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return tuple(halves)


def test_reference_has_the_published_values():
    k0, k1 = (int.from_bytes(bytes(range(i, i + 8)), "little") for i in (0, 8))
    for n, text in ((0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45")):
        found = siphash_128(bytes(range(n)), k0, k1, 2, 4)
        assert b"".join(half.to_bytes(8, "little") for half in found).hex() == text


@given(st.binary(max_size=70), st.integers(0, MASK), st.integers(0, MASK), st.binary(max_size=3))
def test_siphash_equals_the_reference(data, k0, k1, before):
    array = readonly(np.frombuffer(before + data + b"x", np.uint8))
    start = len(before)
    found = siphash_1_3_128(array, start, start + len(data), np.uint64(k0), np.uint64(k1))
    assert tuple(map(int, found)) == siphash_128(data, k0, k1, 1, 3)


def test_long_text_is_hashed_by_siphash_with_the_secret():
    secret = new_secret(bytes(range(128)))
    texts = [b"sixteen bytes...", b"a text of more than sixteen bytes"]
    found = zip(*(h.tolist() for h in hash_columns([pa.array(texts)], 2, secret)), strict=True)
    assert [*found] == [siphash_128(one, int(secret[12]), int(secret[13]), 1, 3) for one in texts]


# -- properties of all keys --------------------------------------------------------------------------


def pairs(columns):
    n = len(columns[0])
    return [*zip(*(h.tolist() for h in hash_keys(columns, n)), strict=True)]


def test_secrets_differ_and_give_other_hashes():
    keys = [pa.array(["a", "text of more than fifteen bytes", None]), pa.array([1, 2, None])]
    for column in keys:
        one, two = (hash_columns([column], 3, new_secret())[0] for _ in range(2))
        assert not (one == two).any()


@given(st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=60))
def test_texts_have_equal_hashes_where_they_are_equal(values):
    """Also at the end of the data, where no 16 bytes can be read."""
    found = pairs([pa.array(values, pa.binary())])
    sliced = pairs([pa.array([b"before", *values], pa.binary()).slice(1)])
    assert found == sliced
    assert [found.index(h) for h in found] == [values.index(v) for v in values]


@pytest.mark.parametrize(
    "columns",
    [
        [["a", "b"], ["b", "a"]],
        [["ab", "a"], ["c", "bc"]],
        [["", "a"], ["a", ""]],
        [[None, "a"], ["a", None]],
        [["a", "b"], ["a", "b"]],
        [["a", "a"], [None, ""]],
        [["\0", ""], ["", "\0"]],
        [["a", "b"], ["a", "b"], ["c", "c"]],
    ],
)
def test_rows_of_several_columns_differ(columns):
    one, other = pairs([pa.array(column, pa.string()) for column in columns])
    assert one[0] != other[0] and one[1] != other[1]


def test_grid_of_numbers_has_no_equal_hashes():
    a, b = (pa.array(part.ravel()) for part in np.meshgrid(np.arange(300), np.arange(300)))
    assert len({*pairs([a, b])}) == 90_000
    assert key_numbers([a, b], 90_000).tolist() == [*range(90_000)]


# -- keys made to collide -----------------------------------------------------------------------------


def rotr(x, r):
    return rotl(x, 64 - r)


def inverse(c):
    return pow(c, -1, 2**64)


def twin(key, start):
    """Another key of 32 bytes, which begins with the 16 bytes ``start``, with the MurmurHash3 x64 128 of ``key``."""

    def words(data):
        return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")

    def step(h1, h2, k1, k2):
        h1 ^= rotl(k1 * C1 & MASK, 31) * C2 & MASK
        h1 = ((rotl(h1, 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 ^= rotl(k2 * C2 & MASK, 33) * C1 & MASK
        return h1, ((rotl(h2, 31) + h1) * 5 + 0x38495AB5) & MASK

    aim1, aim2 = step(*step(0, 0, *words(key[:16])), *words(key[16:]))
    h1, h2 = step(0, 0, *words(start))
    k1 = h1 ^ rotr(((aim1 - 0x52DCE729) * inverse(5) - h2) & MASK, 27)
    k2 = h2 ^ rotr(((aim2 - 0x38495AB5) * inverse(5) - aim1) & MASK, 31)
    k1 = rotr(k1 * inverse(C2) & MASK, 31) * inverse(C1) & MASK
    k2 = rotr(k2 * inverse(C1) & MASK, 33) * inverse(C2) & MASK
    return start + k1.to_bytes(8, "little") + k2.to_bytes(8, "little")


KEY = b"plant-7/line-3/pump-12/pressure!"
TWINS = [twin(KEY, f"attacker {i:07d}".encode()) for i in range(100)]


def test_twins_have_one_murmur_hash():
    assert {mmh3.hash128(one, 0) for one in TWINS} == {mmh3.hash128(KEY, 0)}
    assert len({KEY, *TWINS}) == 101


@pytest.mark.parametrize("extra", [(), ("site",)])
@pytest.mark.parametrize("coded", [False, True])
def test_twins_have_states_of_their_own(coded, extra):
    keys = pa.array([KEY, *TWINS, KEY, *TWINS])
    batch = {"k": keys.dictionary_encode() if coded else keys, "value": [*map(float, range(202))], "site": ["s"] * 202}
    count = t.RunningCount(by=("k", *extra)).session()
    assert count.push_batch(pa.table(batch))["count"].to_pylist() == [1] * 101 + [2] * 101
    again = t.RunningCount(by=("k", *extra)).session()
    again.restore(count.snapshot())
    assert again.push_batch(pa.table(batch))["count"].to_pylist() == [3] * 101 + [4] * 101
    mean = t.MovingAverage(by=("k", *extra), window=2).session().push_batch(pa.table(batch))["value"].to_pylist()
    assert mean == [i + 50.5 for i in range(101)]


def test_twin_is_no_repetition():
    batch = pa.table({"k": [KEY, *TWINS, KEY]})
    assert t.Deduplicate(by="k").session().push_batch(batch).num_rows == 101


def test_twin_has_no_row_of_a_table():
    join = t.Lookup(table={KEY.decode(): "secret row"}, on="k", columns="row", on_missing="drop").session()
    found = join.push_batch(pa.table({"k": [TWINS[0], KEY, TWINS[1]]}))
    assert found["k"].to_pylist() == [KEY]


def unmixed(h):
    """The word whose finaliser of MurmurHash3 is h."""
    h ^= h >> 33
    h = h * inverse(0xC4CEB9FE1A85EC53) & MASK
    h ^= h >> 33
    h = h * inverse(0xFF51AFD7ED558CCD) & MASK
    return h ^ h >> 33


def chosen(kind, n):
    if kind == "one slot of a public hash":
        words = [(unmixed(i << 32) - 0x52DCE729) & MASK for i in range(1, n + 1)]
        return np.array(words, np.uint64).view(np.int64)
    if kind == "random":
        return np.random.default_rng(5).integers(-(2**63), 2**63, n)
    step = {"consecutive": 1, "multiples of 2^20": 1 << 20, "multiples of 2^48": 1 << 48, "multiples of 3^30": 3**30}
    return (np.arange(n, dtype=np.uint64) * np.uint64(step[kind])).view(np.int64)


KINDS = (
    "one slot of a public hash",
    "consecutive",
    "multiples of 2^20",
    "multiples of 2^48",
    "multiples of 3^30",
    "random",
)


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_numbers_spread_over_the_table(kind):
    """Of n keys in a table of 4 n entries, n / 8 pairs meet at random."""
    n = 1 << 14
    keys = chosen(kind, n)
    for _ in range(3):
        for half in hash_columns([pa.array(keys)], n, new_secret()):
            met = np.bincount((half & np.uint64(4 * n - 1)).astype(np.int64))
            assert (met * (met - 1) // 2).sum() < n / 4
            met = np.bincount((half >> np.uint64(64 - 16)).astype(np.int64))
            assert (met * (met - 1) // 2).sum() < n / 4


def test_keys_for_one_slot_take_no_longer():
    """With a public hash 32,768 of them take a hundred times as long."""

    def seconds(keys):
        begin = time.process_time()
        assert key_numbers([pa.array(keys)], keys.size).tolist() == [*range(keys.size)]
        return time.process_time() - begin

    random, aimed = chosen("random", 1 << 15), chosen("one slot of a public hash", 1 << 15)
    h1, h2 = hash_columns([pa.array(aimed[:2000])], 2000)
    assert len({*(h1 & np.uint64(2**32 - 1)).tolist()}) == 1  # they have the required properties
    KeyIndex().resolve(h1, h2)
    seconds(random)
    usual, found = (min(seconds(keys) for _ in range(3)) for keys in (random, aimed))
    assert found < 10 * usual + 0.01
