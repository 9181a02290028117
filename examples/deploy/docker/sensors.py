"""Sensors of a city that publish to a broker without end: ``sensors.py mqtt://broker:1883 [MESSAGES_PER_SECOND]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import riot_ops as ro
from riot_ops.connectors import MQTTSink


def main(arguments: Sequence[str]) -> None:
    """Publish until the program is stopped."""
    flow = ro.Dataflow("sensors")
    flow.sink("out", flow.source("city"))
    rate = float(arguments[1]) if len(arguments) > 1 else 100.0
    source = ro.streams.city(sensors=50, rate=rate)
    flow.run(source, sinks=MQTTSink(url=arguments[0], topic="city/readings", payload="payload"))


if __name__ == "__main__":
    main(sys.argv[1:])
