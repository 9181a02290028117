"""MQTT: publishing and receiving through a local broker, against paho-mqtt alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pyarrow as pa

from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.timing import median
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.testing.services import Mosquitto

__all__ = ["measures"]

QoS = Literal[0, 1, 2]
QOS_LEVELS: tuple[QoS, ...] = (0, 1, 2)

#: Target ratio against paho alone.
REACH = 0.8


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite with its own Mosquitto."""
    require_extra("this benchmark", "mqtt", "paho.mqtt.client")
    repetitions, n = (1, 500) if quick else (5, 5000)
    batch = CitySource(100, n).lines(0, n)
    with Mosquitto(options=("queue_qos0_messages true",)) as broker, tempfile.TemporaryDirectory() as folder:
        for qos in QOS_LEVELS:
            yield from _publish(broker, batch, qos, repetitions)
        for qos in QOS_LEVELS:
            yield from _receive(broker, batch, qos, repetitions, Path(folder))


def _publish(broker: Mosquitto, batch: pa.RecordBatch, qos: QoS, repetitions: int) -> Iterator[Measure]:
    from riot_bench.baselines.python.mqtt import publish

    task, errors = t.PublishMQTT(url=broker.url, topic="bench", qos=qos), RejectedRecords("bench")
    task.apply(batch.slice(0, 100), errors)
    port = urlsplit(broker.url).port or 0
    payloads = batch.column("payload").to_pylist()
    ours, theirs = [], []
    for _ in range(repetitions):
        start = time.perf_counter()
        task.apply(batch, errors)
        ours.append(time.perf_counter() - start)
        theirs.append(publish(port, "bench", payloads, qos))
    yield from _compare(f"mqtt/publish/qos{qos}", batch.num_rows, ours, theirs, "at most 100 messages unacknowledged")


def _receive(broker: Mosquitto, batch: pa.RecordBatch, qos: QoS, repetitions: int, folder: Path) -> Iterator[Measure]:
    """Receive a queue of the broker: into the spool (fsync before each acknowledgement), and into a list."""
    from riot_bench.baselines.python.mqtt import receive, subscribe

    n, port = batch.num_rows, urlsplit(broker.url).port or 0
    publish, errors = t.PublishMQTT(url=broker.url, topic=f"bench/{qos}", qos=qos), RejectedRecords("bench")
    ours, theirs = [], []
    for i in range(repetitions):
        source = MQTTSource(
            url=broker.url, topics=(f"bench/{qos}",), qos=qos, client_id=f"{qos}-{i}", spool=str(folder / f"{qos}-{i}")
        )
        source.open()
        source.close()
        publish.apply(batch, errors)
        start = time.perf_counter()
        source.open()
        while source.latest({"seq": 0})["seq"] < n:
            time.sleep(0.005)  # polling takes the interpreter lock from the receiver
        ours.append(time.perf_counter() - start)
        source.close()
        client_id = subscribe(port, f"bench/{qos}", qos)
        publish.apply(batch, errors)
        theirs.append(receive(port, client_id, n)[0])
    yield from _compare(
        f"mqtt/receive/qos{qos}", n, ours, theirs, "from a queue of the broker to disk; paho: to a list"
    )


def _compare(name: str, n: int, ours: list[float], theirs: list[float], how: str) -> Iterator[Measure]:
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    yield Measure(name, n / median(ours), "messages/s", f"{n} CITY messages, Mosquitto on the same machine; {how}")
    yield Measure(f"{name}/paho", n / median(theirs), "messages/s", "paho-mqtt with its own thread")
    yield Measure(f"{name}-vs-paho", median(ratios), "ratio", "paho-mqtt with its own thread", REACH)
