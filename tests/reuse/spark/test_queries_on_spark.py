"""Shared dataflows on Spark: each gets the same records as alone."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.reuse import Request, ReuseManager, SparkBackend
from riot_ops.reuse.spark.fragment import SPEC
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.testing import exact
from tests.reuse import merging_dataflows as merging
from tests.reuse import test_shared_source as shared
from tests.reuse.spark import serving_job
from tests.reuse.spark.fake_spark import Gated
from tests.reuse.spark.serving_job import FLOWS, opened
from tests.reuse.spark.test_partitions import Scenario

pytestmark = pytest.mark.spark

KEY = ("sensor_id", "obs_type")
MESSAGES = 1600


def dataflow(name, *tasks):
    flow = ro.Dataflow(name)
    stream = flow.source("city").to(t.ParseSenML(schema="city"), id="parse").to(t.RangeFilter(bounds="city"), id="kept")
    for place, task in enumerate(tasks):
        stream = stream.to(task, id=f"t{place}")
    return flow.sink("out", stream)


def rows(result, stream, first=0):
    return sorted(exact(row) for row in result[stream].to_pylist() if row["seq"] >= first)


class Got:
    def __init__(self, sink):
        self.sink = sink

    def __getitem__(self, stream):
        return self.sink.table(stream)


def test_actions_do_not_wait_for_the_trigger(spark, tmp_path):
    backend = SparkBackend(spark, tmp_path / "back", trigger="1 hour", patience="30s", join=False)
    manager = ReuseManager(backend)
    source = CitySource(90, messages=40)
    flows = (
        dataflow("ada", t.KalmanFilter(by=KEY)),
        dataflow("bob", t.KalmanFilter(by=KEY), t.RangeFilter(bounds="city")),
    )
    sinks = ro.MemorySink(), ro.MemorySink()
    for flow, sink in zip(flows, sinks, strict=True):
        manager.submit(flow, Gated(source, tmp_path / "gate"), sink)
    assert len(backend.micro_batches()) == 2
    (tmp_path / "gate").touch()
    manager.defragment()
    assert len(backend.micro_batches()) == 1
    end = time.monotonic() + 30
    while not all(rows(Got(sink), stream) for sink, stream in zip(sinks, ("t0", "t1"), strict=True)):
        assert time.monotonic() < end
        time.sleep(0.05)
    begun = time.monotonic()
    manager.remove("bob")
    manager.close()
    assert time.monotonic() - begun < 10, "a waiting query is stopped at once"


@pytest.mark.slow  # the planner and the runner in process have tests of such merges
def test_steps_before_a_merge_are_shared_and_equal_a_naive_merge(spark, tmp_path):
    backend = SparkBackend(spark, tmp_path / "back")
    manager = ReuseManager(backend)
    flows = {
        "ada": merging.apart("ada", "north"),
        "bob": merging.apart("bob", "south"),
        "cyd": merging.merged("cyd", ("north", "south")),
        "dan": merging.merged("dan", ("south", "north"), declared=("south", "north")),
    }
    sinks, new = {name: ro.ParquetSink(tmp_path / name) for name in flows}, {}
    for name, flow in flows.items():
        bound = {source: Gated(one, tmp_path / "gate") for source, one in merging.sources(flow).items()}
        new[name] = len(manager.submit(flow, bound, sinks[name]).new)
    assert new == {"ada": 4, "bob": 4, "cyd": 3, "dan": 0} and backend.stats()["readings"] == 2
    (tmp_path / "gate").touch()
    manager.remove("bob")
    assert backend.wait("90s")
    for name in ("ada", "cyd", "dan"):
        assert merging.got(Got(sinks[name]), flows[name]) == merging.expected(flows[name]), name
    manager.close()


def left_fragments(back):
    """Definitions and topics; a task of a stopped query may still write state, which the next start removes."""
    return [*(back / "fragments").glob(f"*/{SPEC}"), *(back / "fragments").glob("*/topic")]


def test_dataflows_start_and_end_while_queries_run(spark, tmp_path):  # P15
    backend = SparkBackend(spark, tmp_path / "back", max_records=400)
    manager = ReuseManager(backend)
    source = Gated(CitySource(90, messages=MESSAGES), tmp_path / "gate")
    flows = {
        "ada": dataflow("ada", t.KalmanFilter(by=KEY), t.MovingAverage(by=KEY, window=3)),
        "bob": dataflow("bob", t.KalmanFilter(by=KEY), t.MovingAverage(by=KEY, window=5)),
        "cyd": dataflow("cyd"),
    }
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}
    first = {}
    for name in ("ada", "bob"):
        first[name] = manager.submit(flows[name], source, sinks[name]).first
    assert first == {"ada": {"city": 0}, "bob": {"city": 0}}
    source.open(800)
    late = manager.submit(flows["cyd"], source, sinks["cyd"])
    assert set(late.reused) == {"city", "parse", "kept"}
    while not backend.stats()["rows"]["bob"]:
        time.sleep(0.05)
    assert manager.remove("ada").stopped
    source.open()
    assert backend.wait("90s")
    alone = {name: flow.run(CitySource(90, messages=MESSAGES)) for name, flow in flows.items()}
    assert rows(Got(sinks["bob"]), "t1") == rows(alone["bob"], "t1")
    assert rows(Got(sinks["cyd"]), "kept") == rows(alone["cyd"], "kept", late.first["city"])
    part, whole = (rows(got, "t1") for got in (Got(sinks["ada"]), alone["ada"]))
    assert set(part) <= set(whole) and len(part) == len(set(part))
    assert backend.stats()["readings"] == 1 and not backend.stats()["failed"]
    for name in ("cyd", "bob"):
        manager.remove(name)
    assert backend.stats()["queries"] == 0 and not left_fragments(tmp_path / "back")
    manager.close()


def test_three_queries_are_merged(spark, tmp_path):  # P18
    backend = SparkBackend(spark, tmp_path / "back", max_records=200)
    manager = ReuseManager(backend)
    source = Gated(CitySource(90, messages=MESSAGES), tmp_path / "gate")
    flows = {
        "ada": dataflow("ada", t.KalmanFilter(by=KEY)),
        "bob": dataflow("bob", t.KalmanFilter(by=KEY), t.MovingAverage(by=KEY, window=5)),
        "cyd": dataflow("cyd", t.DistinctCount(by=("obs_type",))),
    }
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    source.open(400)
    while not backend.stats()["rows"]["bob"]:
        time.sleep(0.05)
    manager.defragment()
    stats = backend.stats()
    assert stats["queries"] == stats["fragments"] == 1
    source.open()
    assert backend.wait("90s")
    for (name, flow), last in zip(flows.items(), ("t0", "t1", "t0"), strict=True):
        assert rows(Got(sinks[name]), last) == rows(flow.run(CitySource(90, messages=MESSAGES)), last)
    manager.close()


def workers():
    """Return the Python workers of Spark, without the processes that fork them."""
    java = [p for p in psutil.Process().children(recursive=True) if "java" in p.name()]
    found = [p for one in java for p in one.children(recursive=True) if p.name().startswith("python")]
    forking = {p.ppid() for p in found}
    return [p for p in found if p.pid not in forking]


@pytest.mark.slow
def test_workers_are_killed_at_random_moments(spark, tmp_path):  # P15
    choose = random.Random(1)
    backend = SparkBackend(spark, tmp_path / "back", max_records=200, max_tries=10)
    manager = ReuseManager(backend)
    source = Gated(CitySource(90, messages=MESSAGES), tmp_path / "gate")
    flows = {
        "ada": dataflow("ada", t.KalmanFilter(by=KEY)),
        "bob": dataflow("bob", t.KalmanFilter(by=KEY), t.MovingAverage(by=KEY, window=5)),
        "cyd": dataflow("cyd"),
    }
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}
    for name in ("ada", "bob"):
        manager.submit(flows[name], source, sinks[name])
    source.open(1200)
    late = manager.submit(flows["cyd"], source, sinks["cyd"]).first["city"]
    killed = 0
    while killed < 2 and backend.stats()["records"].get("city.0", 0) < MESSAGES:
        time.sleep(choose.random())
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            choose.choice(workers()).kill()
            killed += 1
    source.open()
    assert killed and backend.wait("90s") and not backend.stats()["failed"]
    for (name, flow), last, first in zip(flows.items(), ("t0", "t1", "kept"), (0, 0, late), strict=True):
        assert rows(Got(sinks[name]), last) == rows(flow.run(CitySource(90, messages=MESSAGES)), last, first)
    manager.close()


@pytest.mark.slow
def test_all_dataflows_resume_after_a_kill(spark, tmp_path):
    job = [sys.executable, "-m", "tests.reuse.spark.serving_job", str(tmp_path)]
    with subprocess.Popen(job, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for name in FLOWS:
            assert process.stdout.readline() == f"{name} {{'city': 0}}\n"
        while not list((tmp_path / "bob").glob("*/part-*")):
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    manager = opened(spark, tmp_path)
    assert manager.names == list(FLOWS)
    assert manager.backend.wait("90s")
    for name, last in (("ada", "t0"), ("bob", "t1")):
        whole = serving_job.dataflow(name).run(CitySource(90, messages=serving_job.MESSAGES))
        assert rows(Got(ro.ParquetSink(tmp_path / name)), last) == rows(whole, last)
    manager.close()


@pytest.mark.slow
def test_resumed_query_keeps_its_partitions(spark, tmp_path):
    scenario = Scenario(tmp_path)
    for number in (2, 3):
        manager = scenario.open_over(SparkBackend(spark, tmp_path / "back", partitions=number, max_records=100))
        if number == 2:
            scenario.submit("ada", "bob")
            scenario.read_half()
        else:
            scenario.check()
        assert {fragment.spec.partitions for fragment in manager.backend.fragments.values()} == {2}
        manager.close()


@pytest.mark.slow
def test_dataflow_with_other_fields_of_a_queue_shares_its_source_and_outlives_the_other(spark, tmp_path):
    scenario = shared.Life(tmp_path, "joined", spark)
    scenario.submit(shared.flow("ada"))
    scenario.half("ada")
    assert scenario.submit(shared.flow("bob", t.MovingAverage(by=("device",), window=1)))[0].first == {
        "in": shared.HALF
    }
    assert scenario.manager.stats()["readings"] == 1 and scenario.manager.stats()["fragments"] == 2
    scenario.manager.remove("ada")
    scenario.again()
    scenario.wait()
    assert scenario.values("bob", "t1") == [float(i) for i in range(shared.HALF, shared.N)]
    assert len(scenario.values("ada")) == shared.HALF
    scenario.manager.close()


def test_failed_step_fails_only_its_users(spark, tmp_path):
    def picky(batch):
        if 300.0 in batch["value"].to_pylist():
            raise ConfigError("no 300")
        return batch

    backend = SparkBackend(spark, tmp_path / "back", max_records=200, partitions=2, max_tries=0)
    manager = ReuseManager(backend)
    log = [{"key": f"k{i % 5}", "value": float(i)} for i in range(400)]
    source = Gated(ro.MemorySource(log), tmp_path / "gate")
    flows, sinks = {}, {}
    for name in ("ada", "bob"):
        flow = flows[name] = ro.Dataflow(name)
        stream = flow.source("in", schema={"key": "string", "value": "double"})
        if name == "ada":
            stream = stream.to(ro.map_batches(picky, label="picky", revision=1), id="picky")
        flow.sink("out", stream, stream.to(t.MovingAverage(by="key", window=3), id="mean"))
        sinks[name] = ro.MemorySink()
    manager.submit_all(Request(flow, source, sinks[name]) for name, flow in flows.items())
    assert backend.stats()["queries"] == 1
    (tmp_path / "gate").touch()
    assert backend.wait("90s")
    for stream in ("in", "mean"):
        assert rows(Got(sinks["bob"]), stream) == rows(flows["bob"].run(log), stream)
    assert sorted(sinks["ada"].table("picky")["value"].to_pylist()) == [row["value"] for row in log[:200]]
    assert backend.stats()["failed"] == {"ada": "ConfigError: no 300"} and not backend.stats()["restarts"]
    manager.close()


def test_many_dataflows_submitted_at_once_are_one_query(spark, tmp_path):
    backend = SparkBackend(spark, tmp_path / "back", max_records=500)
    manager = ReuseManager(backend)
    source = Gated(CitySource(90, messages=1500), tmp_path / "gate")
    flows = [
        dataflow(f"d{i}", t.RangeFilter(by=None, bounds={"value": (i, 1e6)}), t.KalmanFilter(by=KEY)) for i in range(12)
    ]
    sinks = [ro.MemorySink() for _ in flows]
    reports = manager.submit_all(Request(flow, source, sink) for flow, sink in zip(flows, sinks, strict=True))
    assert {tuple(report.first.items()) for report in reports} == {(("city", 0),)}
    assert backend.stats()["queries"] == backend.stats()["readings"] == 1
    (tmp_path / "gate").touch()
    assert backend.wait("90s")
    for flow, sink in list(zip(flows, sinks, strict=True))[::4]:
        assert rows(Got(sink), "t1") == rows(flow.run(CitySource(90, messages=1500)), "t1")
    for flow in flows:
        manager.remove(flow.name)
    assert backend.stats()["queries"] == 0 and not left_fragments(tmp_path / "back")
    manager.close()
