"""The suite that measures what sharing saves on Spark."""

from __future__ import annotations

import contextlib
import itertools
import re
from inspect import signature
from types import SimpleNamespace

import pyarrow as pa
import pytest
from riot_bench.harness.measure import Measure
from riot_bench.suites.reuse import capacity, executions, many_dataflows
from riot_bench.suites.reuse import local as reuse_local
from riot_bench.suites.reuse import spark as reuse_spark
from riot_bench.suites.reuse import suite as reuse
from riot_bench.suites.reuse.traces import Action, sequential_trace
from riot_bench.suites.reuse.workloads import riot21

import riot_ops.reuse.spark.spark_backend
from riot_ops.core.errors import ConfigError
from riot_ops.reuse.spark.spark_backend import SparkBackend
from tests.reuse.spark.fake_spark import FakeSpark

TRIGGER_S = 0.3


class Scripted:
    """A side with given CPU seconds per second and dataflow, and per action."""

    trigger_s = 1.0

    def __init__(self, clock, each, action, shared=0.0):
        self.clock, self.each, self.action, self.shared = clock, each, action, shared
        self.there, self.sinks, self.done, self.pace = [], {}, 0.0, 1.0

    def submit(self, flow, sink):
        self.there.append(flow)
        self.sinks[flow] = sink
        self.clock.cpu += self.action

    def remove(self, name):
        self.there.remove(name)

    def poll(self):
        for flow in self.there:
            self.sinks[flow].function("out", pa.record_batch({"seq": pa.array([int(self.clock.now)])}))

    def is_started(self):
        return True

    def query_count(self):
        return len(self.there)

    group_count = query_count

    def batch_count(self):
        return self.done

    def cores(self):
        return self.shared * bool(self.there) + self.each * len(self.there)


class Clock:
    now = cpu = 0.0
    side = None

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.cpu += seconds * self.side.cores()
        self.side.done += seconds * len(self.side.there) * self.side.pace


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (reuse_spark, capacity):
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(module, "ProcessTree", lambda: SimpleNamespace(cpu_seconds=lambda: clock.cpu))
    return clock


def went(clock, side, between=4.0):
    clock.side = side
    actions = [Action(0, "submit", "a"), Action(1, "submit", "b"), Action(2, "remove", "a"), Action(3, "remove", "b")]
    return reuse_spark.run_trace(side, {"a": "a", "b": "b"}, actions, between)


def test_runs_and_actions_are_timed_separately(clock):
    apart = went(clock, Scripted(clock, 0.5, 2.0))
    assert apart.cores == pytest.approx([0.5, 1.0, 0.5, 0.0]) and apart.action_cpu_s == pytest.approx([2, 2, 0, 0])
    assert apart.cpu_seconds(60) == pytest.approx(4 + 60 * 2.0)
    assert [one.seconds for one in apart.intervals] == pytest.approx([4] * 4) and apart.batch_s == pytest.approx(0.5)
    together = went(clock, Scripted(clock, 0.0, 3.0, shared=0.6))
    assert together.cores == pytest.approx([0.6, 0.6, 0.6, 0.0]) and [s.flow for s in together.lifetimes] == ["a", "b"]
    assert [one.fragmentation for one in together.intervals] == [1, 1, 1, None]
    found = {m.measure: m for m in reuse_spark._comparison_measures("x", "", "", apart, together, 2, 0.25)}
    assert found["x/cpu-reduction"].value == pytest.approx(1 - 1.8 / 2) and found["x/cpu-reduction"].reach == 0.25
    assert found["x/cpu-reduction-60s"].value == pytest.approx(1 - (6 + 108) / (4 + 120))
    assert found["x/cross-over"].value == pytest.approx(0.1) and not found["x/cross-over"].met
    assert [found[f"x/cores/together/{i}"].value for i in (1, 4)] == pytest.approx([0.6, 0.0])
    assert found["x/micro-batch-ms/apart"].value == pytest.approx(500)
    assert found["x/micro-batch-ms/apart"].against.endswith("mean CPU time of 16 micro-batches; 16 were due")
    [better] = [
        m
        for m in reuse_spark._comparison_measures("x", "-defragmented", "", apart, together, 2, 0.25)
        if "reduction-d" in m.measure
    ]
    assert better.reach == 0.51


def test_skipped_micro_batches_count_at_the_mean(clock):
    slow = Scripted(clock, 0.25, 1.0)
    slow.pace = 0.5  # half of the due messages
    found = went(clock, slow)
    assert found.batch_s == pytest.approx(0.5) and found.cores == pytest.approx([0.5, 1.0, 0.5, 0.0])
    stuck = reuse_spark.TraceRun(intervals=[reuse_spark.Interval(4, 1, 8, 2, 1), reuse_spark.Interval(4, 0.1, 4, 0, 1)])
    assert stuck.cores == pytest.approx([1.0, 0.55]), "idle intervals count at the mean"


def test_start_waits_until_each_query_has_compiled():
    """The first micro-batch of a merged query is empty, the second the first with records."""
    together, apart = (object.__new__(kind) for kind in (executions.SharedQueries, executions.SeparateQueries))
    for batches, up in ((2, False), (3, True)):
        together.backend = SimpleNamespace(micro_batches=lambda n=batches: {"f0": 9, "f1": n})
        apart._running = {
            "a": SimpleNamespace(micro_batches=[{}] * 9),
            "b": SimpleNamespace(micro_batches=[{}] * batches),
        }
        assert together.is_started() == apart.is_started() == up


def test_differing_outputs_are_reported(monkeypatch, tmp_path):
    flows = {"city-pred": next(flow for flow in riot21() if flow.name == "city-pred")}

    class Same:
        def __init__(self, spark, place, opened):
            self.opened, self.manager, self.backend = opened, self, self

        def submit(self, flow, sink):
            self.flow, self.sink = flow, sink

        def defragment(self):
            self.flow.run(
                {node.id: self.opened(node.id) for node in self.flow.nodes_of_kind("source")}, sinks=self.sink
            )

        def wait(self, timeout):
            return True

        def close(self):
            pass

    monkeypatch.setattr(executions, "SharedQueries", Same)
    lengths = itertools.cycle([50])

    def opened(stream, messages):
        return reuse_local.riot_source(stream, next(lengths))

    assert executions.check_outputs("x", None, tmp_path, flows, opened).value == 1
    lengths = itertools.cycle([50, 49])
    assert executions.check_outputs("x", None, tmp_path, flows, opened).value == 0


def test_capacity_follows_from_cpu_time(clock, monkeypatch):
    sides = []

    def opened(each, shared):
        def make(spark, place, paced, **options):
            side = Scripted(clock, each, 1.0, shared)
            side.manager = side.backend = side
            side.defragment, side.micro_batches, side.close = (lambda: None), (lambda: {"f0": 1}), side.there.clear
            sides.append(side)
            clock.side = side
            return side

        return make

    monkeypatch.setattr(capacity, "spark_session", lambda cores: contextlib.nullcontext())
    monkeypatch.setattr(capacity, "SeparateQueries", opened(0.5, 0.0))
    monkeypatch.setattr(capacity, "SharedQueries", opened(0.01, 0.2))
    flows = dict.fromkeys("abcd")
    flows = {name: name for name in flows}
    found = {m.measure: m.value for m in capacity.capacity_measures("x", flows, True, None)}
    assert found["x/apart"] == pytest.approx(4) and found["x/together"] == pytest.approx(2 * 4 / 0.24)
    assert found["x/ratio"] == pytest.approx(2 / 0.24)
    assert len(sides) == 4, "three at a time"


def test_options_are_checked():
    with pytest.raises(ConfigError, match="--backend spark, got 'local'"):
        list(reuse.measures(carried=True))
    with pytest.raises(ConfigError, match="at_once must be >= 1, got 0"):
        list(reuse.measures(backend="spark", at_once=0))


def test_concurrent_and_quick_limit_the_dataflows(monkeypatch):
    asked = []
    monkeypatch.setattr(
        reuse_spark,
        "measures",
        lambda name, flows, traces, quick, opened, at_once: (
            asked.extend((f"{name}/{walk}", [*flows][:at_once], actions, quick) for walk, actions in traces.items())
            or iter(())
        ),
    )
    for options in ({"at_once": 2}, {}, {"quick": True}, {"quick": True, "at_once": 2}):
        list(reuse.measures(trace=("seq",), backend="spark", **options))
    names = [flow.name for flow in riot21()]
    assert [few for _, few, _, _ in asked] == [names[:2], names[:12], names[:12], names[:2]]
    assert [(len(a), quick) for _, _, a, quick in asked] == [(4, False), (24, False), (24, True), (4, True)]
    assert {name for name, *_ in asked} == {"reuse/riot/seq"}
    asked.clear()
    for quick in (False, True):
        list(reuse.measures(trace=("rw1",), backend="spark", quick=quick))
    full, quick = (actions for _, _, actions, _ in asked)
    assert 16 < len(full) < 16 + 2 * 12 and 10 < len(quick) < len(full), "and all go in the end"
    there = set()
    most = 0
    for action in full:
        (there.add if action.op == "submit" else there.remove)(action.name)
        most = max(most, len(there))
    assert most == 12 and len({action.name for action in full}) > 12


def test_report_includes_traces_on_spark_and_many_dataflows(monkeypatch):
    asked = []

    def measured(name, flows, traces, quick, opened, at_once):
        asked.append((name, at_once, [*traces], quick))
        yield Measure(f"{name}/seq/cores/together-defragmented/3", 0.5, "cores", "")

    def counted(what):
        def of(*given):
            asked.append((what, *given[:3]))
            yield Measure(f"reuse/{what}/{given[0]}/p95-ms", 1.0, "ms", "")

        return of

    monkeypatch.setattr(reuse_spark, "measures", measured)
    monkeypatch.setattr(
        capacity, "capacity_measures", lambda name, flows, *_: asked.append((name, len(flows))) or iter(())
    )
    monkeypatch.setattr(many_dataflows, "many_measures", counted("many"))
    spark, many = reuse.EXPERIMENTS[2:4]
    assert [spark.key, many.key] == ["reuse/spark", "reuse/many"]
    [one] = spark.measures(False)
    assert asked == [("reuse/spark", 12, ["seq", "rw1", "rw2"], False), ("reuse/spark/carried", 21)]
    assert [figure.points([one]) for figure in spark.figures] == [[("together-defragmented", "3", one)], [], []]
    assert not re.search(r"\d", "".join(figure.title for figure in spark.figures)), "it is of either form"
    asked.clear()
    assert len([*spark.measures(True)]) == 1 and asked == [("reuse/spark", 3, ["seq"], True)]
    assert "At most 12 run concurrently (3 in the quick form)" in spark.about
    asked.clear()
    assert [m.measure for m in many.measures(False)] == ["reuse/many/local/3000/p95-ms", "reuse/many/spark/300/p95-ms"]
    assert [m.measure for m in many.measures(True)] == ["reuse/many/local/300/p95-ms"]
    assert asked == [("many", 3000, False, "local"), ("many", 300, False, "spark"), ("many", 300, True, "local")]


@pytest.fixture
def measured(spark, monkeypatch):
    """The measures of a small trace, in the session of all tests."""
    monkeypatch.setattr(reuse_spark, "spark_session", lambda cores: contextlib.nullcontext(spark))
    for module, name, value in (
        (reuse_spark, "INTERVAL_S", (9.0, 0.4)),
        (reuse_spark, "WARM_UP_S", (40.0, 0.4)),
        (reuse_spark, "TRIGGER_S", (3.0, TRIGGER_S)),
        (capacity, "MESSAGES", (400, 10)),
        (capacity, "TRIGGER_S", TRIGGER_S),
        (executions, "TRIGGER_S", TRIGGER_S),
    ):
        monkeypatch.setattr(module, name, value)

    def measured(*names):
        flows = {flow.name: flow for flow in riot21() if flow.name in names}
        found = {
            m.measure.removeprefix("reuse/riot/seq/"): m
            for m in reuse_spark.measures(
                "reuse/riot", flows, {"seq": sequential_trace([*flows])}, True, reuse_local.open_source
            )
        }
        assert found["reuse/riot/outputs-equal"].value == 1
        stayed = found["outputs-equal"]
        assert stayed.value == 1 or stayed.against.startswith("0 records in 2 lifetimes on Spark"), "so short a trace"
        assert 0 < found["reuse/riot/boundary-latency-ms"].value < 20_000
        for form in ("", "-defragmented"):
            assert found[f"after-drain{form}"].value == 0 and found[f"cpu-reduction{form}"].value < 1
            assert found[f"disruption-ms{form}"].value >= 0 and found[f"action-ms{form}"].value > 0
        assert found["queries-per-group"].value >= found["queries-per-group-defragmented"].value == 1
        assert found["disruption-ms/apart"].value >= 0
        assert found["defragment-ms"].value >= 0 and found["micro-batch-ms/apart"].value >= 0
        return found

    return measured


@pytest.mark.slow  # half a minute of separate queries; the shared side has tests of its own
@pytest.mark.spark
def test_trace_in_threads_beside_separate_queries(measured, monkeypatch):
    """The shared side runs in threads, the separate queries on Spark. In the next test both run on Spark."""
    opened = []

    def threads(spark, folder, **options):
        signature(SparkBackend).bind(spark, folder, **options)
        assert options.pop("trigger") == f"{TRIGGER_S:g} seconds"
        opened.append(options)
        return FakeSpark(folder, **{"max_records": None, "join": True, **options})

    monkeypatch.setattr(riot_ops.reuse.spark.spark_backend, "SparkBackend", threads)
    found = measured("grid-kalman", "grid-stats")
    assert opened == [{}, {"join": False}, {"max_queries": None}, {"max_queries": reuse_spark.MAX_QUERIES}]
    assert found["micro-batch-ms/apart"].value > 0


@pytest.mark.slow
@pytest.mark.spark
def test_trace_on_spark(measured):
    measured("grid-kalman", "grid-stats")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.integration
def test_many_dataflows_on_spark(spark, monkeypatch):
    monkeypatch.setattr(many_dataflows, "spark_session", lambda cores: contextlib.nullcontext(spark))
    monkeypatch.setattr(many_dataflows, "MEASURED_S", (30.0, 4.0))
    found = {m.measure: m for m in reuse.measures(quick=True, many=5, backend="spark")}
    assert set(found) == {f"reuse/many/5/{n}" for n in ("p95-ms", "records-per-s", "bytes-per-dataflow", "submit-ms")}
    assert 0 < found["reuse/many/5/p95-ms"].value < 60_000
    assert found["reuse/many/5/records-per-s"].value > 0 and found["reuse/many/5/submit-ms"].value > 0
    assert "JVM and workers" in found["reuse/many/5/bytes-per-dataflow"].against
