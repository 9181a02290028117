"""Running aggregates against prefixes of the records, and against the tasks for a single one."""

from __future__ import annotations

import math
import statistics

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, StateError

AGGREGATES = {
    "n": "count",
    "values": ("value", "count"),
    **{name: ("value", name) for name in ("sum", "mean", "min", "max", "first", "last", "std", "var")},
    "spread": ("value", "var", 0),
    "k_mean": ("k", "mean"),
    "above": ("value", "matches", ">", 1),
    "share": ("value", "share", "<=", 1),
    "total": ("k", "sum"),
}
RECORDS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.one_of(st.none(), st.floats(-1e6, 1e6)),
        st.one_of(st.none(), st.integers(-(2**40), 2**40)),
    ),
    min_size=1,
    max_size=30,
)
SCHEMA = pa.schema([("seq", pa.int64()), ("key", pa.string()), ("value", pa.float64()), ("k", pa.int64())])


def batch_of(records, first=0):
    columns = zip(*records, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(range(first, first + len(records)), pa.int64()), *map(pa.array, columns, SCHEMA.types[1:])],
        schema=SCHEMA,
    )


def results(task, records, cut):
    """Return the results of records in pieces, with a restart after each."""
    session, out = task.session(), []
    for i in range(0, len(records), cut):
        out.append(session.push_batch(batch_of(records[i : i + cut], i)).to_pylist())
        data, session = session.snapshot(), task.session()
        session.restore(data)
    return out


def flat(parts):
    return [row for part in parts for row in part]


def prefix(records):
    """Compute the aggregates of records."""
    present = [v for _, v, _ in records if v is not None]
    whole = [k for *_, k in records if k is not None]
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
        "var": statistics.variance(present) if len(present) > 1 else None,
        "spread": statistics.pvariance(present) if present else None,
        "k_mean": statistics.fmean(whole) if whole else None,
        "above": sum(v > 1 for v in present),
        "share": sum(v <= 1 for v in present) / len(present) if present else None,
        "total": sum(whole) if whole else None,
    }


@pytest.mark.long
@given(RECORDS, st.integers(1, 9))
def test_results_are_those_of_the_records_so_far(records, cut):
    task = t.Window(by="key", aggregates=AGGREGATES)
    rows = flat(results(task, records, cut))
    assert [(row["seq"], row["key"], row["value"], row["k"]) for row in rows] == [
        (i, *record) for i, record in enumerate(records)
    ]
    for i, row in enumerate(rows):
        for name, one in prefix([one for one in records[: i + 1] if one[0] == row["key"]]).items():
            exact = name not in ("sum", "mean", "std", "var", "spread", "k_mean") or one is None
            assert row[name] == (one if exact else pytest.approx(one, rel=1e-9, abs=1e-6)), name
    assert rows == flat(results(task, records, len(records)))


@given(RECORDS, st.integers(1, 9))
def test_results_equal_those_of_single_tasks(records, cut):
    records = [(key, value, 0 if k is None else k) for key, value, k in records]
    aggregates = {"count": "count", "n": "count", "s": ("k", "sum")}
    rows = flat(results(t.Window(by="key", aggregates=aggregates), records, cut))
    counts = flat(results(t.RunningCount(by="key"), records, cut))
    totals = flat(results(t.RunningTotals(by="key", totals={"n": None, "s": "k"}), records, cut))
    assert [row["count"] for row in rows] == [row["count"] for row in counts]
    assert [(row["n"], row["s"]) for row in rows] == [(row["n"], row["s"]) for row in totals]


@pytest.mark.long
@given(RECORDS, st.integers(1, 9))
def test_updates_are_the_last_results_of_each_key_in_a_batch(records, cut):
    sketches = {"top": ("k", "top", 2), "unique": ("k", "unique"), "middle": ("k", "quantile", 0.5)}
    each = results(t.Window(by="key", aggregates=AGGREGATES), records, cut)
    updates = results(t.Window(by="key", aggregates=AGGREGATES | sketches, emit="update"), records, cut)
    for all_rows, some in zip(each, updates, strict=True):
        last = {row["key"]: row for row in all_rows}
        assert [row["seq"] for row in some] == sorted(row["seq"] for row in last.values())
        for row in some:
            assert {name: row[name] for name in last[row["key"]]} == last[row["key"]]
    ks = [k for key, _, k in records if key == records[-1][0] and k is not None]
    final = next(row for row in updates[-1] if row["key"] == records[-1][0])
    assert final["unique"] == len(set(ks))
    assert final["middle"] == (pytest.approx(statistics.median(ks)) if ks else None)


def test_key_without_records_for_its_ttl_starts_again():
    session = t.Window(by="key", ttl="1min").session()
    times = pa.array([0, 50_000_000, 200_000_000], pa.timestamp("us", "UTC")).to_pylist()
    assert [row["count"] for row in session.push_many({"event_time": at, "key": "a"} for at in times)] == [1, 2, 1]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20), st.integers(1, 9))
def test_sums_of_large_integers_are_exact_or_null(ks, cut):
    rows = flat(results(t.Window(aggregates={"s": ("k", "sum")}), [("a", None, k) for k in ks], cut))
    totals = [sum(k for k in ks[: i + 1] if k is not None) for i in range(len(ks))]
    wanted = [
        total if -(2**63) <= total < 2**63 and any(k is not None for k in ks[: i + 1]) else None
        for i, total in enumerate(totals)
    ]
    assert [row["s"] for row in rows] == wanted


def test_sum_of_no_values_is_the_option():
    null, zero = (t.Window(aggregates={"s": ("k", "sum", *empty)}).session() for empty in ((), (0,)))
    values = pa.table({"k": pa.array([None, 2, None], pa.int64())})
    assert null.push_batch(values)["s"].to_pylist() == [None, 2, 2]
    assert zero.push_batch(values)["s"].to_pylist() == [0, 2, 2]
    for wrong in (1, False, "0"):
        with pytest.raises(ConfigError, match="the sum of no values is None or 0"):
            t.Window(aggregates={"s": ("k", "sum", wrong)})


@pytest.mark.parametrize("values", [[0.0, -0.0], [-0.0, 0.0], [-0.0]])
def test_extremes_do_not_depend_on_the_order_of_zeros(values):
    session = t.Window(aggregates={"low": ("value", "min"), "high": ("value", "max")}).session()
    row = session.push_many({"value": value} for value in values)[-1]
    assert [math.copysign(1.0, row[name]) for name in ("low", "high")] == [1.0, 1.0]


def test_states_merge_where_that_is_exact():
    task = t.Window(by="key", aggregates={name: ("k", name) for name in ("count", "min", "max", "first", "last")})
    here, there, whole = (task.session() for _ in range(3))
    records = [("a", 1.0, 5), ("b", 1.0, None), ("a", 1.0, -2), ("b", 1.0, 9), ("a", 1.0, 7), ("c", 1.0, 2**53 + 1)]
    here.push_batch(batch_of(records[:3]))
    there.push_batch(batch_of(records[3:], 3))
    whole.push_batch(batch_of(records))
    here.merge(there.snapshot())
    more = batch_of([(key, 1.0, None) for key in "abc"], 6)
    assert here.push_batch(more).equals(whole.push_batch(more))
    sums = t.Window(by="key", aggregates={"s": ("value", "sum")}).session()
    with pytest.raises(StateError, match="cannot be merged"):
        sums.merge(sums.snapshot())


def test_refused_value_changes_no_other_aggregate():
    session = t.Window(aggregates={"n": ("value", "count"), "s": ("value", "sum"), "v": ("value", "var", 0)}).session()
    rows = session.push_many({"value": v} for v in (1.0, 1e300, 3.0))
    assert [(row["n"], row["s"], row["v"]) for row in rows] == [(1, 1.0, 0.0), (2, 4.0, 1.0)]
    assert [error["reason"] for error in session.errors] == ["overflow"]


def test_aggregates_over_the_order_of_records():
    aggregates = {"ewm": ("value", "ewm", 3), "warm": ("value", "ewm", 3, 2), "n": ("value", "clipped_count", 2)}
    session = t.Window(by="key", aggregates=aggregates).session()
    rows = session.push_many({"key": "a", "value": v} for v in (10.0, 20.0, 30.0))
    assert [(row["ewm"], row["warm"], row["n"]) for row in rows] == [(10.0, 10.0, 1), (15.0, 15.0, 2), (22.5, 22.5, 2)]


def _lower(cell, x):
    cell[0] = min(cell[0], x)
    cell[1] += 1.0


def _lowest(cell, other):
    cell[0] = min(cell[0], other[0])
    cell[1] += other[1]


LOWEST = t.Aggregate("lowest", (math.inf, 0.0), _lower, _lowest, lambda cell: cell[0] * 100 + cell[1])


@pytest.mark.parametrize("emit", ["each", "update"])
def test_own_aggregate_begins_with_its_initial_numbers(emit):
    task = t.Window(by="key", aggregates={"x": ("value", LOWEST)}, emit=emit)
    records = [("a", 5.0, None), ("b", 3.0, None), ("a", None, None), ("a", 4.0, None)]
    assert [row["x"] for row in flat(results(task, records, 1))] == [501.0, 301.0, 501.0, 402.0]
    assert [row["x"] for row in flat(results(task, records, 4))][-1] == 402.0


@pytest.mark.parametrize(
    ("aggregate", "options", "message"),
    [
        (("v", "ewm", 3), {"emit": "update"}, "frame = None"),
        (("v", "clipped_mean"), {"frame": "1min"}, "frame = None"),
        (("v", "ewm", 0.5), {}, "the span"),
        (("v", "ewm"), {}, "the span"),
        (("v", "ewm", 3, -1), {}, "the warm-up"),
        (("v", "clipped_mean", 1), {}, "the window"),
        (("v", "clipped_mean", 3, 0), {}, "sigma"),
        (("v", "clipped_count", 3, 1.0, 1), {}, "whole"),
        (("v", "var", 2), {}, "degrees of freedom"),
    ],
)
def test_misuse_is_refused(aggregate, options, message):
    with pytest.raises(ConfigError, match=message):
        t.Window(aggregates={"x": aggregate}, **options)


def test_result_replaces_a_field_of_its_name():
    session = t.Window(aggregates={"value": ("value", "sum"), "n": "count"}).session()
    assert session.push_many([{"value": 2, "x": "u"}, {"value": 3, "x": "v"}])[-1] == {"value": 5, "x": "v", "n": 2}


def test_state_of_another_emission_is_refused():
    session = t.Window(by="key").session()
    session.push({"key": "a"})
    with pytest.raises(StateError):
        t.Window(by="key", emit="update").session().restore(session.snapshot())
