"""Arrow UDFs of tasks and sinks for ``foreach``, alone and on Spark."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import HTTPSink
from riot_ops.spark import features
from riot_ops.spark.foreach import foreach_writer
from riot_ops.spark.udfs import arrow_function
from tests.connectors.http_server import Recorder

SCHEMA = pa.schema([("n", pa.int64()), ("value", pa.float64())])
ROWS = [{"n": 1, "value": 0.5}, {"n": 2, "value": -1.0}, {"n": 3, "value": math.inf}, {"n": 4, "value": 2.0}]


def test_udf_gives_a_struct_for_each_row():
    """Equal to the task over the same rows; a dropped row is null, a rejected one has its reason."""
    apply, result = arrow_function(t.Filter("value > 0"), SCHEMA)
    assert result.names == ["n", "value", "_error"]
    found = apply(pa.array(ROWS, pa.struct(list(SCHEMA)))).to_pylist()
    session = t.Filter("value > 0").session()
    for row, made in zip(ROWS, found, strict=True):
        wanted = session.push({**row})
        if made is not None and made["_error"] is None:
            assert [{k: v for k, v in one.items() if k in row} for one in wanted] == [
                {k: v for k, v in made.items() if k != "_error"}
            ]
        else:
            assert not wanted
    assert found[1] is None and apply(pa.array([], pa.struct(list(SCHEMA)))).to_pylist() == []


def test_udf_keeps_numbers_and_says_why_a_row_is_rejected():
    schema = pa.schema([("seq", pa.int64()), ("a", pa.float64())])
    apply, _ = arrow_function(t.Compute({"b": "a / 2"}), schema)
    given = [{"seq": 70, "a": 3.0}, {"seq": 60, "a": 5.0}]
    found = apply(pa.array(given, pa.struct(list(schema)))).to_pylist()
    assert [(row["seq"], row["b"], row["_error"]) for row in found] == [(70, 1.5, None), (60, 2.5, None)]


@pytest.mark.parametrize(
    ("task", "message"),
    [(t.KalmanFilter(by=("n",)), "keeps state"), (t.ParseSenML(schema="city"), "makes several rows of one")],
)
def test_tasks_that_a_udf_cannot_be(task, message):
    with pytest.raises(ro.ConfigError, match=message):
        arrow_function(task, SCHEMA)


def test_foreach_sends_what_a_partition_has():
    from pyspark.sql import Row

    with Recorder() as server:
        writer = foreach_writer(HTTPSink(url=f"{server.url}/{{stream}}", batch_size=3), SCHEMA, "air")
        assert writer.open(0, 7)
        for row in ROWS:
            writer.process(Row(**row))
        writer.close(None)
        writer.open(1, 7)
        writer.process(Row(n=9, value=9.0))
        writer.close(ValueError())
    assert [[row["n"] for row in json.loads(request.body)] for request in server.requests] == [[1, 2, 3], [4]]
    assert server.requests[0].path == "/air"


@pytest.mark.parametrize(
    ("sink", "message"), [(ro.ParquetSink("x"), "ParquetSink commits"), (ro.MemorySink(), "commits"), ("x", "'x'")]
)
def test_sinks_that_foreach_cannot_take(sink, message):
    with pytest.raises(ro.ConfigError, match=message):
        foreach_writer(sink, SCHEMA)
    with pytest.raises(ro.ConfigError, match=r"schema must be a pyarrow\.Schema"):
        foreach_writer(HTTPSink(url="http://x"), "n long")


@pytest.mark.spark
@pytest.mark.skipif(not features.has("Arrow UDFs"), reason="from Spark 4.1 on")
def test_udf_and_foreach_on_spark(spark, tmp_path):
    from pyspark.sql import functions as f

    frame = spark.createDataFrame([(row["n"], row["value"]) for row in ROWS], "n long, value double")
    frame.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("n long, value double").parquet(str(tmp_path / "in"))
    kept = t.Filter("value > 0").arrow_udf("n long, value double")
    result = stream.select(kept(f.struct("n", "value")).alias("r")).where("r is not null").select("r.n", "r.value")
    with Recorder() as server:
        writer = foreach_writer(HTTPSink(url=server.url), SCHEMA)
        query = result.writeStream.foreach(writer).option("checkpointLocation", str(tmp_path / "c"))
        query.trigger(availableNow=True).start().awaitTermination()
    sent = sorted(row["n"] for request in server.requests for row in json.loads(request.body) if row["n"] is not None)
    wanted = t.Filter("value > 0").session().push_many([dict(row) for row in ROWS])
    assert sent == [row["n"] for row in wanted]


@pytest.mark.spark
@pytest.mark.skipif(not features.has("real-time mode"), reason="from Spark 4.1 on")
def test_real_time_mode_takes_foreach_but_no_source_in_python(spark, tmp_path):
    """Spark checks the sink first, and accepts it."""
    from riot_ops.spark import register

    if features.installed_version() < (4, 3):
        pytest.skip("the trigger realTime is in PySpark from 4.3 on")
    register(spark)
    stream = spark.readStream.format("riot_city").option("sensors", "5").load().select("seq")
    with Recorder() as server:
        writer = foreach_writer(HTTPSink(url=server.url), pa.schema([("seq", pa.int64())]))
        query = stream.writeStream.foreach(writer).outputMode("update")
        with pytest.raises(Exception, match=r"REAL_TIME_MODE\.INPUT_STREAM_NOT_SUPPORTED.*Python"):
            query.option("checkpointLocation", str(tmp_path)).trigger(realTime="5 seconds").start().awaitTermination(
                180
            )
