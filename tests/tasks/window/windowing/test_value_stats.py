"""What windows that keep values cost: linear in the records, and a few bytes for each."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError
from riot_ops.tasks import Window

TIME = pa.timestamp("us", "UTC")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def batches(values, rows=50):
    for i in range(0, len(values), rows):
        part = values[i : i + rows]
        yield pa.record_batch({"event_time": pa.array([NOON] * len(part), TIME), "v": pa.array(part)})


def pushed(aggregate, values, rows=50):
    session = Window(frame="1h", aggregates={"x": aggregate}).session()
    for batch in batches(values, rows):
        session.push_batch(batch)
    return session


def cpu(aggregate, n):
    """CPU seconds of n records in small batches, the best of three."""
    values = np.arange(n)
    given = list(batches(values))
    best = np.inf
    for _ in range(3):
        session = Window(frame="1h", aggregates={"x": aggregate}).session()
        start = time.process_time()
        for batch in given:
            session.push_batch(batch)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.long
@pytest.mark.parametrize(
    "aggregate", [("v", "unique"), ("v", "top", 3), ("v", "quantile", 0.5), ("v", "collect")], ids=str
)
def test_cost_is_linear_in_the_records(aggregate):
    pushed(aggregate, np.arange(100))  # compile
    # quadratic cost would give 16; the cost of a batch itself keeps linear cost near 4
    assert cpu(aggregate, 8_000) < 8 * cpu(aggregate, 2_000)


@pytest.mark.parametrize(
    ("aggregate", "bytes_each"),
    [(("v", "unique"), 11), (("v", "top", 3), 13), (("v", "quantile", 0.5), 11), (("v", "collect"), 11)],
    ids=str,
)
def test_snapshot_has_a_few_bytes_per_value(aggregate, bytes_each):
    few, many = (len(pushed(aggregate, np.arange(n), 1000).snapshot()) for n in (1, 10_000))
    assert few < 2_000
    assert (many - few) / 10_000 < bytes_each


def test_sketch_has_an_entry_per_bin_in_use():
    rng = np.random.default_rng(1)
    values = 20 + rng.normal(0, 1, 20_000)  # a dozen bins of 2 %
    assert len(pushed(("v", "quantile", 0.5, 0.01), values, 5_000).snapshot()) < 2_000


def test_state_of_many_keys_with_few_values_is_small():
    keys = 2_000
    session = Window(by="k", frame="1h", aggregates={"x": ("v", "quantile", 0.5)}).session()
    session.push_batch(
        pa.record_batch({"event_time": pa.array([NOON] * keys, TIME), "k": np.arange(keys), "v": np.ones(keys)})
    )
    assert len(session.snapshot()) / keys < 150


def test_repeated_values_add_no_cost():
    once, often = (len(pushed(("v", "unique"), np.arange(n) % 100, 500).snapshot()) for n in (100, 10_000))
    assert once == often


def test_distinct_values_survive_growth_and_restart():
    rng = np.random.default_rng(2)
    values = rng.integers(0, 5_000, 9_000)
    session = pushed(("v", "unique"), values[:6_000], 700)
    again = Window(frame="1h", aggregates={"x": ("v", "unique")}).session()
    again.restore(session.snapshot())
    for batch in batches(values[6_000:], 700):
        again.push_batch(batch)
    assert again.flush()[0]["x"] == len(set(values.tolist()))


def test_hopping_windows_unite_panes_without_changing_them():
    task = Window(frame=w.Hopping("3min", "1min"), aggregates={"u": ("v", "unique"), "top": ("v", "top", 2)})
    session = task.session()
    us = int(NOON.timestamp()) * 1_000_000
    values = [1, 2, 2, 3, 3, 3, 1, 4]
    minutes = [0, 0, 1, 1, 2, 2, 3, 3]
    session.push_batch(
        pa.record_batch({"event_time": pa.array([us + m * 60_000_000 for m in minutes], TIME), "v": values})
    )
    rows = session.push_batch(pa.record_batch({"event_time": pa.array([us + 10**9], TIME), "v": [9]})).to_pylist()
    for row in rows:
        end = int((row["window_end"] - NOON).total_seconds() // 60)
        inside = Counter(v for v, m in zip(values, minutes, strict=True) if end - 3 <= m < end)
        best = sorted(inside.items(), key=lambda pair: (-pair[1], pair[0]))[:2]
        assert (row["u"], [(p["value"], p["count"]) for p in row["top"]]) == (len(inside), best)


def test_updates_show_the_window_after_each_record():
    values = [3, 3, 1, 2, 1, 1]
    task = Window(frame="1h", emit="each", aggregates={"u": ("v", "unique"), "top": ("v", "top", 1)})
    rows = task.session().push_many({"event_time": NOON, "v": v} for v in values)
    for i, row in enumerate(rows):
        seen = Counter(values[: i + 1])
        best = min(seen.items(), key=lambda pair: (-pair[1], pair[0]))
        assert (row["u"], row["top"]) == (len(seen), [{"value": best[0], "count": best[1]}])
    whole = task.session().push_batch(pa.record_batch({"event_time": pa.array([NOON] * 6, TIME), "v": values}))
    assert [r["u"] for r in whole.to_pylist()] == [r["u"] for r in rows]


weighted = st.lists(
    st.tuples(
        st.none() | st.sampled_from(["x", "y", "ü"]),
        st.none() | st.integers(-9, 9),
        st.none() | st.floats(-100, 100),
    ),
    max_size=30,
)


@pytest.mark.parametrize("frame", [None, 4, w.Sliding(4)], ids=["unbounded", "count", "sliding"])
@given(weighted, st.integers(1, 9))
def test_weights_and_lists_are_those_of_plain_python(frame, rows, cut):
    aggregates = {
        "top": ("k", "top", 2, "n"),
        "all": ("k", "collect"),
        "mean": ("x", "weighted_mean", "n"),
    }
    task = t.Window(frame=frame, aggregates=aggregates, emit="update" if frame is None else None)
    session, found, windows = task.session(), [], []
    for i in range(0, len(rows), cut):
        columns = zip(
            ("k", "n", "x"), zip(*rows[i : i + cut], strict=True), (pa.string(), pa.int64(), pa.float64()), strict=True
        )
        batch = pa.RecordBatch.from_pydict({name: pa.array(column, kind) for name, column, kind in columns})
        found += session.push_batch(batch).to_pylist()
        data, session = session.snapshot(), task.session()
        session.restore(data)
        windows += [rows[: i + len(batch)]]
    if frame == 4:
        windows = [rows[i : i + 4] for i in range(0, len(rows) - 3, 4)]
    elif frame is not None:
        windows = [rows[max(0, i - 3) : i + 1] for i in range(len(rows))]
    for row, window in zip(found, windows, strict=True):
        sums = {}
        for k, n, _ in window:
            if k is not None and n is not None:
                sums[k] = sums.get(k, 0) + n
        best = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))[:2]
        assert row["top"] == [{"value": k, "weight": total} for k, total in best]
        assert row["all"] == [k for k, *_ in window if k is not None]
        both = [(x, n) for _, n, x in window if x is not None and n is not None]
        weight = sum(n for _, n in both)
        wanted = sum(x * n for x, n in both) / weight if weight else None
        assert row["mean"] == (None if wanted is None else pytest.approx(wanted, rel=1e-9, abs=1e-9))


def test_collected_values_keep_their_type():
    at = [datetime(2024, 5, 1, 12, tzinfo=UTC), None, datetime(2024, 5, 1, 13, tzinfo=UTC)]
    task = t.Window(frame=3, aggregates={"at": ("t", "collect"), "x": ("x", "collect")})
    session = task.session()
    table = pa.table({"t": pa.array(at, pa.timestamp("ns", "UTC")), "x": [1.5, float("nan"), float("inf")]})
    session.push_batch(table.slice(0, 2))
    data, session = session.snapshot(), task.session()
    session.restore(data)
    out = session.push_batch(table.slice(2))
    assert out.schema.field("at").type == pa.list_(pa.timestamp("ns", "UTC"))
    assert out.to_pylist()[0]["x"] == [1.5, float("inf")]
    assert [int(one.value) for one in out["at"][0]] == [int(table["t"][i].value) for i in (0, 2)]


def test_many_small_batches_are_collected():
    session = t.Window(frame=200, aggregates={"all": ("x", "collect")}).session()
    rows = session.push_many({"x": float(i)} for i in range(200))
    assert rows[0]["all"] == [float(i) for i in range(200)]


def test_sum_of_weights_beyond_int64_is_null():
    session = t.Window(frame=2, aggregates={"top": ("k", "top", 1, "n")}).session()
    batch = pa.table({"k": ["a", "a"], "n": [2**63 - 1, 1]})
    assert session.push_batch(batch).to_pylist() == [{"top": [{"value": "a", "weight": None}]}]
    floats = t.Window(frame=2, aggregates={"top": ("k", "top", 1, "n")}).session()
    assert floats.push_batch(pa.table({"k": ["a", "a"], "n": [0.5, 1.0]}))["top"][0].as_py()[0]["weight"] == 1.5


def test_misuse_of_weights_is_refused():
    for aggregate, message in (
        (("k", "top", 2, 5), "field of the weights, got 5"),
        (("x", "weighted_mean"), "field of the weights, got None"),
    ):
        with pytest.raises(ConfigError, match=message):
            t.Window(frame=2, aggregates={"a": aggregate})
    with pytest.raises(ConfigError, match="'n'"):
        t.Window(frame=2, aggregates={"a": ("x", "weighted_mean", "n")}).session().push_batch(pa.table({"x": [1.0]}))
    exact = t.Window(frame=1, aggregates={"a": ("x", "weighted_mean", "n")}).session()
    exact.push_batch(pa.table({"x": [1.0], "n": [2**53 + 1]}))
    assert [error["reason"] for error in exact.errors] == ["out_of_range"]
