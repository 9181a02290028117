"""The back end in process: each dataflow gets the same records as alone."""

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
from riot_ops.reuse import LocalBackend, ReuseManager
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.testing import exact
from tests.random_flows import SCHEMA, assert_same, random_input
from tests.reuse.local_users import Got, Users, known, submit_any
from tests.reuse.merging_dataflows import apart, expected, got, merged, sources
from tests.reuse.sharing import overlapping_flow
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=depth(25))
def test_shared_dataflows_get_the_same_records_as_alone(choose):  # P15
    users = Users(choose)
    for i in range(4):
        submit_any(users, choose, f"d{i}")
    users.backend.run()
    for name, flow in users.flows.items():
        assert_same(users.got(name, known(flow)), users.alone(name, known(flow)), flow)


def test_random_dataflows_share_steps():
    shared = 0
    for seed in range(40):
        users = Users(random.Random(seed))
        for i in range(4):
            submit_any(users, random.Random(seed + i), f"d{i}")
        found = users.manager.stats()
        shared += found["steps"] < found["steps_alone"]
    assert shared >= 10


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=depth(25))
def test_late_dataflow_gets_the_same_records_as_alone_from_its_start_on(choose):
    users = Users(choose, policy="stateless")
    alive = []
    for i in range(8):
        if alive and choose.random() < 0.3:
            gone = alive.pop(choose.randrange(len(alive)))
            users.manager.remove(gone)
            part, whole = users.got(gone, known(users.flows[gone])), users.alone(gone, known(users.flows[gone]))
            assert all(not part[stream] - whole[stream] for stream in part)
        else:
            submit_any(users, choose, f"d{i}")
            alive.append(f"d{i}")
        users.backend.turn()
    users.backend.run()
    for name in alive:
        flow = users.flows[name]
        if flow.merging == "arrival":  # sources merged as one log end together
            assert_same(users.got(name, known(flow)), users.alone(name, known(flow)), flow)
    for name in alive:
        users.manager.remove(name)
    assert users.backend.running_steps() == set() and not users.backend.engine.steps
    assert not users.backend.sources.open_sources and not users.backend.step_queues and not users.backend.references


@given(SEEDS)
@settings(max_examples=depth(12))
def test_late_dataflow_shares_stateless_steps_without_loss(choose):
    users = Users(choose)
    for i in range(5):
        users.submit(overlapping_flow(choose, f"d{i}", stateful=False), f"d{i}")
        users.backend.turn()
    users.backend.run()
    for name, flow in users.flows.items():
        assert_same(users.got(name, known(flow)), users.alone(name, known(flow)), flow)


MERGING = {
    "ada": lambda: apart("ada", "north"),
    "bob": lambda: apart("bob", "south"),
    "cyd": lambda: merged("cyd", ("north", "south")),
    "dan": lambda: merged("dan", ("south", "north"), declared=("south", "north")),
    "eve": lambda: merged("eve", ("west", "north", "south")),
    "fay": lambda: merged("fay", ("south", "north"), high=20.0),
}


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=depth(25))
def test_dataflows_share_steps_before_merges_and_equal_a_naive_merge(choose):
    backend = LocalBackend(batch_size=choose.randint(1, 70))
    manager = ReuseManager(backend)
    flows = {name: MERGING[name]() for name in choose.sample(sorted(MERGING), choose.randint(2, 6))}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, sources(flow), sinks[name])
    names = {source.id for flow in flows.values() for source in flow.nodes_of_kind("source")}
    assert manager.stats()["readings"] == len(names)
    steps = {step.label for step in (one.identity for one in manager.ledger.steps.values())}
    assert sum(one.identity.label == "sliding_sum" for one in manager.ledger.steps.values()) == len(names), steps
    gone = choose.choice([None, *flows])
    for _ in range(choose.randint(0, 4)):
        backend.turn()
    if gone is not None:
        manager.remove(gone)
    backend.run()
    for name, flow in flows.items():
        found, wanted = got(Got(sinks[name]), flow), expected(flow, 20.0 if name == "fay" else 25.0)
        assert all(not found[end] - wanted[end] for end in wanted)
        assert name == gone or found == wanted
        assert got(flow.run(sources(flow)), flow) == wanted, "a run alone gives the same"


def test_errors_after_a_shared_merge_have_the_numbers_of_the_dataflow():
    def flow(name, *names):
        flow = ro.Dataflow(name)
        streams = [flow.source(one, schema={"value": "double"}) for one in names]
        check = t.RangeFilter(bounds={"value": (0, 20)}, by=None, on_error="reject")
        return flow.sink("out", ro.merge(*streams).to(check, id=f"{name}_check"))

    far = {"x": [{"seq": n, "value": float(n % 100)} for n in (0, 30, 2**62)], "y": [{"seq": 2, "value": 1.0}]}
    logs = {name: ro.MemorySource(rows) for name, rows in far.items()}
    backend, flows, sinks = LocalBackend(), (flow("ada", "x", "y"), flow("bob", "y", "x")), {}
    manager = ReuseManager(backend)
    for one in flows:
        sinks[one.name] = ro.MemorySink()
        report = manager.submit(one, logs, sinks[one.name])
    assert not report.new
    backend.run()
    for one in flows:
        alone = one.run(logs)
        for stream in (f"{one.name}_check", "errors"):
            tables = (of[stream] for of in (Got(sinks[one.name]), alone))
            rows = [
                [{**row, "raw": None} for row in table.to_pylist()] for table in tables
            ]  # the text is the shared one
            found, wanted = (sorted(map(exact, given)) for given in rows)
            assert found == wanted, (one.name, stream)
        assert {row["task"] for row in alone.errors.to_pylist()} == {"x", f"{one.name}_check"}


def test_step_alone_and_before_a_merge_gives_the_same_numbers():
    backend = LocalBackend(batch_size=7)
    manager, sinks = ReuseManager(backend), {}
    for name in ("cyd", "ada"):
        flow, sinks[name] = MERGING[name](), ro.MemorySink()
        report = manager.submit(flow, sources(flow), sinks[name])
    assert {*report.new} == {"north_out"}
    backend.run()
    assert got(Got(sinks["ada"]), flow) == expected(flow)


def chain(*tasks, name="f", source="north", sink="out"):
    flow = ro.Dataflow(name)
    stream = flow.source(source, schema=SCHEMA)
    for i, task in enumerate(tasks):
        stream = stream.to(task, id=f"{name}{i}")
    return flow.sink(sink, stream)


A, B = t.KalmanFilter(by=("device",)), t.RangeFilter(bounds={"light": (-20, 30)})


def test_late_dataflow_joins_the_state_of_a_shared_step():
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


def test_source_is_read_once_for_all_dataflows():
    reads = []

    class Counting(ro.MemorySource):
        def description(self):  # equal to any other counting source of the rows
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


def test_rejected_records_name_steps_of_their_dataflow():
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


def test_spared_records_are_counted():
    users = Users(random.Random(0), rows=40, batch_size=10)
    assert users.backend.stats()["spared"] == 0
    users.submit(chain(B, A, name="a"), "a")
    users.backend.turn()
    assert users.backend.stats()["spared"] == 0
    users.submit(chain(B, name="b"), "b")
    users.backend.run()
    assert users.backend.stats()["spared"] == 30 * 2  # by the source and the filter
    assert "60 records were processed for other dataflows already" in users.manager.explain_sharing()


def test_paused_dataflow_spares_no_records():
    users = Users(random.Random(0), rows=40, batch_size=10)
    for name in "abc":
        users.submit(chain(B, name=name), name)
    users.manager.pause("b")
    users.backend.turn()
    assert users.backend.stats()["spared"] == 10 * 2, "by the source and the filter, for one other dataflow"
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


def test_failed_sink_leaves_other_dataflows_running():
    users = Users(random.Random(0), batch_size=5)
    users.submit(chain(A, name="a"), "a")
    users.manager.submit(chain(A, name="b"), users.logs["north"], Breaking(2))
    users.backend.run()
    assert_same(users.got("a"), users.alone("a"), users.flows["a"])
    assert users.manager.stats()["failed"] == {"b": "OSError: disk full"}
    users.manager.remove("b")
    assert users.manager.stats()["failed"] == {"b": "OSError: disk full"}


def test_failed_step_ends_only_its_users():
    calls = []

    def picky(batch):
        calls.append(batch)
        if len(calls) > 2:
            raise MemoryError("no more")
        return batch

    users = Users(random.Random(2), batch_size=10)
    check = ro.map_batches(picky, label="picky", revision=1)
    users.submit(chain(B, check, A, name="a"), "a")
    users.submit(chain(B, check, name="b"), "b")
    users.submit(chain(B, A, name="c"), "c")
    users.backend.run()
    assert_same(users.got("c"), users.alone("c"), users.flows["c"])
    assert users.backend.stats()["failed"] == dict.fromkeys("ab", "MemoryError: no more")
    wanted = {"a2": users.sinks["c"].table("c1"), "b1": chain(B, name="b").run(users.logs["north"])["b0"]}
    for end, table in wanted.items():  # whole batches
        seen = users.sinks[end[0]].table(end).column("seq").to_pylist()
        assert seen == [n for n in table.column("seq").to_pylist() if n < 20]
    report = users.submit(chain(B, check, name="d"), "d")
    assert set(report.reused) == {"north", "d0"}  # the failed step is not shared
    users.manager.pause("a")
    users.manager.resume("a")
    for name in "abcd":
        users.manager.remove(name)
    assert users.backend.running_steps() == set() and not users.backend.engine.failures


def test_files_are_written_per_epoch_by_one_dataflow(tmp_path):
    table = random_input(random.Random(0), 30)
    backend = LocalBackend(batch_size=10, epoch="0s")
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


def test_paused_dataflow_gets_nothing_while_others_get_all():
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
    users.backend.run()  # a paused source does not keep it running
    assert_same(users.got("b"), users.alone("b"), users.flows["b"])
    seen = users.sinks["a"].table("a0").column("seq").to_pylist()
    assert (not set(seen) & set(range(10, 20)) and set(seen) >= set(range(20, 40)) - {20}) or seen
    users.manager.resume("c")
    users.backend.run()
    assert_same(users.got("c"), users.alone("c"), users.flows["c"])  # its source was not read in the meantime


def test_pause_and_resume_return_the_first_messages():
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


def test_step_flushes_when_all_its_sources_have_ended():
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


def test_windows_of_different_sizes_share_the_steps_before_them():
    def window(seconds):
        return t.Window(by=("device", "obs_type"), frame=timedelta(seconds=seconds), aggregates={"n": "count"})

    users = Users(random.Random(5), batch_size=7, policy="stateless")
    for i, seconds in enumerate((4, 6, 5, 4)):
        report = users.submit(chain(B, window(seconds), name=f"d{i}"), f"d{i}")
        users.backend.turn()
        assert i == 0 or f"d{i}0" in report.reused
    users.backend.run()
    for name, flow in users.flows.items():
        assert_same(users.got(name), users.alone(name), flow)


def test_guarded_watermarks_are_not_shared_with_unguarded_ones():
    def window(**options):
        aggregates = {"n": "count"}
        return t.Window(by=("device",), frame=timedelta(seconds=4), aggregates=aggregates, **options)

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
    ids = [step.id for step in users.backend.engine.steps]
    assert len(ids) == len(set(ids)) and sum(id.endswith("@time") for id in ids) == 2
    users.backend.run()
    for name, flow in users.flows.items():
        assert_same(users.got(name), users.alone(name), flow)
    assert users.sinks["b"].table("b0").num_rows > users.sinks["a"].table("a0").num_rows / 2 > 0


def test_step_of_paused_dataflows_pauses_when_the_others_are_removed():
    users = Users(random.Random(6), batch_size=10)
    users.submit(chain(A, name="a"), "a")
    users.submit(chain(A, B, name="b"), "b")
    users.manager.pause("a")
    users.backend.turn()
    users.manager.remove("b")
    users.backend.run()
    assert users.backend.stats()["messages"] == 10
    users.submit(chain(A, B, name="c"), "c")  # resumes the shared steps
    users.backend.run()
    assert users.backend.stats()["messages"] == 40 and not users.got("a")["a0"] and users.got("c")["c1"]


def test_step_over_several_sources_ends_with_the_last_of_them():
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


def test_endless_stream_continues_while_dataflows_change():
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


def test_replayed_log_rebinds_sources_and_sinks(tmp_path):
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
    with pytest.raises(ConfigError, match="batch_size must be a whole number >= 1"):
        LocalBackend(0)
    with pytest.raises(ConfigError, match="batch_size must be a whole number >= 1, got nan"):
        LocalBackend(float("nan"))
    for wrong, message in (
        (10, "epoch must be a timedelta or a text such as '10s' or '1h30m', got 10"),
        (timedelta(seconds=-1), r"epoch must be >= 0 and at most 1e\+09 seconds, got -1"),
        ("10", "epoch: '10' is not a duration"),
    ):
        with pytest.raises(ConfigError, match=message):
            LocalBackend(epoch=wrong)
    assert LocalBackend(epoch="1min").epoch_s == LocalBackend(epoch=timedelta(minutes=1)).epoch_s == 60
    LocalBackend(epoch="0s")
    manager = ReuseManager(LocalBackend())
    with pytest.raises(ConfigError, match="needs a source"):
        manager.submit(chain(A))
    with pytest.raises(ConfigError, match="lacks the field"):
        manager.submit(chain(A), pa.table({"value": [1.0]}))
    assert manager.stats()["steps"] == 0
