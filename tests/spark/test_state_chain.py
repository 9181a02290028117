"""The chain of links that holds a bucket's state, on workers that know too much, too little or something else."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
import pytest
from pyspark import TaskContext

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import StateError
from riot_ops.core.payload import encode
from riot_ops.graph.plan import plan
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.runtime.engine import Engine
from riot_ops.spark import stage as stages
from riot_ops.spark.blocks import Block, blocks_of, blocks_to_batch, by_stream
from riot_ops.spark.dataframe_transform import labels_of
from riot_ops.spark.source import Reader, SourceStage
from riot_ops.spark.stage import FLUSH, HEAD, StageProcessor
from tests.staged import Chain

SCHEMA = {"device": "string"}


def counting():
    """How many records of a device there were so far."""
    flow = ro.Dataflow("counting")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(_count("device"), id="n"))
    return flow


def _count(by):
    return t.Window(count=1_000_000, emit="update", by=(by,), aggregates={"n": ("count", None)})


class Bucket:
    """One bucket of the first keyed stage of a dataflow, its chain, and the workers that it may run on."""

    def __init__(self, flow, sources=("in",)):
        planned = plan(flow)
        self.labels = labels_of(planned, 1)
        (self.label,) = self.labels[1]
        self.processor = StageProcessor(
            planned, 1, self.labels, "run", ARRIVAL, Buffering(codec=None), frozenset(sources)
        )
        self.chain = Chain()
        self.workers = {name: OrderedDict() for name in "abcd"}
        self.seq = 0

    def give(self, worker, *devices, chain=None, more=()):
        """What comes out for these records on a worker; with another chain it has been in vain."""
        batch = pa.RecordBatch.from_pydict(
            {"seq": pa.array(range(self.seq, self.seq + len(devices)), pa.int64()), "device": devices}
        )
        self.seq += len(devices)
        blocks = (
            [Block(1, self.label, "in", len(devices), 0.0, 0.0, encode([batch], Buffering(codec=None)))]
            if devices
            else []
        )
        frames = [blocks_to_batch([*blocks, *more]).to_pandas()]
        with mock.patch.object(stages, "_CACHE", self.workers[worker]):
            given = self.processor.process(self.label, iter(frames), self.chain if chain is None else chain)
            found = [block for frame in given for block in blocks_of(frame)]
        return [row["n"] for batch in by_stream(found).get("n", []) for row in batch.to_pylist()]

    def end_of(self, source):
        return Block(1, self.label, FLUSH, 0, 0.0, 0.0, source.encode())


def test_a_copy_of_an_attempt_in_vain_is_not_gone_on_with():
    bucket = Bucket(counting())
    assert bucket.give("a", "x") == [1]
    assert bucket.give("a", "x", "x", "x", chain=Chain(bucket.chain)) == [2, 3, 4]  # lost
    assert bucket.give("b", "x") == [2]  # what took its place
    assert bucket.give("a", "x") == [3]  # its copy is as old as the chain, but not of it
    assert bucket.give("a", "x", "x", chain=Chain(bucket.chain)) == [4, 5]
    assert bucket.give("b", "x") == [4]
    assert bucket.give("b", "x") == [5]
    assert bucket.give("a", "x") == [6]  # its copy is older than the chain, and not of it


def test_a_copy_that_is_behind_reads_what_it_lacks_only():
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
    assert read == [HEAD, (1,), (2,), (3,)]
    read.clear()
    assert bucket.give("c", "y", chain=Watched(chain)) == [2]
    assert read == [HEAD, (0,), (1,), (2,), (3,), (4,)]
    read.clear()
    assert bucket.give("c", "y", chain=Watched(chain)) == [2]  # that the last one did is lost: it is ahead


def test_what_a_task_did_before_it_failed_is_forgotten():
    flow = ro.Dataflow("failing")
    fails = iter([RuntimeError("once")])

    def second(row):
        if row["device"] == "bad" and (error := next(fails, None)) is not None:
            raise SystemExit(str(error))  # no fault of the record
        return row

    counted = flow.source("in", schema=SCHEMA).to(_count("device"), id="n")
    flow.sink("out", counted, counted.to(ro.map(second, name="second"), id="second"))
    bucket = Bucket(flow)
    assert bucket.give("a", "x") == [1]
    with pytest.raises(SystemExit):
        bucket.give("a", "x", "bad")
    assert bucket.give("a", "x", "bad") == [2, 1]


def test_links_are_cleared_away_once_they_outweigh_their_base():
    bucket = Bucket(counting())
    bucket.give("a", *[f"device-{i}" for i in range(200)])
    sizes, links = [], []
    for i in range(60):
        assert bucket.give("ab"[i % 3 == 0], f"device-{i}") == [2]
        sizes.append(sum(len(value) for (value,) in bucket.chain.values()))
        links.append(len(bucket.chain) - 1)
    base = max(len(value) for (value,) in bucket.chain.values())
    assert max(sizes) < 3 * base
    assert 1 in links[1:]  # a new base alone
    assert sorted(bucket.chain)[0] == HEAD
    first = sorted(bucket.chain)[1][0]
    assert sorted(bucket.chain)[1:] == [(first + i,) for i in range(links[-1])]


@pytest.mark.parametrize("link_bytes", [1, 1000, 15_000])
def test_what_is_large_goes_into_several_links(monkeypatch, link_bytes):
    monkeypatch.setattr(stages, "LINK_BYTES", link_bytes)
    bucket = Bucket(counting())
    devices = [f"device-{i}" for i in range(500)]
    assert bucket.give("a", *devices) == [1] * 500
    assert all(len(value) < link_bytes + 4000 for (value,) in bucket.chain.values())
    links = len(bucket.chain) - 1
    assert links == {1: 500}.get(link_bytes, links) > 1
    assert bucket.give("b", *devices[:300], "new") == [2] * 300 + [1]  # a delta, of several links as well
    assert len(bucket.chain) - 1 > links
    assert bucket.give("c", *devices, "new") == [3] * 300 + [2] * 201
    assert bucket.give("a", "device-7") == [4]
    del bucket.chain[max(bucket.chain)[0] - 1,]
    with pytest.raises(StateError, match="lacks a link"):
        bucket.give("d", "device-7")


@pytest.mark.parametrize(("devices", "sizes"), [(300, [1, 3_000, 9_000]), (8_000, range(338_000, 346_000, 500))])
def test_pieces_are_the_whole(devices, sizes):
    flow = ro.Dataflow("two")
    source = flow.source("in", schema=SCHEMA)
    flow.sink("out", source.to(_count("device"), id="n"), source.to(t.DistinctCount(field="device", by=()), id="kinds"))
    names = [f"device-{i}" for i in range(2 * devices)]
    for most in sizes:
        engines = [Engine(stage.steps, set(), None) for stage in plan(flow).stages[1:] for _ in "ab"]
        for kind, first, last in (("full", 0, devices), ("delta", devices // 2, 2 * devices), ("delta", 0, 1)):
            rows = {"seq": pa.array(range(first, last), pa.int64()), "device": names[first:last]}
            for engine, copy in zip(engines[::2], engines[1::2], strict=True):
                engine.process({"in": [pa.RecordBatch.from_pydict(rows)]})
                for piece in engine.pieces(kind, most):
                    copy.restore(piece)
                assert copy.snapshot("full") == engine.snapshot("full")


def test_a_chain_does_not_grow_without_end(monkeypatch):
    monkeypatch.setattr(stages, "MOST_DELTAS", 5)
    bucket = Bucket(counting())
    bucket.give("a", *[f"device-{i}" for i in range(3000)])
    links = []
    for i in range(12):
        bucket.give("a", f"device-{i}")
        links.append(len(bucket.chain) - 1)
    assert links == [2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1]


def test_a_chain_that_lacks_a_link_is_refused():
    bucket = Bucket(counting())
    bucket.give("a", *map(str, range(3000)))
    for _ in range(3):
        bucket.give("a", "1")
    del bucket.chain[1,]
    with pytest.raises(StateError, match=r"bucket .* of stage 1 lacks a link"):
        bucket.give("b", "1")


def test_the_end_of_all_sources_is_known_on_every_worker():
    flow = ro.Dataflow("ending")
    both = ro.merge(flow.source("in", schema=SCHEMA), flow.source("other", schema=SCHEMA))
    flow.sink(
        "out", both.to(t.Window(count=4, partial=True, by=("device",), aggregates={"n": ("count", None)}), id="n")
    )
    bucket = Bucket(flow, ("in", "other"))
    assert bucket.give("a", "x", "y") == []
    assert bucket.give("b", "x", more=[bucket.end_of("in")]) == []
    assert sorted(bucket.give("c", more=[bucket.end_of("other")])) == [1, 2]


def test_a_field_that_has_changed_in_a_stage_decides_no_more_where_records_are():
    flow = ro.Dataflow("changing")
    counted = flow.source("in", schema=SCHEMA).to(_count("device"), id="n")
    renamed = counted.to(ro.map(lambda row: {**row, "device": row["device"][:1]}, name="short"), id="short")
    flow.sink("out", renamed.to(_count("device"), id="again"), counted.to(_count("device"), id="same"))
    stages_of = [[step.id for step in stage.steps if step.keyed] for stage in plan(flow).stages]
    assert stages_of == [[], ["n", "same"], ["again"]]
    assert [stage.partition for stage in plan(flow).stages[1:]] == [("device",)] * 2


@pytest.mark.parametrize("splits", [1, 3])
def test_the_last_split_of_a_source_tells_of_its_end_and_no_other_does(splits):
    source = ro.MemorySource([{"device": "x"}] * 6, pa.schema([("device", pa.string())]))
    planned = plan(counting())
    reader = Reader(
        SourceStage(planned, "in", source, None, labels_of(planned, 2), ARRIVAL, Buffering(codec=None), 4, splits)
    )
    start = reader.initial_offset()
    middle = reader.latest_offset(start, reader.read_limit())
    end = reader.latest_offset(middle, reader.read_limit())
    assert reader.partitions(start, start) == []
    assert [part.last for part in reader.partitions(start, middle)] == [False] * splits
    assert [part.last for part in reader.partitions(middle, end)] == [False] * (min(splits, 2) - 1) + [True]
    # an end that comes to light without another record
    (part,) = reader.partitions({**end, "ended": False}, end)
    assert (part.split, part.last) == (None, True)
    outlet = SimpleNamespace(writer=lambda *_: None)
    reader = Reader(
        SourceStage(planned, "in", source, outlet, labels_of(planned, 2), ARRIVAL, Buffering(codec=None), 4, splits)
    )
    with mock.patch.object(TaskContext, "get", return_value=SimpleNamespace(partitionId=lambda: 0)):
        given = [
            [b.stream for rows in reader.read(p) for b in blocks_of(rows.to_pandas())]
            for p in reader.partitions(start, end)
        ]
    flushes = [streams.count(FLUSH) for streams in given]
    assert flushes == [0] * (len(given) - 1) + [len(labels_of(planned, 2)[1])]
    assert all(FLUSH not in streams[: -flushes[-1]] for streams in given)
