"""Pauses by a clock of the test, with values computed by hand."""

import pytest

from riot_ops.core.backoff import Backoff


@pytest.mark.parametrize(
    ("quiet", "cost", "pause"),
    [
        (0.0, 0.0, 0.0005),
        (0.0009, 0.0, 0.0005),
        (0.02, 0.0, 0.01),
        (3600.0, 0.0, 0.02),
        (3600.0, 0.002, 0.1),
        (3600.0, 1.0, 0.25),
        (0.06, 1.0, 0.06),  # after a recent find the pause is short, at any cost of a poll
        (3600.0, 0.0001, 0.02),
    ],
)
def test_pause_grows_with_quiet_time_and_cost(quiet, cost, pause):
    now = [100.0]
    backoff = Backoff(clock=lambda: now[0])
    now[0] += quiet
    assert backoff.pause(cost) == pytest.approx(pause)


def test_longest_pause_can_be_set():
    now = [0.0]
    backoff = Backoff(clock=lambda: now[0], max_s=3.0)
    now[0] = 4.0
    assert backoff.pause() == 2.0
    now[0] = 100.0
    assert backoff.pause() == 3.0


def test_find_begins_quiet_time():
    now = [0.0]
    backoff = Backoff(clock=lambda: now[0])
    now[0] = 50.0
    backoff.found()
    now[0] = 50.01
    assert backoff.pause() == pytest.approx(0.005)
