"""Windows in plain PySpark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from riot_bench.baselines.spark.windows import spark_window_means
from riot_bench.harness.data import RecordFiles
from riot_bench.suites import windows


@pytest.mark.spark
@pytest.mark.slow  # each measurement compares them again
def test_spark_windows_equal_the_operator(spark: Any, tmp_path: Path) -> None:
    from riot_bench.harness.micro_batches import timed_query

    data = tmp_path / "data"
    data.mkdir()
    for i in range(3):  # Spark closes a window when the micro-batch after it is there
        pq.write_table(windows.readings(100_000, 100_000 * i), data / f"{i}.parquet")
    query = windows.window_flow(windows.WINDOWS["tumbling"][0]).start(
        spark, RecordFiles(data, 100_000, windows.SCHEMA), max_records=100_000
    )
    query.wait()
    ours = {(row["device"], row["window_start"]): row for row in query["window"].to_pylist()}
    fields = "seq long, event_time timestamp, device string, value double"
    stream = spark.readStream.schema(fields).option("maxFilesPerTrigger", 1).parquet(str(data))
    timed_query(spark_window_means(stream), tmp_path / "checkpoint", "parquet", out=tmp_path / "out")
    frame = spark.read.parquet(str(tmp_path / "out")).selectExpr("device", "window.start", "mean", "n")
    theirs = [row for row in frame.toArrow().to_pylist()]
    assert len(theirs) >= 3000
    for row in theirs:
        mine = ours[row["device"], row["start"]]
        assert (mine["n"], mine["mean"]) == (row["n"], pytest.approx(row["mean"], rel=1e-12))
