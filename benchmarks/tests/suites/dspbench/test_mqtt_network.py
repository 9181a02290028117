"""Bytes at the sockets of an application that reads and writes over MQTT."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from riot_bench.harness.input_lines import write_input_lines
from riot_bench.suites.dspbench import mqtt_network

from riot_ops.core.errors import RiotError
from riot_ops.dataflows import application
from riot_ops.testing.services import Mosquitto


@pytest.mark.integration
def test_bytes_at_the_sockets_are_those_of_the_messages(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_input_lines(application("wc"), tmp_path, 40, 40)
    with Mosquitto() as broker:
        into, out = mqtt_network.mqtt_network_measures(broker.url, data)
        assert (into.measure, out.measure) == ("dspbench/wc/mqtt-network/in", "dspbench/wc/mqtt-network/out")
        found = re.search(r"40 lines of (\d+) bytes, (\d+) results", into.against)
        assert found is not None
        size, results = int(found[1]), int(found[2]) / 40
        # in: topic, number and lengths of each line, and an acknowledgement (4 bytes) of each result
        assert size + 10 < into.value - 4 * results < size + 40
        # out: topic (17 bytes) and JSON of each result, and an acknowledgement of each line
        assert 40 * results < out.value < 120 * results + 20
        send = mqtt_network.publish
        same = lambda port, topic, some, qos: send(port, topic, some[:1] * 40, qos)  # noqa: E731
        monkeypatch.setattr(mqtt_network, "publish", same)
        with pytest.raises(RiotError, match=r"word_count has .* results over MQTT, not"):
            list(mqtt_network.mqtt_network_measures(broker.url, data))
