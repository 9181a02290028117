"""Codes of names in text columns."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.kernels.strings import code_of
from tests.search import depth

NAMES = ["temperature", "ü", "", "light", "lighT"]


@settings(deadline=None, max_examples=depth(60))
@given(
    st.lists(st.sampled_from([*NAMES, "ligh", "lightt", "u", None])),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]),
)
def test_codes_are_places(values, cut, kind):
    column = pa.array(values, pa.string())
    column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)
    expected = [NAMES.index(v) if v in NAMES else -1 for v in values]
    assert code_of(column, NAMES).tolist() == expected
    assert code_of(column.slice(cut), NAMES).tolist() == expected[cut:]


@pytest.mark.parametrize("kind", [pa.string(), pa.null()])
def test_nothing_is_known(kind):
    assert code_of(pa.nulls(2, kind), NAMES).tolist() == [-1, -1]
    assert code_of(pa.array(["a"]), []).tolist() == [-1]
