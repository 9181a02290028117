"""Dictionary columns, against the decoded columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays.dictionaries import (
    decode_dictionaries,
    dictionary_codes,
    first_occurrences,
    slots_of_codes,
)
from riot_ops.kernels.arrays.hashing import hash_columns
from tests.kernels.arrays.columns import dictionary_columns


@given(dictionary_columns())
def test_codes_refer_to_the_values(column):
    plain = column.dictionary_decode()
    for either in (column, plain):
        codes, known = dictionary_codes(either)
        assert [None if c < 0 else known[c].as_py() for c in codes.tolist()] == plain.to_pylist()
    assert decode_dictionaries(pa.record_batch({"a": column, "b": plain})).equals(
        pa.record_batch({"a": plain, "b": plain})
    )
    for ours, wanted in zip(hash_columns([column], len(column)), hash_columns([plain], len(plain)), strict=True):
        assert ours.tolist() == wanted.tolist()


@given(st.lists(st.integers(0, 4), max_size=12))
def test_first_occurrences_and_slots_of_codes(codes):
    found = first_occurrences(np.array(codes, np.int32), 5)
    assert found.tolist() == [i for i, c in enumerate(codes) if c not in codes[:i]]
    assert slots_of_codes(np.array(codes, np.int32), np.arange(5) * 7).tolist() == [7 * c for c in codes]
