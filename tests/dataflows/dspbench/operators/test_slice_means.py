"""Slice means at every tick, against lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import SliceMeans, slice_means
from tests.search import depth

NOON = datetime(2024, 5, 1, 12, 0, 3, tzinfo=UTC)
READINGS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.sampled_from([0, 0, 1, 4, 7, 33, -1, -9]), st.sampled_from([None, 1.0, 2.5, 8.0])
    ),
    max_size=30,
)


def expected(rows, length, every, ahead, period, partial):
    """Results of each tick by hand, and the numbers of the late readings."""
    if not rows:
        return [], []
    out, late, slices, emitted = [], [], {}, set()
    ticks = iter(range(every, 100_000, every))
    tick = next(ticks)

    def tell():
        now = tick // length
        for (key, number), values in sorted(slices.items()):
            mean = sum(values) / len(values)
            if number < now and (key, number) not in emitted:
                emitted.add((key, number))
                out.append((tick, key, False, number % (period // length), number * length, mean))
            elif number == now:
                place = number + ahead
                out.append((tick, key, True, place % (period // length), place * length, mean))

    stream_time = 0
    for i, (key, at, value) in enumerate(rows):
        stream_time = max(stream_time, at)
        while tick < stream_time:
            tell()
            tick = next(ticks)
        number = at // length
        if value is None:
            continue
        if number < 0 or (key, number) in emitted or number < max((n for k, n in slices if k == key), default=number):
            late.append(i)
        else:
            slices.setdefault((key, number), []).append(value)
    while partial and tick <= stream_time:
        tell()
        tick = next(ticks)
    return sorted(out), late


@pytest.mark.long
@given(READINGS, st.sampled_from([(10, 10), (10, 4), (12, 5)]), st.integers(0, 2), st.booleans(), st.integers(1, 7))
@settings(max_examples=depth(90), deadline=None)
def test_means_equal_lists(steps, times, ahead, partial, batch_size):
    length, every = times
    at, rows = 0, []
    for key, step, value in steps:
        at += step if rows else 0
        rows.append((key, at, value))
    task = SliceMeans(
        by=("key",), value="x", output="mean", length=timedelta(seconds=length), every=timedelta(seconds=every),
        period=timedelta(seconds=60), ahead=ahead, partial=partial,
    )  # fmt: skip
    flow = ro.Dataflow("slices")
    kinds = {"event_time": "timestamp[us, tz=UTC]", "key": "string", "x": "double"}
    flow.sink("out", flow.source("in", schema=kinds).to(task, id="slices"))
    records = [{"event_time": NOON + timedelta(seconds=s), "key": key, "x": x} for key, s, x in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_means, "ROOM", 1)  # so that the kernel must resume
        result = flow.run(records or pa.table({name: [] for name in kinds}), batch_size=batch_size)
    found = [
        (round((r["event_time"] - NOON) / timedelta(seconds=1)), r["key"], r["open"], r["slot"],
         (r["timestamp"] - NOON) // timedelta(seconds=1), r["mean"]) for r in result["slices"].to_pylist()
    ]  # fmt: skip
    wanted, late = expected(rows, length, every, ahead, 60, partial)
    assert sorted(row[:5] for row in found) == [row[:5] for row in wanted]
    assert [row[5] for row in sorted(found)] == pytest.approx([row[5] for row in wanted])
    assert sorted((e["seq"], e["reason"]) for e in result.errors.to_pylist()) == [(i, "late") for i in late]


def test_reading_after_the_end_of_its_slice_is_late():
    session = SliceMeans(length="10s", every="10s").session()

    def push(second, value):
        rows = session.push({"event_time": NOON + timedelta(seconds=second), "value": value})
        return [(row["open"], row["timestamp"] - NOON, row["value"]) for row in rows]

    assert push(0, 1.0) == push(-1, 50.0) == []  # the first slice begins with the first time
    assert push(11, 2.0) == [(False, timedelta(0), 1.0)]
    assert push(9, 50.0) == []
    assert push(31, 4.0) == [(False, timedelta(seconds=10), 2.0)]
    assert [(error["reason"], error["message"]) for error in session.errors] == [("late", "its slice has ended")] * 2


def test_long_silence_costs_nothing():
    session = SliceMeans().session()
    times = (NOON, NOON + timedelta(days=4000))
    rows = session.push_many({"event_time": time, "value": 2.0} for time in times)
    assert [(row["open"], row["slot"]) for row in rows] == [(True, 2), (False, 0)]


def test_misuse_is_refused():
    for wrong, message in (
        ({"every": "2min"}, "no longer than length"), ({"every": "0s"}, "longer than 0"), ({"ahead": -1}, "ahead"),
        ({"period": "90s"}, "multiple of length"), ({"period": "0s"}, "multiple of length"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            SliceMeans(**wrong)
