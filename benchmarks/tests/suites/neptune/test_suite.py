"""Neptune's suite: its figures and its measures."""

from __future__ import annotations

from riot_bench.harness.measure import Measure
from riot_bench.suites.neptune import suite as neptune
from riot_bench.suites.registry import SUITES, find_experiments


def test_figures_of_the_suite_match_its_measures():
    assert "neptune" in SUITES
    assert {one.key for one in find_experiments("neptune")} == {
        *(f"neptune/relay/{name}" for name in ("local", "processes", "spark")),
        *(f"neptune/{name}" for name in ("compression", "backpressure", "backpressure/spark", "scaling")),
    }
    assert sum(one.seconds[0] for one in neptune.EXPERIMENTS) <= 240
    keys = [figure.key for one in neptune.EXPERIMENTS for figure in one.figures]
    assert len(keys) == len(set(keys))
    steps = [Measure("neptune/backpressure/step-1/1ms", 900.0, "messages/s")]
    (figure,) = next(one for one in neptune.EXPERIMENTS if one.key == "neptune/backpressure").figures
    assert [x for _, x, _ in figure.points(steps)] == ["1"]
    at = "neptune/backpressure/spark/step-2"
    steps = [Measure(f"{at}/2ms", 900.0, "messages/s"), Measure(f"{at}/batch-seconds", 1.0, "s")]
    steps.append(Measure("neptune/backpressure/spark/adaptive/step-3/batch-messages", 300.0, "messages"))
    climbed, adaptive = next(one for one in neptune.EXPERIMENTS if one.key == "neptune/backpressure/spark").figures
    assert [(x, one.unit) for _, x, one in climbed.points(steps)] == [("2", "messages/s")]
    assert [(x, one.unit) for _, x, one in adaptive.points(steps)] == [("3", "messages")]
