"""Templates of names and keys."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import ConfigError
from riot_ops.connectors.template import Template, decode_key, encode_key

INTS = st.integers(-(1 << 63), (1 << 64) - 1)


@given(st.text())
def test_key_is_ascii_and_decodes_to_its_text(text):
    key = encode_key(text)
    assert decode_key(key) == text
    assert key.isascii() and key.isprintable() and not set(key) & set("/\\#?%'&\" |")


@given(INTS, INTS)
def test_keys_sort_like_their_numbers(a, b):
    assert (encode_key(a) < encode_key(b)) == (a < b)
    assert (encode_key(a) == encode_key(b)) == (a == b)


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_separator_distinguishes_fields(a, b):
    batch = pa.RecordBatch.from_pylist([{"x": a[0], "y": a[1]}, {"x": b[0], "y": b[1]}])
    one, two = Template("{x}|{y}", key=True).render(batch)
    assert (one == two) == (a == b)


def test_text_of_each_type():
    time = dt.datetime(2015, 2, 1, tzinfo=dt.UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "t": pa.array([time, None], pa.timestamp("ns", tz="UTC")),
            "i": pa.array([7, None], pa.int32()),
            "f": [0.5, float("nan")],
            "b": [True, None],
            "d": pa.array(["x/y", None]).dictionary_encode(),
            "raw": pa.array([b"ok", None], pa.binary()),
        }
    )
    assert Template("{t}/{t:us}/{t:ms}/{t:s}").render(batch)[0] == "/".join(
        str(1422748800 * scale) for scale in (1_000_000, 1_000_000, 1_000, 1)
    )
    assert Template("{{{i}}}-{f}-{b}-{d}-{raw}").render(batch) == ["{7}-0.5-true-x/y-ok", None]
    key = Template("{i}|{f}|{b}|{d}|{raw}|{t:ms}", key=True)
    assert key.render(batch) == ["00000000000000000007|0.5|true|x=2Fy|ok|00000001422748800000", None]
    assert key.fields == ("i", "f", "b", "d", "raw", "t")
    assert key.render(batch.slice(0, 0)) == []


def test_times_before_1970_round_down():
    batch = pa.RecordBatch.from_pydict({"t": pa.array([-1], pa.timestamp("us", tz="UTC"))})
    assert Template("{t:s}").render(batch) == ["-1"]


@pytest.mark.parametrize("text", ["", "{", "}", "{}", "{0.x!r}", "{t:h}", "{t:>10}"])
def test_malformed_templates_are_refused(text):
    with pytest.raises(ConfigError, match="template"):
        Template(text)


@pytest.mark.parametrize("text", ["a/b", "ü", "a b{x}", "=41", "%41"])
def test_forbidden_text_between_fields_of_a_key_is_refused(text):
    with pytest.raises(ConfigError, match="template"):
        Template(text, key=True)
    assert Template(text).text == text
