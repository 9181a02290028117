"""A service: readings of a broker in, smoothed readings and means of minutes out, for ``greenhouse.service``.

Messages are JSON such as ``{"bed": "a", "moisture": 40.5}``; a login is in RIOT_OPS_MQTT_USERNAME and
RIOT_OPS_MQTT_PASSWORD.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

import riot_ops as ro
from riot_ops.connectors import MQTTSource

__all__ = ["dataflow", "main", "parse"]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mqtt", required=True, metavar="URL", help="broker, such as mqtts://broker.example:8883")
    parser.add_argument("--topic", default="greenhouse/#", help="topic filter of the messages")
    parser.add_argument("--state", required=True, type=Path, help="folder for spool, checkpoint and results")
    parser.add_argument("--live", default="http://127.0.0.1:8321", metavar="URL", help="of page and metrics")
    return parser.parse_args(arguments)


def dataflow(source: MQTTSource) -> ro.Dataflow:
    """Return the dataflow."""
    flow = ro.Dataflow("greenhouse")
    fields = {"bed": ("bed", "string"), "moisture": ("moisture", "double")}
    readings = flow.source("messages", source.schema).apply(ro.tasks.ParseJSON(schema=fields), id="readings")
    beds = readings.filter("0 <= moisture and moisture <= 100", id="plausible").key_by("bed")
    smooth = beds.apply(ro.tasks.KalmanFilter(value="moisture"), id="smooth")
    minutes = beds.window("1min").agg(mean=("moisture", "mean"), n="count", id="minutes")
    return flow.sink("out", smooth, minutes)


def main() -> None:
    """Run until SIGTERM or Ctrl-C, which end the run after a commit."""
    options = parse()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    state = options.state
    source = MQTTSource(url=options.mqtt, topics=options.topic, client_id="greenhouse", spool=f"{state}/spool", qos=2)
    # a file for ten minutes, not one for each commit
    results = ro.ParquetSink(f"{state}/results", roll_bytes=64 << 20, roll_interval="10min")
    run = dataflow(source).launch(source, sinks=results, checkpoint=f"{state}/checkpoint")
    with ro.live(run, url=options.live):
        try:
            run.wait()
        except KeyboardInterrupt:
            logging.info("stopped after a commit: %s messages", run.summary.messages)


if __name__ == "__main__":
    main()
