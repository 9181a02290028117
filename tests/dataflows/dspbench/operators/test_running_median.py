"""Running medians, against sorting."""

from __future__ import annotations

import statistics
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import RunningMedian
from tests.search import depth

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([None, 1.0, 2.5, 2.5, 7.0, -3.0]), st.integers(0, 2)), max_size=50
)


def steps_to_rows(steps):
    """Generate rows that add a value, or (None) remove the key's oldest, and (key, time, values) after each row."""
    queues, at, rows, wanted = {}, 0, [], []
    for key, value, step in steps:
        at += step
        queue = queues.setdefault(key, [])
        if value is None and not queue:
            continue
        action = 1 if value is not None else -1
        rows.append(
            {
                "event_time": NOON + timedelta(seconds=at),
                "key": key,
                "x": queue[0] if action < 0 else value,
                "do": action,
            }
        )
        queue.append(value) if action > 0 else queue.pop(0)
        wanted.append((key, at, statistics.median(queue) if queue else None, len(queue)))
    return rows, wanted


def found(rows):
    return [(r["key"], (r["event_time"] - NOON) // timedelta(seconds=1), r["mid"], r["n"]) for r in rows]


@pytest.mark.long
@given(STEPS, st.integers(1, 9))
@settings(max_examples=depth(90), deadline=None)
def test_medians_equal_sorted_lists(steps, batch_size):
    rows, wanted = steps_to_rows(steps)
    flow = ro.Dataflow("median")
    kinds = {"event_time": "timestamp[us, tz=UTC]", "key": "string", "x": "double", "do": "int64"}
    task = RunningMedian(by=("key",), value="x", action="do", output="mid", count="n")
    source = flow.source("in", schema=kinds)
    flow.sink("out", *(source.to(task.replace(emit=emit), id=emit) for emit in ("each", "final", "update")))
    result = flow.run(rows or pa.table({name: [] for name in kinds}), batch_size=batch_size)
    assert found(result["each"].to_pylist()) == wanted
    last = {(key, at): (mid, n) for key, at, mid, n in wanted}
    assert sorted(found(result["final"].to_pylist())) == sorted((*place, *of) for place, of in last.items())
    updates = found(result["update"].to_pylist())
    assert {(key, at): (mid, n) for key, at, mid, n in updates} == last
    assert set(updates) <= set(wanted)


def test_full_heaps_double():
    """Twelve values arrive in one batch when four of eight are left: 16, the capacity after doubling."""
    session, queue = RunningMedian().session(), []
    for steps in ([float(i * 5 % 8) for i in range(8)] + [None] * 4, [float(i * 7 % 12) for i in range(12)]):
        rows, wanted = [], []
        for value in steps:
            rows.append({"value": queue[0] if value is None else value, "action": -1 if value is None else 1})
            queue.pop(0) if value is None else queue.append(value)
            wanted.append((statistics.median(queue), len(queue)))
        out = session.push_batch(pa.RecordBatch.from_pylist(rows)).to_pylist()
        assert [(row["median"], row["count"]) for row in out] == wanted


def test_many_values_added_and_removed():
    rng = np.random.default_rng(4)
    values, window = rng.integers(0, 300, 4000).astype(float), 501
    adds = [(v, 1) for v in values.tolist()]
    rows = [step for i, one in enumerate(adds) for step in ([(adds[i - window][0], -1)] if i >= window else []) + [one]]
    table = pa.table({"value": [v for v, _ in rows], "action": [a for _, a in rows]})
    session = RunningMedian().session()
    parts = [session.push_batch(table.slice(i, 333)) for i in range(0, len(rows), 333)]
    medians = np.concatenate([np.asarray(part["median"]) for part in parts])[np.array([a for _, a in rows]) > 0]
    wanted = [np.median(values[max(0, i - window + 1) : i + 1]) for i in range(values.size)]
    assert medians.tolist() == wanted


def test_time_ends_with_a_later_one_or_the_stream():
    session = RunningMedian(emit="final", tag="all").session()
    out = [
        session.push({"event_time": NOON + timedelta(seconds=s), "value": v, "action": 1})
        for s, v in ((0, 1.0), (0, 3.0), (1, 8.0))
    ]
    assert [[(r["median"], r["count"], r["value"], r["scope"]) for r in rows] for rows in out] == [
        [],
        [],
        [(2.0, 2, 3.0, "all")],
    ]
    assert [(r["median"], r["count"]) for r in session.flush()] == [(3.0, 3)]
    lost = RunningMedian(emit="final", partial=False).session()
    assert lost.push({"event_time": NOON, "value": 1.0, "action": 1}) + lost.flush() == []


def test_without_actions_every_record_adds():
    rows = RunningMedian(action=None).session().push_many({"value": v} for v in (5, 1, 3, 3))
    assert [(r["median"], r["count"]) for r in rows] == [(5.0, 1), (3.0, 2), (3.0, 3), (3.0, 4)]


def test_largest_numbers_have_a_mean():
    rows = RunningMedian(action=None).session().push_many({"value": v} for v in (1.7e308, 1.7e308))
    assert rows[1]["median"] == 1.7e308


def test_removing_another_value_than_the_oldest_is_an_error():
    session = RunningMedian().session()
    steps = [(1.0, 1), (2.0, 1), (2.0, -1), (3.0, -1), (1.0, -1), (None, 1), (4.0, None), (float("inf"), 1)]
    rows = session.push_many({"value": v, "action": a} for v, a in steps)
    assert [(r["median"], r["count"]) for r in rows] == [(1.0, 1), (1.5, 2), (2.0, 1)]
    reasons = [e["reason"] for e in session.errors]
    assert reasons == ["unknown_value", "unknown_value", "missing", "missing", "not_finite"]
    timed = RunningMedian(emit="final").session()
    timed.push_many({"event_time": at, "value": 1.0, "action": 1} for at in (NOON, None, NOON - timedelta(seconds=1)))
    assert [e["reason"] for e in timed.errors] == ["no_event_time", "late"]


def test_misuse_is_refused():
    for wrong, message in (
        ({"emit": "all"}, "emit"), ({"output": "count"}, "must be different"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            RunningMedian(**wrong)


@pytest.mark.long
@pytest.mark.parametrize("shape", ["rising", "falling", "mixed"])
def test_many_values_of_one_time_on_one_side_of_the_median(shape):
    """Between two medians all new values lie above the old ones, or below, while the old ones leave; restarts within a time."""
    rng, queue, at, rows, wanted = np.random.default_rng(7), [], 0, [], []
    for k in range(30):
        for _ in range(int(rng.integers(1, 40))):
            value = {"rising": 10.0 * k, "falling": -10.0 * k, "mixed": 0.0}[shape] + float(rng.integers(0, 9))
            rows += [{"event_time": NOON + timedelta(seconds=k), "value": value, "action": 1}]
            queue.append(value)
            while len(queue) > 45 or (queue and rng.random() < 0.3):  # sometimes the window empties
                rows += [{"event_time": NOON + timedelta(seconds=k), "value": queue.pop(0), "action": -1}]
        wanted.append((statistics.median(queue) if queue else None, len(queue)))
    task, out = RunningMedian(emit="final"), []
    session = task.session()
    while at < len(rows):
        size = int(rng.integers(1, 60))
        out += session.push_many(rows[at : at + size])
        at += size
        saved, session = session.snapshot(), task.session()
        session.restore(saved)
    assert [(r["median"], r["count"]) for r in (*out, *session.flush())] == wanted
