"""The factorial experiment."""

from __future__ import annotations

from typing import Any

import pytest
from riot_bench.suites.streambench import factorial as streambench_factorial
from riot_bench.suites.streambench import tuning

from riot_ops.core.errors import ConfigError


def test_all_combinations_are_run_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def packed(spark: Any, name: str, data: Any, limit_s: float, **options: Any) -> Any:
        asked.append(options)
        assert (spark, name, data, limit_s) == (None, "grep", None, 9.0)
        rate = options["max_records"] * options["partitions"]
        slow = 1.5 if "trigger" in options else 0.5
        run = tuning.Run((slow, slow), options["max_records"], saturated=rate > 400)
        return tuning.replace(run, span_s=2 * run.lines / rate)

    monkeypatch.setattr(streambench_factorial, "run_packed", packed)
    found = {
        m.measure.removeprefix("streambench/knobs/factorial/grep/"): m
        for m in streambench_factorial.factorial(None, "grep", None, (0.0, 1.0), (100, 200), (1, 4), 9.0)  # type: ignore[arg-type]
    }
    assert [one.get("trigger") for one in asked] == [None] * 4 + ["1 seconds"] * 4
    assert [(one["max_records"], one["partitions"]) for one in asked] == [(100, 1), (100, 4), (200, 1), (200, 4)] * 2
    assert [found[f"{one}/throughput"].value for one in ("0s-100-1", "1s-200-4")] == [100.0, 800.0]
    assert found["1s-100-1/latency-p95"].value == 1500.0
    assert "longer than the trigger" in found["1s-100-1/throughput"].against
    assert "longer than the trigger" not in found["0s-100-1/throughput"].against
    assert "saturated" in found["0s-200-4/throughput"].against
    effects = {name: round(m.value, 6) for name, m in found.items() if name.startswith("effect")}
    assert effects == {
        "effect-trigger-throughput": 0.0,
        "effect-trigger-latency": 200.0,
        "effect-records-throughput": 100.0,
        "effect-records-latency": 0.0,
        "effect-partitions-throughput": 300.0,
        "effect-partitions-latency": 0.0,
    }
    assert (found["pareto"].value, found["pareto"].against.rpartition(": ")[2]) == (1, "0s-200-4")
    with pytest.raises(ConfigError, match="records must have at least two settings, got 5"):
        streambench_factorial.main_effect({streambench_factorial.Combination(0.0, 5, 1): (1.0, 1.0)}, "records", 0)
