"""HTTP, InfluxDB and PostgreSQL as sinks of one query on Spark."""

from __future__ import annotations

import json

import psycopg
import pytest

import riot_ops as ro
from riot_ops import streams
from riot_ops import tasks as t
from riot_ops.connectors import HTTPSink, InfluxSink, PostgresSink
from riot_ops.runtime.checkpoint_report import checkpoint_problems, describe_checkpoint
from riot_ops.testing.services import Postgres
from tests.connectors.http_server import Recorder
from tests.connectors.test_line_protocol import parse

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.long]


def test_each_record_arrives_once_over_a_restart(spark, tmp_path):
    flow = ro.Dataflow("ends")
    raw = flow.source("raw", schema=streams.city(messages=1).schema)
    parsed = raw.to(t.ParseSenML(schema="city"), id="parse")
    mean = parsed.to(t.MovingAverage(window=5), id="mean")
    for name in ("http", "points", "rows"):
        flow.sink(name, mean)
    source = streams.city(sensors=5, messages=60)
    wanted = flow.run(source, sinks=ro.MemorySink())["mean"].sort_by("seq")
    secret = ro.Secret("never-shown")
    with Postgres(password="never-shown", options=("fsync=off",)) as server, Recorder() as web, Recorder() as influx:
        sinks = {
            "http": HTTPSink(url=web.url, token=secret),
            "points": InfluxSink(url=influx.url, database="d", tags=("sensor_id", "obs_type"), token=secret),
            "rows": PostgresSink(url=server.url, credential=secret),
        }
        options = {"sinks": sinks, "checkpoint": tmp_path / "checkpoint", "max_records": 25}
        query = flow.start(spark, source=source, **options)
        query.wait()
        status = query.status()
        query = flow.start(spark, source=source, **options)  # continues, and finds nothing new
        query.wait()
        with psycopg.connect(server.url, password="never-shown") as connection:
            found = connection.execute("SELECT seq, sensor_id, value FROM mean ORDER BY seq, obs_type").fetchall()
            stages = connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'riot_ops_stage%'").fetchone()
            batches = connection.execute("SELECT count(DISTINCT batch) FROM riot_ops_batches").fetchone()[0]
    assert wanted.num_rows and stages == (0,) and batches >= 3
    by_key = wanted.sort_by([("seq", "ascending"), ("obs_type", "ascending")]).to_pylist()
    assert found == [(row["seq"], row["sensor_id"], row["value"]) for row in by_key]
    sent = [row for request in web.requests for row in json.loads(request.body) if "obs_type" in row]
    assert sorted((row["seq"], row["obs_type"], row["value"]) for row in sent) == sorted(
        (row["seq"], row["obs_type"], row["value"]) for row in wanted.to_pylist()
    )
    points = [point for request in influx.requests for point in parse(request.body.decode()) if point[0] == "mean"]
    assert sorted((tags["sensor_id"], fields["value"]) for _, tags, fields, _ in points) == sorted(
        (row["sensor_id"], row["value"]) for row in wanted.to_pylist()
    )
    # what the commands on checkpoints and the status say of this query
    checkpoint = tmp_path / "checkpoint"
    assert (status["active"], status["messages"], status["records"]["mean"]) == (False, 60, wanted.num_rows)
    assert status["rejected"] == status["late"] == 0 and status["state_keys"] > 0
    json.dumps(status)
    found = describe_checkpoint(checkpoint)
    assert (found["runner"], found["committed"], found["partitions"]) == ("spark", batches, query._setup.partitions)
    assert found["positions"]["raw"]["ended"] and found["steps"] == {"mean": {"task": "moving_average"}}
    assert sum(found["state_bytes"].values()) > 0 and list(checkpoint_problems(checkpoint)) == []
    _spoil(checkpoint / "riot_ops.json")
    _spoil(checkpoint / "offsets" / "0")
    problems = list(checkpoint_problems(checkpoint))
    assert len(problems) == 2 and all("damaged: the checksum does not fit" in one for one in problems), problems


def _spoil(path):
    """Change a digit of a file."""
    text = path.read_text()
    place = max(i for i, c in enumerate(text) if c.isdigit())
    path.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
