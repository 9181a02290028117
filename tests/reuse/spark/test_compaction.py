"""Queries that are merged or replaced by smaller ones. Without Spark."""

from __future__ import annotations

import signal
import threading
import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError
from riot_ops.reuse.errors import EnactError
from riot_ops.reuse.spark.dispatcher_pool import DispatcherPool
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.submission import Request
from tests.reuse.spark.dataflows import ROWS, check_complete, dataflow, until, values
from tests.reuse.spark.fake_spark import Gated


def test_more_queries_than_allowed_are_merged(opened):
    manager, source, go = opened(max_queries=2)
    sinks = {}
    for place, name in enumerate(("ada", "bob", "cyd")):
        sinks[name] = ro.MemorySink()
        manager.submit(dataflow(name, (0, 300), (place, 50)), source, sinks[name])
        assert manager.stats()["fragments"] == (1, 2, 1)[place]
    assert len(manager.stats()["interrupted_s"]) == 1
    go()
    assert manager.backend.wait("10s")
    for place, sink in enumerate(sinks.values()):
        assert values(sink, "t1") == [float(i) for i in range(place, 51)]


def test_ctrl_c_during_a_merge_keeps_the_submitted_dataflow(opened, monkeypatch):
    manager, source, go = opened(max_queries=1, patience="1min")
    sinks = [ro.MemorySink(), ro.MemorySink()]
    manager.submit(dataflow("ada", (0, 300)), source, sinks[0])
    tried = []

    def interrupted(*given):
        tried.append(given)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # the first one has no effect yet

    monkeypatch.setattr(manager.backend, "defragment", interrupted)
    with pytest.raises(KeyboardInterrupt):
        manager.submit(dataflow("bob", (0, 300), (0, 50)), source, sinks[1])
    assert len(tried) == 1 and manager.names == ["ada", "bob"]
    assert manager.backend.running_steps() == {*manager.ledger.steps}
    monkeypatch.undo()
    manager.submit(dataflow("cyd"), source, ro.MemorySink())
    assert manager.stats()["fragments"] == 1, "the merge is tried again"
    go()
    assert manager.backend.wait("1min") and len(values(sinks[1], "t1")) == 51


def test_only_as_many_queries_as_necessary_are_merged(opened, tmp_path):
    manager, source, _ = opened(max_queries=4)
    other = Gated(ro.MemorySource(ROWS[:50]), tmp_path / "gate")
    for name, read, bounds in (
        ("ada", source, ()),
        ("bob", source, ((0, 300),)),
        ("cyd", source, ((0, 200),)),
        ("dan", other, ()),
        ("eve", other, ((0, 300),)),
    ):
        manager.submit(dataflow(name, *bounds), read, ro.MemorySink())
    fragments = manager.backend.fragments
    assert len(fragments) == 3 and len(manager.stats()["interrupted_s"]) == 1
    assert {"f3", "f4"} <= {*fragments}, "the queries over the other source are unchanged"
    manager.remove("cyd")  # its step is idle
    for name in ("fay", "gil"):
        manager.submit(dataflow(name, (0, len(fragments))), other, ro.MemorySink())
    assert len(manager.stats()["interrupted_s"]) == 2 and manager.stats()["idle"] == 1, (
        "a merge that does not reduce the number of queries"
    )


def averages(name, *keys):
    flow = ro.Dataflow(name)
    stream = flow.source("in", schema={"device": "string", "value": "double"})
    for place, key in enumerate(keys):
        stream = stream.to(t.MovingAverage(by=key, window=2), id=f"t{place}")
    return flow.sink("out", stream)


@pytest.mark.long
@pytest.mark.parametrize(
    ("keys", "before", "after"),
    [(("device", ()), [1, 1], [1]), (((),), [2], [1]), (("device",), [1], [1])],
    ids=["shuffle", "half of the stages", "none"],
)
@pytest.mark.parametrize("max_queries", [1, None])
def test_query_with_unneeded_stages_is_replaced_if_allowed(opened, tmp_path, keys, before, after, max_queries):
    manager, _, go = opened(max_queries=max_queries, fuse="exact")
    rows = [{"device": "ab"[i % 2], "value": float(i)} for i in range(20)]
    source = Gated(ro.MemorySource(rows), tmp_path / "gate")
    sink = ro.MemorySink()
    manager.submit(averages("ada", "device"), source, sink)
    manager.submit(averages("bob", *keys), source, ro.MemorySink())
    manager.defragment()

    def stages():
        [fragment] = manager.backend.fragments.values()
        return [len(row) for row in fragment.plan().shuffles]

    assert stages() == before
    merges = len(manager.stats()["interrupted_s"])
    manager.remove("bob")
    assert stages() == (before if max_queries is None else after)
    assert len(manager.stats()["interrupted_s"]) == merges + (max_queries == 1 and before != after)
    go()
    assert manager.backend.wait("10s")
    assert sorted(values(sink, "t0")) == [
        float(4 * i + k) for i in range(5) for k in (1, 2)
    ]  # of 0 and 2, of 1 and 3, and so on


def test_mutually_dependent_queries_are_replaced_together(opened, tmp_path):
    manager, _, go = opened(max_queries=2, fuse="exact")
    rows = [{"device": "ab"[i % 2], "value": float(i)} for i in range(20)]
    source = Gated(ro.MemorySource(rows), tmp_path / "gate")
    sinks = {name: ro.MemorySink() for name in ("ada", "bob", "cyd")}
    manager.submit_all(
        Request(averages(name, *keys), source, sinks[name]) for name, keys in (("ada", ("device",)), ("bob", ((),)))
    )
    manager.submit(averages("cyd", "device", ()), source, sinks["cyd"])
    assert len(manager.backend.fragments) == 2 and not manager.stats()["interrupted_s"]
    manager.remove("bob")
    assert len(manager.stats()["interrupted_s"]) == 1
    go()
    assert manager.backend.wait("10s")
    means = [float(4 * i + k) for i in range(5) for k in (1, 2)]
    assert sorted(values(sinks["ada"], "t0")) == means
    assert sum(values(sinks["cyd"], "t1")) == sum(means) / 2 and not values(sinks["bob"], "t0")
    manager.submit(averages("dan", "device"), source, ro.MemorySink())


def test_two_queries_read_by_one_dataflow_are_merged_together(opened, tmp_path):
    manager, one, go = opened(max_queries=2)
    other = Gated(ro.MemorySource([{"value": -1.0 - i} for i in range(50)]), tmp_path / "gate")
    sinks = {name: ro.MemorySink() for name in ("ada", "bob", "cyd", "dan")}

    def filtered(flow, name, bounds):
        return flow.source(name, schema={"value": "double"}).to(
            t.RangeFilter(bounds={"value": bounds}, by=None), id=f"of_{name}"
        )

    sources = {"in": (one, (0, 300)), "other": (other, (-300, 0))}
    for name, reads in (("ada", ["in"]), ("bob", ["other"]), ("dan", ["in", "other"])):
        flow = ro.Dataflow(name, merging="arrival")
        flow.sink("out", *(filtered(flow, read, sources[read][1]) for read in reads))
        manager.submit(flow, {read: sources[read][0] for read in reads}, sinks[name])
    flow = ro.Dataflow("cyd")
    more = filtered(flow, "in", (0, 300)).to(t.RangeFilter(bounds={"value": (0, 100)}, by=None), id="more")
    manager.submit(flow.sink("out", more), one, sinks["cyd"])
    assert len(manager.stats()["interrupted_s"]) == 1
    go()
    assert manager.backend.wait("10s")
    assert sorted(values(sinks["dan"], "of_other")) == [float(i) for i in range(-50, 0)]
    assert (
        sorted(values(sinks["dan"], "of_in")) == sorted(values(sinks["ada"], "of_in")) == [float(i) for i in range(200)]
    )
    assert sorted(values(sinks["cyd"], "more")) == [float(i) for i in range(101)]


def test_failed_replacement_is_tried_once_and_does_not_prevent_removals(opened, tmp_path, monkeypatch):
    manager, _, go = opened(max_queries=1, fuse="exact")
    source = Gated(ro.MemorySource([{"device": "a", "value": float(i)} for i in range(4)]), tmp_path / "gate")
    ada = ro.MemorySink()
    manager.submit_all(
        Request(averages(name, key), source, sink)
        for name, key, sink in (("ada", "device", ada), ("bob", (), ro.MemorySink()), ("cyd", "value", ro.MemorySink()))
    )
    tried = []

    def launch(fragment):
        tried.append(fragment.name)
        raise RuntimeError("no more queries")

    monkeypatch.setattr(manager.backend.supervisor, "launch", launch)
    manager.remove("bob")
    manager.remove("cyd")
    manager.submit(averages("eve", "device"), source, ro.MemorySink())
    assert manager.names == ["ada", "eve"] and len(tried) == 1
    monkeypatch.undo()
    go()
    assert manager.backend.wait("10s") and sorted(values(ada, "t0")) == [0.5, 2.5]


@pytest.mark.long
def test_blocking_hanging_sink_prevents_a_merge(opened):
    manager, source, go = opened()
    free = threading.Event()
    got = []

    def slow(stream, batch):
        free.wait(10)
        got.extend(batch["value"].to_pylist())

    bob = ro.MemorySink()
    manager.submit(dataflow("ada"), source, ro.CallbackSink(slow), on_slow="block")
    manager.submit(dataflow("bob", (0, 300)), source, bob)
    go()
    # a batch is pending before the head of its topic counts it: wait for both
    until(lambda: manager.stats()["slow"].get("ada") and manager.backend.dispatchers.by_dataflow["ada"].lags())
    with pytest.raises(ConnectorError, match="the sinks of ada do not keep up, and others wait for them"):
        manager.defragment()
    assert manager.stats()["fragments"] == 2 and not manager.stats()["interrupted_s"]
    free.set()
    assert manager.backend.wait("10s")
    assert got == values(bob, "t0") == [float(i) for i in range(200)]


def no_room(*given):
    raise OSError("no room")


def give_some_records(manager, go):
    """Let the source give some of its records."""
    for fragment in manager.backend.fragments.values():
        fragment.query.delay_s = 0.02
    go()
    until(lambda: manager.stats()["rows"]["bob"])


@pytest.mark.long
def test_queries_of_an_exclusive_source_are_merged(two_queries, monkeypatch):
    manager, sinks, go = two_queries
    give_some_records(manager, go)
    # on Spark, the replaced queries end some time after the new one has started
    reassign = DispatcherPool.reassign
    monkeypatch.setattr(DispatcherPool, "reassign", lambda *given: time.sleep(0.3) or reassign(*given))
    manager.defragment()
    assert manager.stats()["queries"] == 1
    check_complete(manager, sinks)


@pytest.mark.long
def test_stopped_queries_of_an_exclusive_source_restart_after_a_failed_merge(two_queries, monkeypatch):
    manager, sinks, go = two_queries
    give_some_records(manager, go)
    with monkeypatch.context() as patch:
        patch.setattr(Fragment, "set_start", no_room)
        with pytest.raises(EnactError, match="no room"):
            manager.defragment()
    assert manager.stats()["queries"] == 2
    check_complete(manager, sinks)
