"""The source and the sink on Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import KafkaSink, KafkaSource

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.mark.parametrize("transactional", [False, True])
def test_topic_to_topic_and_again_after_a_stop(cluster, topic, spark, tmp_path, transactional):
    """Counts per key equal those of a run in process; a second query continues after the first."""
    start, end = topic(2), topic(2)
    source = KafkaSource(servers=cluster.servers, topics=start, ending_offsets="latest")
    fields = pa.schema([source.schema.field(name) for name in ("seq", "event_time", "payload", "key")])

    def counts(one):
        flow = ro.Dataflow("counts")
        raw = flow.source("raw", schema=fields)
        flow.sink("out", raw.to(t.RunningCount(by="key"), id="counted"))
        return flow

    sink = KafkaSink(
        servers=cluster.servers, topic=end, payload="payload", key_field="key", header_fields="count",
        transactional=transactional,
    )  # fmt: skip
    total = 0
    for step in (60, 40):
        cluster.produce(start, range(total, total + step), key=lambda v: f"k{v % 7}", partition=lambda v: v % 7 % 2)
        total += step
        query = counts(source).start(
            spark,
            source,
            sinks={"out": sink, "errors": ro.MemorySink()},
            checkpoint=tmp_path / "checkpoint",
            max_records=25,
        )
        query.wait("4min")
        assert query.summary.errors == 0
    local = counts(source).run(source)["counted"].to_pylist()
    expected = {row["payload"]: row["count"] for row in local}
    found = cluster.read(end, total, 2, **{"isolation.level": "read_committed"})
    assert {m.value(): int(dict(m.headers())["count"]) for m in found} == expected
    assert len(found) == total == len(expected)
