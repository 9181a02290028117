"""Restarts with another number of partitions. Without Spark."""

from __future__ import annotations

import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import ReuseManager
from tests.reuse.spark.fake_spark import FakeSpark, Gated
from tests.reuse.spark.keyed_dataflows import Got, dataflow, kalman, ordered, rows

N, HALF = 600, 300
ROWS = [{"device": "abcdefgh"[i * i % 8], "kind": "xy"[i % 2], "value": float(i % 17)} for i in range(N)]
FLOWS = {
    "ada": dataflow("ada", kalman()),
    "bob": dataflow("bob", kalman(), t.MovingAverage(by=("kind",), window=3)),
    "cyd": dataflow("cyd", kalman(0.25), t.MovingAverage(by=("device", "kind"), window=5)),
}


class Halved(Gated):
    """Gives no records until one file exists, and half of its records until another exists."""

    def latest(self, start, limit=None):
        end = self.source.latest(start, limit)
        if not self.gate.exists():
            end = {"row": min(end["row"], HALF)}
        return end if self.gate.with_name("half").exists() else start


class Scenario:
    """A manager over queries that is killed, and resumes with another number of partitions."""

    def __init__(self, folder):
        self.folder = folder
        self.source = Halved(ro.MemorySource(ROWS), folder / "gate")
        self.sinks = {name: ro.ParquetSink(folder / name) for name in FLOWS}
        self.submitted = []

    def open(self, partitions, join=False):
        return self.open_over(FakeSpark(self.folder / "back", partitions=partitions, max_records=50, join=join))

    def open_over(self, backend):
        self.manager = ReuseManager(
            backend, log=self.folder / "log", rebind=lambda name, flow: (self.source, self.sinks[name])
        )
        return self.manager

    def kill(self):
        self.manager.backend.kill()
        self.manager.journal.close()

    def submit(self, *names):
        for name in names:
            assert self.manager.submit(FLOWS[name], self.source, self.sinks[name]).first == {"in": 0}
            self.submitted.append(name)

    def read_half(self):
        (self.folder / "half").touch()
        until = time.monotonic() + 60
        while self.manager.stats()["records"].get("in.0", 0) < HALF or self.manager.backend.dispatchers.lags():
            assert time.monotonic() < until
            time.sleep(0.005)

    def check(self):
        (self.folder / "gate").touch()
        assert self.manager.backend.wait("1min")
        for name in self.submitted:
            last = f"t{len(FLOWS[name].nodes_of_kind('task')) - 1}"
            whole = FLOWS[name].run(ro.MemorySource(ROWS))
            assert ordered(rows(Got(self.sinks[name]), last)) == ordered(rows(whole, last)), name


@pytest.mark.long
@pytest.mark.parametrize("numbers", [(2, 5, 3), (5, 1, 2)], ids=str)
@pytest.mark.parametrize("join", [False, True])
def test_resumed_queries_keep_their_number(tmp_path, numbers, join):
    scenario = Scenario(tmp_path)
    scenario.open(numbers[0], join)
    scenario.submit("ada", "bob")
    scenario.read_half()
    for number in numbers[1:]:
        scenario.kill()
        scenario.open(number, join)
    assert {one.spec.partitions for one in scenario.manager.backend.fragments.values()} == {numbers[0]}
    scenario.check()
    scenario.manager.close()


@pytest.mark.long
@pytest.mark.parametrize("numbers", [(2, 5), (5, 2)], ids=str)
def test_new_queries_have_the_new_number_and_state_is_repartitioned(tmp_path, numbers):
    scenario = Scenario(tmp_path)
    scenario.open(numbers[0])
    scenario.submit("ada", "bob")
    scenario.read_half()
    scenario.kill()
    scenario.open(numbers[1])
    manager = scenario.manager
    manager.submit(FLOWS["cyd"], scenario.source, cyd := ro.MemorySink())
    fragments = manager.backend.fragments
    assert [one.spec.partitions for one in fragments.values()] == [numbers[0], numbers[0], numbers[1]]
    manager.defragment()
    assert [one.spec.partitions for one in fragments.values()] == [numbers[1]]
    scenario.check()
    assert ordered(rows(Got(cyd), "t1")) == ordered(of_second_half(FLOWS["cyd"], "t1"))
    manager.close()


def of_second_half(flow, stream):
    """Return the output of a separate run of a dataflow over the second half of the records."""
    return [{**r, "seq": r["seq"] + HALF} for r in flow.run(ro.MemorySource(ROWS[HALF:]))[stream].to_pylist()]


def test_joined_steps_have_the_number_of_their_query(tmp_path):
    scenario = Scenario(tmp_path)
    scenario.open(5, join=True)
    scenario.submit("ada")
    scenario.read_half()
    scenario.kill()
    scenario.open(2, join=True)
    scenario.manager.submit(FLOWS["cyd"], scenario.source, cyd := ro.MemorySink())
    assert [one.spec.partitions for one in scenario.manager.backend.fragments.values()] == [5]
    scenario.check()
    assert ordered(rows(Got(cyd), "t1")) == ordered(of_second_half(FLOWS["cyd"], "t1"))
    scenario.manager.close()
