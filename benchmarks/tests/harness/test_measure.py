"""Measures of several runs."""

from __future__ import annotations

import json
import math

import pytest
from riot_bench.harness.measure import Measure


def test_median_ignores_runs_without_a_value() -> None:
    found = Measure.of_runs([Measure("x", v, "ms") for v in (float("nan"), 1.0, 3.0)])
    assert found.value == 2.0
    assert json.loads(found.to_json())["values"] == [None, 1.0, 3.0]


@pytest.mark.parametrize(
    ("values", "unit", "reach", "at_most", "value", "met"),
    [
        ((0.0, 0.0, 0.0, 812.0, 1044.0), "messages", 0, True, 1044.0, False),
        ((0.0, 0.0, 0.0), "messages", 0, True, 0.0, True),
        ((1.0, 1.0, 0.0), "truth", 1, False, 0.0, False),
        ((100.0, 100.0, 99.5), "%", 100, False, 99.5, False),
        ((1e-12, 1e-12, 1e-3), "probability", 1e-9, True, 1e-3, False),
        ((float("inf"), 0.0, 3.0), "messages", 0, True, None, False),
        ((float("nan"), 0.2, 0.2), "s", 20, True, 0.2, True),
        ((float("inf"), float("nan"), 0.2), "s", 20, True, None, False),
        ((float("nan"), 0.5), "ratio", 1, False, None, False),
        # what may swing is judged by its median
        ((4.0, 4.0, 9.0), "ms", 5, True, 4.0, True),
        ((2.0, 2.0, 0.5), "ratio", 1, False, 2.0, True),
        ((95.0, 95.0, 80.0), "%", 90, False, 95.0, True),
        ((0.0, 0.0, 5.0), "messages", None, False, 0.0, None),
    ],
)
def test_strict_measures_take_the_worst_run(
    values: tuple[float, ...], unit: str, reach: float | None, at_most: bool, value: float | None, met: bool | None
) -> None:
    runs = [Measure("x", one, unit, "", reach, at_most=at_most) for one in values]
    found = Measure.of_runs(runs)
    again = Measure.of_runs([Measure.from_json(found.to_json())])
    for one in (found, again):
        assert one.met == met and (math.isnan(one.value) if value is None else one.value == value)
        assert len(one.values) == len(values)


def test_values_within_a_run_are_not_repetitions() -> None:
    runs = [Measure("x", v, "ms", values=(v - 1, v, v + 1)) for v in (10.0, 30.0, 20.0)]
    found = Measure.of_runs(runs)
    assert (found.value, found.values) == (20.0, (10.0, 30.0, 20.0))
    assert Measure.of_runs(runs[:1]).values == (9.0, 10.0, 11.0)
    lost = [Measure("x", 0.0, "messages", reach=0, at_most=True, values=(0.0, v)) for v in (0.0, 3.0)]
    assert Measure.of_runs(lost).value == 3.0, "what must hold, holds in each"
