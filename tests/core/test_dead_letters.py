"""Records that were rejected, as text."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.dead_letters import FEW, json_text, records_as_json
from riot_ops.core.errors import ParseError, excerpt

HARD = st.sampled_from(["", "a,b", 'say "no"', "back\\slash", "line\nbreak", "\x00", "\x1f", "\x7f", "ü € 😀", None])


@given(
    st.lists(st.tuples(HARD, HARD, st.integers(-5, 5) | st.none(), st.booleans()), min_size=16, max_size=40),
    st.sampled_from((1, 1 + FEW // 16)),
)
def test_many_records_become_the_text_of_each(rows, often):
    text, payload, number, flag = (list(column) for column in zip(*rows, strict=True))
    times = [None if n is None else 1_700_000_000_000_000 + n * 250_000 for n in number]
    batch = pa.RecordBatch.from_pydict(
        {
            'a "name"': text,
            "payload": pa.array([None if p is None else p.encode() for p in payload], pa.binary()),
            "number": pa.array(number, pa.int64()),
            "flag": flag,
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "none": pa.nulls(len(rows)),
        }
    )
    batch = pa.concat_batches([batch] * often)
    assert records_as_json(batch).to_pylist() == [json_text(row) for row in batch.to_pylist()]


@pytest.mark.parametrize("size", [20, 20 * (1 + FEW // 20)])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"\xff"] * 20),
        pa.array([2.5, float("nan"), 1e16, -0.0, None, -math.inf, 1e-7, 3.0, 0.1, 5e-324] * 2),
        pa.array([[1]] * 20),
        pa.array([2**62] * 20, pa.timestamp("us", "UTC")),
        pa.array([5] * 20, pa.timestamp("s")),
        pa.array(["x"] * 20).dictionary_encode(),
    ],
)
def test_many_records_of_other_kinds(column, size):
    column = pa.concat_arrays([column] * (size // 20))
    batch = pa.RecordBatch.from_arrays([column, pa.array(range(size))], names=["x", "y"])
    found = records_as_json(batch).to_pylist()
    assert found == [records_as_json(batch.slice(i, 1))[0].as_py() for i in range(size)]
    twice = pa.RecordBatch.from_arrays([column, column], names=["x", "x"])
    assert records_as_json(twice).to_pylist() == [records_as_json(twice.slice(i, 1))[0].as_py() for i in range(size)]


def test_what_could_not_be_read_and_where():
    assert str(ParseError("no text")) == "no text"
    error = ParseError("no text", offset=0, text="a" * 1000)
    assert (error.offset, error.reason) == (0, "malformed")
    assert str(error).startswith("no text at offset 0: 'aaa")
    assert len(str(error)) < 300
    assert ParseError("no text", text="x").offset == -1


def test_an_excerpt_is_no_longer_than_that():
    assert excerpt("abc" * 100, 6) == "abcab…"
    assert excerpt("abc", 20) == "abc"
