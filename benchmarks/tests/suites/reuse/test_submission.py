"""The measures of the books alone."""

from __future__ import annotations

import itertools

import pytest
from riot_bench.suites.reuse import submission as reuse_submit

from riot_ops.reuse import ReuseManager


def test_submission_time_is_the_95th_percentile_beside_1000_steps(monkeypatch):
    running, submitted = [], ReuseManager.submit

    def submit(manager, flow):
        running.append(manager.stats()["steps"])
        return submitted(manager, flow)

    monkeypatch.setattr(ReuseManager, "submit", submit)
    # a clock by which the n-th submission takes n milliseconds
    ticks = itertools.chain.from_iterable((0.0, n / 1000) for n in itertools.count(1))
    monkeypatch.setattr(reuse_submit.time, "process_time", lambda: next(ticks))
    found = reuse_submit.submit_measure(200)
    assert running[-200:] == [1000] * 200
    assert (found.measure, found.unit, found.reach, found.at_most) == ("reuse/submit/p95-ms", "ms", 5, True)
    assert found.value == pytest.approx(191) and not found.met
    assert reuse_submit.SUBMITS >= 200
