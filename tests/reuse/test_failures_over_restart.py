"""A restart keeps failures: no output has an unreported gap."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from paho.mqtt.publish import single

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.reuse import Limits, LocalBackend, ReuseManager
from riot_ops.reuse.spark import dispatcher
from riot_ops.testing.services import Mosquitto
from tests.reuse.slow_sinks import Gate
from tests.reuse.spark.dataflows import until
from tests.reuse.spark.fake_spark import FakeSpark, Gated
from tests.reuse.tapes import SCHEMA, VALUES, Tape, flow, gone

SOURCE = ro.MemorySource([{"value": value} for value in VALUES])
WRONG = {}


def check(batch):
    """A user's function that rejects one value for a while."""
    if WRONG.get("value") in batch.column("value").to_pylist():
        raise ConfigError("no 25")
    return batch


FUNCTIONS = {f"{check.__module__}:check": check}


@pytest.fixture(autouse=True)
def right():
    yield
    WRONG.clear()


class Fragile(Tape):
    """Raises at a value, in the write or the commit."""

    def __init__(self, fails=None):
        super().__init__(self._check)
        self.fails = fails

    def _check(self, stream, batch):
        if self.fails in batch.column("value").to_pylist():
            raise OSError("disk full")


def opened(folder, ends, **limits):
    backend = LocalBackend(10, epoch="0s", folder=folder / "kept", limits=Limits(**limits))
    return ReuseManager(
        backend, log=folder / "log", functions=FUNCTIONS, rebind=lambda name, flow: (SOURCE, ends[name])
    )


def mapped(name):
    made = ro.Dataflow(name)
    stream = made.source("in", schema=SCHEMA)
    made.sink("raw", stream)
    return made.sink("out", stream.to(ro.map_batches(check, label="check", revision=1), id="t0"))


@pytest.mark.parametrize("end", ["kill", "close"])
def test_restart_keeps_failed_step_failed(tmp_path, end):
    ends = {name: {"raw": Tape(), "out": Tape()} for name in "ab"}
    manager = opened(tmp_path, ends)
    WRONG["value"] = 25.0
    manager.submit(mapped("a"), SOURCE, ends["a"])
    for _ in range(4):
        manager.backend.turn()
    failures = manager.stats()["failed"]
    assert "ConfigError: no 25" in failures["a"]
    for _ in range(2):
        gone(manager) if end == "kill" else manager.close()
        WRONG.clear()
        manager = opened(tmp_path, ends)
        assert manager.stats()["failed"] == failures
    manager.submit(mapped("b"), SOURCE, ends["b"])  # a new dataflow gets a step of its own
    manager.backend.run()
    assert manager.stats()["failed"] == failures
    assert ends["a"]["raw"].values("in") == VALUES and ends["b"]["out"].values("t0") == VALUES[40:]
    assert ends["a"]["out"].values("t0") == VALUES[:20], "no record after the fault"
    manager.remove("a")
    manager.submit(mapped("a"), SOURCE, ends["a"] | {"raw": Tape(), "out": Tape()})
    assert manager.stats()["failed"] == {}
    manager.close()


@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_restart_keeps_failed_sink_failed(tmp_path, on_failure):
    ends = {"a": {"good": Tape(), "bad": Fragile(25.0)}, "b": Tape()}
    made = ro.Dataflow("a")
    stream = made.source("in", schema=SCHEMA)
    made.sink("good", stream).sink("bad", stream)
    manager = opened(tmp_path, ends)
    manager.submit(made, SOURCE, ends["a"], on_failure=on_failure)
    manager.submit(flow("b"), SOURCE, ends["b"])
    for _ in range(4):
        manager.backend.turn()
    before = manager.stats()
    assert before["failed"] == {"a": "OSError: disk full"} and before["dropped"] == {"a": {"in": 20}}
    ends["a"]["bad"].fails = None
    for _ in range(2):
        gone(manager)
        manager = opened(tmp_path, ends)
        after = manager.stats()
        assert after["dropped"] == before["dropped"] and after["rows"] == before["rows"]
        assert after["failed"]["a"].startswith("OSError: disk full")
    manager.backend.run()
    assert manager.stats()["dropped"] == {"a": {"in": 40}}
    assert ends["a"]["bad"].values("in") == VALUES[:20]
    assert ends["a"]["good"].values("in") == (VALUES if on_failure == "detach" else VALUES[:30])
    assert ends["b"].values("in") == VALUES
    manager.close()


def test_restart_keeps_abandoned_sink_and_its_dropped_count(tmp_path):
    ends = {"slow": Gate(), "lossy": Gate(), "b": Tape()}
    options = {"grace": "20ms", "patience": "100ms", "max_queue_bytes": 160, "max_lag_bytes": 1}
    manager = opened(tmp_path, ends, **options)
    manager.submit(flow("slow"), SOURCE, ends["slow"])
    manager.submit(flow("lossy"), SOURCE, ends["lossy"], on_slow="drop_oldest")
    manager.submit(flow("b"), SOURCE, ends["b"])
    for _ in range(4):
        manager.backend.turn()
    before = manager.stats()["dropped"]
    assert before.keys() == {"slow", "lossy"}
    ends["slow"].opened.set()
    ends["lossy"].opened.set()
    until(lambda: ends["slow"].seen and manager.backend.commit("1s"))
    before = manager.stats()["dropped"]
    gone(manager)
    manager = opened(tmp_path, ends, **options)
    assert manager.stats()["dropped"] == before and manager.stats()["failed"].keys() == {"slow"}
    seen = list(ends["slow"].seen)
    manager.backend.run()
    dropped = manager.stats()["dropped"]
    manager.close()
    assert ends["slow"].seen == seen and ends["lossy"].seen[-20:] == list(range(40, 60))
    assert dropped["lossy"] == before["lossy"] and dropped["slow"]["in"] == before["slow"]["in"] + 20


@pytest.mark.long
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_restart_on_spark_keeps_failed_sink_failed(tmp_path, monkeypatch, alone, on_failure):
    monkeypatch.setattr(dispatcher, "GRACE_SECONDS", 0.1)
    source, ends = Gated(SOURCE, tmp_path / "gate"), {"a": {"good": Tape(), "bad": Fragile(25.0)}, "b": Tape()}
    if alone:
        del ends["a"]["good"]
    made = ro.Dataflow("a")
    stream = made.source("in", schema=SCHEMA)
    for name in ends["a"]:
        made.sink(name, stream)

    def begun():
        backend = FakeSpark(tmp_path / "back", max_records=10)
        return ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source, ends[name]))

    manager = begun()
    manager.submit(made, source, ends["a"], on_failure=on_failure)
    manager.submit(flow("b"), source, ends["b"])
    for fragment in manager.backend.fragments.values():
        fragment.query.delay_s = 0.1
    (tmp_path / "gate").touch()
    until(lambda: manager.stats()["dropped"])
    until(lambda: len(ends["b"].values("in")) > 30)
    ends["a"]["bad"].fails = None
    manager.close()
    manager = begun()
    assert manager.stats()["failed"]["a"].startswith("OSError: disk full") and manager.stats()["dropped"]
    assert manager.backend.wait("20s")
    until(lambda: ends["b"].values("in") == VALUES)
    until(lambda: manager.stats()["dropped"] == {"a": {"in": 40}})
    assert ends["a"]["bad"].values("in") == VALUES[:20]
    assert alone or ends["a"]["good"].values("in")[:20] == VALUES[:20]
    assert alone or len(ends["a"]["good"].values("in")) == (60 if on_failure == "detach" else 30)
    manager.close()


# -- tables and models -----------------------------------------------------------------------------


def looked_up(name, table):
    made = ro.Dataflow(name)
    stream = made.source("in", schema={"key": "string", "value": "double"}).to(t.KalmanFilter(by="key"), id="kalman")
    named = stream.to(t.Lookup(table=str(table), on="key", on_missing="drop"), id="named")
    made.sink("names", named.partition_by("name").to(t.MovingAverage(by="name", window=2), id="mean"))
    return made.sink("raw", stream)


@pytest.mark.parametrize("kind", ["local", "spark"])
@pytest.mark.parametrize("again", [True, False])
def test_removed_table_fails_only_its_users(tmp_path, kind, again, caplog):
    table = tmp_path / "names.csv"
    table.write_text("key,name\na,ada\nb,bob\n")
    rows = [{"key": "ab"[i % 2], "value": float(i)} for i in range(60)]
    source = Gated(ro.MemorySource(rows), tmp_path / "gate")
    ends = {name: Tape() for name in ("lost", "kept")}
    kept = ro.Dataflow("kept")
    kept.sink("out", kept.source("in", schema={"key": "string", "value": "double"}).to(t.KalmanFilter(by="key")))

    def begun():
        make = LocalBackend if kind == "local" else FakeSpark
        options = {"batch_size": 10, "epoch": "0s", "folder": tmp_path / "back"} if kind == "local" else {}
        backend = make(**options) if kind == "local" else make(tmp_path / "back", max_records=10)
        return ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source, ends[name]))

    def run(manager):
        manager.backend.run() if kind == "local" else manager.backend.wait("20s")

    manager = begun()
    manager.submit(looked_up("lost", table), source, ends["lost"])
    manager.submit(kept, source, ends["kept"])
    if again:  # with state by now
        source.open(30)
        manager.backend.turn() if kind == "local" else until(lambda: manager.stats()["rows"]["kept"] > 10)
    before = manager.state()
    manager.close()
    table.unlink()
    manager = begun()
    assert {*manager.names} == {"lost", "kept"} and sorted(map(str, manager.state()["dataflows"])) == sorted(
        map(str, before["dataflows"])
    )
    source.open()
    run(manager)
    alone = kept.run(ro.MemorySource(rows))
    assert ends["kept"].table("kalman_filter")["value"].to_pylist() == alone["kalman_filter"]["value"].to_pylist()
    assert "names.csv cannot be read" in manager.stats()["failed"]["lost"] and "names.csv" in caplog.text
    assert manager.stats()["failed"].keys() == {"lost"}
    manager.close()
    table.write_text("key,name\na,ada\nb,bob\n")
    manager = begun()
    assert "names.csv cannot be read" in manager.stats()["failed"]["lost"], "it has missed records"
    manager.remove("lost")
    ends["lost"] = Tape()
    manager.submit(looked_up("lost", table), source, ends["lost"])
    assert manager.stats()["failed"] == {}
    manager.close()
    table.unlink()
    with pytest.raises(ConfigError, match=r"names\.csv"):
        ReuseManager(LocalBackend()).restore(before)


# -- hanging sinks and sources ---------------------------------------------------------------------


class Hanging(Tape):
    """Blocks in its first commit after a restart."""

    def __init__(self):
        super().__init__()
        self.hangs, self.freed = False, threading.Event()

    def commit(self, batch_id, messages):
        if self.hangs:
            self.freed.wait(60)
        super().commit(batch_id, messages)


@pytest.mark.long
def test_hanging_sink_does_not_block_the_recovery_of_a_pause(tmp_path):
    ends = {"a": Hanging(), "b": Tape()}
    limits = {"grace": "50ms", "patience": "500ms"}
    manager = opened(tmp_path, ends, **limits)
    for name in "ab":
        manager.submit(flow(name), SOURCE, ends[name])
    manager.backend.turn()
    border = manager.pause("b")
    gone(manager)
    ends["a"].hangs = True
    manager = opened(tmp_path, ends, **limits)
    assert manager.stats()["dataflows"]["b"]["paused"]
    manager.backend.turn()
    with pytest.raises(ConnectorError, match="no checkpoint can be written"):
        manager.resume("b")
    ends["a"].hangs = False
    ends["a"].freed.set()
    until(lambda: manager.backend.commit("1s"))
    wakes = manager.resume("b")
    manager.backend.run()
    manager.close()
    assert border == {"in": 10} and wakes == {"in": 20}
    assert ends["a"].values("in") == VALUES and ends["b"].values("in") == VALUES[:10] + VALUES[20:]


def test_sinks_of_a_name_removed_twice_both_get_their_records():
    manager = ReuseManager(LocalBackend(10, epoch="0s", limits=Limits(grace="20ms")))
    sinks = [Gate(), Gate()]
    for sink in sinks:
        manager.submit(flow("a"), SOURCE, sink)
        manager.backend.run()
        manager.remove("a")
    assert manager.stats()["slow"]["a"] > 0
    sinks[1].opened.set()
    threading.Timer(0.3, sinks[0].opened.set).start()
    manager.close()
    assert [len(sink.seen) for sink in sinks] == [60, 60]


@pytest.mark.integration
def test_unreachable_broker_does_not_delay_other_dataflows(tmp_path):
    broker = Mosquitto()  # not started yet
    source = MQTTSource(url=broker.url, topics=("a",), client_id="me", spool=str(tmp_path / "spool"), timeout="2s")
    got, other = ro.MemorySink(), ro.MemorySink()
    made = ro.Dataflow("a")
    made.sink("out", made.source("in", schema=source.schema))
    manager = ReuseManager(LocalBackend(10, epoch="0s"))
    manager.submit(made, source, got)
    manager.submit(flow("b"), SOURCE, other)
    begin = time.monotonic()
    while manager.stats()["rows"]["b"] < len(VALUES):
        manager.backend.turn()
    manager.pause("b")
    assert time.monotonic() - begin < 1.0, "waits for another dataflow's broker"
    manager.backend.start()
    time.sleep(begin + 2.5 - time.monotonic())  # time for a second attempt
    with broker:
        single("a", b"hello", hostname="127.0.0.1", port=int(broker.url.rpartition(":")[2]), qos=1, retain=True)
        until(lambda: manager.stats()["rows"]["a"] == 1, 20)
        assert manager.stats()["failed"] == {}
        manager.close()


def test_interrupt_during_pause_is_raised_after_it(tmp_path, monkeypatch):
    ends = {"a": Tape()}
    manager = opened(tmp_path, ends)
    manager.submit(flow("a"), SOURCE, ends["a"])
    for act, paused in (("pause", True), ("resume", False)):
        rest = LocalBackend.apply_pause

        def interrupted(self, asked, rest=rest):
            signal.raise_signal(signal.SIGINT)
            return rest(self, asked)

        with monkeypatch.context() as patched:
            patched.setattr(LocalBackend, "apply_pause", interrupted)
            with pytest.raises(KeyboardInterrupt):
                getattr(manager, act)("a")
        assert manager.stats()["dataflows"]["a"]["paused"] is paused
        assert manager.journal.log is not None
        gone(manager)
        manager = opened(tmp_path, ends)
        assert manager.stats()["dataflows"]["a"]["paused"] is paused
    manager.close()
