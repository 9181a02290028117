"""Records that enter and leave a sliding window, against lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import SlidingWindow
from tests.search import depth

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-1, 4)), max_size=40), st.integers(1, 9), st.booleans())
@settings(max_examples=depth(90), deadline=None)
def test_records_enter_and_leave(steps, batch_size, by_key):
    at, rows, windows, wanted, late = 0, [], {}, [], []
    for i, (key, step) in enumerate(steps):
        at += step
        rows.append({"event_time": NOON + timedelta(seconds=at), "key": key, "i": i})
        window = windows.setdefault(key if by_key else "", [])
        if window and window[-1][1] > at:
            late.append((i, "late"))
            continue
        gone = [one for one in window if one[1] <= at - 5]
        window[:] = [one for one in window if one[1] > at - 5] + [(i, at)]
        out = [(one[0], -1) for one in gone] + [(i, 1)]
        wanted += [(i, place, j, action, rows[i]["event_time"]) for place, (j, action) in enumerate(out)]
    flow = ro.Dataflow("window", ordinals=True)
    source = flow.source("in", schema={"event_time": "timestamp[us, tz=UTC]", "key": "string", "i": "int64"})
    task = SlidingWindow(window="5s", by=("key",) if by_key else (), fields=("i",), action="what")
    flow.sink("out", source.to(task, id="window"))
    result = flow.run(rows or pa.table({"event_time": [], "key": [], "i": []}), batch_size=batch_size)
    names = ("seq", "ordinal", "i", "what", "event_time")
    assert [tuple(row[name] for name in names) for row in result["window"].to_pylist()] == wanted
    assert sorted((e["seq"], e["reason"]) for e in result.errors.to_pylist()) == late


def test_record_without_event_time_is_an_error():
    session = SlidingWindow(window="5s", fields=()).session()
    assert session.push({"event_time": None, "v": 1}) == []
    assert [e["reason"] for e in session.errors] == ["no_event_time"]


def test_leaving_record_keeps_its_fields_and_nothing_else():
    kinds = {
        "event_time": pa.timestamp("us", "UTC"), "i": pa.int16(), "u": pa.uint64(), "x": pa.float32(), "b": pa.bool_(),
        "z": pa.null(), "text": pa.string(),
    }  # fmt: skip
    rows = [
        {"event_time": NOON, "i": -3, "u": 2**64 - 1, "x": -0.5, "b": True, "text": "a"},
        {"event_time": NOON, "i": None, "u": None, "x": None, "b": None, "text": "b"},
        {"event_time": NOON + timedelta(hours=1), "i": 1, "u": 1, "x": 1.0, "b": False, "text": "c"},
    ]  # fmt: skip
    session = SlidingWindow(window="1h", fields=("i", "u", "x", "b", "z")).session()
    out = session.push_batch(pa.Table.from_pylist(rows, pa.schema(kinds))).to_pylist()
    names = ("i", "u", "x", "b", "z")
    assert [row["action"] for row in out] == [1, 1, -1, -1, 1]
    assert [[row[n] for n in names] for row in out[2:4]] == [[row.get(n) for n in names] for row in rows[:2]]
    assert [row["text"] for row in out] == ["a", "b", None, None, "c"]


def test_misuse_is_refused():
    for wrong, message in (
        ({"window": "0s"}, "window must be longer than 0"), ({"fields": ("a", "a")}, "up to 63 different fields"),
        ({"fields": ("event_time",)}, "other than action and event_time"), ({"fields": ("action",)}, "other than action"),
        ({"fields": tuple(map(str, range(64)))}, "up to 63"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            SlidingWindow(**{"window": "1s", "fields": (), **wrong})
    with pytest.raises(ConfigError, match="needs a number of at most 64 bits in the field 'a'"):
        SlidingWindow(window="1s", fields=("a",)).output_schema(
            pa.schema({"event_time": pa.timestamp("s"), "a": pa.string()})
        )
