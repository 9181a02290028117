"""Shared dataflows in process: each gets what it would get alone."""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.reuse import LocalBackend, ReuseManager, errors
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.testing import exact
from tests.random_flows import SCHEMA, assert_same, everything, ordered, random_flow, random_input
from tests.reuse.sharing import overlapping_flow
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)


class Got:
    """What a sink in memory has, as a result."""

    def __init__(self, sink):
        self.sink = sink

    def __getitem__(self, stream):
        return self.sink.table(stream)


class Users:
    """A manager over one log of records, and what its users get."""

    def __init__(self, choose, rows=40, policy="always", batch_size=None):
        names = ("north", "south", "west", "in0", "in1")
        self.logs = {name: random_input(choose, rows) for name in names}
        self.backend = LocalBackend(batch_size or choose.randint(1, 12))
        self.manager = ReuseManager(self.backend, policy)
        self.flows, self.sinks, self.first = {}, {}, {}

    def submit(self, flow, name):
        sink = ro.MemorySink()
        sources = {n.id: self.logs[n.id] for n in flow.kind("source")}
        report = self.manager.submit(flow, sources, sink, name=name)
        self.flows[name], self.sinks[name], self.first[name] = flow, sink, report.first
        return report

    def got(self, name, nodes=None):
        return everything(Got(self.sinks[name]), self.flows[name], nodes)

    def alone(self, name, nodes=None):
        flow = self.flows[name]
        logs = {s: self.logs[s].slice(first) for s, first in self.first[name].items()}
        return everything(flow.run(logs), flow, nodes)


def any_flow(choose, name):
    if choose.random() < 0.5:
        return overlapping_flow(choose, name)
    flow = random_flow(choose, sources=choose.choice([1, 1, 2]))
    if flow.kind("source")[1:]:
        flow.merging = choose.choice(["arrival", "number", "sequence"])
    return flow


def try_submit(users, choose, name):
    flow = any_flow(choose, name)
    try:
        users.submit(flow, name)
    except (errors.NotDeduplicatedError, errors.DisconnectedError):
        return False
    return True


def known(flow):
    """Nodes of which the order of records is defined."""
    return ordered(flow) if flow.merging == "arrival" else None


@given(SEEDS)
@settings(max_examples=depth(25))
def test_together_each_gets_what_it_gets_alone(choose):  # P15
    users = Users(choose)
    for i in range(4):
        try_submit(users, choose, f"d{i}")
    users.backend.run()
    for name, flow in users.flows.items():
        assert_same(users.got(name, known(flow)), users.alone(name, known(flow)), flow)


def test_random_dataflows_have_something_to_share():
    shared = 0
    for seed in range(40):
        users = Users(random.Random(seed))
        sum(try_submit(users, random.Random(seed + i), f"d{i}") for i in range(4))
        found = users.manager.stats()
        shared += found["steps"] < found["steps_alone"]
    assert shared >= 10


@given(SEEDS)
@settings(max_examples=depth(25))
def test_whoever_comes_late_gets_what_it_gets_alone_from_there_on(choose):
    users = Users(choose, policy="stateless")
    alive = []
    for i in range(8):
        if alive and choose.random() < 0.3:
            gone = alive.pop(choose.randrange(len(alive)))
            users.manager.remove(gone)
            part, whole = users.got(gone, known(users.flows[gone])), users.alone(gone, known(users.flows[gone]))
            assert all(not part[stream] - whole[stream] for stream in part)
        elif try_submit(users, choose, f"d{i}"):
            alive.append(f"d{i}")
        users.backend.turn()
    users.backend.run()
    for name in alive:
        flow = users.flows[name]
        if flow.merging == "arrival":  # as one log, its sources end together
            assert_same(users.got(name, known(flow)), users.alone(name, known(flow)), flow)
    for name in alive:
        users.manager.remove(name)
    assert users.backend.running() == set() and not users.backend._engine.steps
    assert not users.backend._readings.of and not users.backend._labels and not users.backend._needs


@given(SEEDS)
@settings(max_examples=depth(12))
def test_without_state_a_late_one_shares_and_loses_nothing(choose):
    users = Users(choose)
    for i in range(5):
        users.submit(overlapping_flow(choose, f"d{i}", stateful=False), f"d{i}")
        users.backend.turn()
    users.backend.run()
    for name, flow in users.flows.items():
        assert_same(users.got(name, known(flow)), users.alone(name, known(flow)), flow)


def chain(*tasks, name="f", source="north", sink="out"):
    flow = ro.Dataflow(name)
    stream = flow.source(source, schema=SCHEMA)
    for i, task in enumerate(tasks):
        stream = stream.to(task, id=f"{name}{i}")
    return flow.sink(sink, stream)


A, B = t.KalmanFilter(by=("device",)), t.RangeFilter(bounds={"light": (-20, 30)})


def test_state_of_what_stays_goes_on_and_a_late_one_joins_it():
    users = Users(random.Random(1), batch_size=10)
    users.submit(chain(A, name="a"), "a")
    users.backend.turn()
    report = users.submit(chain(A, B, name="b"), "b")
    assert report.first == {"north": 10} and report.warm == ["b0"]
    users.backend.turn()
    users.manager.remove("a")
    users.submit(chain(A, name="c"), "c")
    users.backend.run()
    rows = ro.MemorySink()
    chain(A, name="c").run(users.logs["north"], sinks=rows)
    whole = rows.table("c0").to_pylist()
    assert users.sinks["c"].table("c0").to_pylist() == [row for row in whole if row["seq"] >= 20]
    assert users.sinks["a"].table("a0").to_pylist() == [row for row in whole if row["seq"] < 20]


def test_a_source_is_read_once_for_all():
    reads = []

    class Counting(ro.MemorySource):
        def description(self):  # what it counts aside it is what it has
            return super().description()

        def read(self, split):
            reads.append(split)
            return super().read(split)

    table = random_input(random.Random(0), 30)
    backend = LocalBackend(batch_size=10)
    manager = ReuseManager(backend)
    fewer = ro.Dataflow("c")
    fewer.sink("out", fewer.source("any", schema={"seq": "int64", "value": "double"}))
    for flow in (chain(A, name="a"), chain(B, name="b"), fewer):
        manager.submit(flow, Counting(table), ro.MemorySink())
    backend.run()
    assert len(reads) == 3 and backend.stats()["readings"] == 1 and backend.stats()["messages"] == 30
    assert "1 sources are read in place of 3" in manager.explain_sharing()


def test_errors_have_the_names_of_the_one_who_reads_them():
    rows = [{"device": "a", "value": 1.0}, {"device": "a", "value": "x"}, {"device": "a", "value": float("inf")}]
    manager = ReuseManager(LocalBackend())
    sinks = {}
    for name, step in (("a", "kalman"), ("b", "smooth")):
        flow = ro.Dataflow(name)
        stream = flow.source(f"{name}s", schema={"device": "string", "value": "double"})
        flow.sink("out", stream.to(t.KalmanFilter(), id=step))
        sinks[name] = ro.MemorySink()
        manager.submit(flow, rows, sinks[name])
    manager.backend.run()
    for name, labels in (("a", ["as", "kalman"]), ("b", ["bs", "smooth"])):
        assert sinks[name].table("errors").column("task").to_pylist() == labels


def test_what_is_spared_is_counted():
    users = Users(random.Random(0), rows=40, batch_size=10)
    assert users.backend.stats()["spared"] == 0
    users.submit(chain(B, A, name="a"), "a")
    users.backend.turn()
    assert users.backend.stats()["spared"] == 0
    users.submit(chain(B, name="b"), "b")
    users.backend.run()
    assert users.backend.stats()["spared"] == 30 * 2  # of the source and of the filter
    assert "60 records were worked on for others already" in users.manager.explain_sharing()


def test_who_rests_is_spared_nothing():
    users = Users(random.Random(0), rows=40, batch_size=10)
    for name in "abc":
        users.submit(chain(B, name=name), name)
    users.manager.pause("b")
    users.backend.turn()
    assert users.backend.stats()["spared"] == 10 * 2, "of the source and of the filter, for one other"
    users.manager.pause("c")
    users.backend.turn()
    assert users.backend.stats()["spared"] == 10 * 2
    for name in "bc":
        users.manager.resume(name)
    users.backend.run()
    assert users.backend.stats()["spared"] == 10 * 2 + 20 * 2 * 2


class Breaking(ro.CallbackSink):
    def __init__(self, at):
        super().__init__(self._take)
        self.left = at

    def _take(self, stream, batch):
        self.left -= 1
        if self.left < 0:
            raise OSError("disk full")


def test_a_sink_that_fails_is_nobody_elses_matter():
    users = Users(random.Random(0), batch_size=5)
    users.submit(chain(A, name="a"), "a")
    users.manager.submit(chain(A, name="b"), users.logs["north"], Breaking(2))
    users.backend.run()
    assert_same(users.got("a"), users.alone("a"), users.flows["a"])
    assert users.manager.stats()["failed"] == {"b": "OSError: disk full"}
    users.manager.remove("b")
    assert users.manager.stats()["failed"] == {"b": "OSError: disk full"}


def test_a_step_that_raises_ends_the_dataflows_that_use_it_and_no_others():
    calls = []

    def picky(batch):
        calls.append(batch)
        if len(calls) > 2:
            raise MemoryError("no more")
        return batch

    users = Users(random.Random(2), batch_size=10)
    check = ro.map_batches(picky, name="picky", version=1)
    users.submit(chain(B, check, A, name="a"), "a")
    users.submit(chain(B, check, name="b"), "b")
    users.submit(chain(B, A, name="c"), "c")
    users.backend.run()
    assert_same(users.got("c"), users.alone("c"), users.flows["c"])
    assert users.backend.stats()["failed"] == dict.fromkeys("ab", "MemoryError: no more")
    wanted = {"a2": users.sinks["c"].table("c1"), "b1": chain(B, name="b").run(users.logs["north"])["b0"]}
    for end, table in wanted.items():  # of whole batches
        seen = users.sinks[end[0]].table(end).column("seq").to_pylist()
        assert seen == [n for n in table.column("seq").to_pylist() if n < 20]
    report = users.submit(chain(B, check, name="d"), "d")
    assert set(report.reused) == {"north", "d0"}  # it gets a step of its own
    users.manager.pause("a")
    users.manager.resume("a")
    for name in "abcd":
        users.manager.remove(name)
    assert users.backend.running() == set() and not users.backend._engine.broken


def test_files_are_written_in_epochs_and_are_of_one_dataflow(tmp_path):
    table = random_input(random.Random(0), 30)
    backend = LocalBackend(batch_size=10, epoch_s=0.0)
    manager = ReuseManager(backend)
    manager.submit(chain(B, name="a"), table, ro.ParquetSink(tmp_path))
    with pytest.raises(ConnectorError, match="in use"):
        manager.submit(chain(B, name="a"), table, ro.ParquetSink(tmp_path), name="b")
    assert manager.names == ["a"] and manager.stats()["steps"] == 3
    backend.turn()
    assert len(list((tmp_path / "a0").glob("part-*"))) == 1
    backend.run()
    manager.close()
    wanted = chain(B, name="a").run(table)["a0"]
    kept = ro.ParquetSink(tmp_path).table("a0")
    assert list(map(exact, kept.to_pylist())) == list(map(exact, wanted.to_pylist()))
    with pytest.raises(ConnectorError, match="earlier run"):
        ReuseManager(LocalBackend()).submit(chain(B, name="a"), table, ro.ParquetSink(tmp_path))
    slow = LocalBackend(batch_size=10)
    ReuseManager(slow).submit(chain(B, name="c"), table, ro.ParquetSink(tmp_path))
    slow.turn()
    assert not list((tmp_path / "c0").glob("part-*"))
    slow.close()
    assert len(list((tmp_path / "c0").glob("part-*"))) == 1


def test_who_pauses_gets_nothing_and_others_all():
    users = Users(random.Random(3), batch_size=10)
    users.submit(chain(A, name="a"), "a")
    users.submit(chain(A, B, name="b"), "b")
    users.submit(chain(B, name="c", source="south"), "c")
    users.backend.turn()
    users.manager.pause("a")
    users.manager.pause("c")
    users.backend.turn()
    assert users.backend.stats()["readings"] == 2 and users.backend.stats()["rows"]["a"] < 20
    users.manager.resume("a")
    users.backend.run()  # it does not wait for what rests
    assert_same(users.got("b"), users.alone("b"), users.flows["b"])
    seen = users.sinks["a"].table("a0").column("seq").to_pylist()
    assert (not set(seen) & set(range(10, 20)) and set(seen) >= set(range(20, 40)) - {20}) or seen
    users.manager.resume("c")
    users.backend.run()
    assert_same(users.got("c"), users.alone("c"), users.flows["c"])  # nobody read its source meanwhile


def test_a_pause_tells_its_borders():
    backend = LocalBackend(batch_size=7)
    manager, sink = ReuseManager(backend), ro.MemorySink()
    source = ro.MemorySource([{"value": float(i)} for i in range(40)])
    for name, own in (("ada", ro.MemorySink()), ("bob", sink)):
        flow = ro.Dataflow(name)
        manager.submit(flow.sink("out", flow.source("in", schema={"value": "double"})), source, own)
    backend.turn()
    assert manager.pause("bob") == {"in": 7} and manager.pause("bob") == {}
    backend.turn()
    assert manager.resume("bob") == {"in": 14}
    backend.run()
    assert sink.table("in")["seq"].to_pylist() == [*range(7), *range(14, 40)]


def test_what_a_step_holds_comes_out_when_all_its_sources_have_ended():
    average = t.MovingAverage(window=7, partial=True, by=())
    users = Users(random.Random(4), batch_size=16)
    users.submit(chain(average, name="a"), "a")
    users.submit(chain(average, B, name="b"), "b")
    users.logs["south"] = users.logs["south"].slice(0, 5)
    users.submit(chain(average, name="c", source="south"), "c")
    users.backend.run()
    users.submit(chain(average, name="d"), "d")
    users.backend.run()
    for name in "abc":
        assert_same(users.got(name), users.alone(name), users.flows[name])
    assert not users.got("d")["d0"]


def test_windows_of_different_periods_share_what_is_before_them():
    def window(seconds):
        return t.Window(by=("device", "obs_type"), size=timedelta(seconds=seconds), aggregates={"n": ("count", None)})

    users = Users(random.Random(5), batch_size=7, policy="stateless")
    for i, seconds in enumerate((4, 6, 5, 4)):
        report = users.submit(chain(B, window(seconds), name=f"d{i}"), f"d{i}")
        users.backend.turn()
        assert i == 0 or f"d{i}0" in report.reused
    users.backend.run()
    for name, flow in users.flows.items():
        assert_same(users.got(name), users.alone(name), flow)


def test_marks_that_guard_against_the_future_are_other_marks():
    def window(**options):
        aggregates = {"n": ("count", None)}
        return t.Window(by=("device",), size=timedelta(seconds=4), aggregates=aggregates, **options)

    users = Users(random.Random(5), batch_size=8)
    seconds = [0, 1, 2, 1000, *range(3, 27)]
    rows = [{"seq": i, "event_time": 1_000_000 * s, "device": "a"} for i, s in enumerate(seconds)]
    users.logs["north"] = pa.Table.from_pylist(rows, schema=users.logs["north"].schema)
    for name, task in (
        ("a", window()),
        ("b", window(max_ahead="20s")),
        ("c", window(max_ahead="20s", allowed_lateness="4s")),
    ):
        users.submit(chain(task, name=name), name)
    ids = [step.id for step in users.backend._engine.steps]
    assert len(ids) == len(set(ids)) and sum(id.endswith("@time") for id in ids) == 2
    users.backend.run()
    for name, flow in users.flows.items():
        assert_same(users.got(name), users.alone(name), flow)
    assert users.sinks["b"].table("b0").num_rows > users.sinks["a"].table("a0").num_rows / 2 > 0


def test_what_only_the_paused_use_rests_when_the_others_go():
    users = Users(random.Random(6), batch_size=10)
    users.submit(chain(A, name="a"), "a")
    users.submit(chain(A, B, name="b"), "b")
    users.manager.pause("a")
    users.backend.turn()
    users.manager.remove("b")
    users.backend.run()
    assert users.backend.stats()["messages"] == 10
    users.submit(chain(A, B, name="c"), "c")  # it wakes what it shares
    users.backend.run()
    assert users.backend.stats()["messages"] == 40 and not users.got("a")["a0"] and users.got("c")["c1"]


def test_what_reads_several_sources_ends_with_the_last_of_them():
    flow = ro.Dataflow("two")
    streams = [flow.source(name, schema=SCHEMA) for name in ("north", "south")]
    flow.sink("out", ro.merge(*streams).to(t.MovingAverage(window=1000, partial=True), id="average"))
    users = Users(random.Random(7), batch_size=4)
    users.logs["north"] = users.logs["north"].slice(0, 6)
    users.submit(flow, "two")
    users.backend.run()
    [got] = users.sinks["two"].table("average").to_pylist()
    [wanted] = flow.run({name: users.logs[name] for name in ("north", "south")})["average"].to_pylist()
    assert got["value"] == pytest.approx(wanted["value"])


def test_a_stream_without_end_goes_on_while_users_come_and_go():
    backend = LocalBackend(batch_size=64)
    manager = ReuseManager(backend)
    backend.start()
    sinks = {}

    def user(i):
        flow = ro.Dataflow(f"u{i}")
        stream = flow.source("city").to(t.ParseSenML(schema="city"), id="parse")
        flow.sink("out", stream.to(t.RangeFilter(bounds="city") if i % 2 else A.replace(by=("sensor_id",)), id="x"))
        sinks[i] = ro.MemorySink()
        manager.submit(flow, CitySource(10), sinks[i])

    users = [threading.Thread(target=user, args=(i,)) for i in range(10)]
    for one in users:
        one.start()
    for one in users:
        one.join()
    deadline = time.monotonic() + 20
    while any(not sink.table("x").num_rows for sink in sinks.values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert manager.stats()["steps"] == 6 and backend.stats()["readings"] == 1
    for i in range(9):
        manager.remove(f"u{i}")
    before = sinks[9].table("x").num_rows
    while sinks[9].table("x").num_rows == before and time.monotonic() < deadline:
        time.sleep(0.01)
    manager.close()
    seen = [sinks[i].table("x").column("seq").to_pylist() for i in range(10)]
    assert all(seen) and max(seen[9]) > max(max(one) for one in seen[:9])


def test_a_log_takes_up_dataflows_with_what_is_bound_again(tmp_path):
    table = random_input(random.Random(0), 20)
    sinks = {}

    def rebind(name, flow):
        sinks[name] = ro.MemorySink()
        return table, sinks[name]

    manager = ReuseManager(LocalBackend(), log=tmp_path / "log")
    for name in ("a", "b", "c"):
        manager.submit(chain(A, name=name), table, ro.MemorySink())
    manager.remove("a")
    manager.pause("b")
    manager.close()
    again = ReuseManager(LocalBackend(), log=tmp_path / "log", rebind=rebind)
    assert again.canonical()[2] == ["b"] and again.stats()["steps"] == 3
    again.backend.run()
    assert sinks["c"].table("c0").num_rows == chain(A, name="c").run(table)["c0"].num_rows
    assert not sinks["b"].table("b0").num_rows


def test_parameters_are_checked():
    with pytest.raises(ConfigError, match="batch_size must be >= 1"):
        LocalBackend(0)
    with pytest.raises(ConfigError, match="batch_size must be a whole number >= 1, got nan"):
        LocalBackend(float("nan"))
    for wrong in (-1, float("nan"), float("inf"), "10"):
        with pytest.raises(ConfigError, match=f"epoch_s must be >= 0 and at most 1e.09 seconds, got '?{wrong}"):
            LocalBackend(epoch_s=wrong)
    LocalBackend(epoch_s=0)
    manager = ReuseManager(LocalBackend())
    with pytest.raises(ConfigError, match="needs a source"):
        manager.submit(chain(A))
    with pytest.raises(ConfigError, match="lacks the field"):
        manager.submit(chain(A), pa.table({"value": [1.0]}))
    assert manager.stats()["steps"] == 0
