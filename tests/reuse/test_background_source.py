"""Blocking sources delay no other dataflow; Ctrl-C and reports pass between turns."""

from __future__ import annotations

import os
import signal
import threading
import time

import pyarrow.compute as pc
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.reuse import Limits, LocalBackend, ReuseManager, shared_source
from riot_ops.tasks import StatelessTask
from tests.reuse.tapes import VALUES, Tape, flow, gone

ROWS = [{"value": value} for value in VALUES]


def until(what, seconds=20.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.005)


def values(sink, stream="in"):
    return sink.table(stream)["value"].to_pylist() if sink.table(stream).num_columns else []


class Waiting:
    """Gives one record at once, and the others after an event."""

    def __init__(self):
        self.come, self.closed = threading.Event(), threading.Event()

    def __iter__(self):
        try:
            yield ROWS[0]
            assert self.come.wait(60)
            yield from ROWS[1:]
        finally:
            self.closed.set()


def test_blocking_iterator_does_not_delay_other_dataflows():
    made, sinks = Waiting(), {name: ro.MemorySink() for name in "ab"}
    manager = ReuseManager(LocalBackend(epoch="0s"))
    manager.backend.start()
    manager.submit(flow("a"), iter(made), sinks["a"])
    begin = time.monotonic()
    manager.submit(flow("b"), ROWS, sinks["b"])
    until(lambda: values(sinks["b"]) == VALUES)
    assert manager.stats()["readings"] == 2
    manager.pause("a")
    manager.resume("a")
    assert time.monotonic() - begin < 10
    assert not manager.backend.is_idle()
    made.come.set()
    until(lambda: values(sinks["a"]) == VALUES)
    until(manager.backend.is_idle)
    manager.close()


@pytest.mark.parametrize("merging", ["number", "sequence"])
def test_merged_sources_may_be_iterators(merging):
    made = ro.Dataflow("a", merging=merging)
    made.sink("out", ro.merge(*(made.source(name, schema={"value": "double"}) for name in ("one", "two"))))
    manager, sink = ReuseManager(LocalBackend(7, epoch="0s")), ro.MemorySink()
    manager.submit(made, {"one": iter(ROWS), "two": ROWS[:50]}, sink)
    manager.backend.run()
    assert manager.stats()["failed"] == {}
    assert values(sink, "one") == VALUES and values(sink, "two") == VALUES[:50]
    manager.close()


@pytest.mark.parametrize("come", [False, True])
def test_blocking_iterator_is_closed(come):
    made = Waiting()
    manager = ReuseManager(LocalBackend())
    manager.submit(flow("a"), iter(made), ro.MemorySink())
    manager.backend.turn()
    if come:
        made.come.set()
        manager.backend.run()
    manager.remove("a")
    manager.close()
    made.come.set()
    assert made.closed.wait(20)


def test_late_error_of_an_iterator_fails_its_dataflow():
    def broken():
        yield ROWS[0]
        time.sleep(2 * shared_source.GRACE_SECONDS)
        raise ValueError("no more")

    manager = ReuseManager(LocalBackend())
    sinks = {name: ro.MemorySink() for name in "ab"}
    manager.submit(flow("a"), broken(), sinks["a"])
    manager.submit(flow("b"), ROWS, sinks["b"])
    manager.backend.run()
    assert manager.stats()["failed"] == {"a": "ValueError: no more"} and values(sinks["b"]) == VALUES


class Interrupting(ro.MemorySource):
    """Raises Ctrl-C, once or more often, when it is read at a row."""

    def __init__(self, times):
        super().__init__(ROWS)
        self.times = times

    def read(self, split):
        if split["start"] >= 20:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)
            self.times = 0
        yield from super().read(split)


def test_interrupt_is_raised_between_turns():
    manager, sinks = ReuseManager(LocalBackend(10)), [ro.MemorySink(), ro.MemorySink()]
    manager.submit(flow("a"), Interrupting(1), sinks[0])
    with pytest.raises(KeyboardInterrupt):
        manager.backend.run()
    manager.submit(flow("b"), ROWS, sinks[1])
    manager.backend.run()
    assert values(sinks[0]) == values(sinks[1]) == VALUES
    manager.close()


def test_second_interrupt_aborts_the_turn_for_good():
    manager = ReuseManager(LocalBackend(10))
    manager.submit(flow("a"), Interrupting(2), ro.MemorySink())
    with pytest.raises(KeyboardInterrupt):
        manager.backend.run()
    assert isinstance(manager.backend.error, StateError)
    with pytest.raises(StateError, match="was aborted"):
        manager.remove("a")


class Held(ro.MemorySource):
    """Blocks in its first read until it is released."""

    def __init__(self):
        super().__init__(ROWS)
        self.entered, self.free = threading.Event(), threading.Event()

    def read(self, split):
        self.entered.set()
        assert self.free.wait(60)
        yield from super().read(split)


@pytest.mark.parametrize("policy", ["stateless", "bounded_warm"])
def test_step_whose_source_is_being_read_is_not_fresh(policy):
    source, sinks = Held(), [ro.MemorySink(), ro.MemorySink()]
    manager = ReuseManager(LocalBackend(20), policy=policy)
    manager.submit(flow("a", t.KalmanFilter()), source, sinks[0])
    manager.backend.start()
    assert source.entered.wait(20)
    threading.Timer(0.2, source.free.set).start()
    answer = manager.submit(flow("b", t.KalmanFilter()), source, sinks[1])
    assert "t0" in answer.new and answer.first["in"] >= 20
    manager.close()


def test_report_waits_for_one_turn_only():
    backend = LocalBackend()
    with backend.locked():
        assert backend.waiting == 1
    assert backend.waiting == 0


def classes():
    """Two tasks of one name, as after a change in a notebook's cell."""
    found = []
    for factor in (2.0, 3.0):

        class Scaled(StatelessTask):
            def apply(self, batch, rejects, factor=factor):
                made = pc.multiply(batch.column("value"), factor)
                return batch.set_column(batch.schema.get_field_index("value"), "value", made)

        found.append(Scaled)
    return found


def test_classes_of_one_name_are_different_steps():
    one, other = classes()
    manager, sinks = ReuseManager(LocalBackend()), [ro.MemorySink() for _ in range(3)]
    source = ro.MemorySource(ROWS[:3])
    for name, sink, kind in zip("abc", sinks, (one, other, one), strict=True):
        answer = manager.submit(flow(name, kind()), source, sink)
        assert ("t0" in answer.reused) == (name == "c")
    manager.backend.run()
    assert [values(sink, "t0") for sink in sinks] == [[0.0, 2.0, 4.0], [0.0, 3.0, 6.0], [0.0, 2.0, 4.0]]


def test_pause_without_checkpoint_changes_nothing(tmp_path):
    free, entered = threading.Event(), threading.Event()

    def hold(stream, batch):
        entered.set()
        assert free.wait(60)

    limits = Limits(grace="50ms", patience="300ms")
    backend = LocalBackend(10, epoch="0s", limits=limits, folder=tmp_path / "kept")
    manager = ReuseManager(backend, log=tmp_path / "log")
    ends = {"a": Tape(), "b": Tape(hold)}
    for name, end in ends.items():
        manager.submit(flow(name), ROWS, end)
    backend.turn()
    assert entered.is_set()
    before = manager.canonical()
    with pytest.raises(ConnectorError, match="no checkpoint can be written"):
        manager.pause("a")
    assert manager.canonical() == before
    free.set()
    until(lambda: manager.stats()["slow"] == {"b": 0})
    border = manager.pause("a")["in"]
    gone(manager)
    again = ReuseManager(
        LocalBackend(10, epoch="0s", folder=tmp_path / "kept"),
        log=tmp_path / "log",
        rebind=lambda name, _: (ROWS, ends[name]),
    )
    again.backend.run()
    ends["b"].hold = None
    assert ends["a"].values("in") == VALUES[:border] and border >= 10
    again.close()


@pytest.mark.long
def test_explain_and_submit_report_the_same_sinks(tmp_path):
    from tests.reuse.serving import Serving, call, written
    from tests.reuse.serving import flow as mean

    (tmp_path / "r.csv").write_text("device,value\na,1.5\n")
    file, source = written(tmp_path / "mean.json", mean()), ["--source", f"readings={tmp_path / 'r.csv'}"]
    with Serving(tmp_path / "shared"):
        call(tmp_path / "shared", "submit", file, *source)
        assert "3 of 3 steps run already" in call(tmp_path / "shared", "submit", file, *source, "--explain")
        discard = [*source, "--sink", "out=discard", "--explain"]
        assert "2 of 3 steps run already" in call(tmp_path / "shared", "submit", file, *discard)


def test_explain_takes_no_record_of_an_iterator():
    manager, sink = ReuseManager(LocalBackend(epoch="0s")), ro.MemorySink()
    given = iter(ROWS)
    for sources in (given, {"in": given}):
        assert set(manager.explain(flow("a"), sources, sink).new) == {"in", "out"}
    with pytest.raises(ConfigError, match="no source 'on'"):
        manager.explain(flow("a"), {"on": given}, sink)
    with pytest.raises(ConfigError, match="ataflow"):
        manager.explain("a", given, sink)
    manager.submit(flow("a"), given, sink)
    manager.backend.run()
    assert values(sink) == VALUES
    manager.close()


@pytest.mark.long
def test_idle_back_end_takes_few_turns_and_is_woken(tmp_path, monkeypatch):
    broker = MemoryBroker.of("memory://few-turns")
    source = MQTTSource(url="memory://few-turns", topics=("a",), client_id="me", spool=str(tmp_path / "spool"))
    source.open()  # earlier messages are not received
    turns, turn, asked = [], LocalBackend.turn, []
    monkeypatch.setattr(LocalBackend, "turn", lambda self: (turns.append(0), turn(self))[1])
    monkeypatch.setattr(MQTTSource, "latest", _counting(MQTTSource.latest, asked))
    manager = ReuseManager(LocalBackend())
    manager.backend.start()
    dataflow = ro.Dataflow("mqtt")
    dataflow.sink("sink", dataflow.source("in", schema=source.schema).to(t.NoOp(), id="out"))
    sink = ro.MemorySink()
    manager.submit(dataflow, source, sink)
    broker.publish("a", b"1")
    until(lambda: manager.stats()["messages"] == 1)
    time.sleep(0.2)
    before = len(turns), len(asked)
    time.sleep(1)
    assert len(turns) - before[0] <= 8
    assert len(asked) - before[1] <= 8
    broker.publish("a", b"2")
    until(lambda: manager.stats()["messages"] == 2)
    manager.close()


def _counting(method, calls):
    def count(*args, **options):
        calls.append(0)
        return method(*args, **options)

    return count
