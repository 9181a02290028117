"""Running totals, against sums of Python."""

from __future__ import annotations

import operator
import random
from collections import defaultdict
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from tests.simulated_query import SimulatedQuery

MOST, LEAST = 2**63 - 1, -(2**63)
readings = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.none() | st.integers(-9, 9) | st.sampled_from([MOST, LEAST, MOST - 1]),
        st.none() | st.booleans(),
    ),
    max_size=30,
)


@given(readings, st.integers(1, 9))
def test_totals_are_exact_or_null(readings, batch_size):
    flow = ro.Dataflow("totals")
    source = flow.source("in", schema={"key": "string", "n": "int64", "yes": "bool"})
    totals = t.RunningTotals(by="key", totals={"sum": "n", "trues": "yes", "rows": None})
    flow.sink("out", source.to(totals, id="t"))
    table = flow.run([dict(zip(("key", "n", "yes"), r, strict=True)) for r in readings], batch_size=batch_size)["t"]
    sums, trues, count = defaultdict(int), defaultdict(int), defaultdict(int)
    for row, (key, n, yes) in zip(table.to_pylist(), readings, strict=True):
        sums[key] += n or 0
        trues[key] += bool(yes)
        count[key] += 1
        total = sums[key] if LEAST <= sums[key] <= MOST else None
        assert (row["sum"], row["trues"], row["rows"]) == (total, trues[key], count[key])


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=6), max_size=4))
def test_updates_are_the_last_of_each_key_in_a_batch(batches):
    each, update = (t.RunningTotals(by="key", totals={"sum": "n"}, emit=emit).session() for emit in ("each", "update"))
    for pairs in batches:
        batch = pa.RecordBatch.from_pylist(
            [{"key": k, "n": n} for k, n in pairs], pa.schema([("key", pa.string()), ("n", pa.int64())])
        )
        every = each.push_batch(batch).to_pylist()
        last = [row for i, row in enumerate(every) if row["key"] not in [k for k, _ in pairs[i + 1 :]]]
        assert update.push_batch(batch).to_pylist() == last


def flow_of(**options):
    flow = ro.Dataflow("totals")
    source = flow.source("in", schema={"key": "string", "n": "int64", "yes": "bool"})
    totals = t.RunningTotals(by="key", totals={"n": "n", "trues": "yes", "rows": None}, **options)
    flow.sink("out", source.to(totals, id="t"))
    return flow


@pytest.mark.long
@given(readings, st.integers(1, 12), st.integers(1, 3), st.integers(0, 9))
def test_updates_on_spark_equal_single_records(readings, most, partitions, seed):
    given = [dict(zip(("key", "n", "yes"), r, strict=True)) for r in readings]
    result = SimulatedQuery(flow_of(emit="update"), given, random.Random(seed), max_records=most, partitions=partitions)
    every = flow_of().run(given)["t"].to_pylist()
    wanted = [
        row
        for i, row in enumerate(every)
        if all(later["key"] != row["key"] for later in every[i + 1 : (i // most + 1) * most])
    ]
    assert sorted(result["t"].to_pylist(), key=lambda row: row["seq"]) == wanted


@pytest.mark.parametrize(
    ("options", "numbers", "wanted"),
    [
        ({"emit": "update"}, [1, 2, -7, None], 1),
        ({"emit": "update"}, [MOST, 1, -1, -1], 1),
        ({"emit": "each"}, [1, 2, -7, None], 4),
        ({"emit": "update", "ttl": "1min"}, [1, 2, -7, None], 4),
    ],
    ids=["update", "beyond the range", "each", "ttl"],
)
def test_shuffle_carries_one_record_per_key(options, numbers, wanted, monkeypatch):
    crossed = []
    update = t.RunningTotals.update

    def noted(self, batch, *rest):
        crossed.append(batch.num_rows)
        return update(self, batch, *rest)

    monkeypatch.setattr(t.RunningTotals, "update", noted)
    monkeypatch.setattr("riot_ops.tasks.window.windowing.running_windows.MIN_PER_KEY", 2)
    flow = ro.Dataflow("totals")
    source = flow.source("in", schema={"event_time": "timestamp[us, tz=UTC]", "n": "int64"})
    flow.sink("out", source.to(t.RunningTotals(totals={"n": "n"}, **options), id="t"))
    calm = SimpleNamespace(shuffle=lambda _: None, random=lambda: 1.0, choice=operator.itemgetter(-1))
    noon = "2024-05-01T12:00:00Z"
    SimulatedQuery(flow, [{"event_time": noon, "n": n} for n in numbers], calm, max_records=4, partitions=1)
    assert sum(crossed) == wanted


def test_total_of_uint64_is_uint64():
    batch = pa.RecordBatch.from_pydict({"n": pa.array([None, 2**64 - 6, 5, None, 1], pa.uint64())})
    out = t.RunningTotals(totals={"n": "n"}).session().push_batch(batch)
    assert out["n"].type == pa.uint64()
    assert out["n"].to_pylist() == [0, 2**64 - 6, 2**64 - 1, 2**64 - 1, None]


def test_misuse_is_refused():
    for totals, error_text in (
        ({}, "dict of output field to field"), ("n", "dict of output field to field"), ({"seq": None}, "'seq'"), ({"ordinal": None}, "'ordinal'"),
        ({"n": 7}, "total of a field or None"), ({"key": None}, "'key'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=error_text):
            t.RunningTotals(totals=totals, by="key")
    with pytest.raises(ConfigError, match="sums integers and booleans"):
        t.RunningTotals(totals={"sum": "x"}).session().push({"x": 1.5})
    with pytest.raises(ConfigError, match="emit"):
        t.RunningTotals(totals={"n": None}, emit="last")
