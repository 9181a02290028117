"""Trials at a pace."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from riot_ops.dataflows.riotbench.micro import micro_source
from riot_ops.measure.probe_report import ARRIVED, SENT, Report


def test_silent_streams_are_reported() -> None:
    """Two streams; one needs more records of a key than arrive."""
    from riot_bench.harness.trial import LocalRunner
    from riot_bench.harness.workload import Workload

    from riot_ops import tasks as t
    from riot_ops.dataflow import Dataflow
    from riot_ops.streams.riotbench.city import CitySource

    flow = Dataflow("two")
    source = flow.source("city", schema=CitySource(format="observations").schema)
    by = ("sensor_id", "obs_type")
    flow.sink("out", source.to(t.KalmanFilter(by=by), id="kalman"), source.to(t.MovingAverage(window=2**20), id="avg"))
    feed = Workload(flow, {"city": CitySource(90, format="observations")})
    outcome = LocalRunner(quick=True).outcome("two", "x", feed, {"rate": 500.0})
    assert outcome.silent == ("avg",)
    assert outcome.sigma == pytest.approx(5.0, rel=0.02)
    assert outcome.figures()["jitter"][0] == pytest.approx(0, abs=0.1)


def test_memory_of_trials_is_released_before_the_measured_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from riot_bench.harness import trial

    from riot_ops import tasks as t
    from riot_ops.dataflow import Dataflow
    from riot_ops.streams.riotbench.city import CitySource

    flow = Dataflow("one")
    source = flow.source("city", schema=CitySource(format="observations").schema)
    flow.sink("out", source.to(t.KalmanFilter(by=("sensor_id", "obs_type"))))
    done: list[str] = []
    run = trial.LocalRunner.run

    def noted(self: trial.LocalRunner, *given: Any, **options: Any) -> Report:
        done.append("run")
        return run(self, *given, **options)

    pool = SimpleNamespace(release_unused=lambda: done.append("given back"))
    monkeypatch.setattr(trial.gc, "collect", lambda: done.append("collected"))
    monkeypatch.setattr(trial.LocalRunner, "run", noted)
    monkeypatch.setattr(trial.pa, "default_memory_pool", lambda: pool)
    feed = trial.Workload(flow, {"city": CitySource(90, format="observations")})
    trial.LocalRunner(quick=True).outcome("one", "x", feed, {"rate": 500.0})
    assert done.count("given back") == 1 and done[-3:] == ["collected", "given back", "run"]


def test_expected_selectivity_includes_windows_longer_than_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    from riot_bench.harness.trial import LocalRunner
    from riot_bench.harness.workload import Workload

    from riot_ops import tasks as t
    from riot_ops.dataflow import Dataflow

    flow = Dataflow("windows")
    flow.sink("s", flow.source("in", schema={"value": "double"}).to(t.MovingAverage(window=250), id="avg"))
    lengths = []

    def run(self: LocalRunner, feed: Any, seconds: float, pace: Any, every_s: float | None = None) -> Report:
        lengths.append(seconds)
        sent = np.array([(0, 0, 499, 500, 0.0, seconds, seconds, 500, math.nan)], SENT)
        late = [(1, i, 1.0, seconds) for i in (249, 499)] if seconds > 1 else []
        return Report(sent, np.array(late, ARRIVED), ["in"], ["in", "avg"], {"avg": frozenset({"in"})})

    monkeypatch.setattr(LocalRunner, "run", run)
    *_, sigma = LocalRunner(quick=True).calibrate(Workload(flow, {}))
    assert lengths[-2:] == [0.3, 1.2]
    assert sigma == pytest.approx(1 / 250)


def test_buffered_records_do_not_count_as_processed() -> None:
    from riot_bench.harness.trial import runner
    from riot_bench.harness.workload import Workload

    from riot_ops import tasks as t
    from riot_ops.dataflow import Dataflow

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.005)
        return {"slow": 1.0}

    flow, source = Dataflow("slow"), micro_source("KAL")
    given = flow.source("in", schema={"value": "double"})
    flow.sink("out", given.to(t.MapFunction(function=slow, adds={"slow": "double"}), id="slow"))
    with runner("local", quick=True) as run:
        feed, rate, _ = run.calibrate(Workload(flow, {"in": source}))
        assert 50 < rate < 450  # its capacity is 200 per second; twice that if the machine is busy
        assert not run.keeps_up(feed, 2000)
