"""Sinks in the user's process: the console; reading streams back from any sink."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.sink import CallbackSink, ConsoleSink
from tests.core.test_file_sink import ROWS, flow


def test_console_shows_the_first_records_of_each_batch():
    lines = []
    flow("a").run(ROWS, sinks={"out": ConsoleSink(max_rows=2, write=lines.append)}, batch_size=5)
    assert len(lines) == 6
    assert lines[0].startswith("a: ") and "value=" in lines[0]
    assert lines[2] == lines[5] == "a: … 3 more"
    whole = []
    flow("a").run(ROWS, sinks={"out": ConsoleSink(write=whole.append)})
    assert len(whole) == 10 and not any("more" in line for line in whole)


def test_console_shows_control_characters_of_records_as_text():
    lines, text = [], ro.Dataflow("text")
    text.sink("out", text.source("in", schema={"word": "string"}))
    text.run([{"word": "a\x1b[31m\nb"}], sinks=ConsoleSink(write=lines.append))
    assert lines == [r"in: seq=0 word=a\x1b[31m\nb"]


def branched():
    dataflow = ro.Dataflow("branched")
    source = dataflow.source("readings", schema={"value": "double"})
    dataflow.sink("out", source.to(t.NoOp(), id="between").to(t.KalmanFilter(), id="a"))
    dataflow.sink("other", source.to(t.RangeFilter(bounds={"value": (0.0, 4.0)}, by=None), id="b"))
    return dataflow


def check_result_streams(result, seen):
    """Check a run over ROWS whose sinks write out and errors to files and pass other to a function."""
    read = result.__getitem__
    assert list(result) == ["a", "errors"] and len(result) == 2 and result
    assert "a" in result and "errors" in result
    assert not any(name in result for name in ("b", "between", "aa", 0))
    with pytest.raises(KeyError, match=r"results are read by the name of a stream, got 0; streams are errors, "):
        read(0)
    assert read("a")["seq"].to_pylist() == list(range(10))
    assert read("errors")["seq"].to_pylist() == []
    assert "reason" in read("errors").schema.names
    with pytest.raises(KeyError, match=r"'b.* are in a CallbackSink, which cannot return them"):
        read("b")
    with pytest.raises(KeyError, match=r"between.* ends in no sink.*flow\.sink"):
        read("between")
    with pytest.raises(KeyError, match=r"no stream .*aa.* did you mean"):
        read("aa")
    assert sum(seen) == 5


def test_result_reads_streams_back_from_their_sinks(tmp_path):
    seen = []
    sinks = {"out": ParquetSink(tmp_path), "other": CallbackSink(lambda s, b: seen.append(b.num_rows))}
    result = branched().run(ROWS, sinks=sinks, batch_size=3, epoch_rows=3)
    check_result_streams(result, seen)
    assert result["a"].schema.equals(branched().schemas()["a"])
    assert result.errors.num_rows == 0
    assert branched().run([], sinks=ro.MemorySink())["a"].schema.names == result["a"].schema.names
