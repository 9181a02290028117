"""When queries of shared dataflows look for records: by the clock, and at once where there is news. Without Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import riot_ops as ro
from riot_ops.core.buffering import interval_seconds
from riot_ops.reuse.spark import ticks
from riot_ops.reuse.spark.ticks import Ticks
from tests.reuse.test_reuse_queries import ROWS, dataflow, opened, until, values

__all__ = ["opened"]


NOWHERE = Path("/nowhere")


class Clock:
    """Begins 2.5 seconds behind a tick of five seconds; ``slept`` is for how long it was slept."""

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
    monkeypatch.setattr(ticks, "time", clock)
    return clock


def never():
    return False


def test_ticks_lie_on_a_grid_that_all_have_in_common(clock):
    five = Ticks(5.0, NOWHERE)
    assert five.come(never) and clock.now == 1002.5, "the first comes at once"
    came = []
    while len(came) < 2:
        if five.come(never):
            came.append(clock.now)
    assert came == pytest.approx([1005.0, 1010.0])
    assert max(clock.slept) <= 0.1


def test_what_takes_longer_than_from_tick_to_tick_is_followed_at_once(clock):
    five = Ticks(5.0, NOWHERE)
    assert five.come(never)
    clock.now = 1018.0
    assert five.come(never) and not clock.slept, "those that were missed are one"
    while not five.come(never):
        pass
    assert clock.now == pytest.approx(1020.0)


def test_nobody_who_stops_waits_long(clock):
    minute = Ticks(60.0, NOWHERE)
    assert minute.come(never)
    assert not minute.come(never) and clock.now == pytest.approx(1005.5, abs=0.2)


def test_news_do_not_wait_and_the_next_tick_comes_all_the_same(clock):
    five = Ticks(5.0, NOWHERE)
    assert five.come(never)
    assert five.come(lambda: clock.now > 1003) and clock.now == pytest.approx(1003, abs=0.2)
    while not five.come(never):
        pass
    assert clock.now == pytest.approx(1005.0)


def test_who_leaves_waits_for_nothing(clock, tmp_path):
    minute = Ticks(60.0, tmp_path / "leaving")
    assert minute.come(never)
    minute.leave()
    began = clock.now
    assert not minute.come(never) and clock.now == began
    Ticks(0.0, tmp_path / "other").leave()
    assert not (tmp_path / "other").exists() and clock.now == began, "nobody waits there"


def test_a_query_that_waits_is_stopped_at_once_and_can_go_on(opened):
    manager, source, go = opened(every_s=3600.0, max_records=None)
    sink = ro.MemorySink()
    manager.submit(dataflow("ada", (0, 300)), source, sink)
    [fragment] = manager.backend._fragments.values()
    until(lambda: fragment.topic.head().batch >= 0)
    began = time.monotonic()
    fragment.stop()
    assert time.monotonic() - began < 0.5
    go()
    manager.backend._care.start(fragment)
    until(lambda: len(values(sink, "t0")) == len(ROWS))


def test_without_seconds_there_is_always_one(clock):
    always = Ticks(0.0, NOWHERE)
    assert always.come(never) and always.come(never) and not clock.slept


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
def test_the_seconds_of_an_interval(text, seconds):
    assert interval_seconds(text) == pytest.approx(seconds)


def test_records_come_with_ticks(opened):
    manager, source, go = opened(every_s=0.4, max_records=40)
    sink = ro.MemorySink()
    go()
    began = time.monotonic()
    manager.submit(dataflow("ada", (0, 300)), source, sink)
    assert manager.backend.wait(30) and len(values(sink, "t0")) == len(ROWS)
    assert time.monotonic() - began > 0.4 * (len(ROWS) / 40 - 1)
    [batches] = manager.backend.micro_batches().values()
    assert batches == pytest.approx(len(ROWS) / 40, abs=3), "one with each, and those in which it begins and ends"


def test_actions_wait_for_no_tick(opened):
    """With one in an hour, each would take longer than anybody's patience."""
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


def test_what_nobody_waits_for_comes_with_the_next_tick(opened):
    """A micro-batch more for each removal would cost as much as any."""
    manager, source, _go = opened(every_s=3600.0, max_records=None)
    for name in ("ada", "bob"):
        manager.submit(dataflow(name, (0, 300)), source, ro.MemorySink())
    until(lambda: list(manager.backend.micro_batches().values()) == [1])
    manager.remove("bob")
    time.sleep(0.5)
    assert list(manager.backend.micro_batches().values()) == [1]


def test_what_another_query_has_made_is_read_at_once(opened):
    manager, source, go = opened(every_s=4.0, max_records=100)
    ada, bob = ro.MemorySink(), ro.MemorySink()
    manager.submit(dataflow("ada", (0, 300)), source, ada)
    manager.submit(dataflow("bob", (0, 300), (0, 300)), source, bob)
    assert manager.stats()["queries"] == 2
    go()
    for n in (100, 200):
        until(lambda n=n: len(values(ada, "t0")) == n)
        there = time.monotonic()
        until(lambda n=n: len(values(bob, "t1")) == n)
        assert time.monotonic() - there < 2, "not with its own next tick"
