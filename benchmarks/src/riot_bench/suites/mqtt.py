"""MQTT: publishing and receiving through a broker beside us, and with paho alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pyarrow as pa

from riot_bench.harness.data import needs
from riot_bench.harness.measure import Measure, median
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.testing.services import Mosquitto

__all__ = ["measures"]

QoS = Literal[0, 1, 2]
ALL: tuple[QoS, ...] = (0, 1, 2)

#: Of what paho alone reaches.
REACH = 0.8


def measures(quick: bool = False) -> Iterator[Measure]:
    """The suite; it starts a Mosquitto of its own."""
    needs("this benchmark", "mqtt", "paho.mqtt.client")
    repetitions, n = (1, 500) if quick else (5, 5000)
    batch = CitySource(100, n).lines(0, n)
    with Mosquitto(options=("queue_qos0_messages true",)) as broker, tempfile.TemporaryDirectory() as folder:
        for qos in ALL:
            yield from _publish(broker, batch, qos, repetitions)
        for qos in ALL:
            yield from _receive(broker, batch, qos, repetitions, Path(folder))


def _publish(broker: Mosquitto, batch: pa.RecordBatch, qos: QoS, repetitions: int) -> Iterator[Measure]:
    from riot_bench.baselines.python import mqtt as mqtt_paho

    task, dead = t.PublishMQTT(url=broker.url, topic="bench", qos=qos), DeadLetters("bench")
    task.apply(batch.slice(0, 100), dead)
    port = urlsplit(broker.url).port or 0
    payloads = batch.column("payload").to_pylist()
    ours, theirs = [], []
    for _ in range(repetitions):
        start = time.perf_counter()
        task.apply(batch, dead)
        ours.append(time.perf_counter() - start)
        theirs.append(mqtt_paho.publish(port, "bench", payloads, qos))
    yield from _compare(f"mqtt/publish/qos{qos}", batch.num_rows, ours, theirs, "100 messages under way at most")


def _receive(broker: Mosquitto, batch: pa.RecordBatch, qos: QoS, repetitions: int, folder: Path) -> Iterator[Measure]:
    """From a queue at the broker: into the spool (fsync before each acknowledgement), and into a list."""
    from riot_bench.baselines.python import mqtt as mqtt_paho

    n, port = batch.num_rows, urlsplit(broker.url).port or 0
    publish, dead = t.PublishMQTT(url=broker.url, topic=f"bench/{qos}", qos=qos), DeadLetters("bench")
    ours, theirs = [], []
    for i in range(repetitions):
        source = MQTTSource(
            url=broker.url, topics=(f"bench/{qos}",), qos=qos, client_id=f"{qos}-{i}", spool=str(folder / f"{qos}-{i}")
        )
        source.open()
        source.close()
        publish.apply(batch, dead)
        start = time.perf_counter()
        source.open()
        while source.latest({"seq": 0})["seq"] < n:
            time.sleep(0.005)  # a look takes the interpreter lock from the receiver
        ours.append(time.perf_counter() - start)
        source.close()
        client_id = mqtt_paho.subscribe(port, f"bench/{qos}", qos)
        publish.apply(batch, dead)
        theirs.append(mqtt_paho.receive(port, client_id, n)[0])
    yield from _compare(
        f"mqtt/receive/qos{qos}", n, ours, theirs, "a queue at the broker, onto disk; paho: into a list"
    )


def _compare(name: str, n: int, ours: list[float], theirs: list[float], how: str) -> Iterator[Measure]:
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    yield Measure(name, n / median(ours), "messages/s", f"{n} CITY messages, Mosquitto on the same machine; {how}")
    yield Measure(f"{name}/paho", n / median(theirs), "messages/s", "paho-mqtt with its own thread")
    yield Measure(f"{name}-vs-paho", median(ratios), "ratio", "paho-mqtt with its own thread", REACH)
