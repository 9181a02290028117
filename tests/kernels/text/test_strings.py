"""Codes of names in text columns."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.kernels.text.strings import are, code_of, contain, not_ascii, not_utf8
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
    for name in [*NAMES, "ligh", "lightt"]:
        assert are(column.slice(cut), name).tolist() == [v == name for v in values[cut:]]


@pytest.mark.parametrize("kind", [pa.string(), pa.null()])
def test_nothing_is_known(kind):
    assert code_of(pa.nulls(2, kind), NAMES).tolist() == [-1, -1]
    assert code_of(pa.array(["a"]), []).tolist() == [-1]


FEW_LETTERS = st.text("ab", max_size=150)


@settings(deadline=None, max_examples=depth(100))
@given(
    st.lists(st.one_of(st.none(), FEW_LETTERS, FEW_LETTERS.map(lambda text: text + "c" * 70)), max_size=12),
    st.one_of(st.text("ab", min_size=1, max_size=4), st.sampled_from(["bc", "c" * 65, "acc", "a" * 66])),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string())]),
)
def test_a_part_is_found_where_python_finds_it(values, part, cut, kind):
    column = pa.array(values, pa.string())
    column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)
    assert contain(column.slice(cut), part).tolist() == [v is not None and part in v for v in values[cut:]]


def test_a_part_is_neither_found_across_texts_nor_behind_a_null():
    assert contain(pa.array(["x" * 62 + "a", "b" + "x" * 80, "ab"]), "ab").tolist() == [False, False, True]
    _, offsets, data = pa.array(["no", "ab", "ab"]).buffers()
    assert contain(pa.StringArray.from_buffers(3, offsets, data, pa.py_buffer(b"\x05")), "ab").tolist() == [
        False,
        False,
        True,
    ]


BYTES = st.one_of(
    st.binary(max_size=6),
    st.text(max_size=6).map(str.encode),
    st.sampled_from(
        [b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xef\xbf\xbf"]
    ),
    st.sampled_from([b"plain and long", b"much longer " * 7, b"\xe2\x82", b"\x80", b"\xf0\x9f\x98\x80"]),
)


@settings(deadline=None, max_examples=depth(200))
@given(st.lists(st.lists(BYTES, max_size=4).map(b"".join) | st.none(), max_size=5), st.integers(0, 2))
def test_utf8_is_what_python_takes_for_it(values, cut):
    column = pa.array(values, pa.binary()).slice(cut)
    assert not_utf8(column).tolist() == [not _decodes(value) for value in values[cut:]]
    assert not_ascii(column).tolist() == [value is not None and not value.isascii() for value in values[cut:]]


def _decodes(value):
    try:
        return value is None or bool(value.decode()) or True
    except UnicodeDecodeError:
        return False
