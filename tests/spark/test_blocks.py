"""Records that are pre-combined before they cross Spark give the same results."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.ipc import decode
from riot_ops.graph.plan import plan
from riot_ops.spark import blocks
from riot_ops.spark.blocks import Packer, bucket_labels
from riot_ops.spark.dataframe_transform import assign_labels
from riot_ops.tasks.window.windowing import running_windows
from tests.search import depth

MAX = 2**63 - 1
MERGED = {
    **{name: ("value", name) for name in ("count", "min", "max", "first", "last")},
    **{f"n {name}": ("n", name) for name in ("sum", "mean", "min", "max", "first", "last")},
    "above": ("value", "matches", ">", 1),
    "share": ("n", "share", "==", MAX),
    "records": "count",
}
KEYED = [
    t.RunningCount(by="key", emit="update"),
    t.Window(
        by="key",
        aggregates={"rows": "count", "sum": ("n", "sum", 0), "low": ("n", "min"), "high": ("n", "max")},
        emit="update",
    ),
    t.RunningSummary(by="key", emit="update"),
    t.Deduplicate(by=("key", "n")),
    t.Window(by="key", aggregates=MERGED, emit="update"),
]
SCHEMA = pa.schema({"seq": pa.int64(), "key": pa.string(), "n": pa.int64(), "value": pa.float64()})
ROW = st.tuples(
    st.sampled_from(["a", "b", "ü", "", None]),
    st.sampled_from([0, 1, -1, 7, MAX, -MAX, None]),
    st.sampled_from([0.1, 0.0, -0.0, 1e16, 1.0, -1e16, 1e300, 1.7e308, float("inf"), float("nan"), None]),
)


def pieces_of(rows, sizes):
    """Yield the rows in batches of these sizes, and the rest as one more."""
    table = pa.RecordBatch.from_pylist(
        [{"seq": i, "key": k, "n": n, "value": v} for i, (k, n, v) in enumerate(rows)], SCHEMA
    )
    at = 0
    for size in sizes:
        yield table.slice(at, size)
        at += size
    yield table.slice(at)


def results(task, batches):
    session = task.session()
    made = session.push_batch(pa.concat_batches([b for b in batches if b.num_rows] or batches))
    return repr(made.sort_by("seq").to_pylist()), repr(session.errors)  # where NaN equals NaN


@pytest.mark.long
@pytest.mark.parametrize("task", KEYED, ids=lambda task: type(task).__name__)
@settings(deadline=None, max_examples=depth(100))
@given(
    rows=st.lists(ROW, min_size=1, max_size=40), sizes=st.lists(st.integers(1, 12), max_size=5), limit=st.integers(0, 9)
)
def test_precombined_records_give_same_results(task, rows, sizes, limit):
    pieces = list(pieces_of(rows, sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "MAX_BUFFERED_ROWS", limit)
        patch.setattr(running_windows, "MIN_PER_KEY", 2)
        buffer = blocks.PrecombineBuffer(None, task.by, task)
        sent = [one for piece in pieces for one in buffer.take(piece)] + buffer.drain()
    assert results(task, sent) == results(task, pieces)


@pytest.mark.long
@settings(deadline=None, max_examples=depth(100))
@given(rows=st.lists(st.tuples(st.booleans(), ROW), min_size=1, max_size=40), limit=st.integers(0, 9))
def test_parts_with_interleaved_numbers_are_combined_apart(rows, limit):
    task = KEYED[-1]
    (whole,) = pieces_of([row for _, row in rows], [])
    sent = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "MAX_BUFFERED_ROWS", limit)
        patch.setattr(running_windows, "MIN_PER_KEY", 2)
        for part in (True, False):
            buffer = blocks.PrecombineBuffer(None, task.by, task)
            mine = whole.filter(pa.array([of == part for of, _ in rows]))
            sent += [one for cut in (mine.slice(0, 7), mine.slice(7)) for one in buffer.take(cut)] + buffer.drain()
    sent = [one for one in sent if one.num_rows]
    assert results(task, [pa.concat_batches(sent).sort_by("seq")]) == results(task, [whole])


@pytest.mark.parametrize(
    ("aggregates", "rows"),
    [
        *[({"a": ("value", function)}, 3) for function in ("count", "min", "max", "first", "last")],
        *[({"a": ("n", function)}, 3) for function in ("sum", "mean", "min", "max", "first", "last")],
        ({"a": ("value", "matches", ">", 1), "b": ("n", "share", "&", 1)}, 3),
        *[({"a": ("value", function), "b": "count"}, 8) for function in ("sum", "mean", "std", "quantile")],
        ({"a": ("n", "var")}, 8),
    ],
    ids=lambda one: repr(one).replace("'", "") if isinstance(one, dict) else "",
)
def test_aggregates_whose_merge_is_exact_are_combined(aggregates, rows, monkeypatch):
    """Two keys, and a record that will be rejected where its value matters."""
    monkeypatch.setattr(running_windows, "MIN_PER_KEY", 2)
    if aggregates["a"][1] == "quantile":
        aggregates = {"a": ("value", "quantile", 0.5)}
    task = t.Window(by="key", aggregates=aggregates, emit="update")
    buffer = blocks.PrecombineBuffer(None, task.by, task)
    given = [("a", i, 1.0) for i in range(4)] + [("b", i, 1.0) for i in range(3)] + [("a", 0, math.inf)]
    sent = buffer.take(next(pieces_of(given, []))) + buffer.drain()
    checked = aggregates["a"][0] == "value" and aggregates["a"][1] != "count"
    assert sum(batch.num_rows for batch in sent) == (rows if checked or rows == 8 else 2)


@pytest.mark.parametrize("aggregates", [{"low": ("n", "min")}, {"n": "count"}])
def test_records_of_rare_keys_cross_as_they_are(aggregates):
    task, least = t.Window(by="key", aggregates=aggregates, emit="update"), 16 if "low" in aggregates else 2
    for rows in (least - 1, least):
        given = next(pieces_of([("a", i, None) for i in range(rows)] + [("b", 7, None)] * rows, []))
        sent = blocks.PrecombineBuffer(None, task.by, task)
        (batch,) = sent.take(given) or sent.drain()
        assert batch.num_rows == (2 * rows if rows < least else 2)
        assert batch["cells@condensed"].null_count == (2 * rows if rows < least else 0)


def test_few_keys_are_combined():
    buffer = blocks.PrecombineBuffer(None, ("key",), KEYED[0])
    row = [("a", 0, None), ("b", 0, None)]
    assert [buffer.take(piece) for piece in pieces_of(row * 30, [20, 20])] == [[], [], []]
    (batch,) = buffer.drain()
    assert batch["seq"].to_pylist() == [58, 59]
    assert batch.column(batch.num_columns - 1).to_pylist() == [[30], [30]]


def test_many_keys_are_released(monkeypatch):
    buffer = blocks.PrecombineBuffer(None, ("key",), KEYED[0])
    twice, each = ([(f"k{i // n}", 0, None) for i in range(8)] for n in (2, 1))
    (first, second), more = pieces_of(twice + each, [8]), [("x", 0, None)] * 4
    assert buffer.take(first) == []
    assert [b.num_rows for b in buffer.take(second)] == [4, 8] and buffer.drain() == []
    monkeypatch.setattr(blocks, "MAX_BUFFERED_ROWS", 6)
    assert buffer.take(first) == [] and buffer.take(next(pieces_of(more, []))) == []
    others = next(pieces_of([(f"o{i // 2}", 0, None) for i in range(4)], []))
    assert [b.num_rows for b in buffer.take(others)] == [7] and buffer.drain() == []


def test_large_records_are_released():
    buffer = blocks.PrecombineBuffer(None, ("key",), KEYED[0])
    large = [(f"{i // 2}" * 200_000, 0, None) for i in range(4)]
    for _ in range(44):  # together more than the buffer holds, but always the same keys
        assert buffer.take(next(pieces_of(large, []))) == []
    other = [(f"{i // 2}" * 200_000, 0, None) for i in range(200)]
    (batch,) = buffer.take(next(pieces_of(other, [])))
    assert batch.num_rows == 100 and buffer.drain() == []


def test_task_with_output_per_record_gets_all_records():
    task = t.RunningCount(by="key")
    buffer = blocks.PrecombineBuffer(None, ("key",), task)
    pieces = list(pieces_of([("a", 0, None)] * 8, [4]))
    assert [buffer.take(piece)[0] for piece in pieces] == pieces and buffer.drain() == []


def flow_of(*steps):
    flow = ro.Dataflow("some")
    stream = flow.source("in", schema={"device": "string", "value": "double"})
    for step in steps:
        stream = stream.to(step)
    return flow.sink("out", stream)


def murmur3(value):
    """Compute MurmurHash3 x86_32 of a 32-bit number with seed 42 by its definition."""

    def turned(x, by):
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    h = 42 ^ (turned(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF)
    h = (turned(h, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    for shift, by in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = ((h ^ (h >> shift)) * by) & 0xFFFFFFFF
    return h - (1 << 32) if h >= 1 << 31 else h


@pytest.mark.parametrize("partitions", [1, 2, 3, 5, 7, 12])
def test_buckets_are_spread_evenly_over_partitions(partitions):
    assert murmur3(0) == 933211791  # spark.sql("select hash(0)")
    labels = bucket_labels(3 * partitions, partitions)
    assert len({*labels}) == 3 * partitions
    assert [murmur3(label) % partitions for label in labels] == [*range(partitions)] * 3


@pytest.mark.parametrize(("capacity", "rows"), [(8 << 20, [3, 3]), (4 << 20, [2, 2, 2])])
def test_blocks_are_filled(capacity, rows):
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))
    packer = Packer(planned, 0, assign_labels(planned, 1), Buffering(codec=None, capacity=capacity))
    values = pa.array(np.arange(1 << 17, dtype=float))
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(1 << 17), pa.int64()), "device": pa.array(np.ones(1 << 17)), "value": values}
    )
    full = [block for _ in range(6) for block in packer.add({"in": [batch]})]  # 3 MiB each
    rest = list(packer.close())
    assert [block.rows >> 17 for block in full + rest] == rows
    assert len(rest) == 0


@pytest.mark.parametrize("capacity", [0, 1, 16 << 10, 64 << 10])
def test_small_capacity_gives_small_blocks(capacity):
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))
    packer = Packer(planned, 0, assign_labels(planned, 1), Buffering(codec=None, capacity=capacity))
    n = 1 << 17
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(n), pa.int64()), "device": pa.array(np.ones(n)), "value": pa.array(np.ones(n))}
    )  # 3 MiB
    blocks = [*packer.add({"in": [batch]}), *packer.close()]
    assert len(blocks) == 48
    assert {block.rows for block in blocks} == {2730, 2731}  # 24 bytes each
    found = pa.Table.from_batches([batch for block in blocks for batch in decode(block.payload)])
    assert found["seq"].to_pylist() == [*range(n)]


def test_large_batch_is_cut_into_blocks():
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))
    packer = Packer(planned, 0, assign_labels(planned, 1), Buffering(codec=None, capacity=1 << 20))
    n = 1 << 17
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(n), pa.int64()), "device": pa.array(np.ones(n)), "value": pa.array(np.ones(n))}
    )  # 3 MiB
    blocks = [*packer.add({"in": [batch]}), *packer.close()]
    assert [block.rows for block in blocks] == [43_690, 43_691, 43_691]
    found = pa.Table.from_batches([batch for block in blocks for batch in decode(block.payload)])
    assert found["seq"].to_pylist() == [*range(n)]
    few = [*packer.add({"in": [batch.slice(5, 10)]}), *packer.close()]
    assert [block.rows for block in few] == [10], "a short slice of a large batch is small"


@pytest.mark.parametrize("partitions", [1, 16, 200])
def test_skewed_keys_do_not_enlarge_blocks(partitions):
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))
    packer = Packer(planned, 0, assign_labels(planned, partitions), Buffering(codec=None, capacity=1 << 20))
    n = 1 << 15
    columns = {"seq": np.arange(n), "device": np.ones(n), "value": np.ones(n)}
    batch = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})  # 768 KiB
    blocks = [block for _ in range(10) for block in packer.add({"in": [batch]})]
    assert [block.rows for block in [*blocks, *packer.close()]] == [2 * n] * 5


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ([(5.0, 6.0), (3.0, 4.0), (4.0, 9.0)], (3.0, 9.0, 1)),
        ([(5.0, 6.0), (1.0, 9.0), (3.0, 4.0)], (1.0, 9.0, 1)),
    ],
)
@pytest.mark.parametrize("task", [t.NoOp(), t.KalmanFilter()], ids=["sink", "stage"])
def test_block_covers_arrival_times(task, times, wanted):
    flow = ro.Dataflow("stamped")
    flow.sink("out", flow.source("in", schema={"value": "double"}).to(task, id="same"))
    packer = Packer(plan(flow), 0, {1: [0]}, Buffering(codec=None))
    for first, last in times:
        packer.stamp(first, last)
    stream = "in" if task.stateful else "same"
    batch = pa.RecordBatch.from_pydict({"seq": [0], "value": [1.0]})
    (block,) = [*packer.add({stream: [batch]}), *packer.close()]
    assert (block.first_us, block.last_us, block.rows) == wanted
