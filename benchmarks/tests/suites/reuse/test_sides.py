"""Dataflows that run shared or separately."""

from __future__ import annotations

from riot_bench.suites.reuse.sides import Side
from riot_bench.suites.reuse.traces import Action

from riot_ops import Dataflow, MemorySink, MemorySource, tasks


def make_flow(name, window):
    flow = Dataflow(name)
    source = flow.source("readings", schema={"value": "double"})
    return flow.sink("out", source.to(tasks.MovingAverage(window=window), id="average"))


def test_sides_read_in_batches_and_have_equal_results():
    flows = {name: make_flow(name, 2) for name in ("a", "b")}
    readings, found = MemorySource([{"value": float(i)} for i in range(10)]), {}
    for shared in (True, False):
        sinks = {name: MemorySink() for name in flows}
        side = Side(shared, flows, lambda stream: readings, sinks.__getitem__, batch_size=3)
        assert side.progress() == ({"": (0, 0)} if shared else {})
        for name in flows:
            side.apply(Action(0, "submit", name))
        side.turn()
        assert side.progress() == ({"": (3, 1)} if shared else {"a": (3, 1), "b": (3, 1)})
        side.apply(Action(1, "remove", "a"))
        side.turn()
        assert side.progress() == ({"": (6, 1)} if shared else {"b": (6, 1)})
        assert side.failures() == {}
        side.close()
        found[shared] = {name: sink.table("average").to_pylist() for name, sink in sinks.items()}
    assert found[True] == found[False]
    assert [len(rows) for rows in found[True].values()] == [1, 3]


def test_failed_dataflow_is_reported():
    class FailingSink(MemorySink):
        def writer(self, batch_id, partition):
            writer = super().writer(batch_id, partition)
            writer.write = lambda stream, batch: 1 / 0
            return writer

    for shared in (True, False):
        source = MemorySource([{"value": 1.0}] * 4)
        side = Side(shared, {"a": make_flow("a", 2)}, lambda stream, s=source: s, lambda name: FailingSink(), 4)
        side.apply(Action(0, "submit", "a"))
        side.turn()
        assert "division by zero" in side.failures()["a"]
        side.close()
