"""Dataflows near the peak rate, with the cost of actions apart."""

from __future__ import annotations

import pytest
from riot_bench.suites.reuse import local, near_peak
from riot_bench.suites.reuse.workloads import riot21

FLOWS = {flow.name: flow for flow in riot21() if flow.name in ("grid-kalman", "grid-cleaned-stats")}


class FakeSide:
    """Two sources of one manager; each turn takes ``seconds`` and reads what is due at ``rate``, at most ``batch``."""

    def __init__(self, time, rate=100.0, seconds=0.01, batch=1000):
        self.time, self.rate, self.seconds, self.batch = time, rate, seconds, batch
        self.read, self.actions, self.closed = 0.0, [], False
        self.begin = None

    def apply(self, action):
        self.actions.append((action.op, action.name))

    def turn(self):
        self.begin = self.time.now if self.begin is None else self.begin
        self.read = min(self.read + self.batch, self.rate * (self.time.now - self.begin))
        self.time.now += self.seconds

    def progress(self):
        return {"": (2 * self.read, 2)}

    def close(self):
        self.closed = True


class FakeTime:
    """The module ``time``, with a clock that only turns, actions and sleeps move."""

    now = 50.0

    def monotonic(self):
        return self.now

    perf_counter = process_time = monotonic

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = FakeTime()
    monkeypatch.setattr(near_peak, "time", clock)
    return clock


def test_turns_begin_at_equal_intervals(clock):
    turns = near_peak.Turns(FakeSide(clock, seconds=0.1))
    turns.run(1.0)
    assert clock.now == pytest.approx(50.1 + 4 * near_peak.TURN_S + 0.1)


def test_late_turn_is_followed_at_once(clock):
    turns = near_peak.Turns(FakeSide(clock, seconds=0.6))
    begin = clock.now
    turns.run(1.0)
    # the third begins at 1.45 s and ends beyond the limit of 1.5 s; the fourth that was due does not begin
    assert clock.now == pytest.approx(begin + near_peak.TURN_S + 3 * 0.6)


def test_rate_is_sustained_if_the_lag_stays_short(clock):
    keeps_up, lags = FakeSide(clock), FakeSide(clock, batch=20)  # 25 messages are due per turn
    assert near_peak.sustains(keeps_up, FLOWS, 100.0, 10.0)
    assert not near_peak.sustains(lags, FLOWS, 100.0, 10.0)
    assert keeps_up.closed and keeps_up.actions == [("submit", name) for name in FLOWS]


def test_actions_are_measured_apart(clock):
    class SlowActions(FakeSide):
        def apply(self, action):
            super().apply(action)
            clock.now += {"submit": 0.003, "remove": 0.001}[action.op]

    side = SlowActions(clock, rate=100.0, seconds=0.05)
    run = near_peak.run_near_peak(side, FLOWS, ["grid-kalman"], 100.0, 1.0)
    assert side.actions[2:] == [("remove", "grid-kalman"), ("submit", "grid-kalman")]
    assert (run.remove_ms, run.submit_ms) == (pytest.approx([1.0]), pytest.approx([3.0]))
    assert run.blocked_ms == pytest.approx([1.0, 3.0])
    # between two actions: 4 turns, 25 messages of each source per turn
    assert run.processed == pytest.approx([25 * 4] * 2)
    assert run.offered == pytest.approx(run.processed, rel=0.05) and run.kept_up == pytest.approx(1, rel=0.05)
    assert run.message_us == pytest.approx(1e6 * sum(run.cpu_s) / 200) and side.closed


def test_measures_at_ninety_percent_of_the_peak(monkeypatch):
    offered = []
    monkeypatch.setattr(near_peak, "BURST", 50)
    monkeypatch.setattr(near_peak, "TURN_S", 0.01)
    monkeypatch.setattr(near_peak, "BETWEEN_S", (2.0, 0.02))
    monkeypatch.setattr(
        near_peak, "sustains", lambda side, flows, rate, s: side.close() or rate <= 100 * (1 + side.shared)
    )
    whole = near_peak.make_side

    def make_side(shared, flows, opened, rate, batch=near_peak.BATCH):
        offered.append(rate)
        return whole(shared, flows, opened, rate, batch)

    monkeypatch.setattr(near_peak, "make_side", make_side)
    found = {one.measure: one for one in near_peak.peak_measures("x", FLOWS, True, local.open_source)}
    apart, together = (found[f"x/peak-rate/{side}"].value for side in ("apart", "together"))
    assert 100 / 1.25 <= apart <= 100 and 200 / 1.25 <= together <= 200
    assert found["x/peak-ratio"].value == together / apart
    assert offered[-2:] == pytest.approx([0.9 * apart] * 2)
    for side in ("apart", "together"):
        assert found[f"x/submit-cpu-ms/{side}"].value > 0 and found[f"x/remove-cpu-ms/{side}"].value > 0
        assert found[f"x/blocked-ms/{side}"].value > 0 and found[f"x/kept-up/{side}"].value > 0
    steady = found["x/steady-cpu-reduction"]
    assert steady.published == 0.51 and "without the actions" in steady.against


def test_run_that_does_not_keep_up_misses_its_target():
    slow = near_peak.SteadyRun([0.5], [3.0], [1.0], [1.0], processed=[80.0], offered=[100.0])
    fine = near_peak.SteadyRun([0.4], [3.0], [1.0], [1.0], processed=[100.0], offered=[100.0])
    found = {one.measure: one for one in near_peak._run_measures("x", slow, fine, "here", near_peak.KEPT_UP)}
    assert found["x/kept-up/apart"].met is False and found["x/kept-up/together"].met is True
    assert found["x/steady-cpu-reduction"].value == pytest.approx(1 - 4000 / 6250)
