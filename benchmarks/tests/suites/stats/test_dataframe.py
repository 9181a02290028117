"""Results of the DataFrame side, and output of its bound."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from riot_bench.harness.data import LineFiles, write_city
from riot_bench.harness.workload import tumbling_stats
from riot_bench.suites.stats.dataframe import run_frames, write_rate

from riot_ops.core.schema import TIMESTAMP

pytestmark = pytest.mark.spark

MESSAGES, FILES = 300, 3


def rows(table: pa.Table) -> Counter[str]:
    """The records but for their order and numbers, which are others on a DataFrame without ``seq``."""
    kept = ("event_time", "sensor_id", "obs_type", "value", "count", "predictions")
    return Counter(map(str, table.select([n for n in kept if n in table.column_names]).to_pylist()))


@pytest.mark.slow  # each measurement compares them again
def test_written_results_equal_the_dataflow(spark: Any, tmp_path: Path) -> None:
    city = write_city(tmp_path / "city", MESSAGES, FILES, sensors=7)
    out = tmp_path / "out"
    results = tumbling_stats().run(LineFiles(city, MESSAGES // FILES), out=out)
    wanted = {stream: rows(results[stream]) for stream in ("avg", "slr", "dac")}
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(city))
    assert run_frames(lines, tmp_path, MESSAGES // FILES) > 0
    for stream, records in wanted.items():
        found = pq.read_table(tmp_path / "frames" / stream)
        assert found.schema.field("event_time").type == TIMESTAMP  # as files of the library's own have it
        assert rows(found) == records
    # one micro-batch of the separate output is written again: once as warm-up, and for each repetition
    for path in out.glob("*/part-*.parquet"):
        assert path.name == "part-000000-00000.parquet"
        path.rename(path.with_name("part-000001-00000.parquet"))
        pq.write_table(pq.read_table(path.with_name("part-000001-00000.parquet")).slice(0, 1), path)
    assert write_rate(spark, tmp_path, out, MESSAGES // FILES, 2) > 0
    for stream, records in wanted.items():
        assert rows(pq.read_table(tmp_path / "bound" / stream)) == records + records + records
