"""What starts TRAIN: the benchmark's timers, and files of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from riot_ops import ConfigError, dataflows

#: When the timers begin, by hand: 23 September 2015, 18:30.
FIRST = datetime(2015, 9, 23, 18, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stream", "first", "apart", "lengths", "tick_s"),
    [
        ("city", "2015-02-01T00:00:00", 3600, [1000, 1000, 1000, 100, 100, 100, 100], 120),
        ("taxi", "2013-01-13T18:30:00", 86_400, [864] * 7, 120),
        ("fit", "2014-12-06T18:30:00", 60, [60] * 12, 60),
        ("grid", "2009-07-13T18:50:01", 60, [60] * 12, 60),
    ],
)
def test_timer_of_a_stream(stream, first, apart, lengths, tick_s):
    rows = dataflows.ticks(stream).to_pylist()
    begin = datetime.fromisoformat(first).replace(tzinfo=UTC)
    assert [row["seq"] for row in rows] == list(range(1, len(lengths) + 1))
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        assert row["event_time"] == FIRST + timedelta(seconds=i * tick_s)
        start = int((begin + timedelta(seconds=i * apart)).timestamp()) * 1000
        assert (row["start"], row["end"]) == (start, start + 1000 * length)


def test_number_of_ticks_is_limited_by_the_timer():
    assert dataflows.ticks("grid", n=1).num_rows == 1
    assert dataflows.ticks("grid", n=13)["seq"].to_pylist() == list(range(1, 14))
    assert dataflows.ticks("city").equals(dataflows.ticks())


ROWS = [
    {"seq": 1, "event_time": datetime(1970, 1, 1, 0, 2, tzinfo=UTC), "start": 0, "end": 1},
    {"seq": 5, "event_time": datetime(1970, 1, 1, 0, 1, tzinfo=UTC), "start": -7, "end": 60_000},
]


@pytest.mark.parametrize(
    "text",
    [
        "1,120,0,1\n5,60,-7,60000\n",
        "msgId,timestamp,rowstart,rowend\n1,120,0,1\n5,60,-7,60000",
        "\ufeff1,120,0,1\r\n\r\n  5 , 60, -7 ,60000\r\n   \n",
    ],
    ids=["bare", "header", "blanks"],
)
def test_timer_file_is_read(text, tmp_path):
    path = tmp_path / "timer.csv"
    path.write_bytes(text.encode())
    assert dataflows.read_ticks(path).to_pylist() == dataflows.read_ticks(str(path)).to_pylist() == ROWS


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("h,h\nh,h,h,h\n", 2),  # one header, in the first line
        ("1,120,0,1\nh,h,h,h\n", 2),
        ("1,120,0,1,9\n", 1),
        ("1,120,5,4\n", 1),
        ("2,120,0,1\n1,120,0,1\n", 2),
        ("1,120,0,1\n\n1,120,0,1\n", 3),
    ],
)
def test_wrong_line_is_named(text, line, tmp_path):
    path = tmp_path / "timer.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"line {line} of"):
        dataflows.read_ticks(path)
