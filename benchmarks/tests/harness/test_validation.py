"""Validation: reading lines as a run does, and comparing records with a tolerance."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riot_bench.harness.validation import compare, compare_columns, read_lines

from riot_ops.streams import replay


@pytest.mark.parametrize("name", ["a", "a.gz"])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"a", [b"a"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", [b"a\n", b"\xef\xbb\xbfb"]),
    ],
)
def test_validation_of_a_file(name, content, lines, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(content) if name == "a.gz" else content)
    assert list(read_lines(tmp_path / name)) == lines


def test_lines_of_a_folder_equal_a_run(tmp_path):
    mark = b"\xef\xbb\xbf"
    for name, content in (("b", mark + b"3\n4"), ("c", b""), ("d", b"5"), (".hidden", b"x"), ("in/e", b"y")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(mark + b"1\n2\n"))
    found = [line.rstrip(b"\n") for line in read_lines(tmp_path)]
    source = replay(tmp_path)
    start = source.initial()
    (split,) = source.splits(start, source.latest(start), 1)
    assert found == [line.rstrip(b"\n") for batch in source.read(split) for line in batch["payload"].to_pylist()]
    assert found == [b"1", b"2", b"3", b"4", b"5"]


def test_records_are_compared_as_multisets_with_a_tolerance():
    rows = [("a", 1.0, 2.0), ("a", 1.0, 3.0), ("b", None, 0.5)]
    assert compare("s", rows, [rows[2], rows[1], ("a", 1.0 + 1e-9, 2.0)]).equal
    twice = compare("s", rows, [*rows, rows[0]])
    assert (twice.wanted, twice.found, twice.missing, twice.unexpected, twice.differing) == (3, 4, [], [rows[0]], 1)
    assert not compare("s", [("a", 1.0)], [("a", 1.00001)]).equal
    assert compare("s", [("a", float("nan"))], [("a", float("nan"))]).equal
    assert not compare("s", [("a", 1)], [("a", 2)]).equal
    nulls = compare("s", [("s", None, 5.0)], [("s", 7.0, None)])
    assert (nulls.missing, nulls.unexpected, nulls.differing) == ([("s", None, 5.0)], [("s", 7.0, None)], 2)
    assert compare("s", [("s", None, 5.0), ("s", 7.0, None)], [("s", 7.0, None), ("s", None, 5.0)]).equal
    moment = datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert compare("s", [(moment,)], [(moment.astimezone(timezone(timedelta(hours=2))),)]).equal
    assert compare("s", [(("a", "b"),)], [(["a", "b"],)]).equal


def test_compressed_lines(tmp_path):
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        file.write(b"a\nb")
    assert list(read_lines(tmp_path / "x.gz")) == [b"a\n", b"b"]


#: Few values, so that rows are often equal, and floats that differ by less or by more than the tolerance.
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from([1, 2, None]),
        st.sampled_from([0.0, 1.0, 1.0 + 1e-9, 1.0 - 1e-9, 1.001, float("inf"), float("nan"), None]),
    ),
    max_size=6,
)
SCHEMA = pa.schema([("word", pa.string()), ("count", pa.int64()), ("score", pa.float64())])


@given(ROWS, ROWS)
def test_columns_are_compared_as_records_are(wanted, found):
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], SCHEMA)
    by_record = compare("x", wanted, found)
    for given_rows in (
        wanted,
        pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in wanted], SCHEMA),
    ):
        by_column = compare_columns("x", given_rows, table)
        assert by_column.equal == by_record.equal
        assert (by_column.wanted, by_column.found) == (len(wanted), len(found))
        assert by_column.differing == by_record.differing


def test_columns_of_another_type_are_cast():
    times = pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    found = pa.table({"at": times, "n": pa.array([1], pa.int32())})
    assert compare_columns("x", [(datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1)], found).equal
    assert not compare_columns("x", [(datetime(2024, 1, 1, 1, tzinfo=UTC), 1)], found).equal
