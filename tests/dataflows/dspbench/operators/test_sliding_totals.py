"""Sliding totals, against slots in dicts and the example of the specification."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import SlidingTotals
from tests.reference.dspbench.sliding import SlottedCounter, Ticks

NOON = datetime(2024, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)
steps = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 1, 2, 5, -3, 40]), st.sampled_from("abc"), st.integers(0, 3) | st.none()),
    max_size=25,
)


def records(steps):
    at, rows = 0, []
    for step, key, n in steps:
        at += step
        rows.append({"event_time": NOON + timedelta(seconds=at), "key": key, "n": n})
    return rows


def wanted(rows, slots, every, partial):
    counter, ticks, found = SlottedCounter(slots), Ticks(timedelta(seconds=every)), []
    sums = SlottedCounter(slots)

    def put_out(tick, counts, totals):
        length = int(ticks.length(tick, slots).total_seconds())
        found.extend((tick, key, n, totals.get(key, 0), length) for key, n in sorted(counts.items()))

    for row in rows:
        for tick in ticks.move(row["event_time"]):
            put_out(tick, counter.tick(), sums.tick())
        counter.add(row["key"])
        sums.add(row["key"], row["n"] or 0)
    if partial and rows:
        put_out(ticks.last(), counter.totals(), sums.totals())
    return found


def made(table):
    rows = [
        (r["event_time"] + timedelta(microseconds=1), r["key"], r["count"], r["sum"], r["window_length"])
        for r in table.to_pylist()
    ]
    return sorted(rows)


@given(steps, st.integers(2, 4), st.integers(1, 3), st.booleans(), st.integers(1, 9))
def test_totals_equal_slots_in_dicts(steps, slots, every, partial, batch_size):
    rows = records(steps)
    flow = ro.Dataflow("sliding")
    source = flow.source(
        "in", schema=pa.schema({"event_time": pa.timestamp("us", "UTC"), "key": pa.string(), "n": pa.int64()})
    )
    task = SlidingTotals(
        by="key", totals={"count": None, "sum": "n"}, every=timedelta(seconds=every), slots=slots, partial=partial
    )
    flow.sink("out", source.to(task, id="t"))
    assert made(flow.run(rows, batch_size=batch_size)["t"]) == wanted(rows, slots, every, partial)


def test_example_of_the_specification():
    counts = SlidingTotals(by="key", totals={"count": None}, every="1s", slots=3).session()
    outs = []
    for second, key in ((0, "a"), (0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "b"), (5, "b"), (6, "b")):
        outs += counts.push({"event_time": NOON + timedelta(seconds=second), "key": key})
    assert [row["count"] for row in outs if row["key"] == "a"] == [2, 3, 3, 1, 0]


def test_total_beyond_int64_is_null_until_its_slots_have_left():
    top = 2**63 - 1
    for dtype, values, sums in (
        (pa.int64(), (top, 1, -5, 7), [top, None, top - 4, 3]),  # the sum of the window, in any order of its slots
        (pa.int64(), (-top, -1, 1, 0), [-top, None, -top, 0]),
        (pa.uint64(), (top, 2**64 - 1, 3, 4), [top, None, None, None]),
    ):
        task = SlidingTotals(totals={"sum": "n"}, every="1s", slots=3, partial=False)
        flow = ro.Dataflow("sliding")
        kinds = pa.schema({"event_time": pa.timestamp("us", "UTC"), "n": dtype})
        flow.sink("out", flow.source("in", schema=kinds).to(task, id="t"))
        times = [NOON + timedelta(seconds=second) for second in range(len(values) + 1)]
        table = pa.table({"event_time": times, "n": pa.array([*values, 0], dtype)}, kinds)
        for batch_size in (1, 9):
            assert flow.run(table, batch_size=batch_size)["t"]["sum"].to_pylist() == sums
    session = SlidingTotals(totals={"sum": "n"}, every="1s", slots=2).session()  # the sum of one slot
    for n in (top, 1, -9):
        assert session.push({"event_time": NOON, "n": n}) == []
    found = [session.push({"event_time": NOON + timedelta(seconds=second), "n": 1}) for second in (1, 2, 3)]
    assert [row["sum"] for rows in found for row in rows] == [None, None, 2]


def test_many_keys_are_forgotten():
    session = SlidingTotals(by="key", totals={"count": None}, every="1s", slots=2).session()
    for second in range(60):
        keys = pa.array([f"{second}-{i}" for i in range(500)])
        times = pa.array([NOON + timedelta(seconds=second)] * 500, pa.timestamp("us", "UTC"))
        session.push_batch(pa.RecordBatch.from_pydict({"event_time": times, "key": keys}))
    assert len(session.snapshot()) < 200_000


def test_misuse_is_refused():
    good = {"by": "key", "totals": {"count": None}, "every": "1s"}
    for options, error_text in (
        ({"slots": 1}, "slots"), ({"every": "0s"}, "every"), ({"ttl": "1h"}, "ttl"), ({"totals": {}}, "totals"),
        ({"totals": {"window_length": None}}, "window_length"), ({"totals": {"key": None}}, "key"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=error_text):
            SlidingTotals(**{**good, **options})
    with pytest.raises(ConfigError, match="sums integers and booleans"):
        SlidingTotals(**{**good, "totals": {"sum": "x"}}).session().push({"event_time": NOON, "key": "a", "x": 1.5})
