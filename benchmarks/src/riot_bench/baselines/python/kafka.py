"""Reading and writing topics with confluent-kafka alone."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

__all__ = ["create", "open_producer", "payloads", "read", "write"]

BATCH = 10_000


def create(servers: str, topic: str, partitions: int = 1) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(20)


def open_producer(servers: str) -> Producer:
    """Open an idempotent producer."""
    settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
    return Producer({**settings, "delivery.report.only.error": True})


def write(servers: str, topic: str, payloads: Sequence[bytes], producer: Producer | None = None) -> float:
    """Write messages, idempotent as the sink does; return the seconds until all are acknowledged."""
    producer = producer or open_producer(servers)
    failed: list[object] = []
    start = time.perf_counter()
    for payload in payloads:
        while True:
            try:
                producer.produce(topic, payload, on_delivery=lambda error, _: failed.append(error))
                break
            except BufferError:
                producer.poll(0.5)
    left = producer.flush(60)
    seconds = time.perf_counter() - start
    if left or failed:
        raise RuntimeError(f"{left} messages are not acknowledged, {len(failed)} are refused")
    return seconds


def read(servers: str, topic: str, n: int) -> tuple[float, list[tuple[bytes, int, int]]]:
    """Read n messages of a partition; return the seconds, and payload, offset and time of each."""
    start = time.perf_counter()
    consumer = _consumer(servers, topic)
    found: list[Any] = []
    while len(found) < n:
        messages = consumer.consume(BATCH, 0) or consumer.consume(1, 1.0)
        found += [(m.value(), m.offset(), m.timestamp()[1]) for m in messages if m.error() is None]
    seconds = time.perf_counter() - start
    consumer.close()
    return seconds, found


def payloads(servers: str, topic: str, n: int) -> Iterator[tuple[int, bytes]]:
    """Read n messages of a partition, each with its offset."""
    consumer = _consumer(servers, topic)
    rows = 0
    while rows < n:
        message: Any
        for message in consumer.consume(BATCH, 0) or consumer.consume(1, 1.0):
            if message.error() is None:
                rows += 1
                yield message.offset(), message.value()
    consumer.close()


def _consumer(servers: str, topic: str) -> Consumer:
    settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "log_level": 0}
    consumer = Consumer(settings | {"enable.auto.commit": False, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer
