"""Actions are atomic despite interrupts and refusals; a back end belongs to one manager."""

from __future__ import annotations

import signal

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.reuse import LocalBackend, NullBackend, ReuseManager, errors
from riot_ops.reuse.ledger import Ledger
from riot_ops.reuse.shared_source import SourcePool
from tests.reuse.tapes import VALUES, flow

ROWS = [{"value": value} for value in VALUES]


def interrupting(patch, of, name):
    """Raise Ctrl-C at the start of a method."""
    method = getattr(of, name)

    def interrupted(*given):
        signal.raise_signal(signal.SIGINT)
        return method(*given)

    patch.setattr(of, name, interrupted)


@pytest.mark.parametrize(("of", "name"), [(LocalBackend, "extend"), (SourcePool, "attach"), (Ledger, "add")])
def test_interrupt_during_submission_is_raised_after_it(monkeypatch, of, name):
    manager, sinks = ReuseManager(LocalBackend()), [ro.MemorySink(), ro.MemorySink()]
    with monkeypatch.context() as patched:
        interrupting(patched, of, name)
        with pytest.raises(KeyboardInterrupt):
            manager.submit(flow("a", t.SlidingSum(window=100)), ROWS, sinks[0])
    assert manager.names == ["a"] and manager.backend.running_steps() == {*manager.ledger.steps}
    manager.submit(flow("b", t.MovingAverage(window=30)), ROWS, sinks[1])
    manager.backend.run()
    manager.close()
    assert sinks[1].table("t0")["value"].to_pylist() == [14.5, 44.5]
    assert sinks[0].table("t0").num_rows == 60


def test_interrupt_during_defragmentation_or_restoration_is_raised_after_it(monkeypatch):
    first = ReuseManager()
    first.submit(flow("a"))
    manager = ReuseManager()
    with monkeypatch.context() as patched:
        interrupting(patched, Ledger, "add")
        with pytest.raises(KeyboardInterrupt):
            manager.restore(first.state())
    assert manager.names == ["a"] and manager.backend.running_steps() == {*manager.ledger.steps}
    done = []
    monkeypatch.setattr(NullBackend, "defragment", lambda self, groups: done.append(groups))
    interrupting(monkeypatch, NullBackend, "defragment")
    with pytest.raises(KeyboardInterrupt):
        manager.defragment()
    assert len(done) == 1


def twins():
    made = ro.Dataflow("a")
    stream = made.source("in", schema={"value": "double"})
    for name in ("one", "two"):
        made.sink(name, stream.to(t.SlidingSum(), id=f"of_{name}"))
    return made


def test_refused_request_takes_no_record_of_an_iterator(tmp_path):
    manager, sink = ReuseManager(LocalBackend(epoch="0s"), log=tmp_path / "log"), ro.MemorySink()
    given = iter(ROWS)
    for made, ends, why in (
        (flow("a"), {"on": sink}, ConfigError),
        (twins(), sink, errors.NotDeduplicatedError),
        (flow("a", ro.map(lambda row: row)), sink, errors.DescriptorError),
    ):
        for sources in (given, {"in": given}):
            with pytest.raises(why):
                manager.submit(made, sources, ends)
    again = ReuseManager(LocalBackend(folder=tmp_path / "kept"))
    with pytest.raises(ConfigError, match="is an iterator"):
        again.submit(flow("a"), given, sink)
    again.close()
    manager.submit(flow("a"), given, sink)
    manager.backend.run()
    manager.close()
    assert sink.table("in")["value"].to_pylist() == VALUES


@pytest.mark.parametrize("kind", [NullBackend, LocalBackend])
def test_back_end_with_running_steps_refuses_a_second_manager(tmp_path, kind):
    backend = kind()
    manager = ReuseManager(backend, log=tmp_path / "log")
    manager.submit(flow("a"), ROWS, ro.MemorySink())
    for options in ({}, {"log": tmp_path / "other"}):
        with pytest.raises(ConfigError, match="2 steps of another manager, such as in"):
            ReuseManager(backend, **options)
    manager.remove("a")
    ReuseManager(backend, log=tmp_path / "other")


def test_manager_over_an_existing_log_continues_with_its_back_end(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit(flow("a"))
    manager.journal.close()
    assert ReuseManager(manager.backend, log=tmp_path / "log").names == ["a"]


def test_second_manager_over_a_back_end_cannot_reuse_step_ids():
    backend = LocalBackend()
    one, other = ReuseManager(backend), ReuseManager(backend)
    one.submit(flow("a"), ROWS, ro.MemorySink())
    with pytest.raises(ConfigError, match=r"the step in\.0 is another manager's"):
        other.submit(flow("b"), [{"value": 1.0}], ro.MemorySink())
    assert other.names == [] and backend.stats()["readings"] == 1
