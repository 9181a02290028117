"""Tumbling and hopping windows from the first event time of the stream on."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.runtime.state_table import state_table
from tests.simulated_query import SimulatedQuery

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FIRST = w.Tumbling("10s", origin="first")


def reading(second, key="a"):
    return {"event_time": NOON + second * SECOND, "key": key}


def spans(rows):
    return sorted(
        ((r["window_start"] - NOON) / SECOND, (r["window_end"] - NOON) / SECOND, r["key"], r["count"]) for r in rows
    )


@pytest.mark.parametrize(
    ("frame", "wanted"),
    [
        (FIRST, [(3, 13, "a", 2), (3, 13, "b", 1), (13, 23, "b", 1), (23, 33, "a", 1)]),
        (w.Tumbling("10s"), [(0, 10, "a", 1), (10, 20, "a", 1), (10, 20, "b", 2), (20, 30, "a", 1)]),
        (
            w.Hopping("20s", "10s", origin="first"),
            [
                *((-7, 13, "a", 2), (-7, 13, "b", 1), (3, 23, "a", 2), (3, 23, "b", 2)),
                *((13, 33, "a", 1), (13, 33, "b", 1), (23, 43, "a", 1)),
            ],
        ),
    ],
    ids=["first", "epoch", "hopping"],
)
def test_windows_are_counted_from_their_origin(frame, wanted):
    session = t.Window(by="key", frame=frame).session()
    out = session.push_many(map(reading, (3, 12.5)))
    out += session.push_many([reading(12.999999, "b"), reading(13, "b"), reading(25)])
    assert spans(out + session.flush()) == wanted


def test_record_before_the_first_belongs_to_a_window_before_the_origin():
    session = t.Window(by="key", frame=FIRST, allowed_lateness="10s").session()
    assert session.push_many(map(reading, (3, 1, -8))) == []
    assert spans(session.flush()) == [(-7, 3, "a", 1), (3, 13, "a", 1)]
    assert [error["reason"] for error in session.errors] == ["late"]


RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), min_size=1, max_size=25)


@pytest.mark.long
@given(RECORDS, st.integers(1, 12), st.integers(1, 3), st.integers(0, 9))
def test_windows_on_spark_are_those_of_one_process(records, most, partitions, seed):
    rows = [reading(second, key) for key, second in records]
    flow = ro.Dataflow("first")
    source = flow.source("in", schema={"event_time": "timestamp[us, tz=UTC]", "key": "string"})
    flow.sink("out", source.to(t.Window(by="key", frame=FIRST), id="n"))
    local = flow.run(rows)
    query = SimulatedQuery(flow, rows, random.Random(seed), max_records=most, partitions=partitions)
    assert spans(query["n"].to_pylist()) == spans(local["n"].to_pylist())
    assert query["errors"].num_rows == local["errors"].num_rows
    assert all(
        (row["window_start"] - rows[0]["event_time"]) % (10 * SECOND) == 0 * SECOND for row in local["n"].to_pylist()
    )


def test_open_windows_are_listed_with_their_begin():
    session = t.Window(by="key", frame=FIRST, allowed_lateness="10s").session()
    session.push_many([reading(3), reading(4, "b"), reading(14)])
    data, session = session.snapshot(), session.task.session()
    session.restore(data)
    session.push(reading(15, "c"))
    table = state_table([session.snapshot()])
    begins = {row["key"]: sorted((one["begin"] - NOON) / SECOND for one in row["open"]) for row in table.to_pylist()}
    assert begins == {"a": [3, 13], "b": [3], "c": [13]}
