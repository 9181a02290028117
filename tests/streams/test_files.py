"""Streams as files: one line per message, for any source."""

from __future__ import annotations

import gzip

import pytest

from riot_ops import streams
from riot_ops.core.errors import ConfigError
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.streams.files import write
from tests.streams.records import table


@pytest.mark.long
@pytest.mark.parametrize("format", ["senml", "csv"])
@pytest.mark.parametrize("name", ["city", "taxi", "fit", "grid"])
def test_file_has_a_line_per_message(name, format, tmp_path):
    n = 8192 + 5  # more than a batch
    source = streams.CATALOG[name].generator(format=format, messages=n + 1)
    texts = table(source, 0, n)["payload"].to_pylist()
    assert not any(b"\n" in text for text in texts)
    assert write(source, tmp_path / "x.csv", n) == n
    assert (tmp_path / "x.csv").read_bytes() == b"".join(text + b"\n" for text in texts)


def test_bounded_stream_is_written_completely_and_gz_files_compressed(tmp_path):
    source = streams.city(sensors=9, messages=10, rate=0.001)
    assert write(source, tmp_path / "x.csv.gz") == write(source, str(tmp_path / "x.csv")) == 10, "without waiting"
    text = gzip.decompress((tmp_path / "x.csv.gz").read_bytes())
    assert text == (tmp_path / "x.csv").read_bytes()
    assert text.count(b"\n") == 10
    assert write(source, tmp_path / "x.csv", 3) == 3
    assert (tmp_path / "x.csv").read_bytes() == b"".join(text.splitlines(keepends=True)[:3]), "it is replaced"


def test_messages_of_other_sources_are_written_unchanged(tmp_path):
    source = MemorySource([{"payload": p} for p in (b"1,a", b"2,b\r\n", b"3,c\n")])
    assert write(source, tmp_path / "x") == 3
    assert (tmp_path / "x").read_bytes() == b"1,a\n2,b\n3,c\n"
    assert write(source, tmp_path / "x", 2) == 2
    assert (tmp_path / "x").read_bytes() == b"1,a\n2,b\n"
    assert write(source, tmp_path / "x", 0) == 0
    assert (tmp_path / "x").read_bytes() == b""


def test_messages_beyond_one_read_are_written(tmp_path):
    source = MemorySource([{"payload": b"%d" % i} for i in range(70_000)])
    for n in (None, 66_000):
        assert write(source, tmp_path / "x", n) == (n or 70_000)
        assert (tmp_path / "x").read_bytes().split() == [b"%d" % i for i in range(n or 70_000)]


def test_records_without_text_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="only text can be written: the source has no field 'payload'"):
        write(MemorySource([{"value": 1}]), tmp_path / "x")
    assert not (tmp_path / "x").exists()
