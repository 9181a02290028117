"""Names, substrings and encodings of text columns, against Python."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.kernels.text.strings import contains, equal_to, name_codes, non_ascii, non_utf8
from tests.search import depth

NAMES = ["temperature", "ü", "", "light", "lighT"]


@settings(deadline=None, max_examples=depth(60))
@given(
    st.lists(st.sampled_from([*NAMES, "ligh", "lightt", "u", None])),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]),
)
def test_name_codes_are_indexes(values, cut, kind):
    column = pa.array(values, pa.string())
    column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)
    expected = [NAMES.index(v) if v in NAMES else -1 for v in values]
    assert name_codes(column, NAMES).tolist() == expected
    assert name_codes(column.slice(cut), NAMES).tolist() == expected[cut:]
    for name in [*NAMES, "ligh", "lightt"]:
        assert equal_to(column.slice(cut), name).tolist() == [v == name for v in values[cut:]]


@pytest.mark.parametrize("kind", [pa.string(), pa.null()])
def test_name_codes_without_names_or_texts(kind):
    assert name_codes(pa.nulls(2, kind), NAMES).tolist() == [-1, -1]
    assert name_codes(pa.array(["a"]), []).tolist() == [-1]


FEW_LETTERS = st.text("ab", max_size=150)


@settings(deadline=None, max_examples=depth(100))
@given(
    st.lists(st.one_of(st.none(), FEW_LETTERS, FEW_LETTERS.map(lambda text: text + "c" * 70)), max_size=12),
    st.one_of(st.text("ab", min_size=1, max_size=4), st.sampled_from(["bc", "c" * 65, "acc", "a" * 66])),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string())]),
)
def test_contains_equals_python(values, part, cut, kind):
    column = pa.array(values, pa.string())
    column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)
    assert contains(column.slice(cut), part).tolist() == [v is not None and part in v for v in values[cut:]]


def test_contains_does_not_match_across_texts_or_in_nulls():
    assert contains(pa.array(["x" * 62 + "a", "b" + "x" * 80, "ab"]), "ab").tolist() == [False, False, True]
    _, offsets, data = pa.array(["no", "ab", "ab"]).buffers()
    assert contains(pa.StringArray.from_buffers(3, offsets, data, pa.py_buffer(b"\x05")), "ab").tolist() == [
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
def test_non_utf8_and_non_ascii_equal_python(values, cut):
    column = pa.array(values, pa.binary()).slice(cut)
    assert non_utf8(column).tolist() == [not _decodes(value) for value in values[cut:]]
    assert non_ascii(column).tolist() == [value is not None and not value.isascii() for value in values[cut:]]


def _decodes(value):
    try:
        return value is None or bool(value.decode()) or True
    except UnicodeDecodeError:
        return False
