"""Times in lines of text: read, and advanced in copies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.streams import LineTime, generate, replay, write
from riot_ops.streams.catalog import LINES

CELL = r"(?P<before>[^,]*,)(?P<time>[^,\n]*)(?P<after>.*)"
#: By stream, a task that reads its times.
PARSERS: dict[str, Any] = {
    "adverts": t.ParseJSON(schema={"event_time": ("event_time", "ms")}),
    "bars": t.ParseLines(schema={"event_time": (1, "iso")}, cells=8, trailing=True, skip={1: "date"}),
    "calls": t.ParseLines(schema={"event_time": (2, "iso"), "again": (5, "iso")}, delimiter=",;", cells=8),
    "equipment": t.ParseLines(schema={"ns": (0, "int64")}, delimiter="\t"),
    "meters": t.ParseLines(schema={"event_time": (1, "s")}, cells=7),
    "motes": t.ParseLines(schema={"event_time": ((0, 1), "iso")}, delimiter=" ", cells=8),
    "traces": t.ParseLines(schema={"event_time": (2, "iso")}, cells=7),
    "tweets": t.ParseJSON(schema={"event_time": ("created_at", "tweet")}, wrapper="data"),
    "usage": t.ParseLines(schema={"event_time": (1, "s")}, cells=9),
    "weblog": t.ParseAccessLog(schema={"event_time": ("time", "log")}),
    "flows": t.ParseLines(schema={"event_time": (0, "s")}),
    "searches": t.ParseLines(schema={"event_time": (2, "iso")}, delimiter="\t"),
    "traffic": t.ParseLines(schema={"event_time": (0, "us")}),
}


def times(source: Any, stream: str) -> Any:
    """The times of the accepted records in ns."""
    flow = ro.Dataflow("times")
    flow.sink("out", flow.source("lines").to(PARSERS[stream], id="parse"))
    rows = flow.run(source)["parse"]
    if stream == "equipment":
        return rows["ns"].to_numpy()
    if stream == "calls":
        assert rows["again"].cast(pa.int64()).equals(rows["event_time"].cast(pa.int64()))
    return rows["event_time"].cast(pa.int64()).to_numpy() * 1000


@pytest.mark.parametrize("stream", PARSERS)
def test_copies_of_a_stream_follow_it_in_time(stream: str, tmp_path: Any) -> None:
    file = tmp_path / "lines"
    write(generate(stream, messages=600), file)
    once = times(replay(file), stream)
    found = times(replay(file, repeat=3, times=LINES[stream].line_time), stream).reshape(3, -1)  # type: ignore[attr-defined]
    assert once.size > 300
    distance = found[1, 0] - once[0]
    assert distance > once.max() - once.min()
    assert found.tolist() == [(once + k * distance).tolist() for k in range(3)]
    day = 86_400 * 10**9
    assert distance <= once.max() - once.min() + (day if stream == "bars" else 2 * 10**9)


def test_every_generated_stream_says_whether_its_lines_have_times() -> None:
    declared = {name for name, stream in LINES.items() if stream.line_time is not None}  # type: ignore[attr-defined]
    assert declared == set(PARSERS)


@pytest.mark.parametrize(
    ("kind", "text", "micros"),
    [
        ("s", "-5", -5_000_000),
        ("ms", "1500", 1_500_000),
        ("us", "7", 7),
        ("ns", "1577836800000000999", 1_577_836_800_000_000),
        ("%a %b %d %H:%M:%S +0000 %Y", "Wed Aug 27 13:08:45 +0000 2008", 1_219_842_525_000_000),
    ],
)
def test_times_of_each_format(kind: str, text: str, micros: int) -> None:
    declared = LineTime(CELL, kind)
    lines = pa.array(
        [f"a,{text}\n".encode(), b"a,\n", "é,ü\n".encode(), b"x", b"a,99999999999999999999\n", b"\xff,\xff"]
    )
    read = declared.read(lines)
    assert read[0] == micros
    assert len(set(read[1:].tolist())) == 1
    later = declared.shift(lines, 3_000_000)
    assert declared.read(later)[0] == micros + 3_000_000
    assert later[1:].to_pylist() == lines[1:].to_pylist()
    assert declared.shift(lines, 0).to_pylist() == lines.to_pylist()


def test_shift_over_a_leap_day() -> None:
    before = datetime(2020, 2, 28, 23, 59, 58, tzinfo=UTC)
    declared = LineTime(CELL, "%d/%b/%Y:%H:%M:%S")
    line = pa.array([f"a,{before:%d/%b/%Y:%H:%M:%S},b".encode()])
    after = before + timedelta(days=1, seconds=2)
    impossible = pa.array([b"a,30/Feb/2020:00:00:00,b"])
    assert declared.shift(impossible, 1_000_000).equals(impossible)
    assert declared.shift(line, 86_402_000_000).to_pylist() == [f"a,{after:%d/%b/%Y:%H:%M:%S},b".encode()]


@pytest.mark.parametrize(
    ("pattern", "kind", "message"),
    [
        ("(", "s", "pattern must be a regular expression"),
        ("(?P<before>.*)", "s", "one of them named time"),
        ("(.*)(?P<time>.*)", "s", "named groups only"),
        (CELL, "iso", "format must be s, ms, us, ns or a text with %Y"),
    ],
)
def test_declaration_without_meaning_is_refused(pattern: str, kind: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LineTime(pattern, kind)


def test_pattern_that_would_lose_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="each part of a line into one group"):
        LineTime("a,(?P<time>.*)", "s").shift(pa.array([b"a,1"]), 1_000_000)


def test_declared_times_pace_lines(tmp_path: Any) -> None:
    file = tmp_path / "lines"
    file.write_text("5,1000,x\n6,?,x\n7,1003,x\n")
    source = replay(file, repeat=2, times=LineTime(CELL, "s"))
    start = source.initial()
    assert source.time_at(start) == 1_000_000_000  # type: ignore[attr-defined]
    assert source.count(start, source.until(start, 1_002_000_000)) == 2  # type: ignore[attr-defined]
    (split,) = source.splits(start, source.latest(start), 1)
    lines = [line for batch in source.read(split) for line in batch["payload"].to_pylist()]
    assert lines[3:] == [b"5,1004,x\n", b"6,?,x\n", b"7,1007,x\n"]
    assert source.description() != replay(file, repeat=2, times=LineTime(CELL, "ms")).description()
