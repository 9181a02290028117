"""Actions are done or not: whatever breaks in, whatever is refused, and whoever else has the back end."""

from __future__ import annotations

import signal

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.reuse import LocalBackend, NullBackend, ReuseManager, errors
from riot_ops.reuse.shared import Shared
from tests.reuse.test_reuse_restart import VALUES, flow

ROWS = [{"value": value} for value in VALUES]


def interrupting(patch, of, name):
    """Have a method begin with a Ctrl-C."""
    method = getattr(of, name)

    def interrupted(*given):
        signal.raise_signal(signal.SIGINT)
        return method(*given)

    patch.setattr(of, name, interrupted)


@pytest.mark.parametrize(("of", "name"), [(LocalBackend, "extend"), (LocalBackend, "_known"), (Shared, "add")])
def test_ctrl_c_in_the_midst_of_a_submission_comes_behind_it(monkeypatch, of, name):
    manager, sinks = ReuseManager(LocalBackend()), [ro.MemorySink(), ro.MemorySink()]
    with monkeypatch.context() as patched:
        interrupting(patched, of, name)
        with pytest.raises(KeyboardInterrupt):
            manager.submit(flow("a", t.SlidingSum(window=100)), ROWS, sinks[0])
    assert manager.names == ["a"] and manager.backend.running() == {*manager._shared.steps}
    manager.submit(flow("b", t.MovingAverage(window=30)), ROWS, sinks[1])
    manager.backend.run()
    manager.close()
    assert sinks[1].table("t0")["value"].to_pylist() == [14.5, 44.5]
    assert sinks[0].table("t0").num_rows == 60


def test_ctrl_c_in_the_midst_of_a_defragmentation_or_a_restoration_comes_behind_it(monkeypatch):
    first = ReuseManager()
    first.submit(flow("a"))
    manager = ReuseManager()
    with monkeypatch.context() as patched:
        interrupting(patched, Shared, "add")
        with pytest.raises(KeyboardInterrupt):
            manager.restore(first.state())
    assert manager.names == ["a"] and manager.backend.running() == {*manager._shared.steps}
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


def test_what_is_refused_takes_nothing_of_an_iterator(tmp_path):
    manager, sink = ReuseManager(LocalBackend(epoch_s=0), log=tmp_path / "log"), ro.MemorySink()
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
def test_a_back_end_that_runs_something_gets_no_second_manager(tmp_path, kind):
    backend = kind()
    manager = ReuseManager(backend, log=tmp_path / "log")
    manager.submit(flow("a"), ROWS, ro.MemorySink())
    for options in ({}, {"log": tmp_path / "other"}):
        with pytest.raises(ConfigError, match="2 steps of another manager, such as in"):
            ReuseManager(backend, **options)
    manager.remove("a")
    ReuseManager(backend, log=tmp_path / "other")


def test_a_manager_over_the_log_of_one_that_has_gone_goes_on_with_its_back_end(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit(flow("a"))
    manager._journal.close()
    assert ReuseManager(manager.backend, log=tmp_path / "log").names == ["a"]


def test_of_two_managers_over_a_back_end_the_second_gets_nothing_of_the_first():
    backend = LocalBackend()
    one, other = ReuseManager(backend), ReuseManager(backend)
    one.submit(flow("a"), ROWS, ro.MemorySink())
    with pytest.raises(ConfigError, match=r"the step in\.0 is another manager's"):
        other.submit(flow("b"), [{"value": 1.0}], ro.MemorySink())
    assert other.names == [] and backend.stats()["readings"] == 1
