"""Triggers of queries: at intervals, and at once when there is news. Without Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import riot_ops as ro
from riot_ops.core.buffering import interval_seconds
from riot_ops.reuse.spark import trigger
from riot_ops.reuse.spark.trigger import Trigger
from tests.reuse.spark.dataflows import ROWS, dataflow, until, values

NOWHERE = Path("/nowhere")


class Clock:
    """A clock that starts 2.5 seconds after a multiple of five seconds; ``slept`` are the durations of its sleeps."""

    def __init__(self):
        self.now, self.slept = 1002.5, []

    def time(self):
        return self.now

    def monotonic(self):
        return self.now - 900.0

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(trigger, "time", clock)
    return clock


def never():
    return False


def test_triggers_of_all_queries_fire_at_the_same_moments(clock):
    five = Trigger(5.0, NOWHERE)
    assert five.wait(never) and clock.now == 1002.5, "it fires at once at first"
    fired = []
    while len(fired) < 2:
        if five.wait(never):
            fired.append(clock.now)
    assert fired == pytest.approx([1005.0, 1010.0])
    assert max(clock.slept) <= 0.1


def test_overdue_trigger_fires_once_and_at_once(clock):
    five = Trigger(5.0, NOWHERE)
    assert five.wait(never)
    clock.now = 1018.0
    assert five.wait(never) and not clock.slept, "missed intervals count once"
    while not five.wait(never):
        pass
    assert clock.now == pytest.approx(1020.0)


def test_wait_is_bounded(clock):
    minute = Trigger(60.0, NOWHERE)
    assert minute.wait(never)
    assert not minute.wait(never) and clock.now == pytest.approx(1005.5, abs=0.2)


def test_news_fires_early_and_keeps_the_next_interval(clock):
    five = Trigger(5.0, NOWHERE)
    assert five.wait(never)
    assert five.wait(lambda: clock.now > 1003) and clock.now == pytest.approx(1003, abs=0.2)
    while not five.wait(never):
        pass
    assert clock.now == pytest.approx(1005.0)


def test_stopped_trigger_does_not_wait(clock, tmp_path):
    minute = Trigger(60.0, tmp_path / "stopping")
    assert minute.wait(never)
    minute.stop()
    began = clock.now
    assert not minute.wait(never) and clock.now == began
    Trigger(0.0, tmp_path / "other").stop()
    assert not (tmp_path / "other").exists() and clock.now == began, "without an interval nothing waits"


def test_waiting_query_stops_at_once_and_can_resume(opened):
    manager, source, go = opened(every_s=3600.0, max_records=None)
    sink = ro.MemorySink()
    manager.submit(dataflow("ada", (0, 300)), source, sink)
    [fragment] = manager.backend.fragments.values()
    until(lambda: fragment.topic.head().batch >= 0)
    began = time.monotonic()
    fragment.stop()
    assert time.monotonic() - began < 0.5
    go()
    manager.backend.supervisor.start(fragment)
    until(lambda: len(values(sink, "t0")) == len(ROWS))


def test_trigger_of_zero_seconds_always_fires(clock):
    always = Trigger(0.0, NOWHERE)
    assert always.wait(never) and always.wait(never) and not clock.slept


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 second", 1),
        ("0.25 seconds", 0.25),
        ("250 milliseconds", 0.25),
        ("5 microseconds", 5e-6),
        ("2 Minutes", 120),
        ("1 hour 1 second", 3601),
        ("interval 1 day", 86_400),
        ("1 week 0 seconds", 604_800),
    ],
)
def test_seconds_of_an_interval(text, seconds):
    assert interval_seconds(text) == pytest.approx(seconds)


@pytest.mark.long
def test_each_interval_has_a_micro_batch(opened):
    manager, source, go = opened(every_s=0.4, max_records=40)
    sink = ro.MemorySink()
    go()
    began = time.monotonic()
    manager.submit(dataflow("ada", (0, 300)), source, sink)
    assert manager.backend.wait("30s") and len(values(sink, "t0")) == len(ROWS)
    assert time.monotonic() - began > 0.4 * (len(ROWS) / 40 - 1)
    [batches] = manager.backend.micro_batches().values()
    assert batches == pytest.approx(len(ROWS) / 40, abs=3), "one for each interval, and those of its start and end"


@pytest.mark.long
def test_actions_do_not_wait_for_the_trigger(opened):
    """With an interval of an hour, each would exceed ``patience``."""
    manager, source, go = opened(every_s=3600.0, max_records=None)
    ada, bob = ro.MemorySink(), ro.MemorySink()
    manager.submit(dataflow("ada", (0, 300), (0, 100)), source, ada)
    assert manager.submit(dataflow("bob", (0, 300), (0, 50)), source, bob).reused
    assert manager.stats()["queries"] == 2
    manager.pause("ada")
    manager.resume("ada")
    go()
    manager.defragment()
    assert manager.stats()["queries"] == 1
    until(lambda: len(values(ada, "t1")) == 101 and len(values(bob, "t1")) == 51)
    manager.remove("ada")


@pytest.mark.long
def test_removal_takes_effect_with_the_next_interval(opened):
    """A micro-batch of its own would cost as much as any other."""
    manager, source, _go = opened(every_s=3600.0, max_records=None)
    for name in ("ada", "bob"):
        manager.submit(dataflow(name, (0, 300)), source, ro.MemorySink())
    until(lambda: list(manager.backend.micro_batches().values()) == [1])
    manager.remove("bob")
    time.sleep(0.5)
    assert list(manager.backend.micro_batches().values()) == [1]


@pytest.mark.long
def test_output_of_another_query_is_read_at_once(opened):
    manager, source, go = opened(every_s=4.0, max_records=100)
    ada, bob = ro.MemorySink(), ro.MemorySink()
    manager.submit(dataflow("ada", (0, 300)), source, ada)
    manager.submit(dataflow("bob", (0, 300), (0, 300)), source, bob)
    assert manager.stats()["queries"] == 2
    go()
    for n in (100, 200):
        until(lambda n=n: len(values(ada, "t0")) == n)
        available = time.monotonic()
        until(lambda n=n: len(values(bob, "t1")) == n)
        assert time.monotonic() - available < 2, "not with its own next interval"
