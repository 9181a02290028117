"""A benchmark application on each version of Spark that is supported."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from riot_ops.dataflows import stats
from riot_ops.streams.catalog import generate

pytestmark = pytest.mark.spark

MESSAGES, LIMIT = 900, 200


def contents(folder, stream):
    table = pq.read_table(sorted((folder / stream).glob("*.parquet")))
    return table.sort_by([(name, "ascending") for name in table.column_names if name != "value"]).to_pylist()


@pytest.mark.long
def test_stats_with_limits_is_continued_where_it_stopped(spark, tmp_path):
    """Before Spark 4.2 a source gets neither the start nor the limit of a micro-batch."""
    flow = stats("city")
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "kept", "max_records": LIMIT}
    first = flow.start(spark, generate("city", messages=MESSAGES), **options)
    first.wait("3min", lambda query: query.summary.batches and query.stop())
    assert 0 < first.summary.messages < MESSAGES
    query = flow.start(spark, generate("city", messages=MESSAGES), **options)
    query.wait("3min")
    assert not query.active
    batches = [one["messages"] for one in [*first.micro_batches, *query.micro_batches]]
    assert max(batches) == LIMIT
    # a micro-batch that the stop came into between its commits, by the sinks and by Spark, is run and counted again
    assert first.summary.messages + query.summary.messages in (MESSAGES, MESSAGES + LIMIT)
    flow.run(generate("city", messages=MESSAGES), out=tmp_path / "local")
    streams = sorted(path.name for path in (tmp_path / "local").iterdir())
    assert len(streams) > 2
    for stream in streams:
        assert contents(tmp_path / "out", stream) == contents(tmp_path / "local", stream), stream
