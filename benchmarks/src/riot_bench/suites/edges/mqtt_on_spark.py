"""From broker to broker on local Spark: packs of CITY messages through STATS, with publisher and broker beside it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.edges.brokers import city_lines
from riot_ops import flat_map
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSink
from riot_ops.core.errors import RiotError
from riot_ops.core.json_rows import json_lines
from riot_ops.core.schema import stream_schema
from riot_ops.core.sink import Message, Writer
from riot_ops.dataflow import Dataflow
from riot_ops.measure.processes import ProcessTree

__all__ = ["mqtt_stats_mqtt"]

RATE, PACK, DISTINCT_PACKS = 7000, 70, 600
#: Rows of a pack of results, and seconds of a run.
RESULT_ROWS, SECONDS, QUICK_SECONDS = 1000, 600.0, 20.0
START_SECONDS = 300.0
#: Targets: median latency in seconds, and memory in the last third of a run against that in the middle.
P50_REACH, MEMORY_REACH = 1.5, 1.1
KEY = ("sensor_id", "obs_type")


class PackedSink(MQTTSink):
    """Publishes up to ``RESULT_ROWS`` records as one message of JSON lines."""

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _PackWriter(super().writer(batch_id, partition))


class _PackWriter(Writer):
    def __init__(self, each: Writer) -> None:
        self._each = each

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        parts = [batch.slice(first, RESULT_ROWS) for first in range(0, batch.num_rows, RESULT_ROWS)]
        self._each.write(stream, pa.RecordBatch.from_pydict({"payload": [json_lines(part) for part in parts]}))

    def finish(self) -> Message:
        return self._each.finish()


def packed_stats(schema: pa.Schema) -> Dataflow:
    """Build STATS with tumbling averages, over messages that each have many lines."""
    flow = Dataflow("packed-stats")
    lines = flow.source("packs", schema=schema).to(flat_map(_lines, schema={"payload": "binary"}), id="lines")
    obs = lines.shuffle().to(t.ParseSenML(schema="city", fields=stream_schema("city").numeric, meta=False), id="parse")
    average = obs.partition_by(*KEY).to(t.MovingAverage(by=KEY, window=10, mode="tumbling"), id="avg")
    kalman = obs.partition_by(*KEY).to(t.KalmanFilter(by=KEY), id="kalman")
    line = kalman.partition_by(*KEY).to(t.SlidingRegression(by=KEY, window=10, horizon=10), id="slr")
    distinct = obs.partition_by("obs_type").to(t.DistinctCount(by=("obs_type",)), id="dac")
    flow.sink("publish", average, line, distinct)
    return flow


def _lines(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"payload": line} for line in row["payload"].splitlines()]


def expected_counts(packs: list[bytes], schema: pa.Schema) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of results of the stream ``dac`` per pack, from a run in process."""
    times = pa.array([0] * len(packs), pa.int64()).cast(schema.field("event_time").type)
    table = pa.table({"seq": range(len(packs)), "event_time": times, "payload": packs, "topic": [""] * len(packs)})
    found = packed_stats(schema).run(table.cast(schema))["dac"]
    return np.bincount(np.asarray(found["seq"]), minlength=len(packs))


def mqtt_stats_mqtt(quick: bool, seconds: float | None = None) -> Iterator[Measure]:
    """Run for 10 minutes, or ``seconds``, and compare what has arrived with what was published."""
    require_extra("this benchmark", "mqtt", "paho.mqtt.client")
    from riot_bench.baselines.python import mqtt
    from riot_bench.baselines.python.mqtt_load import IN, OUT
    from riot_ops.connectors import MQTTSource
    from riot_ops.testing.services import Mosquitto

    name, seconds = "edges/mqtt-stats-mqtt", seconds or (QUICK_SECONDS if quick else SECONDS)
    payloads = city_lines(PACK * DISTINCT_PACKS).column("payload").to_pylist()
    lines = [line.rstrip(b"\n") + b"\n" for line in payloads]
    with temporary_folder() as base, Mosquitto() as broker, spark_session() as spark:
        source = MQTTSource(url=broker.url, topics=(IN,), qos=1, client_id="edges", spool=str(base / "spool"))
        packs = [b"".join(lines[i : i + PACK]) for i in range(0, len(lines), PACK)]
        expected = expected_counts(packs, source.schema)
        (base / "lines").write_bytes(b"".join(lines))
        source.open()  # the broker keeps what comes before the query
        source.close()
        sinks = {"publish": PackedSink(url=broker.url, topic=f"{OUT}/{{stream}}", payload="payload"),
                 "errors": DiscardSink()}  # fmt: skip
        query = packed_stats(source.schema).start(spark, source, sinks=sinks, trigger="500 milliseconds")
        mqtt.publish(urlsplit(broker.url).port or 0, IN, packs[:1], 1)  # a first micro-batch, in which kernels load
        begun = time.monotonic()
        while query.summary.batches < 1:
            query.wait("1s")
            if time.monotonic() - begun > START_SECONDS:
                raise RiotError(f"{name}: the first micro-batch does not end within {START_SECONDS:g} s")
        over = threading.Event()
        port = str(urlsplit(broker.url).port)
        command = [sys.executable, "-m", "riot_bench.baselines.python.mqtt_load", port, str(RATE), str(seconds)]
        command += [str(PACK), str(base / "lines")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as load:  # type: ignore[call-overload]  # noqa: S603 (this package's)
            load.stdout.readline()
            answer: list[str] = []

            def wait() -> None:
                answer.append(load.communicate("go\n")[0])
                over.set()

            threading.Thread(target=wait).start()
            begun = time.monotonic()
            with ProcessTree(every=timedelta(seconds=min(5.0, seconds / 10))) as tree:
                while not over.wait(1.0):
                    if not query.active or time.monotonic() - begun > 2 * seconds + 300:
                        load.kill()
                        query.wait("1s")  # raises what ended it
                        raise RiotError(f"{name}: the results do not end")
                    query.poll()
            memory = (tree.usage().memory / 2**20).tolist()
            query.stop()
        found = json.loads(answer[0])
    yield from _measures(name, found, expected, memory, seconds)


def _measures(
    name: str, found: dict[str, Any], expected: np.ndarray[Any, np.dtype[np.int64]], memory: list[float], seconds: float
) -> Iterator[Measure]:
    packs = found["packs"]
    counts, wanted = np.array(found["dac"]), expected[np.arange(packs) % expected.size]
    lost, again = int(np.maximum(wanted - counts, 0).sum()), int(np.maximum(counts - wanted, 0).sum())
    how = f"{RATE:,} messages/s in packs of {PACK}, {seconds:g} s, local[2], trigger 500 ms, broker on the same cores"
    p50, p99 = (math.nan if value is None else value for value in found["quantiles"])
    yield Measure(f"{name}/p50", p50, "s", f"{how}; from publishing a pack to its last result", P50_REACH, at_most=True)
    yield Measure(f"{name}/p99", p99, "s", how)
    yield Measure(
        f"{name}/lost", lost, "results", f"of {int(wanted.sum()):,} counts of distinct readings", 0, at_most=True
    )
    yield Measure(f"{name}/repeated", again, "results", "QoS 1: at least once")
    third = max(1, len(memory) // 3)
    growth = median(memory[-third:]) / median(memory[third : 2 * third] or memory)
    note = f"last third against the one before, of {median(memory[-third:]):,.0f} MB in all processes"
    yield Measure(f"{name}/memory-growth", growth, "ratio", note, MEMORY_REACH, at_most=True)
