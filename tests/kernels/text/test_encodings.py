"""Texts in other encodings than UTF-8, against Python's codecs."""

from __future__ import annotations

import encodings.aliases

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.checks import check_encoding
from riot_ops.core.errors import ConfigError
from riot_ops.kernels.text.encodings import is_utf8_codec, to_utf8

#: Of each kind: single bytes, several bytes with and without ASCII in them, escapes, a state, no ASCII at all.
CODECS = ["ascii", "latin-1", "cp1252", "koi8-r", "gb18030", "shift_jis", "shift_jis_2004", "euc_kr", "big5", "hz",
          "iso2022_jp", "utf-7", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037", "raw_unicode_escape"]  # fmt: skip


def decoded(value, encoding):
    """The text of bytes as UTF-8; None if they are no text."""
    try:
        return None if value is None else value.decode(encoding).encode()
    except ValueError:
        return None


values = st.lists(
    st.one_of(st.none(), st.binary(max_size=8), st.text(max_size=6).map(lambda s: s.encode("utf-8", "replace")))
)
escapes = st.sampled_from([b"~{AA~}", b"+AEE-", b"\x1b$B0!\x1b(B", rb"\u0041", rb"\x41", b"a\\~", b"caf\xe9", b"\x81"])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", [pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary())])
@given(given=st.lists(escapes, max_size=4).flatmap(lambda more: values.map(lambda found: found + more)))
def test_bytes_are_decoded_as_by_python(codec, dtype, given):
    column = pa.array(given, dtype).slice(min(1, len(given)))
    found, wrong = to_utf8(column, codec)
    wanted = [decoded(value, codec) for value in given[1:]]
    assert found.to_pylist() == wanted
    assert wrong.tolist() == [value is not None and text is None for value, text in zip(given[1:], wanted, strict=True)]


@pytest.mark.parametrize("name", ["utf-8", "UTF8", "u8", "cp65001"])
def test_utf8_is_not_converted(name):
    assert is_utf8_codec(name)
    column = pa.array([b"\xff", None])
    found, wrong = to_utf8(column, name)
    assert found is column
    assert not wrong.any()


def test_columns_of_text_are_not_converted():
    for column in (pa.array(["é", None]), pa.array(["é"], pa.large_string()), pa.array(["é"]).dictionary_encode()):
        assert to_utf8(column, "ascii")[0] is column


def test_names_of_text_encodings_are_accepted():
    refused = []
    for name in sorted({*encodings.aliases.aliases.values(), "latin-1", "UTF-8"}):
        try:
            "".encode(name)
        except LookupError:
            refused.append(name)
            with pytest.raises(ConfigError, match="encoding must be one of text"):
                check_encoding(name)
        else:
            check_encoding(name)
    assert {"base64_codec", "rot_13", "zlib_codec"} <= {*refused}
    for name in ("", "utf-9", "undefined", "a\0b", 7, None, b"utf-8"):
        with pytest.raises(ConfigError, match="encoding must be one of text"):
            check_encoding(name)


def test_encodings_of_lines_have_a_line_break_of_one_byte():
    for name in ("latin-1", "gb18030", "iso2022_jp", "utf-8-sig", "utf-7"):
        check_encoding(name, of_lines=True)
    for name in ("utf-16", "utf-32-le", "cp037"):
        with pytest.raises(ConfigError, match="--encoding must have the line break of ASCII"):
            check_encoding(name, of_lines=True, name="--encoding")
