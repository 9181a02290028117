"""Validation: reading lines as a run does, and comparing records with a tolerance."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta, timezone

import pytest
from riot_bench.harness.validation import compare, read_lines

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
