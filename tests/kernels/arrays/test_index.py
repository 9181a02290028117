"""Keys to slots: beside a dictionary, small and large, with hashes that meet in the table, and with a time to live."""

import numpy as np
import pyarrow as pa
import pytest

from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.kernels.arrays.index import KeyIndex


def hashes(numbers, alike=0):
    """Two halves for each number; of the first half that many low bits are the same."""
    rng = np.random.default_rng(5)
    first = rng.integers(0, 2**63, int(numbers.max()) + 1).astype(np.uint64) * np.uint64(2)
    second = rng.permutation(first.size).astype(np.uint64)
    first = first >> np.uint64(alike) << np.uint64(alike)
    return first[numbers], second[numbers]


def expected(h1, h2):
    """Numbers in order of appearance."""
    seen = {}
    return [seen.setdefault(key, len(seen)) for key in zip(h1.tolist(), h2.tolist(), strict=True)]


@pytest.mark.parametrize("keys", [1, 15, 16, 17, 3_000, 60_000])
def test_slots_are_in_order_of_appearance_however_the_rows_are_cut(keys):
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


def test_keys_whose_hashes_differ_in_the_second_half_alone():
    h1 = np.full(400, 2**64 - 1, np.uint64)
    h2 = np.arange(400, dtype=np.uint64) % np.uint64(200)
    index = KeyIndex()
    assert index.resolve(h1, h2).tolist() == [*range(200), *range(200)]
    assert index.find(h1[:1], np.array([200], np.uint64)).tolist() == [-1]


def test_keys_alike_in_a_large_table():
    numbers = np.concatenate([np.arange(40_000), np.random.default_rng(1).integers(0, 40_000, 20_000)])
    h1, h2 = hashes(numbers, alike=10)
    h1[::50] = h1[0]  # place and bits of the hash are the same
    h2[::50] = numbers[::50].astype(np.uint64) + np.uint64(10**9)
    index = KeyIndex()
    assert index.resolve(h1, h2).tolist() == expected(h1, h2)
    again = KeyIndex()  # as a snapshot brings them back
    again.assign(np.arange(index.size), *index.hashes)
    assert again.resolve(h1, h2).tolist() == expected(h1, h2)


@pytest.mark.parametrize("keys", [5, 40_000])
def test_a_key_that_comes_back_too_late_has_a_new_slot(keys):
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
def test_numbers_of_keys_have_the_slots_of_the_keys_whether_these_die_or_not(keys, ttl):
    rng = np.random.default_rng(keys + ttl)
    plain, numbered = KeyIndex(ttl), KeyIndex(ttl)
    names, start = pa.array([None, *map(str, range(keys))]), 0
    for rows in (1, 0, 50, 9000):
        column = names.take(pa.array(rng.integers(0, keys + 1, rows)))
        times = [start + np.cumsum(rng.choice([0, 0, 0, 1, 4], rows))] if ttl else []
        start += rows
        wanted = plain.resolve(*hash_columns([column], rows), *times)
        found, some = numbered.resolve_coded([column.dictionary_encode()], rows, *times)
        assert found.tolist() == wanted.tolist()
        assert set(found[some]) == set(wanted)
        assert numbered.last_seen.tolist() == plain.last_seen.tolist()
    assert (numbered.hashes[0] == plain.hashes[0]).all()


@pytest.mark.parametrize("ttl", [0, 7])
def test_keys_that_come_and_go_in_a_large_table_beside_a_dictionary(ttl):
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
