"""New steps that join a running query with a stage for them. Without Spark."""

from __future__ import annotations

import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError
from riot_ops.graph.lowering import lower
from riot_ops.graph.plan import NoStageError, plan_steps
from riot_ops.reuse import ReuseManager
from tests.reuse import merging_dataflows as merging
from tests.reuse.spark.fake_spark import FakeSpark, Gated
from tests.reuse.spark.keyed_dataflows import ROWS, Got, N, alone, below, dataflow, kalman, ordered, rows
from tests.runtime.test_repartition import Pairs


@pytest.fixture
def opened(tmp_path):
    managers = []

    def open():
        managers.append(ReuseManager(FakeSpark(tmp_path / "back", join=True, max_records=10)))
        return managers[-1], Gated(ro.MemorySource(ROWS), tmp_path / "gate")

    yield open
    for manager in managers:
        manager.close()


class Limited(ro.MemorySource):
    """Gives as many records as a file says."""

    def __init__(self, rows, file):
        super().__init__(rows)
        self.file = file
        self.set_limit(0)

    def set_limit(self, n):
        hidden = self.file.with_suffix(".part")
        hidden.write_text(str(n))
        hidden.rename(self.file)

    def latest(self, start, limit=None):
        return {"row": min(super().latest(start, limit)["row"], max(start["row"], int(self.file.read_text())))}


def test_joined_step_keeps_its_state_if_a_worker_has_an_older_engine(tmp_path):
    """A worker that had a bucket before the step joined, and gets it back, restores what it lacks."""
    rows = [{"device": f"d{i if i < 3000 else i % 3}", "kind": "x", "value": float(i)} for i in range(3200)]
    manager = ReuseManager(FakeSpark(tmp_path / "back", join=True, max_records=100))
    source, sinks = Limited(rows, tmp_path / "limit"), {name: ro.MemorySink() for name in ("ada", "bob")}

    def read(n, worker):
        [fragment] = manager.backend.fragments.values()
        fragment.query.worker = worker
        source.set_limit(n)
        end = time.monotonic() + 20
        while fragment.topic.head().place.next != {"in.0": n} or manager.backend.dispatchers.lags():
            assert time.monotonic() < end
            time.sleep(0.01)

    manager.submit(dataflow("ada", kalman()), source, sinks["ada"])
    read(3000, worker=0)  # so much state that no full snapshot is written before bob's step has joined
    [fragment] = manager.backend.fragments.values()
    fragment.query.worker = 1
    flow = dataflow("bob", t.SlidingSum(by=("device",), window=4))
    first = manager.submit(flow, source, sinks["bob"]).first["in"]
    assert first == 3000
    for n, worker in ((3100, 1), (3200, 0)):
        read(n, worker)
    expected = flow.run(ro.MemorySource(rows[first:]))["t0"].to_pylist()
    found = sinks["bob"].table("t0").to_pylist()
    assert ordered((row["device"], row["value"]) for row in found) == ordered(
        (row["device"], row["value"]) for row in expected
    )
    manager.close()


@pytest.mark.long
def test_stateful_and_stateless_steps_join_while_records_arrive(opened, tmp_path):
    manager, source = opened()
    flows = {
        "ada": dataflow("ada", kalman()),
        "bob": dataflow("bob", kalman(), below(9.0)),  # after a stage with state
        "cyd": dataflow("cyd", below(12.0), below(8.0)),  # at the source
        "dan": dataflow("dan", kalman(0.25), t.MovingAverage(by=("device", "kind"), window=3)),  # in that stage
    }
    sinks, first = {}, {}
    for name, flow in flows.items():
        sinks[name] = ro.MemorySink()
        first[name] = manager.submit(flow, source, sinks[name]).first["in"]
        (tmp_path / "gate").touch()
        while name == "ada" and not manager.stats()["records"].get("in.0"):
            time.sleep(0.002)
    assert manager.stats()["fragments"] == 1 and first["ada"] == 0
    assert manager.backend.wait("10s")
    assert first["dan"] >= first["bob"] > 0
    for name, flow in flows.items():
        last = "t0" if name == "ada" else "t1"
        table = rows(Got(sinks[name]), last)
        if name == "bob":  # after ada's filter, which has seen all records
            wanted = [row for row in rows(flow.run(ro.MemorySource(ROWS)), last) if row["seq"] >= first[name]]
        else:
            wanted = alone(flow, last, first[name])
        assert ordered(table) == ordered(wanted), name
    for name in list(flows):
        manager.remove(name)
    assert manager.stats()["fragments"] == 0


@pytest.mark.long
@pytest.mark.parametrize("join", [False, True])
def test_tasks_with_state_across_keys_join_and_move(tmp_path, join):
    """Two queries may run them in stages with different key fields."""
    backend = FakeSpark(tmp_path / "back", join=join, fuse="coarse", max_records=10)
    manager = ReuseManager(backend)
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")
    pairs = Pairs(by=("device", "kind"))
    flows = {
        "ada": dataflow("ada", pairs),
        "bob": dataflow("bob", t.MovingAverage(by=("kind",), window=3)),
        "cyd": dataflow("cyd", pairs, below(9.0)),
        "dan": dataflow("dan", below(12.0), pairs),
    }
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    (tmp_path / "gate").touch()
    for _ in range(2):
        time.sleep(0.1)
        manager.defragment()
    assert manager.stats()["fragments"] == 1 and backend.wait("20s")
    for name, flow in flows.items():
        last = "t1" if len(flow.nodes_of_kind("task")) > 1 else "t0"
        assert ordered(rows(Got(sinks[name]), last)) == ordered(rows(flow.run(ro.MemorySource(ROWS)), last)), name
    manager.close()


def test_step_with_another_shuffle_starts_a_query(opened):
    manager, source = opened()
    manager.submit(dataflow("ada", kalman()), source, ro.MemorySink())
    manager.submit(dataflow("bob", t.MovingAverage(by=("kind",), window=3)), source, ro.MemorySink())
    assert manager.stats()["fragments"] == 2
    manager.submit(dataflow("cyd", t.MovingAverage(by=("kind",), window=4)), source, ro.MemorySink())
    assert manager.stats()["fragments"] == 2, "the second query has a stage for it"
    manager.submit(dataflow("dan", kalman(), t.MovingAverage(by=("kind",), window=4)), source, ro.MemorySink())
    assert manager.stats()["fragments"] == 3, "a query reads topics of earlier queries only"


def test_another_source_starts_a_query(opened):
    manager, source = opened()
    manager.submit(dataflow("ada", below(5.0)), source, ro.MemorySink())
    manager.submit(dataflow("bob", below(5.0)), ro.MemorySource(ROWS[:3]), ro.MemorySink())
    assert manager.stats()["fragments"] == 2


@pytest.mark.long
def test_refused_dataflow_leaves_nothing_and_can_be_submitted_again(opened, tmp_path):
    manager, source = opened()
    manager.submit(dataflow("ada", kalman()), source, ada := ro.MemorySink())
    (tmp_path / "out" / "t1").mkdir(parents=True)
    (tmp_path / "out" / "t1" / "part-000000-00000.parquet").touch()
    before = manager.stats()
    with pytest.raises(ConnectorError, match="holds the output of an earlier run"):
        manager.submit(dataflow("bob", kalman(), kalman(0.1)), source, ro.ParquetSink(tmp_path / "out"))
    assert manager.stats() == before and manager.stats()["fragments"] == 1
    bob = ro.MemorySink()
    manager.submit(dataflow("bob", kalman(), kalman(0.1)), source, bob)
    assert manager.stats()["fragments"] == 2, "the first query may still have state of its steps"
    (tmp_path / "gate").touch()
    assert manager.backend.wait("10s")
    assert len(rows(Got(ada), "t0")) == N
    wanted = rows(dataflow("bob", kalman(), kalman(0.1)).run(ro.MemorySource(ROWS)), "t1")
    assert ordered(rows(Got(bob), "t1")) == ordered(wanted)


def test_joined_dataflow_resumes_after_a_kill(tmp_path):
    flows = {"ada": dataflow("ada", kalman()), "bob": dataflow("bob", kalman(), below(9.0), kalman(0.25))}
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")

    def open():
        return ReuseManager(
            FakeSpark(tmp_path / "back", join=True, max_records=10),
            log=tmp_path / "log.jsonl",
            rebind=lambda name, flow: (source, sinks[name]),
        )

    manager = open()
    manager.submit(flows["ada"], source, sinks["ada"])
    (tmp_path / "gate").touch()
    first = manager.submit(flows["bob"], source, sinks["bob"]).first["in"]
    for _ in range(2):
        manager.backend.kill()
        manager.journal.close()
        manager = open()
        assert manager.stats()["fragments"] == 1
    assert manager.backend.wait("10s")
    manager.close()
    assert len(rows(Got(sinks["ada"]), "t0")) == N
    smooth = [row for row in rows(flows["ada"].run(ro.MemorySource(ROWS)), "t0") if row["seq"] >= first]
    got = sorted(row["seq"] for row in rows(Got(sinks["bob"]), "t2"))
    assert got == [row["seq"] for row in smooth if row["value"] <= 9.0]


MERGING = {
    "ada": lambda: merging.apart("ada", "north"),
    "bob": lambda: merging.apart("bob", "south"),
    "cyd": lambda: merging.merged("cyd", ("north", "south")),
    "dan": lambda: merging.merged("dan", ("south", "north"), declared=("south", "north")),
    "eve": lambda: merging.merged("eve", ("south", "north"), high=20.0),
}


@pytest.mark.long
@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("order", [("ada", "bob", "cyd", "dan", "eve"), ("eve", "cyd", "ada", "dan", "bob")])
def test_queries_share_steps_before_merges(tmp_path, join, order):
    """Also over removals, compactions and kills, each dataflow gets what a naive merge gives."""
    flows = {name: MERGING[name]() for name in order}
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}

    def bound(flow):
        return {name: Gated(one, tmp_path / "gate") for name, one in merging.sources(flow).items()}

    def open():
        return ReuseManager(
            FakeSpark(tmp_path / "back", join=join),
            log=tmp_path / "log.jsonl",
            rebind=lambda name, flow: (bound(flow), sinks[name]),
        )

    manager = open()
    new = {name: len(manager.submit(flow, bound(flow), sinks[name]).new) for name, flow in flows.items()}
    assert new == ({"ada": 4, "bob": 4, "cyd": 3, "dan": 0, "eve": 3} if order[0] == "ada" else
                   {"eve": 9, "cyd": 3, "ada": 1, "dan": 0, "bob": 1})  # fmt: skip
    assert manager.stats()["readings"] == 2
    (tmp_path / "gate").write_text("20")
    manager.remove(order[1])
    manager.backend.kill()
    manager.journal.close()
    manager = open()
    manager.defragment()
    manager.backend.kill()
    manager.journal.close()
    manager = open()
    Gated(ro.MemorySource([]), tmp_path / "gate").open()
    assert manager.backend.wait("30s") and not manager.stats()["failed"]
    for name, flow in flows.items():
        if name != order[1]:
            wanted = merging.expected(flow, 20.0 if name == "eve" else 25.0)
            assert merging.got(Got(sinks[name]), flow) == wanted, name
    for name in manager.names:
        manager.remove(name)
    assert manager.stats()["fragments"] == 0
    manager.close()


@pytest.mark.long
@pytest.mark.parametrize("join", [False, True])
def test_numbers_of_a_merge_are_made_once(tmp_path, join):
    manager = ReuseManager(FakeSpark(tmp_path / "back", join=join))
    for name in ("ada", "bob", "cyd", "eve"):
        flow = MERGING[name]()
        bound = {source: Gated(one, tmp_path / "gate") for source, one in merging.sources(flow).items()}
        manager.submit(flow, bound, ro.MemorySink())
    steps = [step for one in manager.backend.fragments.values() for step in one.spec.steps if step.endswith("@merged")]
    assert len(steps) == len({*steps}) == 2
    manager.close()


def test_plan_with_settled_stages():
    flow = dataflow("x", kalman(), t.MovingAverage(by=("device", "kind"), window=3), t.MovingAverage(by=("kind",)))
    steps = lower(flow)
    streams = ["in", "in@beats"]

    def stages(n, settled=None, fuse="exact"):
        plan = plan_steps("x", steps[:n], streams, {s.id for s in steps[:n]}, fuse, settled)
        return [(stage.partition, [step.id for step in stage.steps]) for stage in plan.stages]

    assert [len(ids) for _, ids in stages(3)] == [1, 1, 1], "two shuffles"
    assert stages(3, settled=2) == [((), ["in"]), (("device",), ["t0", "t1"])], "one shuffle is enough"
    with pytest.raises(NoStageError, match="t2"):
        stages(4, settled=2)
    with pytest.raises(NoStageError, match="t0"):
        stages(2, settled=1)
