"""CPU time and memory of a run."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from riot_bench.suites.streambench import cost as streambench_cost
from riot_bench.suites.streambench import runs
from riot_bench.suites.streambench.cost import CostMonitor
from riot_bench.suites.streambench.runs import Run


def test_cost_is_measured_between_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds 5 to 11, in which the fourth, fifth and sixth were done; the second followed the first too soon."""
    batches: list[int | None] = [None, None, 1, 1, 2, 4, 4, 5, 5]
    now = [0.0]

    def burnt(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(streambench_cost.ProcessTree, "cpu_seconds", lambda _: 2 * now[0])
    monkeypatch.setattr(streambench_cost.time, "perf_counter", lambda: now[0])
    with CostMonitor(5) as watch:
        burnt(3.0)
        for last in batches:
            burnt(1.0)
            watch(SimpleNamespace(lastProgress=None if last is None else {"batchId": last}))
        burnt(9.0)
    assert (watch.cost.seconds, watch.cost.cores, watch.cost.parts) == (6.0, 2.0, 3)
    assert 1e6 < watch.cost.memory < 1e12
    run = Run((1.0,) * 6, 100, cost=watch.cost)
    assert run.line_us == 20_000.0
    assert math.isnan(Run((1.0,), 100).line_us)
    assert runs._cost(run, watch) is watch.cost
    stopped = Run((1.0, 1.0), 100, saturated=True)
    assert runs._cost(stopped, watch) is None
    assert runs._cost(Run((1.0,) * 7, 100), watch) is None, "more than half was not seen"
    with CostMonitor(5) as watch:
        watch(SimpleNamespace(lastProgress={"batchId": 4}))
    assert runs._cost(Run((1.0,), 100), watch) is None
    with CostMonitor() as watch:
        burnt(4.0)
    assert (watch.cost.seconds, watch.cost.cores, watch.cost.parts) == (8.0, 2.0, 1), (
        "without a query, the whole block counts"
    )
