"""New steps that join a query that runs, where it has a stage for them. Without Spark."""

from __future__ import annotations

import time

import pytest
from riot_bench.suites.reuse.workloads import riot21, riot_source

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError
from riot_ops.graph.lowering import lower
from riot_ops.graph.plan import NoStageError, planned
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.spark.control import Control
from riot_ops.reuse.spark.layout import Layout, Layouts
from tests.reuse.queries import FakeSpark, Gated
from tests.runtime.test_repartition import Pairs

N = 600
ROWS = [{"device": "abc"[i % 3], "kind": "xy"[i % 2], "value": float(i % 17)} for i in range(N)]
SCHEMA = {"device": "string", "kind": "string", "value": "double"}


def dataflow(name, *tasks):
    flow = ro.Dataflow(name)
    stream = flow.source("in", schema=SCHEMA)
    for place, task in enumerate(tasks):
        stream = stream.to(task, id=f"t{place}")
    return flow.sink("out", stream)


def kalman(noise=0.5):
    return t.KalmanFilter(by=("device",), process_noise=noise)


def kept(high):
    return t.RangeFilter(bounds={"value": (0, high)}, by=None)


@pytest.fixture
def opened(tmp_path):
    made = []

    def open():
        made.append(ReuseManager(FakeSpark(tmp_path / "back", join=True, max_records=10)))
        return made[-1], Gated(ro.MemorySource(ROWS), tmp_path / "gate")

    yield open
    for manager in made:
        manager.close()


def rows(table, stream, first=0):
    return [row for row in table[stream].to_pylist() if row["seq"] >= first]


class Told(ro.MemorySource):
    """Gives as many records as stand in a file."""

    def __init__(self, rows, file):
        super().__init__(rows)
        self.file = file
        self.tell(0)

    def tell(self, n):
        hidden = self.file.with_suffix(".part")
        hidden.write_text(str(n))
        hidden.rename(self.file)

    def latest(self, start, limit=None):
        return {"row": min(super().latest(start, limit)["row"], max(start["row"], int(self.file.read_text())))}


def test_a_step_that_joins_keeps_its_state_where_a_worker_has_an_older_engine(tmp_path):
    """A worker that had the bucket before the step came, and gets it back, catches up with what it was without it."""
    rows = [{"device": f"d{i if i < 3000 else i % 3}", "kind": "x", "value": float(i)} for i in range(3200)]
    manager = ReuseManager(FakeSpark(tmp_path / "back", join=True, max_records=100))
    source, sinks = Told(rows, tmp_path / "told"), {name: ro.MemorySink() for name in ("ada", "bob")}

    def read(n, worker):
        [fragment] = manager.backend._fragments.values()
        fragment.query.worker = worker
        source.tell(n)
        end = time.monotonic() + 20
        while fragment.topic.head().place.next != {"in.0": n} or manager.backend._carriers.behind():
            assert time.monotonic() < end
            time.sleep(0.01)

    manager.submit(dataflow("ada", kalman()), source, sinks["ada"])
    read(3000, worker=0)  # so much state that it is not written anew before bob's has come
    [fragment] = manager.backend._fragments.values()
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


def ordered(found):
    return sorted(map(str, found))


class Got:
    def __init__(self, sink):
        self.sink = sink

    def __getitem__(self, stream):
        return self.sink.table(stream)


def alone(flow, stream, first):
    """What it gives by itself, of the records from one message on."""
    return [{**row, "seq": row["seq"] + first} for row in flow.run(ro.MemorySource(ROWS[first:]))[stream].to_pylist()]


def test_steps_with_and_without_state_join_while_records_come(opened, tmp_path):
    manager, source = opened()
    flows = {
        "ada": dataflow("ada", kalman()),
        "bob": dataflow("bob", kalman(), kept(9.0)),  # behind a stage with state
        "cyd": dataflow("cyd", kept(12.0), kept(8.0)),  # at the source
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
    assert manager.backend.wait(10)
    assert first["dan"] >= first["bob"] > 0
    for name, flow in flows.items():
        last = "t0" if name == "ada" else "t1"
        table = rows(Got(sinks[name]), last)
        if name == "bob":  # the filter of ada's, which has seen all
            wanted = [row for row in rows(flow.run(ro.MemorySource(ROWS)), last) if row["seq"] >= first[name]]
        else:
            wanted = alone(flow, last, first[name])
        assert ordered(table) == ordered(wanted), name
    for name in list(flows):
        manager.remove(name)
    assert manager.stats()["fragments"] == 0


@pytest.mark.parametrize("join", [False, True])
def test_tasks_that_hold_rows_of_all_keys_join_and_move(tmp_path, join):
    """Also where one query has them in a stage with other fields than another."""
    backend = FakeSpark(tmp_path / "back", join=join, fuse="coarse", max_records=10)
    manager = ReuseManager(backend)
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")
    pairs = Pairs(by=("device", "kind"))
    flows = {
        "ada": dataflow("ada", pairs),
        "bob": dataflow("bob", t.MovingAverage(by=("kind",), window=3)),
        "cyd": dataflow("cyd", pairs, kept(9.0)),
        "dan": dataflow("dan", kept(12.0), pairs),
    }
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    (tmp_path / "gate").touch()
    for _ in range(2):
        time.sleep(0.1)
        manager.defragment()
    assert manager.stats()["fragments"] == 1 and backend.wait(20)
    for name, flow in flows.items():
        last = "t1" if len(flow.kind("task")) > 1 else "t0"
        assert ordered(rows(Got(sinks[name]), last)) == ordered(rows(flow.run(ro.MemorySource(ROWS)), last)), name
    manager.close()


def test_what_needs_another_shuffle_is_a_query_of_its_own(opened):
    manager, source = opened()
    manager.submit(dataflow("ada", kalman()), source, ro.MemorySink())
    manager.submit(dataflow("bob", t.MovingAverage(by=("kind",), window=3)), source, ro.MemorySink())
    assert manager.stats()["fragments"] == 2
    manager.submit(dataflow("cyd", t.MovingAverage(by=("kind",), window=4)), source, ro.MemorySink())
    assert manager.stats()["fragments"] == 2, "that has a stage for it"
    manager.submit(dataflow("dan", kalman(), t.MovingAverage(by=("kind",), window=4)), source, ro.MemorySink())
    assert manager.stats()["fragments"] == 3, "a query reads topics of earlier ones alone"


def test_another_source_is_read_by_a_query_of_its_own(opened):
    manager, source = opened()
    manager.submit(dataflow("ada", kept(5.0)), source, ro.MemorySink())
    manager.submit(dataflow("bob", kept(5.0)), ro.MemorySource(ROWS[:3]), ro.MemorySink())
    assert manager.stats()["fragments"] == 2


def test_one_that_is_refused_leaves_nothing_and_may_come_again(opened, tmp_path):
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
    assert manager.stats()["fragments"] == 2, "of its steps there may be state where they were once"
    (tmp_path / "gate").touch()
    assert manager.backend.wait(10)
    assert len(rows(Got(ada), "t0")) == N
    wanted = rows(dataflow("bob", kalman(), kalman(0.1)).run(ro.MemorySource(ROWS)), "t1")
    assert ordered(rows(Got(bob), "t1")) == ordered(wanted)


def test_who_joins_late_goes_on_after_a_kill(tmp_path):
    flows = {"ada": dataflow("ada", kalman()), "bob": dataflow("bob", kalman(), kept(9.0), kalman(0.25))}
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
        manager._journal.close()
        manager = open()
        assert manager.stats()["fragments"] == 1
    assert manager.backend.wait(10)
    manager.close()
    assert len(rows(Got(sinks["ada"]), "t0")) == N
    smooth = [row for row in rows(flows["ada"].run(ro.MemorySource(ROWS)), "t0") if row["seq"] >= first]
    got = sorted(row["seq"] for row in rows(Got(sinks["bob"]), "t2"))
    assert got == [row["seq"] for row in smooth if row["value"] <= 9.0]


def test_stages_that_are_settled():
    flow = dataflow("x", kalman(), t.MovingAverage(by=("device", "kind"), window=3), t.MovingAverage(by=("kind",)))
    steps = lower(flow)
    streams = ["in", "in@beats"]

    def stages(n, settled=None, fuse="exact"):
        plan = planned("x", steps[:n], streams, {s.id for s in steps[:n]}, fuse, settled)
        return [(stage.partition, [step.id for step in stage.steps]) for stage in plan.stages]

    assert [len(ids) for _, ids in stages(3)] == [1, 1, 1], "two shuffles"
    assert stages(3, settled=2) == [((), ["in"]), (("device",), ["t0", "t1"])], "one will do"
    with pytest.raises(NoStageError, match="t2"):
        stages(4, settled=2)
    with pytest.raises(NoStageError, match="t0"):
        stages(2, settled=1)


def test_a_step_that_has_joined_rests_in_what_came_before():
    plan = planned("x", [], [], set(), "exact")
    layout = Layout(plan, {}, {"a": 3})
    assert layout.resting(2, Control(resting=("b",))) == {"a", "b"} and layout.resting(3, Control()) == set()


def test_layouts_are_read_by_the_query_that_is_meant(tmp_path):
    plan = planned("x", [], [], set(), "exact")
    layouts = Layouts.begun(tmp_path, Layout(plan, {}, {}))
    layouts.add("one", later := Layout(plan, {}, {"a": 1}))
    assert layouts.of(Control(layout="one")).since == later.since and layouts.of(Control()).since == {}
    again = Layouts.begun(tmp_path, later)
    assert again.of(Control(layout="one")).since == {"a": 1}, "it was started with that"
    again.add("two", later)
    for other, name, told in (
        (layouts, "two", "not of this query"),
        (layouts, "three", "cannot be read"),
    ):
        with pytest.raises(ConnectorError, match=told):
            other.of(Control(layout=name))
    (tmp_path / "four").write_bytes((tmp_path / "two").read_bytes())
    with pytest.raises(ConnectorError, match="damaged"):
        again.of(Control(layout="four"))


def test_seven_dataflows_over_one_stream_run_in_few_queries(tmp_path):
    manager = ReuseManager(FakeSpark(tmp_path / "back", join=True, fuse="coarse"))
    source = Gated(riot_source("city", 100), tmp_path / "gate")
    for flow in riot21()[:7]:
        manager.submit(flow, source, ro.MemorySink())
    stats = manager.stats()
    assert stats["fragments"] == 3 and stats["steps_alone"] == 64 and stats["steps"] == 35
    manager.close()
