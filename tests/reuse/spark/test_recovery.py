"""Dataflows that resume after the process was killed: nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys

import pytest

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.spark.backend import FragmentsBackend
from riot_ops.reuse.spark.dispatcher import Dispatcher
from tests.reuse.spark import killed_job
from tests.reuse.spark.dataflows import ALL, ROWS, dataflow, until, values
from tests.reuse.spark.fake_spark import FakeSpark, Gated
from tests.search import seeds


@contextlib.contextmanager
def running(*given):
    """Run :mod:`tests.reuse.spark.killed_job` in a process group, which is killed if the test fails."""
    command = [sys.executable, "-m", "tests.reuse.spark.killed_job", *map(str, given)]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield process
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(2))
def test_killed_process_loses_and_duplicates_nothing(seed, tmp_path):
    with running(tmp_path, seed, "fake") as process:
        assert process.wait(100) == 0
    killed_job.check(tmp_path, seed)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2))
def test_killed_spark_driver_loses_and_duplicates_nothing(seed, tmp_path):  # P15
    choose = random.Random(seed)
    for number in range(killed_job.KILLS["spark"]):
        with running(tmp_path, seed, "spark", number) as process:
            killed_job.KilledJob(tmp_path, seed, "spark").until(choose, lambda: process.poll() is not None)
            process.kill()
            if choose.random() < 0.5:  # otherwise the JVM detects it
                os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL, "the process failed on its own"
    with running(tmp_path, seed, "spark", killed_job.KILLS["spark"]) as process:
        assert process.wait(200) == 0
    killed_job.check(tmp_path, seed)


class Killed(BaseException):
    """Not caught by any code that cleans up."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "method", "action"),
    [
        (Dispatcher, "reassign", lambda manager: manager.defragment()),
        (FragmentsBackend, "reduce", lambda manager: manager.remove("bob")),
        (FragmentsBackend, "apply_pause", lambda manager: manager.pause("bob")),
        (FragmentsBackend, "apply_pause", lambda manager: manager.resume("bob")),
    ],
    ids=["defragment", "remove", "pause", "resume"],
)
@pytest.mark.parametrize("after", [False, True])
def test_kill_during_an_action_leaves_it_done_or_undone(tmp_path, monkeypatch, request, owner, method, action, after):
    """The user does not know the outcome; the action has happened or not, and other dataflows have all records."""
    kind = request.node.callspec.id.rpartition("-")[2]
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in ("ada", "bob")}
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")

    def open():
        backend = FakeSpark(tmp_path / "back", max_records=5, join=False)
        return ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source, sinks[name]))

    def killed(self, *given):
        if after:
            original(self, *given)
        raise Killed

    manager = open()
    manager.submit(dataflow("ada", (0, 300)), source, sinks["ada"])
    manager.backend.fragments["f0"].query.delay_s = 0.02  # so that records are left
    (tmp_path / "gate").touch()
    until(lambda: values(sinks["ada"], "t0"))
    first = manager.submit(dataflow("bob", (0, 300), (0, 300)), source, sinks["bob"]).first["in"]
    pause = manager.pause("bob")["in"] if kind == "resume" else None
    original = getattr(owner, method)
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, killed)
        with pytest.raises(Killed):
            action(manager)
        manager.backend.kill()
        manager.journal.close()
    for _ in range(2):
        manager = open()
        assert manager.names == (["ada"] if kind == "remove" else ["ada", "bob"])
        assert manager.backend.wait("20s")
        assert values(sinks["ada"], "t0") == ALL
        got = values(sinks["bob"], "t1")
        if kind == "defragment":
            assert got == ALL[first:]
        elif kind == "resume":
            back = next((int(v) for v in got if v >= pause), len(ALL))  # or all records had been read by then
            assert got == ALL[first:pause] + ALL[back:] and not paused(manager)
        else:
            assert got == ALL[first : first + len(got)]
            assert kind == "remove" or paused(manager)
        manager.close()


def paused(manager):
    return manager.stats()["dataflows"]["bob"]["paused"]


def test_fragments_without_a_resumed_dataflow_are_removed(opened, tmp_path):
    manager, source, go = opened()
    manager.submit(dataflow("ada", (0, 300)), source, ro.MemorySink())
    manager.close()
    again = ReuseManager(FakeSpark(tmp_path / "back"))
    sink = ro.MemorySink()
    again.submit(dataflow("bob", (0, 300)), source, sink)
    assert [p.name for p in (tmp_path / "back" / "fragments").iterdir()] == ["f1"]
    go()
    assert again.backend.wait("10s") and len(values(sink, "t0")) == 200
    again.close()


def test_restored_state_resumes_running_fragments(opened, tmp_path):
    manager, source, go = opened()
    flows = {"ada": dataflow("ada", (0, 100)), "bob": dataflow("bob", (0, 100), (0, 50))}
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in flows}
    for name, flow in flows.items():
        manager.submit(flow, source, sinks[name])
    manager.pause("bob")
    go()
    assert manager.backend.wait("10s")
    state = manager.state()
    manager.backend.kill()
    again = ReuseManager(FakeSpark(tmp_path / "back"), rebind=lambda name, flow: (source, sinks[name]))
    again.restore(state)
    assert again.stats()["fragments"] == 2 and again.backend.wait("10s")
    assert again.stats()["dataflows"]["bob"]["paused"] and again.stats()["records"]["in.0"] == 200, (
        "the source was read again"
    )
    assert values(sinks["ada"], "t0") == [float(i) for i in range(101)] and values(sinks["bob"], "t1") == []
    again.close()


class Sealed(ro.ParquetSink):
    """Cannot be recovered while it is sealed."""

    sealed = False

    def recover(self, batch_id):
        if self.sealed:
            raise OSError("no such bucket")
        super().recover(batch_id)

    def begin(self, overwrite):
        self.recover(0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "kept"),
    [(fault, kept) for fault in ("sink", "bind", "source") for kept in (True, False)] + [("query", True)],
)
def test_unresumable_dataflow_fails_alone(tmp_path, monkeypatch, fault, kept):
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")
    manager = ReuseManager(FakeSpark(tmp_path / "back", max_records=10), log=tmp_path / "log")
    sinks = {name: Sealed(tmp_path / name) for name in ("ada", "bob")}
    other = Gated(ro.MemorySource(ROWS[::-1]), tmp_path / "gate")
    sources = {"ada": source, "bob": other}
    for name, sink in sinks.items():
        manager.submit(dataflow(name, (0, 100)), sources[name], sink)
    manager.backend.kill()
    manager.journal.close()
    (tmp_path / "gate").touch()
    sinks["ada"].sealed = fault == "sink"
    if fault == "source":
        sources["ada"].latest = sources["ada"].initial = lambda *args: 1 / 0

    def rebind(name, flow):
        if (name, fault) == ("ada", "bind"):
            raise FileNotFoundError("ada.csv")
        return sources[name], sinks[name]

    backend = FakeSpark(tmp_path / ("back" if kept else "other"))
    if fault == "query":
        launch = backend.supervisor.launch
        monkeypatch.setattr(backend.supervisor, "launch", lambda one: launch(one) if one.name != "f0" else 1 / 0)
    again = ReuseManager(backend, log=tmp_path / "log", rebind=rebind)
    assert again.names == ["ada", "bob"]
    until(lambda: len(values(sinks["bob"], "t0")) == 101)
    until(lambda: again.stats()["failed"])
    cause = {"sink": "no such bucket", "bind": "ada.csv"}.get(fault, "ZeroDivisionError")
    assert cause in again.stats()["failed"].pop("ada") and not again.stats()["failed"].keys() - {"ada"}
    assert again.pause("ada") == {}
    again.resume("ada")
    again.remove("ada")
    assert again.backend.wait("10s") and len(values(sinks["bob"], "t0")) == 101
    again.close()


def test_folder_with_a_damaged_file_is_unlocked_after_the_error(tmp_path):
    FakeSpark(tmp_path).close()
    wrong = tmp_path / "dataflows" / "wrong.json"
    wrong.write_text("{")
    with pytest.raises(ConnectorError, match="is damaged") as kept:  # its traceback keeps the back end alive
        FakeSpark(tmp_path)
    wrong.unlink()
    FakeSpark(tmp_path).close()
    del kept
