"""Line protocol, read again by a parser written from the published grammar."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops.connectors.line_protocol import encode_lines
from riot_ops.core.errors import RecordError

NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def until(text, place, stops):
    """Read to the first unescaped stop; a backslash escapes a stop, a comma, a space or an equals sign only."""
    read = ""
    while place < len(text) and text[place] not in stops:
        if text[place] == "\\" and text[place + 1 : place + 2] in (",", " ", "="):
            place += 1
        read += text[place]
        place += 1
    return read, place


def value(text, place):
    if text[place] != '"':
        word, place = until(text, place, ", \n")
        if word in ("true", "false"):
            return word == "true", place
        if word.endswith(("i", "u")):
            return int(word[:-1]), place
        assert NUMBER.fullmatch(word), word
        return float(word), place
    read, place = "", place + 1
    while text[place] != '"':
        if text[place] == "\\" and text[place + 1] in '"\\':
            place += 1
        read += text[place]
        place += 1
    return read, place + 1


def parse(text):
    """Read lines: (measurement, tags, fields, time)."""
    found, place = [], 0
    while place < len(text):
        measurement, place = until(text, place, ", ")
        tags, fields, time = {}, {}, None
        while text[place] == ",":
            key, place = until(text, place + 1, "=")
            tags[key], place = until(text, place + 1, ", ")
        assert text[place] == " "
        while text[place] in " ,":
            key, place = until(text, place + 1, "=")
            fields[key], place = value(text, place + 1)
            if text[place] != ",":
                break
        if text[place] == " ":
            stamp, place = until(text, place + 1, "\n")
            time = int(stamp)
        assert text[place] == "\n"
        found.append((measurement, tags, fields, time))
        place += 1
    return found


def encode(columns, tags=(), fields=None, time=None, measurement="m", **options):
    batch = pa.RecordBatch.from_pydict(columns)
    fields = fields or [n for n in columns if n not in (*tags, time)]
    return encode_lines(batch, [measurement] * batch.num_rows, tags, fields, time, **options).decode()


def test_values_of_all_types():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    text = encode(
        {
            "i": pa.array([-(2**63)], pa.int64()),
            "u": pa.array([2**64 - 1], pa.uint64()),
            "small": pa.array([3], pa.uint8()),
            "f": [1e300],
            "f4": pa.array([0.1], pa.float32()),
            "b": [True],
            "s": ['say "a\\b"\nnext, = '],
            "d": [Decimal("1.25")],
            "t": pa.array([moment], pa.timestamp("us", "UTC")),
            "x": [b"\x00"],
            "l": [[1, 2]],
            "c": pa.array(["word"]).dictionary_encode(),
            "p": pa.array([5], pa.duration("s")),
        }
    )
    assert "i=-9223372036854775808i,u=18446744073709551615u,small=3u,f=1e+300,f4=0.1,b=true" in text
    assert parse(text) == [
        ("m", {}, {"i": -(2**63), "u": 2**64 - 1, "small": 3, "f": 1e300, "f4": 0.1, "b": True,
                   "s": 'say "a\\b"\nnext, = ', "d": 1.25, "t": moment.isoformat(), "x": "AA==", "l": "[1,2]",
                   "c": "word", "p": 5}, None),
    ]  # fmt: skip


def test_signed_integers_only():
    assert encode({"u": pa.array([7], pa.uint64()), "v": pa.array([7], pa.uint8())}, unsigned=False) == "m u=7i,v=7i\n"
    with pytest.raises(RecordError, match=r"field 'u'.*2\^63.*18446744073709551615"):
        encode({"u": pa.array([2**64 - 1], pa.uint64())}, unsigned=False)


def test_missing_values_are_left_out():
    columns = {
        "tag": ["a", None, ""],
        "v": [float("nan"), float("inf"), None],
        "w": pa.array([None, 1, None], pa.int64()),
    }
    assert encode(columns, tags=["tag"]) == "m w=1i\n"  # a record without fields makes no line


@pytest.mark.parametrize(
    ("unit", "written"), [("ns", "1500000001000"), ("us", "1500000001"), ("ms", "1500000"), ("s", "1500")]
)
def test_precision_of_times(unit, written):
    times = pa.array([1_500_000_001, None], pa.timestamp("us", "UTC"))
    text = encode({"v": [1, 2], "t": times}, time="t", time_unit=unit)
    assert text == f"m v=1i {written}\nm v=2i\n"


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_times_of_all_units(unit):
    times = pa.array([np.datetime64(7, "s").astype(f"datetime64[{unit}]")], pa.timestamp(unit))
    assert encode({"v": [1], "t": times}, time="t") == "m v=1i 7000000\n"


def test_times_before_the_epoch_are_rounded_down():
    times = pa.array([-1], pa.timestamp("us", "UTC"))
    assert encode({"v": [1], "t": times}, time="t", time_unit="ms") == "m v=1i -1\n"


@pytest.mark.parametrize("text", ["a\\", "a\\,b", "a\\ b", "a\\=", "a\\\\b", "a\nb", "a\rb", "a\0b"])
def test_tags_without_a_form_are_refused(text):
    with pytest.raises(RecordError, match=r"tag of record 1.*no form"):
        encode({"tag": ["fine", text], "v": [1, 2]}, tags=["tag"])


@pytest.mark.parametrize("text", ["", "a\nb", "#1 pump"])
def test_measurements_without_a_form_are_refused(text):
    with pytest.raises(RecordError, match="measurement of record 0"):
        encode({"v": [1]}, measurement=text)


NAMES = st.text(st.characters(exclude_characters="\\\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(
    NAMES.filter(lambda name: name[0] != "#"),
    NAMES,
    NAMES,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.floats(allow_nan=False),
)
def test_any_text_is_read_again(measurement, tag, key, text, number):
    batch = pa.RecordBatch.from_arrays(
        [pa.array([tag]), pa.array([text]), pa.array([number])], names=["tag", f"{key}x", f"{key}y"]
    )
    written = encode_lines(batch, [measurement], ["tag"], [f"{key}x", f"{key}y"], None).decode()
    fields = {f"{key}x": text} | ({f"{key}y": number} if abs(number) != float("inf") else {})
    assert parse(written) == [(measurement, {"tag": tag}, fields, None)]
