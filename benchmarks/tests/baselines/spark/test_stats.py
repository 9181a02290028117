"""STATS in plain PySpark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tests.city_files import same


@pytest.mark.spark
def test_pyspark_stats_equals_the_dataflow(spark: Any, city: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    from riot_bench.baselines.spark.stats import stats
    from riot_bench.harness.micro_batches import timed_query

    for i, file in enumerate(sorted(city.iterdir())):  # Spark takes the oldest first
        os.utime(file, (1000 + i, 1000 + i))
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(city))
    timed_query(stats(lines.coalesce(1)), tmp_path / "checkpoint", "parquet", out=tmp_path / "out")
    found = spark.read.parquet(str(tmp_path / "out")).toPandas()
    order = ["obs_type", "sensor_id", "event_time"]
    for kind in ("avg", "slr"):
        ours = expected[kind].sort_values(order).reset_index(drop=True)
        theirs = found[found.kind == kind].sort_values(order).reset_index(drop=True)
        same(ours, theirs, ["sensor_id", "obs_type"])
    # the order of rows of one type, over all sensors, is Spark's: the last count is what must agree
    ours = expected["dac"].groupby("obs_type")["value"]
    theirs = found[found.kind == "dac"].groupby("obs_type")["value"]
    assert ours.size().to_dict() == theirs.size().to_dict()
    assert ours.max().to_dict() == theirs.max().to_dict()
