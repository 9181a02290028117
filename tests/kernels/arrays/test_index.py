"""Slots of keys, against a dictionary: small and large tables, colliding hashes, and a ttl."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays import index as key_index
from riot_ops.kernels.arrays.hashing import hash_keys
from riot_ops.kernels.arrays.index import KeyIndex
from tests.kernels.arrays.columns import dictionary_columns


def hashes(numbers, alike=0):
    """Two hashes for each number; the lowest ``alike`` bits of the first are equal."""
    rng = np.random.default_rng(5)
    first = rng.integers(0, 2**63, int(numbers.max()) + 1).astype(np.uint64) * np.uint64(2)
    second = rng.permutation(first.size).astype(np.uint64)
    first = first >> np.uint64(alike) << np.uint64(alike)
    return first[numbers], second[numbers]


def expected(h1, h2):
    """Numbers in order of appearance."""
    seen = {}
    return [seen.setdefault(key, len(seen)) for key in zip(h1.tolist(), h2.tolist(), strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("keys", [1, 15, 16, 17, 3_000, 60_000])
def test_slots_are_in_order_of_appearance_for_any_batches(keys):
    numbers = np.random.default_rng(keys).integers(0, keys, 100_000)
    h1, h2 = hashes(numbers)
    index, found = KeyIndex(), []
    for start, end in ((0, 1), (1, 700), (700, 60_000), (60_000, 60_000), (60_000, 100_000)):
        found += index.resolve(h1[start:end], h2[start:end]).tolist()
    assert found == expected(h1, h2)
    assert index.size == len(set(found))
    assert index.find(h1[::7], h2[::7]).tolist() == found[::7]
    assert index.find(h1[:1], h2[:1] + np.uint64(keys)).tolist() == [-1]
    assert index.live(0).tolist() == list(range(index.size))
    assert index.hashes[0][found].tolist() == h1.tolist()


def test_keys_with_equal_first_hash_are_distinct():
    h1 = np.full(400, 2**64 - 1, np.uint64)
    h2 = np.arange(400, dtype=np.uint64) % np.uint64(200)
    index = KeyIndex()
    assert index.resolve(h1, h2).tolist() == [*range(200), *range(200)]
    assert index.find(h1[:1], np.array([200], np.uint64)).tolist() == [-1]


def test_colliding_keys_in_a_large_table():
    numbers = np.concatenate([np.arange(40_000), np.random.default_rng(1).integers(0, 40_000, 20_000)])
    h1, h2 = hashes(numbers, alike=10)
    h1[::50] = h1[0]  # same position in the table and same tag
    h2[::50] = numbers[::50].astype(np.uint64) + np.uint64(10**9)
    index = KeyIndex()
    assert index.resolve(h1, h2).tolist() == expected(h1, h2)
    again = KeyIndex()  # as restored from a snapshot
    again.assign(np.arange(index.size), *index.hashes)
    assert again.resolve(h1, h2).tolist() == expected(h1, h2)


@pytest.mark.parametrize("keys", [5, 40_000])
def test_expired_key_gets_a_new_slot(keys):
    h1, h2 = hashes(np.arange(keys))
    index = KeyIndex(ttl=10)
    zeros = np.zeros(keys, np.int64)
    assert index.resolve(h1, h2, zeros).tolist() == list(range(keys))
    assert index.resolve(h1, h2, zeros + 10).tolist() == list(range(keys))
    assert index.resolve(h1, h2, zeros + 5).tolist() == list(range(keys))
    times = np.where(np.arange(keys) % 2, 21, 20)
    found = index.resolve(h1, h2, times)
    late = np.flatnonzero(times == 21)
    assert found[late].tolist() == list(range(keys, keys + late.size))
    assert found[times == 20].tolist() == np.flatnonzero(times == 20).tolist()
    assert index.live(21).tolist() == sorted(found.tolist())
    assert index.last_seen[found].tolist() == times.tolist()


@pytest.mark.parametrize("ttl", [0, 3])
@pytest.mark.parametrize("keys", [3, 2000])
def test_coded_keys_have_the_slots_of_plain_keys_with_and_without_ttl(keys, ttl):
    rng = np.random.default_rng(keys + ttl)
    plain, numbered = KeyIndex(ttl), KeyIndex(ttl)
    names, start = pa.array([None, *map(str, range(keys))]), 0
    for rows in (1, 0, 50, 9000):
        column = names.take(pa.array(rng.integers(0, keys + 1, rows)))
        times = [start + np.cumsum(rng.choice([0, 0, 0, 1, 4], rows))] if ttl else []
        start += rows
        wanted = plain.resolve(*hash_keys([column], rows), *times)
        found, some = numbered.resolve_coded([column.dictionary_encode()], rows, *times)
        assert found.tolist() == wanted.tolist()
        assert set(found[some]) == set(wanted)
        assert numbered.last_seen.tolist() == plain.last_seen.tolist()
    assert (numbered.hashes[0] == plain.hashes[0]).all()


@pytest.mark.parametrize("ttl", [0, 7])
def test_expiring_keys_in_a_large_table_against_a_dictionary(ttl):
    rng = np.random.default_rng(3)
    numbers = np.concatenate([np.arange(30_000), (rng.pareto(0.6, 60_000) * 40).astype(np.int64) % 60_000])
    h1, h2 = hashes(numbers)
    times = np.arange(numbers.size) // 10_000 * 3 - rng.integers(0, 4, numbers.size)
    slot_of, last, wanted = {}, [], []
    for number, time in zip(numbers.tolist(), times.tolist(), strict=True):
        slot = slot_of.get(number)
        if slot is None or (ttl and time - last[slot] > ttl):
            slot = slot_of[number] = len(last)
            last.append(time)
        last[slot] = max(last[slot], time)
        wanted.append(slot)
    index, found = KeyIndex(ttl), []
    for start in range(0, numbers.size, 25_000):
        part = slice(start, start + 25_000)
        found += index.resolve(h1[part], h2[part], *[times[part]] * bool(ttl)).tolist()
    assert found == wanted
    assert index.last_seen.tolist() == (last if ttl else [])
    assert ttl == 0 or len(last) > len(slot_of) > 30_000


@given(st.lists(dictionary_columns(), min_size=1, max_size=3))
def test_slots_of_codes_equal_slots_of_values(parts):
    ours, wanted = KeyIndex(), KeyIndex()
    for part in parts:
        slots, rows = ours.resolve_coded([part], len(part))
        plain = part.dictionary_decode()
        assert slots.tolist() == wanted.resolve(*hash_keys([plain], len(plain))).tolist()
        assert set(slots[rows].tolist()) == set(slots.tolist())
    assert [h.tolist() for h in ours.hashes] == [h.tolist() for h in wanted.hashes]


@given(st.lists(dictionary_columns(), max_size=3), st.sampled_from([0, 1, 1024]))
def test_slots_of_combined_codes_equal_slots_of_values(columns, limit):
    n = min(map(len, columns), default=7)
    columns = [column.slice(0, n) for column in columns]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "MAX_COMBINATIONS", limit)
        slots, rows = KeyIndex().resolve_coded(columns, n)
    plain = [column.dictionary_decode() for column in columns]
    assert slots.tolist() == KeyIndex().resolve(*hash_keys(plain, n)).tolist()
    firsts = [i for i, slot in enumerate(slots.tolist()) if slot not in slots[:i]]
    assert np.arange(n)[rows].tolist() in (firsts, list(range(n)))
