"""Which owners use each step, and what is charged to each, against values computed by hand."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.sink import CallbackSink
from riot_ops.reuse import LocalBackend, NullBackend, OwnerUsage, ReuseManager, StepUsage
from tests.reuse.spark.dataflows import until
from tests.reuse.spark.fake_spark import FakeSpark, Gated


def flow(name, *limits):
    made = ro.Dataflow(name)
    stream = made.source("readings", schema={"value": "double"})
    for place, limit in enumerate(limits):
        stream = stream.to(t.RangeFilter(by=None, bounds={"value": (0, limit)}), id=f"t{place}")
    return made.sink("out", stream)


READINGS = [{"value": float(i % 2)} for i in range(400)]


@pytest.fixture
def local():
    """A manager, its source, and a function that lets the steps take 100 more records."""
    backend = LocalBackend(100)
    return ReuseManager(backend), ro.MemorySource(READINGS), backend.turn


def charged(manager):
    return {owner: one.records for owner, one in manager.usage().owners.items()}


def test_steps_name_dataflows_and_owners(local):
    manager, source, turn = local
    manager.submit(flow("a", 5), source, ro.MemorySink(), owner="ada")
    manager.submit(flow("b", 5), source, ro.MemorySink(), owner="bob", name="b1")
    manager.submit(flow("c"), source, ro.MemorySink())
    turn()
    shared = ("a", "b1")
    assert manager.usage().steps == (
        StepUsage("readings.0", "source", "readings", ("a", "b1", "c"), ("", "ada", "bob"), 100),
        StepUsage("range_filter.1", "task", "range_filter", shared, ("ada", "bob"), 100),
        StepUsage("out.2", "sink", "out", shared, ("ada", "bob"), 0),
        StepUsage("out.3", "sink", "out", ("c",), ("",), 0),
    )


def test_records_are_charged_in_equal_parts_to_the_users_of_their_time(local):
    manager, source, turn = local
    manager.submit(flow("a", 5), source, ro.MemorySink(), owner="ada")
    turn()  # ada alone: 100 of the source, 100 of the filter
    assert charged(manager) == {"ada": 200}
    manager.submit(flow("b", 5, 0.5), source, ro.MemorySink(), owner="bob")
    turn()  # each half of 200; bob 100 of his own filter
    assert charged(manager) == {"ada": 300, "bob": 200}
    manager.remove("a")
    turn()  # bob alone: 300
    manager.remove("b")
    assert manager.usage().steps == ()
    assert manager.usage().owners == {"ada": OwnerUsage(300, 0.375), "bob": OwnerUsage(500, 0.625)}


def test_owner_of_two_dataflows_pays_for_both(local):
    manager, source, turn = local
    for name, owner in (("a", "ada"), ("b", "ada"), ("c", "cyd"), ("d", None)):
        manager.submit(flow(name), source, ro.MemorySink(), owner=owner)
    turn()
    assert charged(manager) == {"": 25, "ada": 50, "cyd": 25}


def test_paused_dataflow_is_charged_nothing(local):
    manager, source, turn = local
    for name in ("ada", "bob"):
        manager.submit(flow(name), source, ro.MemorySink(), owner=name)
    turn()
    manager.pause("bob")
    turn()
    manager.resume("bob")
    turn()
    assert charged(manager) == {"ada": 200, "bob": 100}


def test_manager_over_a_log_charges_from_its_beginning(tmp_path):
    source, sinks = ro.MemorySource(READINGS), CallbackSink(lambda *given: None)

    def opened():
        backend = LocalBackend(100, folder=tmp_path / "back")
        return ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source, sinks))

    before = opened()
    before.submit(flow("a"), source, sinks, owner="ada")
    before.backend.turn()
    before.close()
    after = opened()
    assert after.usage().owners == {} and after.usage().steps[0].records == 100
    after.backend.turn()
    assert charged(after) == {"ada": 100} and after.usage().steps[0].records == 200
    after.close()


def test_text_has_a_line_per_step_and_owner(local):
    manager, source, turn = local
    manager.submit(flow("a", 5), source, ro.MemorySink(), owner="a\nda")
    manager.submit(flow("b"), source, ro.MemorySink())
    turn()
    assert str(manager.usage()).splitlines() == [
        r"readings.0: 100 records, (no owner), a\nda",
        r"range_filter.1: 100 records, a\nda",
        "(no owner): 50 records, 25.0%",
        r"a\nda: 150 records, 75.0%",
    ]


def test_back_end_without_counts_charges_nothing():
    manager = ReuseManager(NullBackend())
    manager.submit(flow("a"), owner="ada")
    assert manager.usage().owners == {} and manager.usage().steps[0].owners == ("ada",)


def test_unreadable_counts_refuse_no_action(local, monkeypatch, caplog):
    manager, source, turn = local
    manager.submit(flow("a"), source, ro.MemorySink(), owner="ada")
    turn()
    with monkeypatch.context() as patch:

        def damaged():
            raise ro.ConnectorError("a topic is damaged")

        patch.setattr(manager.backend, "record_counts", damaged)
        manager.submit(flow("b"), source, ro.MemorySink(), owner="bob")
        manager.pause("a")
        manager.resume("a")
        manager.remove("a")
        with pytest.raises(ro.ConnectorError, match="damaged"):
            manager.usage()
    assert manager.names == ["b"]
    assert caplog.text.count("the records of readings.0") == 4
    turn()
    assert charged(manager) == {"bob": 200}


def test_queries_charge_as_in_process(tmp_path):
    source = Gated(ro.MemorySource(READINGS), tmp_path / "gate")
    backend = FakeSpark(tmp_path / "back")
    manager = ReuseManager(backend)

    def more(rows):
        source.open(rows)
        until(lambda: manager.backend.record_counts().get("readings.0") == rows)

    manager.submit(flow("a", 5), source, ro.MemorySink(), owner="ada")
    more(100)
    manager.submit(flow("b", 5), source, ro.MemorySink(), owner="bob")
    more(200)
    assert charged(manager) == {"ada": 300, "bob": 100}
    manager.remove("a")
    more(300)
    assert charged(manager) == {"ada": 300, "bob": 300}
    assert [one.owners for one in manager.usage().steps] == [("bob",)] * 3
    manager.close()
