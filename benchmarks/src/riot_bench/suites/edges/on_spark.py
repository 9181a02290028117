"""Edges on local Spark: the replay source against Spark's text source, and Kafka to Delta against idiomatic Spark."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from riot_bench.harness.data import write_city
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import durations, rate_of, timed_query
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.harness.workload import tumbling_stats
from riot_bench.suites.edges.brokers import city_lines
from riot_bench.suites.edges.mqtt_on_spark import mqtt_stats_mqtt
from riot_ops.core.errors import ConnectorError, MissingExtraError, RiotError
from riot_ops.core.source import Offset

__all__ = ["ON_SPARK"]

OnSpark = Callable[[bool, float | None], Iterator[Measure]]

#: Targets: rows per second against Spark's text source, and messages per second against idiomatic Spark.
REPLAY_REACH, PIPELINE_REACH = 1.0, 15.0
FILES = 20
#: The streams of STATS.
KINDS = ("avg", "slr", "dac")
#: What the other side makes of a line, in SQL.
OF_LINE = ("timestamp_millis(CAST(substring_index(value, ',', 1) AS BIGINT)) AS event_time", "value AS payload")
#: The payload of both sides in the comparison of their results: Spark's text source drops the ends of lines.
WITH_END = "concat(payload, '\\n')"


def replay_source(quick: bool) -> Iterator[Measure]:
    """From text files to columns that a query has computed something of."""
    name, n = "edges/spark-replay-source", 20_000 if quick else 1_000_000
    with temporary_folder() as base, spark_session(jvm="full") as spark:
        from riot_ops.spark import register

        register(spark)
        data = write_city(base / "city", n, FILES)
        numbers = itertools.count()

        def run(frame: Any, payload: str = "payload") -> tuple[float, list[Any]]:
            found: list[Any] = []

            def summed(part: Any, _: int) -> None:
                row = part.selectExpr("count(*)", f"sum(crc32({payload}))", "max(event_time)").first()
                found.append(tuple(row))

            start = time.perf_counter()
            query = frame.writeStream.foreachBatch(summed).option("checkpointLocation", str(base / f"c{next(numbers)}"))
            query.trigger(availableNow=True).start().awaitTermination()
            seconds, (rows, sums, times) = time.perf_counter() - start, zip(*found, strict=True)
            return seconds, [sum(rows), sum(sums), max(times)]

        def ours() -> tuple[float, list[Any]]:
            return run(spark.readStream.format("riot_replay").option("path", str(data)).load())

        def theirs(payload: str = "payload") -> tuple[float, list[Any]]:
            return run(spark.readStream.text(str(data)).selectExpr(*OF_LINE), payload)

        if ours()[1] != theirs(WITH_END)[1]:
            raise RiotError(f"{name}: both sides do not give the same {n} records")
        pairs = [(ours()[0], theirs()[0]) for _ in range(1 if quick else 5)]
    how = f"{n:,} lines in {FILES} files, time and text as columns, a checksum of each micro-batch, local[2]"
    yield Measure(name, n / median(a for a, _ in pairs), "messages/s", how)
    yield Measure(f"{name}/text-source", n / median(b for _, b in pairs), "messages/s", "spark.readStream.text and SQL")
    ratios = tuple(b / a for a, b in pairs)
    yield Measure(
        f"{name}/vs-text-source", median(ratios), "ratio", "spark.readStream.text", REPLAY_REACH, sample=ratios
    )


def replay_in_dataflow(quick: bool) -> Iterator[Measure]:
    """From text files to the first step of a dataflow, which needs the records in Python."""
    import riot_ops as ro

    name, n = "edges/spark-replay-in-dataflow", 20_000 if quick else 1_000_000
    flow = ro.Dataflow("read")
    flow.source("lines").apply(ro.tasks.NoOp(), id="read").to("out")
    with temporary_folder() as base, spark_session(jvm="full") as spark:
        data = write_city(base / "city", n, FILES)

        def seconds(source: Any) -> float:
            start = time.perf_counter()
            query = flow.start(spark, source, sinks=DiscardSink(), trigger="available now")
            rows = query.wait().rows
            if rows.get("read") != n:
                raise RiotError(f"{name}: {rows} instead of {n} records")
            return time.perf_counter() - start

        def ours() -> float:
            return seconds(ro.streams.replay(sorted(data.glob("*"))))

        def theirs() -> float:
            return seconds(spark.readStream.text(str(data)).selectExpr(OF_LINE[0], "CAST(value AS BINARY) AS payload"))

        ours(), theirs()
        pairs = [(ours(), theirs()) for _ in range(1 if quick else 5)]
    how = f"{n:,} lines in {FILES} files, to a step without effect, from the start of the query to its end, local[2]"
    yield Measure(name, n / median(a for a, _ in pairs), "messages/s", how)
    against = "spark.readStream.text as the source of the same dataflow"
    yield Measure(f"{name}/text-source", n / median(b for _, b in pairs), "messages/s", against)
    ratios = tuple(b / a for a, b in pairs)
    yield Measure(f"{name}/vs-text-source", median(ratios), "ratio", against, REPLAY_REACH, sample=ratios)


def kafka_stats_delta(quick: bool, sensors: int = 100) -> Iterator[Measure]:
    """CITY messages from a topic through STATS into Delta tables, by micro-batches of the same size."""
    require_extra("this benchmark", "kafka", "confluent_kafka")
    require_extra("this benchmark", "delta", "deltalake")
    from deltalake import DeltaTable

    from riot_bench.baselines.python import kafka
    from riot_bench.baselines.spark.stats import stats
    from riot_ops.connectors import DeltaSink, KafkaSource
    from riot_ops.testing.services import Tansu

    batch, limit_s = (10_000, 20.0) if quick else (100_000, 240.0)
    n = 3 * batch

    class Bounded(KafkaSource):
        """Ends after n messages; there are more, as this broker's answer for the end is not exact."""

        def finished(self, offset: Offset) -> bool:
            return bool(offset.get("city", {}).get("0", 0) >= n)

    name = f"edges/spark-kafka-stats-delta{'' if sensors == 100 else f'-{sensors}-sensors'}"
    numbers, tables = itertools.count(), dict[str, int]()
    with Tansu() as broker, temporary_folder() as base, spark_session(jvm="full") as spark:
        from riot_ops.spark import register

        register(spark)
        kafka.create(broker.servers, "city")
        kafka.write(broker.servers, "city", city_lines(n + batch, sensors).column("payload").to_pylist())

        def ours() -> float:
            source = Bounded(servers=broker.servers, topics="city")
            folder = base / f"ours-{next(numbers)}"
            query = tumbling_stats().start(spark, source, sinks=DeltaSink(folder), max_records=batch)
            query.wait()
            tables.update((kind, DeltaTable(str(folder / kind)).to_pyarrow_dataset().count_rows()) for kind in KINDS)
            return median(batch / s for s in durations(query.streaming)[1:])

        for _ in range(1 if quick else 2):
            ours()
        fast = ours()
        lines = spark.readStream.format("riot_kafka").options(servers=broker.servers, topics="city", maxRows=batch)
        frame = stats(lines.load().selectExpr("CAST(payload AS STRING) AS value"))
        done, unfinished = timed_query(frame, base / "state", "parquet", limit_s, Path(base, "theirs"))
        _check_same_work(name, tables, spark.read.parquet(str(base / "theirs")), len(done) * batch / n)
        slow = rate_of((done[: n // batch], unfinished), batch, limit_s)
    how = f"{sensors:,} sensors, local[2], micro-batches of {batch:,} messages, after a warm-up"
    against = (
        "from_json, explode, transformWithStateInPandas per key and Spark's Parquet sink; both read the topic with the "
        f"source of riot_ops, as Spark's own needs a jar{slow.note}"
    )
    yield Measure(name, fast, "messages/s", how)
    yield Measure(f"{name}/idiomatic", slow.value, "messages/s", how + slow.note)
    yield Measure(f"{name}/vs-idiomatic", fast / slow.value, "ratio", against, PIPELINE_REACH, lower_bound=slow.stopped)


def _check_same_work(name: str, ours: dict[str, int], theirs: Any, share: float) -> None:
    """Raise unless the other side has as many results of each kind, in proportion to the messages it got to."""
    found = {row["kind"]: row["count"] for row in theirs.groupBy("kind").count().collect()}
    if not all(0.9 < found.get(kind, 0) / (count * share) < 1.1 for kind, count in ours.items()):
        raise RiotError(f"{name}: both sides do not give the same results: {ours} and {found} of {share:.2f} as much")


def _or_reason(name: str, last: str, reach: float, measures: Callable[[bool], Iterator[Measure]]) -> OnSpark:
    """Yield why a row could not be measured instead of it."""

    def measured(quick: bool, _seconds: float | None) -> Iterator[Measure]:
        try:
            yield from measures(quick)
        except (ConnectorError, MissingExtraError) as error:
            yield Measure(f"edges/{name}/{last}", math.nan, "ratio", f"not measured: {error}", reach)

    return measured


#: By name, the measures of an edge on Spark; the arguments: the quick form, and the seconds of the run that has some.
ON_SPARK: dict[str, OnSpark] = {
    "spark-replay-source": _or_reason("spark-replay-source", "vs-text-source", REPLAY_REACH, replay_source),
    "spark-replay-in-dataflow": _or_reason(
        "spark-replay-in-dataflow", "vs-text-source", REPLAY_REACH, replay_in_dataflow
    ),
    "spark-kafka-stats-delta": _or_reason("spark-kafka-stats-delta", "vs-idiomatic", PIPELINE_REACH, kafka_stats_delta),
    # state per key costs the other side more, the more keys a micro-batch has
    "spark-kafka-stats-delta-1000-sensors": _or_reason(
        "spark-kafka-stats-delta-1000-sensors",
        "vs-idiomatic",
        PIPELINE_REACH,
        functools.partial(kafka_stats_delta, sensors=1_000),
    ),
    "mqtt-stats-mqtt": mqtt_stats_mqtt,
}
