"""Substring filter against Python's ``in``."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

texts = st.text("abA.*\0ü", max_size=6)
lines = st.none() | st.text("abA.*\0ü", max_size=30) | texts


@given(
    st.lists(lines, max_size=8),
    texts,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["string", "binary", "large_string"]),
)
def test_passed_records_equal_those_of_python(lines, text, invert, keep_null, kind):
    column = pa.array([None if line is None else line.encode() for line in lines], pa.binary())
    batch = pa.RecordBatch.from_pydict({"line": column.cast(kind), "n": range(len(lines))})
    session = t.SubstringFilter(text=text, field="line", invert=invert, keep_null=keep_null).session()
    wanted = [i for i, line in enumerate(lines) if (keep_null if line is None else (text in line) != invert)]
    assert session.push_batch(batch)["n"].to_pylist() == wanted


@pytest.mark.long
@pytest.mark.parametrize("text", ["b", "bc", "bcd", "bcdefghi", "bcdefghijklm"])
def test_text_is_found_at_any_place(text):
    lines = ["x" * before + text + "y" * after for before in range(20) for after in range(20)]
    lines += [line.replace(text, text[:-1] + "z") for line in lines]
    found = t.SubstringFilter(text=text).session().push_many([{"payload": line} for line in lines])
    assert [row["payload"] for row in found] == [line for line in lines if text in line] == lines[:400]


def test_non_utf8_binary_is_searched():
    found = t.SubstringFilter(text="b").session().push({"payload": b"\xffb"})
    assert found == [{"payload": b"\xffb"}]
    with pytest.raises(ConfigError, match="text must be Unicode"):
        t.SubstringFilter(text="\ud800")


def test_dictionaries_and_slices_are_searched():
    column = pa.array(["ab", "b", None, "ab", "c"]).dictionary_encode()
    batch = pa.RecordBatch.from_pydict({"payload": column, "n": range(5)}).slice(1)
    for keep_null, wanted in ((False, [1, 3]), (True, [1, 2, 3])):
        session = t.SubstringFilter(text="b", keep_null=keep_null).session()
        assert session.push_batch(batch)["n"].to_pylist() == wanted
