"""The source and the publisher on Spark."""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.streams.riotbench.city import CitySource
from tests.connectors.mqtt.tools import Listener, apply

pytestmark = [pytest.mark.spark, pytest.mark.integration]

MESSAGES = 300


def test_query_reads_from_and_publishes_to_a_broker(mosquitto, spark, tmp_path):
    """The records equal those of a local run; a second query continues after the first."""
    lines = CitySource(20, 2 * MESSAGES).lines(0, 2 * MESSAGES)
    source = MQTTSource(
        url=mosquitto.url,
        topics=("spark/in",),
        client_id="spark",
        spool=str(tmp_path / "spool"),
        messages=MESSAGES,
        timeout="30s",
    )
    source.open()  # starts the session, which the process of the query continues
    source.close()
    send = t.PublishMQTT(url=mosquitto.url, topic="spark/in")
    apply(send, lines.slice(0, MESSAGES))
    with Listener(mosquitto.url, "spark/out/#") as listener:
        for run in (1, 2):
            one = dataclasses.replace(source, messages=run * MESSAGES)
            flow = ro.Dataflow("broker-to-broker", ordinals=True)
            parsed = flow.source("raw", schema=one.schema).to(t.ParseSenML(schema="city"), id="parsed")
            out = t.PublishMQTT(
                url=mosquitto.url, topic="spark/out/{obs_type}", payload=None, fields=("seq", "ordinal", "value")
            )
            flow.sink("out", parsed.to(out, id="published"))
            query = flow.start(spark, one, out=tmp_path / "out", checkpoint=tmp_path / "checkpoint", max_records=200)
            query.wait("4min")
            assert query.summary.errors == 0
            if run == 1:
                apply(send, lines.slice(MESSAGES))
        wanted = t.ParseSenML(schema="city").session().push_batch(lines)
        found = pq.read_table(tmp_path / "out" / "published").sort_by([("seq", "ascending"), ("ordinal", "ascending")])
        assert found.to_pylist() == pa.Table.from_batches([wanted]).to_pylist()
        messages = {
            (m["seq"], m["ordinal"]): m["value"]
            for m in map(json.loads, (m.payload for m in listener.wait(wanted.num_rows)))
        }
        assert messages == {(r["seq"], r["ordinal"]): r["value"] for r in wanted.to_pylist()}
