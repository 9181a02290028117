"""Scalability: the cores that a load demands, and the load that cores carry."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace
from typing import Any

import pytest
from riot_bench.harness.machine import pinned_to_cores
from riot_bench.harness.peak_rate import find_peak
from riot_bench.suites import registry, scalability
from riot_bench.suites.scalability import EXPERIMENTS, LOADS, Objective, find_demand

from riot_ops.core.errors import ConfigError


def test_demand_is_the_smallest_sufficient_capacity() -> None:
    tried: list[tuple[int, float]] = []

    def carries(n: int, load: float) -> bool:
        tried.append((n, load))
        return load <= 100 * n

    assert [find_demand(carries, (1, 2, 4), load) for load in (99, 100, 101, 400, 401)] == [1, 1, 2, 4, None]
    tried.clear()
    find_demand(carries, (1, 2), 150, attempts=3)
    assert tried == [(1, 150), (1, 150), (1, 150), (2, 150)]
    lucky = iter([False, True])
    assert find_demand(lambda n, load: next(lucky), (1,), 5) == 1


@pytest.mark.parametrize(("lag", "stable", "holds"), [(0.4, True, True), (0.6, True, False), (0.4, False, False)])
def test_objective_of_a_trial(lag: float, stable: bool, holds: bool) -> None:
    asked: dict[str, Any] = {}

    def latency(*shares: float, since_s: float, until_s: float) -> list[float]:
        asked.update(shares=shares, since=since_s, until=until_s)
        return [lag]

    run: Any = SimpleNamespace(warm_s=1.0, stability=lambda report, seconds: SimpleNamespace(stable=stable))
    report: Any = SimpleNamespace(latency=latency)
    assert Objective(0.5).holds(run, report, 3.0) is holds
    assert asked == {"shares": (0.95,), "since": 1.0, "until": 3.0}
    with pytest.raises(ConfigError, match="lag_s must be > 0, got 0"):
        Objective(0)


def test_chosen_core_counts() -> None:
    before = os.sched_getaffinity(0)
    with pinned_to_cores(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
    for wrong in (0, len(before) + 1):
        with pytest.raises(ConfigError, match=f"n must be 1 to {len(before)}, got {wrong}"), pinned_to_cores(wrong):
            pass


class Made(scalability._Trials):
    """Carries 12,000 messages a second with each core."""

    tried: list[tuple[int, float]] = []  # noqa: RUF012

    def on(self, n: int) -> Any:
        self._cores, self.where = n, f"{n} cores"
        self._sized[n] = self.workload, 1000.0
        self._run = SimpleNamespace(trial_s=0.1)  # type: ignore[assignment]
        return contextlib.nullcontext()

    def trial(self, rate: float) -> bool:
        self.tried.append((self._cores, rate))
        return rate <= 12_000 * self._cores


def test_demand_and_capacity_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalability, "_Trials", Made)
    monkeypatch.setattr(scalability, "application_workload", lambda name, stream, base: name)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    found = {m.measure: m for m in registry.find_suite("scalability")(quick=True, name=["stats", "etl"])}
    at = "scalability/etl/local"
    assert [name.rpartition("/")[2] for name in found if name.startswith(f"{at}/capacity/")] == ["1", "2", "3"]
    for n in (1, 2, 3):
        one = found[f"{at}/capacity/{n}"]
        assert 12_000 * n / 1.15 <= one.value <= 12_000 * n
        assert len(one.values) == 3
        assert not one.lower_bound and "time limit reached" not in one.against
        assert "p95 of the lag at most 0.25 s" in one.against
    demanded = {int(name.rpartition("/")[2]): m.value for name, m in found.items() if name.startswith(f"{at}/demand/")}
    assert demanded == {1000: 1, 2000: 1, 5000: 1, 10_000: 1, 20_000: 2}
    assert LOADS[0] == 1000
    (experiment,) = EXPERIMENTS
    capacity, needed = (figure.points(found.values()) for figure in experiment.figures)
    assert [(s, x) for s, x, _ in capacity][:3] == [("stats", "1"), ("stats", "2"), ("stats", "3")]
    assert [x for s, x, _ in needed if s == "etl"] == ["1000", "2000", "5000", "10000", "20000"]
    on_spark = {m.measure: m for m in registry.find_suite("scalability")(quick=True, name=["stats"], runner="spark")}
    assert "at most 10 s" in on_spark["scalability/stats/spark/capacity/1"].against
    assert on_spark["scalability/stats/spark/capacity/1"].values == (
        on_spark["scalability/stats/spark/capacity/1"].value,
    )
    with pytest.raises(ConfigError, match="--runner must be local or spark, got 'flink'"):
        next(registry.find_suite("scalability")(runner="flink"))


def carrying(quick: bool) -> Made:
    bench = Made(None, Objective(0.25), "local", quick)  # type: ignore[arg-type]
    bench.on(1)
    return bench


def test_repetitions_of_a_search_try_other_rates() -> None:
    for precision, quick in ((1.15, True), (1.05, False)):
        bench = carrying(quick)
        found = bench.capacities(3)
        assert all(12_000 / precision <= peak.rate <= 12_000 and peak.converged for peak in found)
        tried = [{rate for rate, _ in peak.tried} for peak in found]
        assert not tried[0] & tried[1] and not tried[1] & tried[2] and not tried[0] & tried[2]
        assert len({peak.rate for peak in found}) == 3
        assert [peak.tried[0][0] / 800 for peak in found] == pytest.approx(
            [1, precision ** (1 / 3), precision ** (2 / 3)]
        )


def test_search_without_time_left_is_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = map(float, range(0, 10**6, 4))  # a check every four seconds
    monkeypatch.setitem(find_peak.__kwdefaults__, "clock", lambda: next(clock))
    monkeypatch.setattr(scalability, "_Trials", Made)
    found = list(scalability._measure_workload("at", None, [1], Objective(0.25), "local", True))  # type: ignore[arg-type]
    assert (found[0].measure, found[0].lower_bound) == ("at/capacity/1", True)
    assert found[0].value < 12_000 / 1.15
    assert found[0].against.endswith("; time limit reached, the nearest rate tried")


def test_trial_of_a_dataflow() -> None:
    """In process, of a dataflow that accepts all records."""
    from riot_bench.harness.workload import Workload

    from riot_ops import tasks as t
    from riot_ops.dataflow import Dataflow
    from riot_ops.streams.riotbench.city import CitySource

    flow = Dataflow("one")
    source = flow.source("city", schema=CitySource(format="observations").schema)
    flow.sink("out", source.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="kalman"))
    bench = scalability._Trials(
        Workload(flow, {"city": CitySource(90, format="observations")}), Objective(0.3), "local", True
    )
    assert bench.carries(1, 200.0) is True
    assert "one core" in bench.where
    assert bench.carries(1, 1e12) is False
