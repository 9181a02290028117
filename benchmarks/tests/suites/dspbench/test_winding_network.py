"""Traffic monitoring on winding roads: both sides have the same network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from riot_bench.harness.input_lines import InputLines
from riot_bench.harness.measure import Measure
from riot_bench.suites.dspbench import winding_network
from riot_bench.suites.dspbench.suite import QUICK_SPARK

from riot_ops.dataflows import application
from riot_ops.models.road_files import read_roads


def test_both_sides_on_spark_have_the_winding_roads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def measured(spark: Any, data: InputLines, sizes: Any, given: Any, build: Any) -> Any:
        roads = given.parameters["roads"]
        seen.extend([sizes, dict(given.stream_options), build.keywords == {"roads": roads}])
        seen.append(sum(len(points) - 1 for _, points in read_roads(roads).lines))
        yield Measure("dspbench/tm/spark-vs-idiomatic/50k", 2.0, "ratio", "agreed", 10)

    monkeypatch.setattr(winding_network, "side_by_side_measures", measured)
    data = InputLines(application("tm"), {"traces": list[Path]()}, 1)
    (found,) = winding_network.winding_spark_measures(None, data, QUICK_SPARK)
    assert seen == [QUICK_SPARK, {"network": "winding"}, True, 28_800]
    assert found == Measure(
        "dspbench/tm/winding-roads/spark-vs-idiomatic/50k", 2.0, "ratio", "agreed; 28,800 segments", 10
    )
