"""A process that publishes packs of CITY messages at a pace, and receives packs of results: latencies and losses.

``python -m riot_bench.baselines.python.mqtt_load PORT RATE SECONDS LINES FILE``: ``LINES`` messages per pack, of the
lines in ``FILE``, which are repeated. It begins when it reads a line, and prints a JSON object at the end. One pack was
published before, as number 0.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

__all__ = ["IN", "OUT", "SEQ"]

#: Topics of the packs and, with the name of a stream, of the results.
IN, OUT = "packs", "results"
#: The number of its pack, in each line of results.
SEQ = re.compile(rb'"seq":(\d+)')
#: How long it waits for further results after the last pack, and after the last result.
LAST_S = 60.0
#: Latencies of packs that were published in the first seconds do not count: the query starts.
WARM_S = 30.0


class _Results:
    """What has arrived: per pack, its results of the stream ``dac``, and when its last one came."""

    def __init__(self, packs: int) -> None:
        self.found = np.zeros(packs, np.int64)
        self.last = np.zeros(packs)
        self.rows: dict[str, int] = {}
        self.heard = time.monotonic()

    def add(self, _: Any, __: Any, message: mqtt.MQTTMessage) -> None:
        now = self.heard = time.monotonic()
        stream = message.topic.rpartition("/")[2]
        numbers = np.array(SEQ.findall(message.payload), np.int64) - 1
        numbers = numbers[numbers >= 0]
        self.rows[stream] = self.rows.get(stream, 0) + numbers.size
        if stream == "dac":
            np.add.at(self.found, numbers, 1)
        self.last[numbers] = now


def _client(port: int) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(1000)
    client.connect("127.0.0.1", port)
    client.loop_start()
    return client


def main() -> None:
    port, rate, seconds, size = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    lines = Path(sys.argv[5]).read_bytes().splitlines(keepends=True)
    packs = [b"".join(lines[i : i + size]) for i in range(0, len(lines), size)]
    total = max(1, int(rate * seconds / size))
    results, subscribed = _Results(total), threading.Event()
    receiver, sender = _client(port), _client(port)
    receiver.on_message = results.add
    receiver.on_subscribe = lambda *_: subscribed.set()
    receiver.subscribe(f"{OUT}/#", 1)
    subscribed.wait(30)
    print("ready", flush=True)
    sys.stdin.readline()
    sent = np.zeros(total)
    begun = time.monotonic()
    for number in range(total):
        due = begun + number * size / rate
        time.sleep(max(0.0, due - time.monotonic()))
        sent[number] = due
        sender.publish(IN, packs[number % len(packs)], 1)
    results.heard = time.monotonic()
    while time.monotonic() - results.heard < LAST_S and not (results.found[-1] and results.last.all()):
        time.sleep(0.1)
    time.sleep(2.0)  # the rest of the last micro-batch
    counted = (sent - begun >= min(WARM_S, seconds / 2)) & (results.last > 0)
    latency = (results.last - sent)[counted]
    quantiles = np.quantile(latency, [0.5, 0.99]).tolist() if latency.size else [None, None]
    found = {"packs": total, "dac": results.found.tolist(), "rows": results.rows, "quantiles": quantiles}
    print(json.dumps(found), flush=True)
    for client in (receiver, sender):
        client.disconnect()
        client.loop_stop()


if __name__ == "__main__":
    main()
