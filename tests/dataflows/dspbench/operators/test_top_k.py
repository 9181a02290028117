"""Rankings, against sorted dicts."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import TopK

NOON = datetime(2024, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)
steps = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 1, 2, 5, -1, -7]),
        st.sampled_from("xy"),
        st.sampled_from(["a", "b", "ü", "", None]),
        st.sampled_from([1.0, 2.0, 3.0, 0.0, -1.0, None, math.inf]),
    ),
    max_size=25,
)


def records(steps):
    at, rows = 0, []
    for step, key, item, n in steps:
        at += step
        rows.append({"event_time": NOON + timedelta(seconds=at), "key": key, "item": item, "n": n})
    return rows


def wanted(rows, k, every, zeros, partial):
    """Rank by hand: rows of tick, key, rank, item and value; and the number of late records."""
    every, now, late, open_ = timedelta(seconds=every), None, 0, {}
    found = []
    first = rows[0]["event_time"] if rows else None
    for row in rows:
        now = max(now or first, row["event_time"])
        tick = (row["event_time"] - first) // every + 1
        if tick <= (now - first) // every:
            late += 1
        elif row["item"] is not None and row["n"] is not None:
            open_.setdefault((tick, row["key"]), {})[row["item"]] = row["n"]
    for (tick, key), items in open_.items():
        if partial or tick <= (now - first) // every:
            best = sorted((-n, item) for item, n in items.items() if n or zeros)[:k]
            found += [(first + tick * every, key, place, item, -n) for place, (n, item) in enumerate(best, 1)]
    return sorted(found), late


@pytest.mark.long
@given(steps, st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans(), st.integers(1, 9))
def test_rankings_equal_sorted_dicts(steps, k, every, zeros, partial, batch_size):
    rows = records(steps)
    flow = ro.Dataflow("top")
    schema = pa.schema(
        {"event_time": pa.timestamp("us", "UTC"), "key": pa.string(), "item": pa.string(), "n": pa.float64()}
    )
    task = TopK(by="key", item="item", value="n", k=k, every=timedelta(seconds=every), zeros=zeros, partial=partial)
    flow.sink("out", flow.source("in", schema=schema).to(task, id="top"))
    result = flow.run(rows, batch_size=batch_size)
    made = [(r["tick_time"], r["key"], r["rank"], r["item"], r["n"]) for r in result["top"].to_pylist()]
    expected, late = wanted(rows, k, every, zeros, partial)
    assert sorted(made) == expected
    assert result["errors"]["reason"].to_pylist() == ["late"] * late
    assert all(r["tick_time"] - r["event_time"] == timedelta(microseconds=1) for r in result["top"].to_pylist())


def test_integers_as_items_and_values():
    batch = pa.RecordBatch.from_pydict(
        {
            "event_time": pa.array([NOON, NOON, NOON, NOON + timedelta(seconds=1)], pa.timestamp("us", "UTC")),
            "item": pa.array([30, 4, 200, 4], pa.int64()),
            "count": pa.array([5, 5, 7, 1], pa.int64()),
        }
    )
    out = TopK(item="item", k=3, every="1s").session().push_batch(batch)
    assert out.select(["rank", "item", "count"]).to_pylist() == [
        {"rank": 1, "item": 200, "count": 7},
        {"rank": 2, "item": 4, "count": 5},
        {"rank": 3, "item": 30, "count": 5},
    ]


def test_missing_time_and_misuse():
    session = TopK(item="item", every="1s").session()
    session.push({"event_time": None, "item": "a", "count": 1})
    assert [e["reason"] for e in session.errors] == ["no_event_time"]
    for options, error_text in (
        ({"k": 0}, "k"), ({"every": "0s"}, "every"), ({"ttl": "1h"}, "ttl"), ({"value": "item"}, "different fields"),
        ({"by": "rank"}, "different fields"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=error_text):
            TopK(**{"item": "item", "every": "1s", **options})
