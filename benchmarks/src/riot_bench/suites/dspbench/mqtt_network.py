"""Bytes that an application in process sends and receives where its lines and results go through an MQTT broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from riot_bench.baselines.python.mqtt import publish
from riot_bench.harness.byte_relay import ByteRelay
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.input_lines import InputLines
from riot_bench.harness.measure import Measure
from riot_ops.connectors import MQTTSink, MQTTSource
from riot_ops.core.errors import RiotError

__all__ = ["mqtt_network_measures"]


def mqtt_network_measures(broker: str, data: InputLines) -> Iterator[Measure]:
    """Run an application with each line and each result as a message of QoS 1, and count the bytes at its sockets.

    Parameters
    ----------
    broker : str
        URL of an MQTT broker on this machine.
    data : InputLines

    Raises
    ------
    RiotError
        The application has another number of results than over files, or fewer bytes arrived than the lines have.
    """
    one, port = data.application, urlsplit(broker).port or 1883
    lines = {name: [line.rstrip(b"\r\n") for line in some] for name, some in data.plain_lines().items()}
    wanted = one.builder().run(data.sources(), sinks=DiscardSink()).summary.rows
    with ByteRelay(port) as relay, temporary_folder() as base:
        url = f"mqtt://127.0.0.1:{relay.port}"
        sources = _subscribe(url, one.code, lines, base)
        for name, some in lines.items():
            publish(port, f"{one.code}/{name}", some, 1)
        sent, received = relay.sent, relay.received
        sink = MQTTSink(url=url, topic=f"results/{one.code}/{{stream}}")
        found = one.builder().run(sources, sinks=sink).summary.rows
        sent, received = relay.sent - sent, relay.received - received
    numbers = [{stream: rows.get(stream, 0) for stream in one.results} for rows in (found, wanted)]
    if numbers[0] != numbers[1]:
        raise RiotError(f"{one.name} has {numbers[0]} results over MQTT, not {numbers[1]}")
    payload, results = sum(len(line) for some in lines.values() for line in some), sum(numbers[0].values())
    if received < payload:
        raise RiotError(f"{one.name} received {received:,} bytes, but its lines have {payload:,}")
    at, total = f"dspbench/{one.code}/mqtt-network", data.total
    how = f"{total:,} lines of {payload / total:.0f} bytes, {results:,} results as JSON, QoS 1, without TCP's headers"
    yield Measure(f"{at}/in", received / total, "bytes/line", how)
    yield Measure(f"{at}/out", sent / total, "bytes/line", how)


def _subscribe(url: str, code: str, lines: Mapping[str, list[bytes]], base: Path) -> dict[str, MQTTSource]:
    """Return the sources, for which the broker keeps messages from now on."""
    found = {}
    for name, some in lines.items():
        found[name] = source = MQTTSource(
            url=url, topics=(f"{code}/{name}",), client_id=f"{code}-{name}", spool=str(base / name), messages=len(some)
        )
        source.open()
        source.close()
    return found
