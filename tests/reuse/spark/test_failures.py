"""Steps that raise are disabled, with those downstream; all other dataflows get the same records as alone. Without Spark."""

from __future__ import annotations

import threading

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.kernels.arrays.lazy_rows import materialize
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.spark import failures
from riot_ops.testing import exact
from tests.reuse.spark.dataflows import until
from tests.reuse.spark.fake_spark import FakeSpark, Gated

ROWS = [{"key": f"k{i % 3}", "value": float(i)} for i in range(200)]
SCHEMA = {"key": "string", "value": "double"}
AT, WHY = 57, "ConfigError: no 57"


def start_flow(name):
    flow = ro.Dataflow(name)
    return flow, flow.source("in", schema=SCHEMA)


def dataflow(name, *tasks):
    flow, stream = start_flow(name)
    for place, task in enumerate(tasks):
        stream = stream.to(task, id=f"t{place}")
    return flow.sink("out", stream)


def raise_once(marker):
    """Make a function that raises at the first occurrence of a value: a step that ran again would not raise."""

    def check(batch):
        if AT in batch["value"].to_pylist() and not marker.exists():
            marker.touch()
            raise ConfigError(f"no {AT}")
        return batch

    return check


def averages():
    return t.MovingAverage(by="key", window=2)


@pytest.fixture
def picky(tmp_path):
    return ro.map_batches(raise_once(tmp_path / failures.ERRORS), label="picky", revision=1)


@pytest.fixture
def fragile(tmp_path, monkeypatch):
    """A Kalman filter that raises once, at the value."""
    update, check = t.KalmanFilter.update, raise_once(tmp_path / failures.ERRORS)
    monkeypatch.setattr(
        t.KalmanFilter, "update", lambda self, batch, *more: update(self, check(materialize(batch)), *more)
    )
    return t.KalmanFilter(by="key", output="level")


@pytest.fixture
def opened(tmp_path):
    managers = []

    def open(sinks=None, **options):
        source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")
        given = {"max_records": 10, "tries": 0, "join": True, **options}
        log = None if sinks is None else tmp_path / "log.jsonl"
        backend = FakeSpark(tmp_path / "back", **given)
        managers.append(ReuseManager(backend, log=log, rebind=lambda name, flow: (source, sinks[name])))
        return managers[-1], source, (tmp_path / "gate").touch

    yield open
    for manager in managers:
        manager.close()


def rows(table):
    return sorted(exact(row) for row in table.to_pylist()) if table.num_columns else []


def alone(flow, stream, first=0):
    return rows(flow.run(ROWS[first:])[stream])


def values(sink, stream):
    return sorted(sink.table(stream)["value"].to_pylist())


BEFORE = [float(i) for i in range(50)]  # the micro-batches before the one with the value


@pytest.mark.long
@pytest.mark.parametrize("place", ["stage 0", "keyed"])
def test_only_users_of_the_step_fail(place, opened, picky, fragile, request, caplog):
    manager, source, go = opened()
    step = picky if place == "stage 0" else fragile
    flows = {
        "ada": dataflow("ada", step),
        "bob": dataflow("bob", averages()),
        "cyd": dataflow("cyd", step, averages()),
        "dan": dataflow("dan", t.RangeFilter(bounds={"value": (0, 100)}, by=None)),
    }
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    queries = manager.stats()["queries"]
    go()
    assert manager.backend.wait("10s")
    assert rows(sinks["bob"].table("t0")) == alone(flows["bob"], "t0")
    assert rows(sinks["dan"].table("t0")) == alone(flows["dan"], "t0")
    assert values(sinks["ada"], "t0") == BEFORE
    until(lambda: manager.stats()["failed"] == dict.fromkeys(("ada", "cyd"), WHY))
    stats = manager.stats()
    assert stats["queries"] == queries and not stats["restarts"] and stats["records"]["in.0"] == 200
    [warning] = [record.message for record in caplog.records if "is disabled" in record.message]
    assert warning.endswith(" of ada, cyd has raised, and is disabled from now on: ConfigError: no 57")
    report = manager.submit(dataflow("eve", step, averages()), source, ro.MemorySink())
    assert {*report.reused} == {"in"}, "a later dataflow has steps of its own"
    manager.pause("ada")
    manager.resume("ada")
    for name in (*flows, "eve"):
        manager.remove(name)
    assert not manager.backend.running_steps()


@pytest.mark.long
@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_other_streams_of_the_dataflow_continue_or_stop(on_failure, opened, picky, tmp_path):
    manager, source, go = opened()
    flow, stream = start_flow("ada")
    flow.sink("out", stream, stream.to(picky, id="picky").to(averages(), id="mean"))
    sink, other = ro.ParquetSink(tmp_path / "ada"), ro.MemorySink()
    bob = dataflow("bob", averages())
    manager.submit(flow, source, sink, on_failure=on_failure)
    manager.submit(bob, source, other)
    go()
    assert manager.backend.wait("10s")
    assert values(sink, "in") == (BEFORE if on_failure == "stop" else [row["value"] for row in ROWS])
    assert sink.table("mean").num_rows == 24, "three keys with 17, 17 and 16 values"
    assert rows(other.table("t0")) == alone(bob, "t0")
    assert manager.stats()["failed"] == {"ada": WHY}


@pytest.mark.long
def test_lagging_sink_gets_all_records_from_before_the_failure(opened, picky):
    manager, source, go = opened()
    free, got = threading.Event(), {"in": [], "picky": []}

    def slow(stream, batch):
        free.wait(10)
        got[stream] += batch["value"].to_pylist()

    flow, stream = start_flow("ada")
    flow.sink("out", stream, stream.to(picky, id="picky"))
    manager.submit(flow, source, ro.CallbackSink(slow), on_failure="stop")
    manager.submit(dataflow("bob"), source, ro.MemorySink())
    go()
    until(lambda: manager.backend.fragments["f0"].ended)
    assert manager.stats()["failed"] == {"ada": WHY}, "the failure is reported at once"
    free.set()
    assert manager.backend.wait("10s") and got == {"in": BEFORE, "picky": BEFORE}


@pytest.mark.long
@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_restart_keeps_failed_step_disabled(on_failure, opened, fragile, tmp_path):
    flow, stream = start_flow("ada")
    flow.sink("out", stream, stream.to(fragile, id="t0"))
    flows = {"ada": flow, "bob": dataflow("bob", averages())}
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}
    manager, source, go = opened(sinks)
    for name, one in flows.items():
        manager.submit(one, source, sinks[name], on_failure=on_failure)
    for fragment in manager.backend.fragments.values():
        fragment.query.delay_s = 0.02
    go()
    until(lambda: manager.stats()["failed"])
    for fragment in manager.backend.fragments.values():
        fragment.query.delay_s = 0.05
    until(lambda: manager.stats()["records"]["in.0"] > 80)
    manager.backend.kill()
    manager.journal.close()
    manager, _, _ = opened(sinks)
    assert manager.stats()["failed"] == {"ada": WHY}
    assert manager.backend.wait("10s")
    assert values(sinks["ada"], "t0") == BEFORE
    assert values(sinks["ada"], "in") == (BEFORE if on_failure == "stop" else [row["value"] for row in ROWS])
    assert rows(sinks["bob"].table("t0")) == alone(flows["bob"], "t0")


def test_step_failed_at_process_end_is_retried(opened, fragile, tmp_path):
    flows = {"ada": dataflow("ada", fragile), "bob": dataflow("bob", averages())}
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}
    manager, source, go = opened(sinks)
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    with manager.backend.lock:  # so that the query is not supervised
        go()
        until(lambda: not all(fragment.active for fragment in manager.backend.fragments.values()))
        manager.backend.kill()
    manager.journal.close()
    manager, _, _ = opened(sinks)
    assert manager.backend.wait("10s") and not manager.stats()["failed"]
    for name, flow in flows.items():
        assert rows(sinks[name].table("t0")) == alone(flow, "t0")


@pytest.mark.long
@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_downstream_query_processes_the_records_from_before_the_failure_and_ends(on_failure, others, opened, picky):
    """Even if it lags, and although no output of the failed step will follow."""
    manager, source, go = opened(join=False)
    flows = {"ada": dataflow("ada", picky), "bob": dataflow("bob", picky, averages())}
    flows |= {"cyd": dataflow("cyd")} if others else {}
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name], on_failure=on_failure)
    [downstream] = [step for step in manager.backend.running_steps() if step.startswith("moving_average")]
    manager.backend.fragments["f1"].query.delay_s = 0.1  # it lags when the step raises
    go()
    assert manager.backend.wait("20s")
    until(lambda: manager.stats()["failed"] == dict.fromkeys(("ada", "bob"), WHY))
    assert values(sinks["ada"], "t0") == BEFORE
    assert sinks["bob"].table("t1").num_rows == 24
    until(lambda: manager.backend.has_failed(downstream))
    if others:
        assert values(sinks["cyd"], "in") == [row["value"] for row in ROWS]


def test_several_steps_fail_one_after_the_other(opened, tmp_path):
    manager, source, go = opened()
    flows = {"bob": dataflow("bob", averages())}
    for place in range(3):
        step = ro.map_batches(raise_once(tmp_path / f"raised{place}"), label=f"p{place}", revision=1)
        flows[f"a{place}"] = dataflow(f"a{place}", step)
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    go()
    assert manager.backend.wait("10s")
    assert rows(sinks["bob"].table("t0")) == alone(flows["bob"], "t0")
    assert manager.stats()["failed"] == dict.fromkeys(("a0", "a1", "a2"), WHY)
    assert all(values(sinks[f"a{place}"], "t0") == BEFORE for place in range(3))


def test_downstream_steps_are_disabled_in_all_stages(opened, picky):
    """The step after a merge runs in parts, with its inputs; another merge reads it and a stream that continues."""
    manager, source, go = opened()
    flow, stream = start_flow("ada")
    level = stream.to(t.KalmanFilter(by="key"), id="level")
    after = ro.merge(stream, level).to(picky, id="picky")
    flow.sink("out", level, ro.merge(level, after).to(t.KalmanFilter(by="key"), id="both"))
    ada, bob = ro.MemorySink(), ro.MemorySink()
    other = dataflow("bob", averages())
    manager.submit(flow, source, ada)
    manager.submit(other, source, bob)
    assert manager.backend.fragments["f0"].spec.parts
    go()
    assert manager.backend.wait("10s")
    assert rows(bob.table("t0")) == alone(other, "t0") and rows(ada.table("level")) == alone(flow, "level")
    whole = flow.run(ROWS)["both"].to_pylist()
    assert rows(ada.table("both")) == sorted(exact(row) for row in whole if row["seq"] < 50)
    assert manager.stats()["failed"] == {"ada": WHY}


def test_dataflow_submitted_before_the_failure_is_known_fails_too(opened, picky):
    manager, source, go = opened()
    flows = {"ada": dataflow("ada", picky), "bob": dataflow("bob", averages())}
    sinks = {name: ro.MemorySink() for name in (*flows, "late")}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    with manager.backend.lock:  # so that the query is not supervised
        go()
        until(lambda: not manager.backend.fragments["f0"].active)
        report = manager.submit(dataflow("late", picky, averages()), source, sinks["late"])
    assert "picky" not in report.new and report.first["in"] >= 50
    assert manager.backend.wait("10s")
    assert rows(sinks["bob"].table("t0")) == alone(flows["bob"], "t0")
    assert manager.stats()["failed"] == dict.fromkeys(("ada", "late"), WHY)
    assert not sinks["late"].table("t1").num_columns


@pytest.mark.long
@pytest.mark.parametrize("when", ["after", "during"])
def test_merge_keeps_failed_step_disabled(when, opened, fragile):
    manager, source, go = opened(join=False)
    flows = {
        "ada": dataflow("ada", fragile),
        "bob": dataflow("bob", averages()),
        "cyd": dataflow("cyd", fragile, averages()),
    }
    sinks = {name: ro.MemorySink() for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    if when == "after":
        go()
        until(lambda: manager.stats()["failed"])
    else:
        for fragment in manager.backend.fragments.values():
            fragment.query.delay_s = 0.05
        go()
        until(lambda: manager.stats()["records"].get("in.0", 0) >= 50)  # the next micro-batch has the value
    manager.defragment()
    assert manager.stats()["fragments"] == 1
    assert manager.backend.wait("10s")
    assert values(sinks["ada"], "t0") == BEFORE
    until(lambda: manager.stats()["failed"] == dict.fromkeys(("ada", "cyd"), WHY))
    assert rows(sinks["bob"].table("t0")) == alone(flows["bob"], "t0")


def test_other_failures_of_the_query_restart_it(opened, picky):
    manager, source, go = opened(tries=1)
    sink = ro.MemorySink()
    flow = dataflow("bob", averages())
    manager.submit(flow, source, sink)
    manager.submit(dataflow("cyd"), ro.MemorySource(ROWS[:3]), ro.MemorySink())
    manager.backend.fragments["f0"].query.harm = ConnectorError("no disk")
    go()
    assert manager.backend.wait("10s") and rows(sink.table("t0")) == alone(flow, "t0")
    assert manager.stats()["restarts"] == {"bob": 1} and not manager.stats()["failed"]


def test_step_with_a_successful_retry_has_not_failed(tmp_path, monkeypatch):
    """Spark has retried the task and completed its micro-batch; a later failure has another cause."""
    for batch, step in ((3, "a->b"), (4, "c")):
        monkeypatch.setattr(failures, "batch_number", lambda batch=batch: batch)
        failures.record_error(tmp_path, step, ValueError("wrong"))
    assert failures.read_errors(tmp_path, 4) == {"c": "ValueError: wrong"}
    failures.clear_errors(tmp_path)
    assert failures.read_errors(tmp_path, -1) == {}


def test_unrecordable_error_is_raised_with_a_note(tmp_path, monkeypatch):
    (tmp_path / failures.ERRORS).touch()
    monkeypatch.setattr(failures, "batch_number", lambda: 0)
    error = ValueError("wrong")
    failures.record_error(tmp_path, "a", error)
    assert "make room" in error.__notes__[0]
