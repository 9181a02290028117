"""Columns of numbers into a list of values, beside the values themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.arrays import index
from riot_ops.kernels.arrays.arrow import truths
from riot_ops.kernels.arrays.codes import appearing, coded, decoded, followed
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.kernels.arrays.index import KeyIndex
from riot_ops.kernels.arrays.rows import repeated, spread

kinds = st.sampled_from([pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
values = st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "ü"])), min_size=1, max_size=5)


@st.composite
def columns(draw):
    """Dictionary columns, also with a value twice or none at all among those they number, and parts of them."""
    known = draw(values)
    indices = draw(st.lists(st.one_of(st.none(), st.integers(0, len(known) - 1)), max_size=9))
    column = pa.DictionaryArray.from_arrays(pa.array(indices, draw(kinds)), pa.array(known, pa.string()))
    return column.slice(draw(st.integers(0, 3)), draw(st.integers(0, 9)))


@given(columns())
def test_codes_are_the_values(column):
    plain = column.dictionary_decode()
    for one in (column, plain):
        codes, known = coded(one)
        assert [None if c < 0 else known[c].as_py() for c in codes.tolist()] == plain.to_pylist()
    assert decoded(pa.record_batch({"a": column, "b": plain})).equals(pa.record_batch({"a": plain, "b": plain}))
    for ours, wanted in zip(hash_columns([column], len(column)), hash_columns([plain], len(plain)), strict=True):
        assert ours.tolist() == wanted.tolist()


@given(st.lists(columns(), min_size=1, max_size=3))
def test_slots_of_codes_are_those_of_the_values(parts):
    ours, wanted = KeyIndex(), KeyIndex()
    for part in parts:
        slots, rows = ours.resolve_coded([part], len(part))
        plain = part.dictionary_decode()
        assert slots.tolist() == wanted.resolve(*hash_columns([plain], len(plain))).tolist()
        assert set(slots[rows].tolist()) == set(slots.tolist())
    assert [h.tolist() for h in ours.hashes] == [h.tolist() for h in wanted.hashes]


@given(st.lists(columns(), max_size=3), st.sampled_from([0, 1, 1024]))
def test_slots_of_several_columns_of_codes(columns, room):
    n = min(map(len, columns), default=7)
    columns = [column.slice(0, n) for column in columns]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "ROOM", room)
        slots, rows = KeyIndex().resolve_coded(columns, n)
    plain = [column.dictionary_decode() for column in columns]
    assert slots.tolist() == KeyIndex().resolve(*hash_columns(plain, n)).tolist()
    firsts = [i for i, slot in enumerate(slots.tolist()) if slot not in slots[:i]]
    assert np.arange(n)[rows].tolist() in (firsts, list(range(n)))


@given(st.lists(st.integers(0, 4), max_size=12))
def test_where_codes_appear_first(codes):
    found = appearing(np.array(codes, np.int32), 5)
    assert found.tolist() == [i for i, c in enumerate(codes) if c not in codes[:i]]
    assert followed(np.array(codes, np.int32), np.arange(5) * 7).tolist() == [7 * c for c in codes]


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC"), pa.bool_(), pa.string()], ids=str)
@pytest.mark.parametrize("given", [[1, 0, 1], [1, None, 0], [None] * 3, []], ids=str)
def test_values_so_many_times(kind, given):
    column = pa.array(given, pa.int64()).cast(kind)
    times = np.array([2, 0, 3][: len(given)], np.int64)
    wanted = [v for v, n in zip(column.to_pylist(), times.tolist(), strict=True) for _ in range(n)]
    assert repeated(column, times).to_pylist() == wanted
    assert repeated(column, times).type == kind
    places = np.array([1, 2, 4][: len(given)], np.int64)
    among = [None] * 5
    for place, value in zip(places.tolist(), column.to_pylist(), strict=True):
        among[place] = value
    assert spread(column, places, 5).to_pylist() == among


@given(st.lists(st.one_of(st.none(), st.booleans()), max_size=20), st.integers(0, 9))
def test_truth_values(given, at):
    wanted = [-1 if v is None else int(v) for v in given[at:]]
    assert truths(pa.array(given, pa.bool_()).slice(at)).tolist() == wanted
    assert truths(pa.nulls(3)).tolist() == [-1, -1, -1]
