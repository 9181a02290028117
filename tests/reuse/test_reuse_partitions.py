"""A manager over queries that comes again with another number of partitions. Without Spark."""

from __future__ import annotations

import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import ReuseManager
from tests.reuse.queries import FakeSpark, Gated
from tests.reuse.test_reuse_joining import Got, dataflow, kalman, ordered, rows

N, HALF = 600, 300
ROWS = [{"device": "abcdefgh"[i * i % 8], "kind": "xy"[i % 2], "value": float(i % 17)} for i in range(N)]
FLOWS = {
    "ada": dataflow("ada", kalman()),
    "bob": dataflow("bob", kalman(), t.MovingAverage(by=("kind",), window=3)),
    "cyd": dataflow("cyd", kalman(0.25), t.MovingAverage(by=("device", "kind"), window=5)),
}


class Halved(Gated):
    """Gives nothing until a file is there, half of what there is until another is."""

    def latest(self, start, limit=None):
        end = self.source.latest(start, limit)
        if not self.gate.exists():
            end = {"row": min(end["row"], HALF)}
        return end if self.gate.with_name("half").exists() else start


class Life:
    """A manager over queries that is killed, and goes on with another number of partitions."""

    def __init__(self, folder):
        self.folder = folder
        self.source = Halved(ro.MemorySource(ROWS), folder / "gate")
        self.sinks = {name: ro.ParquetSink(folder / name) for name in FLOWS}
        self.there = []

    def open(self, partitions, join=False):
        return self.over(FakeSpark(self.folder / "back", partitions=partitions, max_records=50, join=join))

    def over(self, backend):
        self.manager = ReuseManager(
            backend, log=self.folder / "log", rebind=lambda name, flow: (self.source, self.sinks[name])
        )
        return self.manager

    def kill(self):
        self.manager.backend.kill()
        self.manager._journal.close()

    def submit(self, *names):
        for name in names:
            assert self.manager.submit(FLOWS[name], self.source, self.sinks[name]).first == {"in": 0}
            self.there.append(name)

    def half(self):
        (self.folder / "half").touch()
        until = time.monotonic() + 60
        while self.manager.stats()["records"].get("in.0", 0) < HALF or self.manager.backend._carriers.behind():
            assert time.monotonic() < until
            time.sleep(0.005)

    def check(self):
        (self.folder / "gate").touch()
        assert self.manager.backend.wait(60)
        for name in self.there:
            last = f"t{len(FLOWS[name].kind('task')) - 1}"
            whole = FLOWS[name].run(ro.MemorySource(ROWS))
            assert ordered(rows(Got(self.sinks[name]), last)) == ordered(rows(whole, last)), name


@pytest.mark.parametrize("numbers", [(2, 5, 3), (5, 1, 2)], ids=str)
@pytest.mark.parametrize("join", [False, True])
def test_queries_keep_the_number_that_they_have(tmp_path, numbers, join):
    life = Life(tmp_path)
    life.open(numbers[0], join)
    life.submit("ada", "bob")
    life.half()
    for number in numbers[1:]:
        life.kill()
        life.open(number, join)
    assert {one.spec.partitions for one in life.manager.backend._fragments.values()} == {numbers[0]}
    life.check()
    life.manager.close()


@pytest.mark.parametrize("numbers", [(2, 5), (5, 2)], ids=str)
def test_what_is_new_has_the_new_number_and_state_moves_to_it(tmp_path, numbers):
    life = Life(tmp_path)
    life.open(numbers[0])
    life.submit("ada", "bob")
    life.half()
    life.kill()
    life.open(numbers[1])
    manager = life.manager
    manager.submit(FLOWS["cyd"], life.source, cyd := ro.MemorySink())
    fragments = manager.backend._fragments
    assert [one.spec.partitions for one in fragments.values()] == [numbers[0], numbers[0], numbers[1]]
    manager.defragment()
    assert [one.spec.partitions for one in fragments.values()] == [numbers[1]]
    life.check()
    assert ordered(rows(Got(cyd), "t1")) == ordered(in_half(FLOWS["cyd"], "t1"))
    manager.close()


def in_half(flow, stream):
    """What a dataflow gives by itself of the second half."""
    return [{**r, "seq": r["seq"] + HALF} for r in flow.run(ro.MemorySource(ROWS[HALF:]))[stream].to_pylist()]


def test_who_joins_a_query_has_its_number(tmp_path):
    life = Life(tmp_path)
    life.open(5, join=True)
    life.submit("ada")
    life.half()
    life.kill()
    life.open(2, join=True)
    life.manager.submit(FLOWS["cyd"], life.source, cyd := ro.MemorySink())
    assert [one.spec.partitions for one in life.manager.backend._fragments.values()] == [5]
    life.check()
    assert ordered(rows(Got(cyd), "t1")) == ordered(in_half(FLOWS["cyd"], "t1"))
    life.manager.close()
