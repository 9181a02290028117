"""Hashes of texts, against mmh3; and what is known of the hashes of a batch."""

from __future__ import annotations

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.hashing import hash_keys, hash_rows, hash_strings
from riot_ops.kernels.arrays.lazy_rows import Rows, materialize, replace_field


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=20), st.integers(0, 1000))
def test_hash_strings_equals_mmh3(values, seed):
    found = hash_strings(pa.array(values, pa.binary()), seed)
    for value, *pair in zip(values, *(half.tolist() for half in found), strict=True):
        if value is not None:
            assert tuple(pair) == mmh3.hash64(value, seed, signed=False)


def test_hashes_of_a_batch_are_known_to_its_selections():
    every = Rows(pa.record_batch({"key": ["a", "b"]}))
    found = hash_rows(every, ("key",))
    assert hash_rows(every, ("key",))[0] is found[0]
    assert hash_rows(every.select(np.array([False, True])), ("key",))[0].tolist() == found[0][1:].tolist()


@pytest.mark.parametrize("replaced", ["key", "value"])
def test_hashes_of_other_fields_stay_known_where_one_is_replaced(replaced):
    every = Rows(pa.record_batch({"key": [1.0, 2.0], "value": [1.0, 2.0]}), ordered=True)
    before = hash_rows(every, ("key",))
    made = replace_field(every, replaced, np.array([7.0, 7.0]))
    assert made.ordered
    assert (hash_rows(made, ("key",))[0] is before[0]) == (replaced == "value")
    assert hash_rows(made, ("key",))[0].tolist() == hash_keys([materialize(made).column("key")], 2)[0].tolist()


def test_order_is_unknown_where_its_field_is_replaced():
    every = Rows(pa.record_batch({"seq": [1.0, 2.0]}), ordered=True)
    assert replace_field(every, "seq", np.array([2.0, 1.0])).ordered is None


def test_hashes_are_inherited_with_the_columns_of_the_key_but_not_by_copies():
    batch = pa.record_batch({"key": ["a", "b", "c", "d"], "value": [1.0, 2.0, 3.0, 4.0]})
    every, same = Rows(batch), Rows(batch.select(["key"]))
    found = hash_rows(every, ("key",))
    same.inherit(every)
    assert hash_rows(same, ("key",))[0] is found[0]
    first = Rows(batch.slice(0, 2))
    hash_rows(first, ("key",))
    for other in (batch.slice(2), batch.take(pa.array([1, 0])), batch.select(["value"]).rename_columns(["key"])):
        rows = Rows(other)
        rows.inherit(first if other.num_rows == 2 else every)
        assert hash_rows(rows, ("key",))[0].tolist() == hash_keys([other["key"]], other.num_rows)[0].tolist()
