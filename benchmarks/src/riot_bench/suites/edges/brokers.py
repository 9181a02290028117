"""Pairs over message brokers: Kafka and MQTT."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import urlsplit

import pyarrow as pa

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.requirements import require_extra
from riot_bench.suites.edges.pair import Pair

__all__ = ["city_lines", "kafka_sink", "kafka_source", "mqtt_sink", "mqtt_source"]

#: Quality of service of both sides.
QOS: Literal[1] = 1


def city_lines(n: int, sensors: int = 100) -> pa.RecordBatch:
    """Return n CITY messages."""
    from riot_ops.streams.riotbench.city import CitySource

    return CitySource(sensors, n).lines(0, n)


@contextmanager
def kafka_source(quick: bool) -> Iterator[Pair]:
    """From a topic to record batches with payload, number and time; the client: to a list of the same."""
    require_extra("this benchmark", "kafka", "confluent_kafka")
    from riot_bench.baselines.python import kafka
    from riot_ops.connectors import KafkaSource
    from riot_ops.testing.services import Tansu

    n = 2000 if quick else 100_000
    lines = city_lines(n)
    with Tansu() as broker:
        kafka.create(broker.servers, "city")
        kafka.write(broker.servers, "city", lines.column("payload").to_pylist())

        def ours() -> tuple[float, object]:
            source = KafkaSource(servers=broker.servers, topics="city").project(lines.schema)
            at, rows, found = source.initial(), 0, []
            start = time.perf_counter()
            while rows < n:
                end = source.latest(at, 131_072)
                for split in source.splits(at, end, 1):
                    for batch in source.read(split):
                        rows += batch.num_rows
                        found.append(batch)
                if end == at:
                    time.sleep(0.001)
                at = end
            seconds = time.perf_counter() - start
            source.close()
            table = pa.Table.from_batches(found)
            offsets = [seq >> 16 for seq in table["seq"].to_pylist()]
            times = table["event_time"].cast(pa.int64()).to_pylist()
            return seconds, list(zip(table["payload"].to_pylist(), offsets, times, strict=True))

        def theirs() -> tuple[float, object]:
            seconds, found = kafka.read(broker.servers, "city", n)
            return seconds, [(payload, offset, 1000 * ms) for payload, offset, ms in found]

        yield Pair(n, ours, theirs, "confluent-kafka: consume() into a list, connecting included")


@contextmanager
def kafka_sink(quick: bool) -> Iterator[Pair]:
    """Until all messages are acknowledged, by an idempotent producer on both sides."""
    require_extra("this benchmark", "kafka", "confluent_kafka")
    from riot_bench.baselines.python import kafka
    from riot_ops.connectors import KafkaSink
    from riot_ops.testing.services import Tansu

    n = 2000 if quick else 50_000
    lines = city_lines(n)
    payloads = lines.column("payload").to_pylist()
    numbers = itertools.count()
    with Tansu() as broker:

        def topic() -> str:
            name = f"city-{next(numbers)}"
            kafka.create(broker.servers, name)
            return name

        def read(name: str) -> list[bytes]:
            return [payload for payload, _, _ in kafka.read(broker.servers, name, n)[1]]

        sinks: dict[str, KafkaSink] = {}

        def ours() -> tuple[float, object]:
            name = topic()
            # the stream is the topic: the producer of the sink stays connected
            sink = sinks.setdefault("", KafkaSink(servers=broker.servers, topic="{stream}", payload="payload"))
            start = time.perf_counter()
            writer = sink.writer(0, 0)
            writer.write(name, lines)
            writer.finish()
            return time.perf_counter() - start, read(name)

        producer = kafka.open_producer(broker.servers)

        def theirs() -> tuple[float, object]:
            name = topic()
            return kafka.write(broker.servers, name, payloads, producer), read(name)

        yield Pair(n, ours, theirs, "confluent-kafka: produce() and flush(), acks=all, idempotent")


@contextmanager
def mqtt_sink(quick: bool) -> Iterator[Pair]:
    """Until all messages are acknowledged, with at most 100 on the way."""
    require_extra("this benchmark", "mqtt", "paho.mqtt.client")
    from riot_bench.baselines.python import mqtt
    from riot_ops import tasks as t
    from riot_ops.core.rejected_records import RejectedRecords
    from riot_ops.testing.services import Mosquitto

    n = 500 if quick else 5000
    lines = city_lines(n)
    payloads = lines.column("payload").to_pylist()
    with Mosquitto() as broker:
        port = urlsplit(broker.url).port or 0
        task, errors = t.PublishMQTT(url=broker.url, topic="city", qos=QOS), RejectedRecords("bench")

        def ours() -> tuple[float, object]:
            session = mqtt.subscribe(port, "city", QOS)
            start = time.perf_counter()
            task.apply(lines, errors)
            seconds = time.perf_counter() - start
            return seconds, mqtt.receive(port, session, n)[1]

        def theirs() -> tuple[float, object]:
            session = mqtt.subscribe(port, "city", QOS)
            seconds = mqtt.publish(port, "city", payloads, QOS)
            return seconds, mqtt.receive(port, session, n)[1]

        yield Pair(n, ours, theirs, "paho-mqtt with its own thread, QoS 1")


@contextmanager
def mqtt_source(quick: bool) -> Iterator[Pair]:
    """From a queue of the broker to disk, with fsync before each acknowledgement; the client: to a list."""
    require_extra("this benchmark", "mqtt", "paho.mqtt.client")
    from riot_bench.baselines.python import mqtt
    from riot_ops.connectors import MQTTSource
    from riot_ops.testing.services import Mosquitto

    n = 500 if quick else 5000
    payloads = city_lines(n).column("payload").to_pylist()
    numbers = itertools.count()
    with Mosquitto() as broker, temporary_folder() as folder:
        port = urlsplit(broker.url).port or 0

        def ours() -> tuple[float, object]:
            name = f"ours-{next(numbers)}"
            source = MQTTSource(url=broker.url, topics=("city",), qos=QOS, client_id=name, spool=str(folder / name))
            source.open()
            source.close()
            mqtt.publish(port, "city", payloads, QOS)
            start = time.perf_counter()
            source.open()
            at = source.initial()
            while (end := source.latest(at))["seq"] < n:
                time.sleep(0.005)  # polling takes the interpreter lock from the receiver
            seconds = time.perf_counter() - start
            batches = [batch for split in source.splits(at, end, 1) for batch in source.read(split)]
            source.close()
            return seconds, pa.Table.from_batches(batches)["payload"].to_pylist()

        def theirs() -> tuple[float, object]:
            session = mqtt.subscribe(port, "city", QOS)
            mqtt.publish(port, "city", payloads, QOS)
            return mqtt.receive(port, session, n)

        yield Pair(n, ours, theirs, "paho-mqtt with its own thread, QoS 1, to a list and not to disk")
