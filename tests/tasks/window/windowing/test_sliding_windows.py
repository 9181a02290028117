"""Sliding windows against lists of records."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError
from tests.simulated_query import SimulatedQuery

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
AGGREGATES = {
    "n": "count",
    "values": ("value", "count"),
    **{name: ("value", name) for name in ("sum", "mean", "min", "max", "first", "last", "std")},
    "middle": ("value", "quantile", 0.5),
    "kinds": ("k", "unique"),
    "some": ("k", "distinct", 6),
    "best": ("k", "top", 1),
    "above": ("value", "matches", ">", 1),
    "total": ("k", "sum"),
}
#: Those that need the values themselves, or a sketch of them: windows of records then have no rings of cells.
OF_VALUES = ("middle", "kinds", "some", "best")
RECORDS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 5),
        st.none() | st.floats(-1e6, 1e6),
        st.none() | st.sampled_from([1, 2, -(2**62), 2**62]),
    ),
    min_size=1,
    max_size=40,
)
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("key", pa.string()),
        ("value", pa.float64()),
        ("k", pa.int64()),
    ]
)


def stamped(records):
    """Turn steps of time into times."""
    now = 0
    for key, step, value, k in records:
        now += step
        yield key, now, value, k


def batch_of(records, first):
    rows = [(i, NOON + timedelta(seconds=r[1]), r[0], *r[2:]) for i, r in enumerate(records, first)]
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays([*map(pa.array, columns, SCHEMA.types)], schema=SCHEMA)


def results(task, records, cut, *, restart=True):
    session, out = task.session(), []
    for i in range(0, len(records), cut):
        out += session.push_batch(batch_of(records[i : i + cut], i)).to_pylist()
        if restart:
            data, session = session.snapshot(), task.session()
            session.restore(data)
    return out


def wanted(records):
    """Compute the aggregates of the records of a window."""
    present = [value for *_, value, _ in records if value is not None]
    ks = [k for *_, k in records if k is not None]
    total = sum(ks)
    best = sorted(Counter(ks).items(), key=lambda pair: (-pair[1], pair[0]))[:1]
    return {
        "n": len(records),
        "values": len(present),
        "sum": math.fsum(present) if present else None,
        "mean": statistics.fmean(present) if present else None,
        "min": min(present, default=None),
        "max": max(present, default=None),
        "first": present[0] if present else None,
        "last": present[-1] if present else None,
        "std": statistics.stdev(present) if len(present) > 1 else None,
        "middle": statistics.median(present) if present else None,
        "kinds": len(set(ks)),
        "some": len(set(ks)),
        "best": [{"value": value, "count": n} for value, n in best],
        "above": sum(value > 1 for value in present),
        "total": total if ks and -(2**63) <= total < 2**63 else None,
    }


def test_restart_keeps_the_records_of_keys_with_few():
    """Key b keeps more records than a place has at first; all their values are what a fresh state has."""
    records = [*stamped([("b", 0, None, None)] * 9 + [("a", 1, 5.0, 1), ("b", 0, None, None), ("a", 0, None, None)])]
    task = t.Window(by="key", frame=w.Sliding("1min"), aggregates=AGGREGATES)
    last = results(task, records, 1)[-1]
    assert (last["some"], last["kinds"], last["sum"], last["total"], last["n"]) == (1, 1, 5.0, 1, 2)
    early = [
        (key, second - (NOON - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds(), *rest)
        for key, second, *rest in records[:9]
    ]
    assert [row["n"] for row in results(task, early, 1)] == [*range(1, 10)]


@pytest.mark.long
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    "size", [1, 2, 3, 7, timedelta(seconds=1), timedelta(seconds=6), timedelta(seconds=60)], ids=str
)
@given(records=RECORDS, cut=st.integers(1, 12))
def test_results_are_those_of_the_window_at_each_record(size, full, records, cut):
    records = [*stamped(records)]
    task = t.Window(by="key", frame=w.Sliding(size, full=full), aggregates=AGGREGATES)
    rows = results(task, records, cut)
    seen, place = {}, 0
    for i, record in enumerate(records):
        mine = seen.setdefault(record[0], [])
        mine.append(record)
        if isinstance(size, int):
            window, whole = mine[-size:], len(mine) >= size
        else:
            seconds = size.total_seconds()
            window = [one for one in mine if one[1] > record[1] - seconds]
            whole = record[1] - mine[0][1] >= seconds
        if full and not whole:
            continue
        row = rows[place]
        place += 1
        assert (row["seq"], row["key"], row["value"], row["k"]) == (i, record[0], *record[2:])
        for name, one in wanted(window).items():
            exact = name not in ("sum", "mean", "std", "middle") or one is None
            assert row[name] == (one if exact else pytest.approx(one, rel=1e-9, abs=1e-6)), name
    assert place == len(rows)
    assert rows == results(task, records, len(records), restart=False)  # to the bit
    ringed = {name: one for name, one in AGGREGATES.items() if name not in OF_VALUES}
    for row, same in zip(rows, results(task.replace(aggregates=ringed), records, cut), strict=True):
        std = same.pop("std")
        assert {**row, **same} == row  # to the bit
        assert std == (row["std"] and pytest.approx(row["std"], rel=1e-9, abs=1e-9))


@pytest.mark.long
@given(RECORDS, st.integers(1, 12), st.integers(1, 3), st.integers(0, 9))
def test_results_on_spark_are_those_of_one_process(records, most, partitions, seed):
    flow = ro.Dataflow("sliding")
    source = flow.source("in", schema={name: str(SCHEMA.field(name).type) for name in SCHEMA.names[1:]})
    aggregates = {"mean": ("value", "mean"), "n": "count"}
    flow.sink("out", source.to(t.Window(by="key", frame=w.Sliding(3), aggregates=aggregates), id="n"))
    given = [
        {"event_time": NOON + timedelta(seconds=s), "key": key, "value": value, "k": k}
        for key, s, value, k in stamped(records)
    ]
    found = SimulatedQuery(flow, given, random.Random(seed), max_records=most, partitions=partitions)
    assert sorted(found["n"].to_pylist(), key=lambda row: row["seq"]) == flow.run(given)["n"].to_pylist()


def test_no_error_builds_up():
    """Nothing is subtracted: large values that have left a window leave no rounding error."""
    values = np.random.default_rng(1).normal(size=5_000) * 10.0 ** np.random.default_rng(2).integers(0, 12, 5_000)
    values[-10:] = 0.1
    sums = t.Window(frame=w.Sliding(10), aggregates={"sum": ("value", "sum")}).session()
    assert sums.push_batch(pa.table({"value": values}))["sum"][-1].as_py() == pytest.approx(1.0, rel=1e-15)


def test_records_in_the_past_of_their_key_and_without_time_are_errors():
    session = t.Window(by="key", frame=w.Sliding("10s")).session()
    times = [("a", 5), ("b", 3), ("a", 4), ("a", 5), ("a", None), ("b", 13)]
    rows = session.push_many(
        {"key": key, "event_time": None if s is None else NOON + timedelta(seconds=s)} for key, s in times
    )
    assert [(row["key"], row["count"]) for row in rows] == [("a", 1), ("b", 1), ("a", 2), ("b", 1)]
    assert [error["reason"] for error in session.errors] == ["late", "no_event_time"]


def test_measures_of_time_need_a_duration():
    aggregates = {"span": "duration", "gap": ("value", "mean_gap")}
    session = t.Window(frame=w.Sliding("10s"), aggregates=aggregates).session()
    rows = session.push_many({"event_time": NOON + timedelta(seconds=s), "value": 1.0} for s in (0, 4, 6, 30))
    assert [(row["span"], row["gap"]) for row in rows] == [(0.0, None), (4.0, 4.0), (6.0, 3.0), (0.0, None)]
    with pytest.raises(ConfigError, match="measures event times"):
        t.Window(frame=w.Sliding(3), aggregates=aggregates)


def test_misuse_is_refused():
    for options, message in (
        ({"frame": w.Sliding(3), "emit": "final"}, "emit = 'final'"),
        ({"frame": w.Sliding("1min"), "allowed_lateness": "1s"}, "allowed_lateness"),
        ({"frame": w.Sliding(3), "aggregates": {"x": ("v", "ewm", 3)}}, "frame = None"),
        ({"by": "key", "frame": w.Sliding(2**20), "aggregates": {"x": ("v", "distinct", 16)}}, "the state of a key"),
    ):
        with pytest.raises(ConfigError, match=message):
            t.Window(**options)
    for size in (0, 2**20 + 1, True, 2.5):
        with pytest.raises(
            ConfigError, match=r"Sliding: size = .*timedelta or a text.*whole number from 1 to 1,048,576"
        ):
            w.Sliding(size)
    assert t.Window(frame=w.Sliding(3), by="window_start").by == ("window_start",)  # the record keeps its own
