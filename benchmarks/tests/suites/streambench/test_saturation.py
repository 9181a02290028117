"""The saturation suite."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riot_bench.harness.numbered_lines import write_numbered
from riot_bench.harness.peak_rate import PeakRate
from riot_bench.suites.streambench import saturation as streambench_saturation
from riot_bench.suites.streambench import tuning

from riot_ops.core.errors import RiotError


@given(st.integers(100, 100_000), st.integers(200, 50_000))
def test_volume_is_found_within_ten_percent(holds: int, most: int) -> None:
    tried: list[int] = []

    def takes(lines: int) -> bool:
        tried.append(lines)
        return lines <= holds

    found, saturated = streambench_saturation.find_volume(takes, 100, most, 60.0)
    assert found.rate <= min(holds, most) <= found.rate * 1.11
    assert saturated == (max(tried) > holds)
    assert max(tried) <= most
    assert tried[:2] == [100, 200]


def test_volume_is_too_large_if_late_or_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "lines", 1, 100)
    sizes = streambench_saturation.Sizes(100, 10_000, 2.0, 60.0, ("packed",), False, ())
    for fails, stopped, holds in ((True, False, 1_600), (False, True, 1_600), (False, False, 1_000)):

        def packed(
            spark: Any,
            name: str,
            some: Any,
            limit_s: float,
            *,
            max_records: int,
            fails: Any = fails,
            stop: Any = stopped,
        ) -> Any:
            assert (name, limit_s, max_records) == ("grep", 22.0, some.total)
            if fails and some.total > 1_600:
                raise RiotError("no memory is left")
            seconds = 1.5 if fails or stop else some.total / 500
            return tuning.Run((seconds,), some.total, saturated=stop and some.total > 1_600)

        monkeypatch.setattr(streambench_saturation, "run_packed", packed)
        found = streambench_saturation._volume_measure(None, "grep", "packed", data, sizes, 10_000)
        assert holds / 1.2 <= found.value <= holds
        assert "lower bound" not in found.against and not found.lower_bound


def test_tried_volumes_are_reported_if_all_are_too_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "lines", 1, 8)
    tried: list[int] = []

    def packed(spark: Any, name: str, some: Any, limit_s: float, *, max_records: int) -> Any:
        tried.append(some.total)
        return tuning.Run((30.0,), some.total, saturated=len(tried) > 1)

    monkeypatch.setattr(streambench_saturation, "run_packed", packed)
    sizes = streambench_saturation.Sizes(8, 100, 2.0, 60.0, ("packed",), False, ())
    found = streambench_saturation._volume_measure(None, "grep", "packed", data, sizes, 100)
    assert (found.value, found.against) == (0, "packed, one micro-batch within 2 s; too many: 8, 4, 1")
    assert tried == [8, 8, 4, 2]  # the first warms up; lines are whole files of two


@pytest.mark.slow  # a search on Spark; its rules are tested above without
@pytest.mark.spark
def test_small_search_for_saturation(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Trials:
        trial_s, search_s, where = 3.0, 60.0, "here"

        def calibrate(self, workload: Any) -> Any:
            assert (workload.flow.name, *workload.sources) == ("grep", "lines")
            return workload, 1000.0, 1.0

        def keeps_up(self, _: Any, rate: float) -> bool:
            return rate <= 1234.0

    monkeypatch.setattr(streambench_saturation, "runner", lambda name, quick: contextlib.nullcontext(Trials()))
    sizes = streambench_saturation.Sizes(40, 100, 60.0, 60.0, ("packed", "expressions"), True, ("wordcount",))
    found = {m.measure: m for m in streambench_saturation.saturation(True, ["grep"], 2.0, sizes)}
    at = "streambench/saturation/grep"
    for implementation in ("packed", "expressions"):
        one = found[f"{at}/{implementation}/volume"]
        assert 182 <= one.value <= 200
        assert "lower bound: no larger volume was tried" in one.against and one.lower_bound
    assert not found[f"{at}/packed/rate"].lower_bound
    monkeypatch.setattr(Trials, "search_s", 0.0)
    rate = streambench_saturation._rate_measure(Trials(), "grep")
    assert rate.lower_bound and "time limit reached, the nearest rate tried" in rate.against
    assert 1234 / 1.1 <= found[f"{at}/packed/rate"].value <= 1234
    assert len(found) == 3
    searched = PeakRate(80.0, (), converged=True), True
    monkeypatch.setattr(streambench_saturation, "find_volume", lambda takes, *_: takes(80) and searched)
    sizes = streambench_saturation.Sizes(40, 100, 60.0, 60.0, ("packed",), False, ("grep",))
    [one] = streambench_saturation.saturation(True, ["grep"], 2.0, sizes)
    assert (one.measure, one.value, one.lower_bound) == (f"{at}/packed/volume", 80, False)
    assert "lower bound" not in one.against
