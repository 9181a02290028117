"""Interval joins, against all pairs of records and against SQLite."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.runtime.state import KeyedState
from riot_ops.runtime.state_table import state_table
from riot_ops.testing import ABORT, ScriptedSource
from tests.reference.interval_join import interval_join
from tests.simulated_query import SimulatedQuery

TIME = pa.timestamp("us", tz="UTC")
streams = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 12), st.integers(0, 60), st.none()),
        st.sampled_from(["a", "a", "b", None]),
        st.sampled_from(["left", "right"]),
    ),
    max_size=30,
)
HOW = st.sampled_from(["inner", "left", "full"])


def seconds(time):
    return None if time is None else datetime(2024, 5, 1, tzinfo=UTC) + timedelta(seconds=time)


def common_form(stream):
    """Return records in the form that the join itself reads; ``l`` and ``r`` are their numbers."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "seq": n,
                "event_time": seconds(time),
                "key": key,
                side[0]: n,
                f"{side}_time": seconds(time),
            }
            for n, (time, key, side) in enumerate(stream)
        ],
        pa.schema(
            [
                pa.field("seq", pa.int64(), nullable=False),
                ("event_time", TIME),
                ("key", pa.string()),
                ("l", pa.int64()),
                ("r", pa.int64()),
                ("left_time", TIME),
                ("right_time", TIME),
            ]
        ),
    )


def run_in_pieces(task, batch, cuts, restarts):
    """Return rows and errors, with a restart from bytes after some of the pieces."""
    session, rows, errors = task.session(), [], []
    edges = [0, *sorted(c % (batch.num_rows + 1) for c in cuts), batch.num_rows]
    for i, (a, b) in enumerate(pairwise(edges)):
        rows += session.push_batch(batch.slice(a, b - a)).to_pylist()
        if restarts >> i & 1:
            data, errors = session.snapshot(), errors + session.errors
            session = task.session()
            session.restore(data)
    return rows + session.flush(), errors + session.errors


def results(rows):
    """Return the pairs in order, and the sorted records without a partner with the last time of one."""
    pairs = [(row["l"], row["r"]) for row in rows if row["l"] is not None and row["r"] is not None]
    alone = [
        (row["r"] if row["l"] is None else row["l"], (row["event_time"] - seconds(0)) // timedelta(seconds=1))
        for row in rows
        if row["l"] is None or row["r"] is None
    ]
    return pairs, sorted(alone)


@pytest.mark.long
@given(
    streams, st.integers(0, 4), st.integers(0, 6), HOW, st.sampled_from([0, 2, 50]), st.sampled_from([2, 100]),
    st.lists(st.integers(0, 30), max_size=4), st.integers(0, 31),
)  # fmt: skip
def test_pairs_are_those_of_nested_loops(stream, before, after, how, lateness, max_held, cuts, restarts):
    within = (timedelta(seconds=before), timedelta(seconds=after))
    task = t.IntervalJoin(
        by="key", within=within, how=how, allowed_lateness=f"{lateness}s", max_held=max_held, left="l"
    )
    records = [(time, key, side, n) for n, (time, key, side) in enumerate(stream)]
    pairs, alone, rejected = interval_join(records, before, after, how, lateness, max_held)
    rows, errors = run_in_pieces(task, common_form(stream), cuts, restarts)
    assert results(rows) == (pairs, alone)
    assert [(e["seq"], e["reason"]) for e in errors] == rejected or sorted(
        (e["seq"], e["reason"]) for e in errors
    ) == sorted(rejected)
    for row in rows:
        times = [row[name] for name in ("left_time", "right_time") if row[name] is not None]
        assert len(times) == 1 or row["event_time"] == max(times)
        assert [row["left_time"], row["right_time"]] == [
            None if n is None else seconds(stream[n][0]) for n in (row["l"], row["r"])
        ]


@given(streams, HOW)
def test_pairs_are_those_of_sqlite(stream, how):
    stream = [(time, key, side) for time, key, side in stream if time is not None]
    batch = common_form(stream)
    task = t.IntervalJoin(by="key", within=("2s", "5s"), how=how, allowed_lateness="1h", left="l")
    rows, errors = run_in_pieces(task, batch, [7], 1)
    assert not errors
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("create table l (n, at, key)")
        db.execute("create table r (n, at, key)")
        for n, (time, key, side) in enumerate(stream):
            db.execute(f"insert into {side[0]} values (?, ?, ?)", (n, time, key))
        wanted = db.execute(
            f"select l.n, r.n from l {how} join r on l.key = r.key and r.at between l.at - 2 and l.at + 5"
        ).fetchall()
    assert sorted(((row["l"], row["r"]) for row in rows), key=str) == sorted(wanted, key=str)


def joined_flow(how="full", merging="number", **options):
    flow = ro.Dataflow("shop", merging=merging)
    orders = flow.source(
        "orders",
        schema={
            "id": "int64",
            "event_time": TIME,
            "item": "string",
            "price": "decimal128(9, 2)",
            "tags": pa.list_(pa.string()),
        },
    )
    payments = flow.source(
        "payments",
        schema={"order": "int64", "event_time": TIME, "price": "double", "big": "int64", "at": "timestamp[ns, tz=UTC]"},
    )
    task = t.IntervalJoin(
        by="id", right_on="order", within="5s", how=how, allowed_lateness="1min", suffix="_paid", **options
    )
    return flow.sink("out", flow.add(task, orders, payments, id="paid"))


AT = datetime(2024, 5, 1, 0, 0, 0, 7, tzinfo=UTC)
ORDERS = [
    {"id": 1, "event_time": seconds(0), "item": "tea", "price": Decimal("1.10"), "tags": ["x", None]},
    {"id": 2, "event_time": seconds(1), "item": "cup", "price": None, "tags": None},
    {"id": 2**60 + 1, "event_time": seconds(9), "item": None, "price": Decimal("-3.00"), "tags": []},
]
PAYMENTS = [
    {"order": 1, "event_time": seconds(5), "price": 1.5, "big": 2**62 + 1, "at": AT},
    {"order": 1, "event_time": seconds(2), "price": None, "big": None, "at": None},
    {"order": 2**60 + 1, "event_time": seconds(10), "price": -0.0, "big": 1, "at": None},
    {"order": 3, "event_time": seconds(10), "price": 2.0, "big": 3, "at": None},
]
FIELDS = ("id", "item", "price", "tags", "price_paid", "big", "at")
JOINED = [
    (1, "tea", Decimal("1.10"), ["x", None], 1.5, 2**62 + 1, AT),
    (1, "tea", Decimal("1.10"), ["x", None], None, None, None),
    (2, "cup", None, None, None, None, None),
    (3, None, None, None, 2.0, 3, None),
    (2**60 + 1, None, Decimal("-3.00"), [], -0.0, 1, None),
]


def picked(table):
    return sorted(
        (tuple(row[name] for name in FIELDS) for row in table.to_pylist()), key=lambda row: (row[0], str(row))
    )


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_streams_of_different_fields_are_joined_in_process(batch_size):
    flow = joined_flow()
    result = flow.run({"orders": ORDERS, "payments": PAYMENTS}, batch_size=batch_size)
    assert picked(result["paid"]) == sorted(JOINED, key=lambda row: (row[0], str(row)))
    assert not result["errors"].num_rows


def test_streams_of_different_fields_are_joined_by_the_stages_of_spark():
    flow = joined_flow()
    for seed in range(3):
        query = SimulatedQuery(
            flow, {"orders": ORDERS, "payments": PAYMENTS}, random.Random(seed), max_records=2, partitions=2
        )
        assert picked(query["paid"]) == sorted(JOINED, key=lambda row: (row[0], str(row)))


def test_checkpoint_continues_the_join(tmp_path):
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "state", "epoch_rows": 1}
    sources = {"orders": ScriptedSource([ORDERS]), "payments": ScriptedSource([PAYMENTS[:1], ABORT, PAYMENTS[1:]])}
    with pytest.raises(ConnectorError, match="ABORT"):
        joined_flow().run(sources, **options)
    joined_flow().run(sources, **options)
    found = picked(pq.read_table(tmp_path / "out" / "paid"))
    assert found == sorted(JOINED, key=lambda row: (row[0], str(row)))


def test_snapshot_of_many_keys_has_the_rows_of_each():
    session = t.IntervalJoin(by="key", within="1h", how="full", left="l").session()
    stream = [(n // 10, f"{n % 300}", ("left", "right")[n // 300 % 2]) for n in range(1200)]
    session.push_batch(common_form([*stream, (120, None, "left")]))
    held = {row["key"]: row["held"] for row in state_table([session.snapshot()]).to_pylist()}
    for key in ("0", "299", None):
        wanted = [n for n, one in enumerate([*stream, (120, None, "left")]) if one[1] == key]
        assert [row["r"] if row["l"] is None else row["l"] for row in held[key]] == wanted
    restored = t.IntervalJoin(by="key", within="1h", how="full", left="l").session()
    restored.restore(session.snapshot())
    assert sorted(map(str, restored.flush())) == sorted(map(str, session.flush()))


def test_worker_that_falls_behind_drops_what_another_has_emitted():
    task = t.IntervalJoin(by="key", within="1s", how="left", left="l")
    batch = common_form([(0, "a", "left"), (100, None, "right"), (200, None, "right")])
    here, there, rejects = KeyedState(task), KeyedState(task), RejectedRecords("join")
    here.update(batch.slice(0, 1), rejects)
    there.restore(here.snapshot())
    there.update(batch.slice(0, 0), rejects)
    assert sum(out.num_rows for out in here.update(batch.slice(1, 1), rejects)) == 1
    there.restore(here.snapshot("delta"))
    assert not sum(out.num_rows for out in there.update(batch.slice(2), rejects))


def test_descriptor_keeps_both_sides():
    flow = joined_flow()
    again = ro.Dataflow.from_json(flow.to_json())
    assert again.to_dict() == flow.to_dict()
    assert [edge.source for edge in again.inputs("paid")] == ["paid.left", "paid.right"]
    result = again.run({"orders": ORDERS, "payments": PAYMENTS})
    assert picked(result["paid"]) == sorted(JOINED, key=lambda row: (row[0], str(row)))


def test_stream_joined_with_itself_numbers_its_records():
    flow = ro.Dataflow("self", ordinals=True)
    readings = flow.source("readings", schema={"key": "string", "event_time": TIME, "x": "int64"})
    flow.sink("out", flow.add(t.IntervalJoin(by="key", within=("0s", "1s")), readings, readings, id="next"))
    rows = [{"key": "a", "event_time": seconds(n), "x": n} for n in range(3)]
    found = flow.run(rows)["next"].to_pylist()
    assert [(row["x"], row["x_right"]) for row in found] == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)]
    places = [tuple(row[name] for name in row if name == "seq" or name.startswith("ordinal")) for row in found]
    assert places == sorted(set(places))


def test_side_that_is_late_by_a_sorting_step_finds_its_partners():
    flow = ro.Dataflow("late")
    both = flow.source("in", {"key": "string", "event_time": TIME, "x": "int64"})
    left = both.apply(t.SortByEventTime(allowed_lateness="10s"), id="sorted")
    flow.sink("out", flow.add(t.IntervalJoin(by="key", within="0s"), left, both, id="pairs"))
    result = flow.run([{"key": "a", "event_time": seconds(2 * n), "x": n} for n in range(30)], batch_size=7)
    assert sorted((row["x"], row["x_right"]) for row in result["pairs"].to_pylist()) == [(n, n) for n in range(30)]
    assert not result["errors"].num_rows


def test_times_far_ahead_are_rejected_until_three_agree():
    task = t.IntervalJoin(by="key", within="5s", how="left", max_ahead="1min", left="l")
    stream = [*[(0, "b", "left")] * 3, (0, "a", "left"), (1000, "a", "left"), (1, "a", "right")]
    stream += [(900 + n, "a", "left") for n in range(3)]
    rows, errors = run_in_pieces(task, common_form(stream), [], 0)
    assert results(rows) == ([(3, 5)], [(0, 5), (1, 5), (2, 5), (8, 907)])
    assert [(e["seq"], e["reason"]) for e in errors] == [(n, "from_the_future") for n in (4, 6, 7)]


def test_rows_of_no_side_are_rejected():
    batch = common_form([(0, "a", "left"), (1, "a", "right")])
    batch = batch.set_column(5, "left_time", pa.array([None, seconds(1)], TIME))
    session = t.IntervalJoin(by="key", within="5s", left="l").session()
    assert not session.push_batch(batch).num_rows
    assert [e["reason"] for e in session.errors] == ["no_side", "no_side"]


def test_state_ends_with_the_time_of_partners():
    session = t.IntervalJoin(by="key", within="2s", left="l").session()
    stream = [(n, "abc"[n % 3], "left") for n in range(3000)]
    for a in range(0, 3000, 100):
        session.push_batch(common_form(stream).slice(a, 100))
    assert len(session.snapshot()) < 8000


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"by": ()}, "by must name"),
        ({"within": ("-1s", "2s")}, "within"),
        ({"within": timedelta(seconds=-1)}, "within must not be negative"),
        ({"within": ("1s", "2s", "3s")}, "within"),
        ({"right_on": ("a", "b")}, "right_on must name as many fields"),
        ({"suffix": ""}, "suffix"),
        ({"allowed_lateness": timedelta(-1)}, "allowed_lateness"),
        ({"max_ahead": timedelta(0)}, "max_ahead"),
        ({"max_held": 0}, "max_held"),
        ({"ttl": timedelta(1)}, "ttl"),
        ({"left": ("id",)}, "left"),
        ({"how": "outer"}, "how"),
    ],
)
def test_wrong_parameters_are_refused(wrong, text):
    with pytest.raises(ConfigError, match=text):
        t.IntervalJoin(**{"by": "id", "within": "5s", **wrong})


@pytest.mark.parametrize(
    ("left", "right", "options", "text"),
    [
        ({"x": "int64"}, {"x": "int64", "x_right": "int64"}, {}, "x_right"),
        ({"x": "int64", "x_right": "int64"}, {"x": "int64"}, {}, "x_right"),
        ({"left_time": TIME}, {"y": "int64"}, {}, "left_time"),
        ({"x": "int64"}, {"y": "int64"}, {"right_on": "other"}, "other"),
    ],
)
def test_clashing_fields_are_refused(left, right, options, text):
    flow = ro.Dataflow("clash")
    sides = [
        flow.source(name, schema={"id": "int64", "event_time": TIME, **fields})
        for name, fields in (("l", left), ("r", right))
    ]
    with pytest.raises(ConfigError, match=text):
        flow.sink("out", flow.add(t.IntervalJoin(by="id", within="5s", **options), *sides)).validate()


def test_structs_of_either_side_are_joined():
    flow = ro.Dataflow("nested", merging="number")
    place = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])
    sides = [flow.source(name, schema={"id": "int64", "event_time": TIME, name: place}) for name in ("a", "b")]
    flow.sink("out", flow.add(t.IntervalJoin(by="id", within="5s"), *sides, id="both"))
    rows = {
        name: [{"id": 1, "event_time": seconds(0), name: {"x": x, "tags": [name]}}]
        for name, x in (("a", 1.5), ("b", None))
    }
    found = ro.Dataflow.from_json(flow.to_json()).run(rows)["both"].to_pylist()
    assert [(row["a"], row["b"]) for row in found] == [({"x": 1.5, "tags": ["a"]}, {"x": None, "tags": ["b"]})]


def test_three_streams_are_refused():
    flow = ro.Dataflow("three")
    sides = [flow.source(name, schema={"id": "int64", "event_time": TIME}) for name in "abc"]
    with pytest.raises(ConfigError, match="two streams, got 3"):
        flow.add(t.IntervalJoin(by="id", within="5s"), *sides)
