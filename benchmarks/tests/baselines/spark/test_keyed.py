"""A Kalman filter in plain PySpark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from riot_bench.harness.data import RecordFiles, write_readings
from riot_bench.suites.keyed import kalman_flow


@pytest.mark.spark
@pytest.mark.slow  # each measurement compares them again
def test_keyed_baseline_equals_the_operator(spark: Any, tmp_path: Path) -> None:
    from riot_bench.baselines.spark.keyed import bare_pass, kalman_per_key
    from riot_bench.harness.micro_batches import timed_query

    rows, batches = 400, 2
    data = write_readings(tmp_path / "data", batches, rows, keys=9, files=1)
    query = kalman_flow().start(spark, RecordFiles(data, rows), max_records=rows)
    query.wait()
    ours = query["kalman"].to_pandas().sort_values("seq").reset_index(drop=True)
    frame = (
        spark.readStream.schema("seq long, device string, value double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(data))
    )
    sides = {}
    for name, side in (("per-key", kalman_per_key(frame.coalesce(1))), ("bare", bare_pass(frame))):
        seconds, unfinished = timed_query(side, tmp_path / f"checkpoint-{name}", "parquet", out=tmp_path / name)
        assert len(seconds) == batches
        assert unfinished is None
        sides[name] = spark.read.parquet(str(tmp_path / name)).toPandas().sort_values("seq").reset_index(drop=True)
    assert sides["bare"].device.tolist() == ours.device.tolist()
    assert sides["per-key"].device.tolist() == ours.device.tolist()
    np.testing.assert_array_equal(sides["per-key"].value, ours.value)
