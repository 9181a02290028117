"""STATS as a job of a Spark cluster: the program that the templates beside it submit.

It reads SenML lines of files (``--files``) or messages of an MQTT broker (``--mqtt``), and writes Parquet files to
``--out``. Folders must be ones that the driver and all workers see; with ``--files`` they may be URIs that Spark knows.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import riot_ops as ro
from riot_ops.connectors import MQTTSource
from riot_ops.spark import configure

__all__ = ["main", "parse", "run"]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--files", help="folder or URI of text files, a SenML message per line")
    source.add_argument(
        "--mqtt", metavar="URL", help="broker; login in RIOT_OPS_MQTT_USERNAME and RIOT_OPS_MQTT_PASSWORD"
    )
    parser.add_argument("--topic", default="city/#", help="topic filter of the messages")
    parser.add_argument("--client-id", default="stats", help="name at the broker, for this job alone")
    parser.add_argument("--spool", default="spool", help="folder of the driver that outlives it")
    parser.add_argument("--messages", type=int, help="end after this many messages of the broker")
    parser.add_argument("--schema", default="city", help="city, taxi, fit or grid")
    parser.add_argument("--checkpoint", required=True, help="folder or URI for position and state")
    parser.add_argument("--out", required=True, help="folder or URI for the results")
    parser.add_argument("--trigger", default="1s", help='time between micro-batches, or "available now"')
    return parser.parse_args(arguments)


def run(spark: Any, options: argparse.Namespace) -> None:
    """Run the job in a session until it ends or is stopped."""
    flow = ro.dataflows.stats(options.schema)
    if options.mqtt is not None:
        source = MQTTSource(
            url=options.mqtt,
            topics=(options.topic,),
            client_id=options.client_id,
            spool=options.spool,
            messages=options.messages,
        )
        query = flow.start(
            spark, source, out=options.out, checkpoint=options.checkpoint, trigger=options.trigger, max_records=50_000
        )
        query.wait()
        return
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 100).load(options.files)
    messages = lines.selectExpr("cast(null as timestamp) event_time", "encode(value, 'utf-8') payload")

    def keep(stream: str, batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{options.out}/{stream}/batch={number}")  # Spark may repeat a batch

    frames = flow.frames(messages)
    frames.write_each(keep, checkpoint=options.checkpoint, trigger=options.trigger).awaitTermination()


def main() -> None:
    """Run the job in the session that spark-submit describes."""
    from pyspark.sql import SparkSession

    options = parse()
    spark = configure(SparkSession.builder.appName("stats")).getOrCreate()
    run(spark, options)


if __name__ == "__main__":
    main()
