"""Both sides of the MQTT benchmark do the same work."""

from __future__ import annotations

import math
import time
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from riot_bench.baselines.python import mqtt
from riot_bench.suites.mqtt import measures

from riot_ops.connectors import MQTTSource
from riot_ops.testing.services import Mosquitto

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_sides_deliver_equal_messages(tmp_path, qos):
    payloads = [f"message {i}".encode() for i in range(300)]
    with Mosquitto(options=("queue_qos0_messages true",)) as broker:
        port = urlsplit(broker.url).port
        source = MQTTSource(url=broker.url, topics=("a",), client_id="c", spool=str(tmp_path / "s"), qos=qos)
        source.open()
        client_id = mqtt.subscribe(port, "a", qos)
        assert mqtt.publish(port, "a", payloads, qos) > 0
        assert mqtt.receive(port, client_id, 300)[1] == payloads
        end = time.monotonic() + 20
        while source.latest({"seq": 0})["seq"] < 300 and time.monotonic() < end:
            time.sleep(0.01)
        batches = list(source.read({"start": 0, "end": 300}))
        assert pa.Table.from_batches(batches)["payload"].to_pylist() == payloads
        source.close()


def test_mqtt_suite_runs():
    found = list(measures(quick=True))
    assert len(found) == 18 and all(math.isfinite(m.value) and m.value > 0 for m in found)
