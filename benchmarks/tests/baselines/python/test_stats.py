"""STATS in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from riot_bench.harness.data import LineFiles, write_city
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.workload import tumbling_stats

from benchmarks.tests.city_files import by_record, same
from riot_ops import tasks as t


def test_plain_python_equals_the_dataflow(city: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    from riot_bench.baselines.python.stats import stats

    rows = stats(LineFiles(city, 1).files, tmp_path)
    for kind, ours in expected.items():
        theirs = by_record(pq.read_table(tmp_path / f"{kind}.parquet"))
        assert rows[kind] == len(ours)
        same(ours, theirs, ["seq", "ordinal", "event_time", "sensor_id", "obs_type"])


def test_distinct_counts_are_equal(tmp_path: Path) -> None:
    """Also where a sensor's first reading is missing, as with many sensors some are."""
    from riot_bench.baselines.python.stats import stats

    lines = LineFiles(write_city(tmp_path / "city", 4000, 2, 300), 2000)
    parsed = t.ParseSenML(schema="city").session().push_batch(next(lines.batches(0))).to_pandas()
    first = parsed.drop_duplicates(["sensor_id", "obs_type"])
    assert first["value"].isna().any()
    counted = tumbling_stats().run(lines, sinks=DiscardSink()).summary.rows
    assert stats(lines.files) == counted
