"""A declarative pipeline with dataflows, which ``spark-pipelines run`` imports."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.spark import register

spark = SparkSession.active()
FOLDER = os.environ["PIPELINE_INPUT"]
FIELDS = "seq long, device string, value double"
KALMAN = t.KalmanFilter(by=("device",))


def stream():
    return spark.readStream.schema(FIELDS).parquet(FOLDER).to(SCHEMA)


def dataflow(*, mean):
    flow = ro.Dataflow("pipeline")
    smooth = flow.source("in", schema={"device": "string", "value": "double"}).to(KALMAN, id="smooth")
    return flow.sink("out", smooth.to(t.MovingAverage(window=4), id="mean") if mean else smooth)


SCHEMA = spark.createDataFrame([], FIELDS).schema


@dp.table
def smooth():
    for df, options in ((spark.readStream.schema(FIELDS).parquet(FOLDER), {"streaming": True}), (stream(), {})):
        try:
            dataflow(mean=False).transform(df, **options)
        except ConfigError as error:
            assert "df.to(schema)" in str(error) and "streaming=True" in str(error), error
        else:
            raise AssertionError("a pipeline's function may ask now")
    return dataflow(mean=False).transform(stream(), on_error="drop", streaming=True)


dp.create_streaming_table("means")


@dp.append_flow(target="means")
def averages():
    return dataflow(mean=True).frames(stream(), streaming=True)["mean"]


@dp.materialized_view
def batch():
    return KALMAN.transform(spark.read.schema(FIELDS).parquet(FOLDER).to(SCHEMA), on_error="drop", streaming=False)


register(spark)
dp.create_sink("delta", "riot_delta", {"path": f"{FOLDER}-delta", "runId": "pipeline"})


@dp.append_flow(target="delta")
def into_delta():
    return stream()
