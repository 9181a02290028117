"""Keyed stages: received blocks, and the chain of links with a bucket's state, on workers whose copies lag or diverge."""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import astuple
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
import pytest
from pyspark import TaskContext

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import StateError
from riot_ops.core.ipc import encode
from riot_ops.graph.plan import plan
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.runtime.engine import Engine
from riot_ops.spark import stage as stage_module
from riot_ops.spark.blocks import METRICS_STAGE, SINK_STAGE, Block, blocks_to_batch
from riot_ops.spark.dataframe_transform import assign_labels
from riot_ops.spark.driver_sink import DriverSink
from riot_ops.spark.sink import SinkRoutes
from riot_ops.spark.stage import (
    HEAD_KEY,
    OWNER_BUCKET,
    SOURCE_END,
    StageProcessor,
    merge_batches,
    read_blocks,
    records_by_stream,
)
from riot_ops.testing import exact
from tests.simulated_query import Chain, SimulatedQuery

SCHEMA = {"device": "string"}
TIMED = {"event_time": "timestamp[us, tz=UTC]", "device": "string", "value": "double"}


def counting():
    """Return a dataflow that counts the records of each device."""
    flow = ro.Dataflow("counting")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(_count("device"), id="n"))
    return flow


def _count(by):
    return t.Window(frame=1_000_000, emit="each", by=(by,), aggregates={"n": "count"})


class Bucket:
    """One bucket of the first keyed stage of a dataflow, with its chain and its workers."""

    def __init__(self, flow, sources=("in",), stream="in"):
        planned = plan(flow)
        self.stream = stream
        self.labels = assign_labels(planned, 1)
        (self.label,) = self.labels[1]
        self.processor = StageProcessor(
            planned, 1, self.labels, "run", ARRIVAL, Buffering(codec=None), frozenset(sources)
        )
        self.chain = Chain()
        self.workers = {name: OrderedDict() for name in "abcd"}
        self.seq = 0

    def give(self, worker, *devices, chain=None, more=()):
        """Return the output for these records on a worker; another ``chain`` means a failed attempt."""
        batch = pa.RecordBatch.from_pydict(
            {"seq": pa.array(range(self.seq, self.seq + len(devices)), pa.int64()), "device": devices}
        )
        self.seq += len(devices)
        blocks = (
            [Block(1, self.label, self.stream, len(devices), 0.0, 0.0, encode([batch], Buffering(codec=None)))]
            if devices
            else []
        )
        frames = [blocks_to_batch([*blocks, *more]).to_pandas()]
        with mock.patch.object(stage_module, "ENGINE_CACHE", self.workers[worker]):
            given = self.processor.process(self.label, iter(frames), self.chain if chain is None else chain)
            found = [block for frame in given for block in read_blocks(frame)]
        return [row["n"] for batch in records_by_stream(found).get("n", []) for row in batch.to_pylist()]

    def end_of(self, source):
        return Block(1, self.label, SOURCE_END, 0, 0.0, 0.0, source.encode())


def test_copy_of_failed_attempt_is_not_used():
    bucket = Bucket(counting())
    assert bucket.give("a", "x") == [1]
    assert bucket.give("a", "x", "x", "x", chain=Chain(bucket.chain)) == [2, 3, 4]  # lost
    assert bucket.give("b", "x") == [2]  # the attempt that replaces it
    assert bucket.give("a", "x") == [3]  # a copy as new as the chain, but not on it
    assert bucket.give("a", "x", "x", chain=Chain(bucket.chain)) == [4, 5]
    assert bucket.give("b", "x") == [4]
    assert bucket.give("b", "x") == [5]
    assert bucket.give("a", "x") == [6]  # a copy older than the chain, and not on it


def test_lagging_copy_reads_only_missing_links():
    bucket = Bucket(counting())
    bucket.give("a", "x", "y", *map(str, range(3000)))  # a base that deltas do not outweigh
    for i in range(3):
        assert bucket.give("b", "x") == [2 + i]
    read = []

    class Watched(Chain):
        def getValue(self, key):  # noqa: N802
            read.append(key)
            return self.get(key)

    chain = Watched(bucket.chain)
    assert bucket.give("a", "x", chain=chain) == [5]
    assert read == [HEAD_KEY, (1,), (2,), (3,)]
    read.clear()
    assert bucket.give("c", "y", chain=Watched(chain)) == [2]
    assert read == [HEAD_KEY, (0,), (1,), (2,), (3,), (4,)]
    read.clear()
    assert bucket.give("c", "y", chain=Watched(chain)) == [2]  # its last attempt is lost, so the copy is ahead


def test_failed_attempt_leaves_no_state():
    flow = ro.Dataflow("failing")
    fails = iter([RuntimeError("once")])

    def second(row):
        if row["device"] == "bad" and (error := next(fails, None)) is not None:
            raise SystemExit(str(error))  # not an error of the record
        return row

    counted = flow.source("in", schema=SCHEMA).to(_count("device"), id="n")
    flow.sink("out", counted, counted.to(ro.map(second, label="second"), id="second"))
    bucket = Bucket(flow)
    assert bucket.give("a", "x") == [1]
    with pytest.raises(SystemExit):
        bucket.give("a", "x", "bad")
    assert bucket.give("a", "x", "bad") == [2, 1]


def test_links_are_compacted_when_larger_than_base():
    bucket = Bucket(counting())
    bucket.give("a", *[f"device-{i}" for i in range(200)])
    sizes, links = [], []
    for i in range(60):
        assert bucket.give("ab"[i % 3 == 0], f"device-{i}") == [2]
        sizes.append(sum(len(value) for (value,) in bucket.chain.values()))
        links.append(len(bucket.chain) - 1)
    base = max(len(value) for (value,) in bucket.chain.values())
    assert max(sizes) < 3 * base
    assert 1 in links[1:]  # only a new base
    assert sorted(bucket.chain)[0] == HEAD_KEY
    first = sorted(bucket.chain)[1][0]
    assert sorted(bucket.chain)[1:] == [(first + i,) for i in range(links[-1])]


@pytest.mark.long
@pytest.mark.parametrize("link_bytes", [1, 1000, 15_000])
def test_large_state_takes_several_links(monkeypatch, link_bytes):
    monkeypatch.setattr(stage_module, "LINK_BYTES", link_bytes)
    bucket = Bucket(counting())
    devices = [f"device-{i}" for i in range(500)]
    assert bucket.give("a", *devices) == [1] * 500
    assert all(len(value) < link_bytes + 4000 for (value,) in bucket.chain.values())
    links = len(bucket.chain) - 1
    assert links == {1: 500}.get(link_bytes, links) > 1
    assert bucket.give("b", *devices[:300], "new") == [2] * 300 + [1]  # a delta, also in several links
    assert len(bucket.chain) - 1 > links
    assert bucket.give("c", *devices, "new") == [3] * 300 + [2] * 201
    assert bucket.give("a", "device-7") == [4]
    del bucket.chain[max(bucket.chain)[0] - 1,]
    with pytest.raises(StateError, match="lacks a link"):
        bucket.give("d", "device-7")


@pytest.mark.long
@pytest.mark.parametrize(("devices", "sizes"), [(300, [1, 3_000, 9_000]), (8_000, range(338_000, 346_000, 500))])
def test_pieces_add_up_to_snapshot(devices, sizes):
    flow = ro.Dataflow("two")
    source = flow.source("in", schema=SCHEMA)
    flow.sink("out", source.to(_count("device"), id="n"), source.to(t.DistinctCount(field="device", by=()), id="kinds"))
    names = [f"device-{i}" for i in range(2 * devices)]
    for max_bytes in sizes:
        engines = [Engine(stage.steps, set(), None) for stage in plan(flow).stages[1:] for _ in "ab"]
        for kind, first, last in (("full", 0, devices), ("delta", devices // 2, 2 * devices), ("delta", 0, 1)):
            rows = {"seq": pa.array(range(first, last), pa.int64()), "device": names[first:last]}
            for engine, copy in zip(engines[::2], engines[1::2], strict=True):
                engine.process({"in": [pa.RecordBatch.from_pydict(rows)]})
                for piece in engine.pieces(kind, max_bytes):
                    copy.restore(piece)
                assert copy.snapshot("full") == engine.snapshot("full")


def test_chain_length_is_limited(monkeypatch):
    monkeypatch.setattr(stage_module, "MAX_DELTAS", 5)
    bucket = Bucket(counting())
    bucket.give("a", *[f"device-{i}" for i in range(3000)])
    links = []
    for i in range(12):
        bucket.give("a", f"device-{i}")
        links.append(len(bucket.chain) - 1)
    assert links == [2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1]


def test_missing_link_is_refused():
    bucket = Bucket(counting())
    bucket.give("a", *map(str, range(3000)))
    for _ in range(3):
        bucket.give("a", "1")
    del bucket.chain[1,]
    with pytest.raises(StateError, match=r"bucket .* of stage 1 lacks a link"):
        bucket.give("b", "1")


def test_end_of_sources_is_part_of_chain():
    flow = ro.Dataflow("ending")
    both = ro.merge(flow.source("in", schema=SCHEMA), flow.source("other", schema=SCHEMA))
    flow.sink(
        "out", both.to(t.Window(frame=w.Count(4, partial=True), by=("device",), aggregates={"n": "count"}), id="n")
    )
    bucket = Bucket(flow, ("in", "other"), "in@0+1@merged")
    assert bucket.give("a", "x", "y") == []
    assert bucket.give("b", "x", more=[bucket.end_of("in")]) == []
    assert sorted(bucket.give("c", more=[bucket.end_of("other")])) == [1, 2]


def flow_of(*steps):
    flow = ro.Dataflow("some")
    stream = flow.source("in", schema={"device": "string", "value": "double"})
    for step in steps:
        stream = stream.to(step)
    return flow.sink("out", stream)


def test_state_of_another_query_is_refused():
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))

    def processor(**settings):
        return StageProcessor(
            planned, 1, assign_labels(planned, 1), "run", ARRIVAL, Buffering(codec=None), owner={"the plan": settings}
        )

    chain = Chain()
    owner_check = [blocks_to_batch([Block(1, OWNER_BUCKET, "in", 0, 0, 0, b"")]).to_pandas()]
    for _ in range(2):
        assert list(processor(fuse="exact").process(OWNER_BUCKET, iter(owner_check), chain)) == []
    with pytest.raises(StateError, match=r"another query: .*fuse"):
        list(processor(fuse="coarse").process(OWNER_BUCKET, iter(owner_check), chain))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_time_moves_before_records_renumbered_in_the_stage(seed, monkeypatch):
    monkeypatch.setattr(stage_module, "MAX_MERGED_ROWS", 1)  # so that blocks are processed one by one where they may be
    flow = ro.Dataflow("merged")
    ways = [
        flow.source(name, schema=TIMED).to(t.KalmanFilter(by=("device",)), id=f"smooth_{name}") for name in ("a", "b")
    ]
    window = t.Window(frame="4s", by="device", aggregates={"n": "count", "mean": ("value", "mean")})
    flow.sink("out", ro.merge(*ways).to(window, id="n"))
    log = [{"event_time": i * 1_000_000, "device": "x", "value": float(i)} for i in range(60)]
    given = {"a": log, "b": []}
    query = SimulatedQuery(flow, given, random.Random(seed), max_records=30, partitions=3)
    assert sorted(map(exact, query["n"].to_pylist())) == sorted(map(exact, flow.run(given)["n"].to_pylist()))


def test_rows_of_stage_computed_twice_are_equal_to_the_byte(tmp_path):
    """Spark compares the rows of a shuffle where it computes a lost part of it again, from blocks in another order."""
    flow = ro.Dataflow("two")
    smooth = flow.source("in", schema={"device": "string", "value": "double"}).to(t.KalmanFilter(by=("device",)))
    flow.sink("out", smooth)
    flow.sink("all", smooth.to(_count("value"), id="n"))
    planned = plan(flow)
    labels = assign_labels(planned, 1)
    routes = SinkRoutes(
        {"out": ["files", "driver"], "errors": ["files"]},
        {"files": ro.ParquetSink(tmp_path / "out"), "driver": DriverSink(tmp_path / "driver")},
    )
    processor = StageProcessor(planned, 1, labels, "run", ARRIVAL, Buffering(capacity=64), frozenset({"in"}), routes)
    chain = Chain()
    (bucket,) = labels[1]

    def rows_of(numbers, state, worker):
        """Return what the stage emits for blocks of every fourth message."""
        blocks = []
        for n in numbers:
            devices = [f"d{i % 3}" for i in range(n, n + 40, 4)]
            values = [None if i % 9 == 0 else i / 7 for i in range(n, n + 40, 4)]
            seq = pa.array(range(n, n + 40, 4), pa.int64())
            batch = pa.RecordBatch.from_pydict({"seq": seq, "device": devices, "value": values})
            blocks.append(Block(1, bucket, "in", 10, float(n), n + 0.5, encode([batch], Buffering())))
        frames = iter([blocks_to_batch([block]) for block in blocks])
        context = SimpleNamespace(getLocalProperty=lambda _: "0")
        with (
            mock.patch.object(stage_module, "ENGINE_CACHE", worker),
            mock.patch.object(TaskContext, "get", return_value=context),
        ):
            return [
                astuple(block) for frame in processor.process(bucket, frames, state) for block in read_blocks(frame)
            ]

    worker = OrderedDict()
    rows_of(range(4), chain, worker)
    found = [
        rows_of(numbers, Chain(chain), copy)
        for numbers, copy in (
            (range(40, 44), OrderedDict()),
            ((42, 40, 43, 41), OrderedDict()),
            ((43, 42, 41, 40), worker),
        )
    ]
    assert [sum(row[3] for row in rows if row[0] == 2) for rows in found] == [40] * 3
    assert {row[0] for row in found[0]} == {2, SINK_STAGE, METRICS_STAGE}
    assert sorted(found[0]) == sorted(found[1]) == sorted(found[2])


def test_worker_keeps_engines_of_recent_queries(monkeypatch):
    monkeypatch.setattr(stage_module, "ENGINE_CACHE", OrderedDict())
    monkeypatch.setattr(stage_module, "CACHED_SECONDS", -1.0)
    first = stage_module.cached_engines("first")
    for i in range(3):
        stage_module.cached_engines(f"{i}")
    assert stage_module.cached_engines("first") is first
    stage_module.cached_engines("new")
    assert [*stage_module.ENGINE_CACHE] == ["1", "2", "first", "new"]
    monkeypatch.setattr(stage_module, "CACHED_SECONDS", 60.0)
    stage_module.cached_engines("other")
    assert len(stage_module.ENGINE_CACHE) == 5, "it has just run for all of them"


def test_small_and_overlapping_batches_are_merged():
    def batch(first, n):
        return first, first + n - 1, pa.record_batch({"seq": pa.array(range(first, first + n), pa.int64())})

    sizes = (30_000, 2_768, 200, 40_000, 10)
    given = [batch(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
    found = [(piece.num_rows, first) for piece, first in merge_batches(given)]
    assert found == [(32_768, 0), (200, 32_768), (40_000, 32_968), (10, 72_968)]
    assert merge_batches([]) == []
    long, inside, touching, after = batch(0, 40_000), batch(10, 5), batch(39_999, 2), batch(40_001, 1)
    found = [(piece.num_rows, first) for piece, first in merge_batches([long, inside, touching, after])]
    assert found == [(40_007, 0), (1, 40_001)]
