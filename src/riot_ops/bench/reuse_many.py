"""Many dataflows over one MQTT stream: how late their results are, and what each costs."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from riot_ops import tasks as t
from riot_ops.bench.measure import Measure
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.connectors.mqtt.source import MqttSource
from riot_ops.core.schema import RAW
from riot_ops.core.sink import CallbackSink
from riot_ops.dataflow import Dataflow
from riot_ops.intake.memory_source import MemorySource
from riot_ops.kernels.arrow import int_column
from riot_ops.reuse import LocalBackend, ReuseManager

__all__ = ["many"]

RATE = 500
SENSORS = 50
#: Seconds before it counts, and for which it does, in the full and in the quick form.
WARM, COUNTED = (10.0, 3.0), (30.0, 5.0)
PAGE = os.sysconf("SC_PAGE_SIZE")


def many(n: int, quick: bool = False) -> Iterator[Measure]:
    """So many dataflows over one subscription, each a filter of its own on one field, and averages by sensor.

    A process publishes 500 messages per second in its own thread; the latency of a result is from when the message that
    led to it was due to when the dataflow's sink has it.
    """
    warm, counted = WARM[quick], COUNTED[quick]
    lines = [{"payload": b'{"sensor": "s", "value": 90}', "event_time": None}] * 100
    _flow(0, n).run(MemorySource(lines, RAW), sinks=_Latencies().sink())  # which loads all code
    with tempfile.TemporaryDirectory() as folder:
        url = f"memory://many-{n}"
        source = MqttSource(url=url, topics=("readings",), client_id="many", spool=str(Path(folder) / "spool"))
        source.open()
        latencies = _Latencies()
        manager = ReuseManager(backend := LocalBackend(epoch_s=1.0))
        gc.collect()
        before, begin = _memory(), time.process_time()
        for i in range(n):
            manager.submit(_flow(i, n), source, latencies.sink())
        submitted = 1e3 * (time.process_time() - begin) / n
        backend.start()
        with _publishing(MemoryBroker.of(url)) as started:
            latencies.begin = started
            time.sleep(warm)
            since, messages = time.time(), backend.stats()["messages"]
            time.sleep(counted)
            took, messages = time.time() - since, backend.stats()["messages"] - messages
        found = latencies.since(since)
        bytes_each = (_memory() - before) / n
        manager.close()
    name = f"reuse/many/{n}"
    p50, p95 = np.quantile(found, [0.5, 0.95]) if found.size else (np.inf, np.inf)
    what = f"{RATE} messages/s, results of {counted:g} s; p50 {p50:.0f} ms"
    yield Measure(f"{name}/p95-ms", float(p95), "ms", what, 1000, at_most=True)
    kept_up = f"{messages / took:.0f} messages/s, each for {n} dataflows"
    yield Measure(f"{name}/records-per-s", messages / took * n, "records/s", kept_up, 0.95 * RATE * n)
    yield Measure(f"{name}/bytes-per-dataflow", bytes_each, "bytes", "memory of the process", 1 << 20, at_most=True)
    yield Measure(f"{name}/submit-ms", submitted, "ms", "CPU time of submitting one")


def _flow(i: int, n: int) -> Dataflow:
    flow = Dataflow(f"d{i}")
    lines = flow.source("readings").to(
        t.ParseJSON(fields={"sensor": ("sensor", "string"), "value": ("value", "double")}), id="parse"
    )
    passing = lines.to(t.RangeFilter(by=None, bounds={"value": (25 + 50 * i / n, 1000)}), id="filter")
    return flow.sink("out", passing.to(t.BlockAverage(by=("sensor",), window=10), id="average"))


@contextmanager
def _publishing(broker: MemoryBroker) -> Iterator[float]:
    """Publish at the pace; gives when the first message is due."""
    over = threading.Event()
    begin = time.time()
    values = np.random.default_rng(0).uniform(0, 100, 1 << 16).round(3).tolist()

    def publish() -> None:
        i = 0
        while not over.is_set():
            due = int((time.time() - begin) * RATE)
            while i < due:
                text = b'{"sensor": "s%d", "value": %.3f}' % (i % SENSORS, values[i % len(values)])
                broker.publish("readings", text)
                i += 1
            time.sleep(0.002)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield begin
    finally:
        over.set()
        thread.join()


class _Latencies:
    """When results came, and of which messages."""

    def __init__(self) -> None:
        self.begin = 0.0
        self._found: list[tuple[float, np.ndarray]] = []

    def sink(self) -> CallbackSink:
        return CallbackSink(self._take)

    def _take(self, stream: str, batch: pa.RecordBatch) -> None:
        self._found.append((time.time(), int_column(batch.column("seq"))))

    def since(self, time_s: float) -> np.ndarray:
        """Latencies in milliseconds of the results that came from then on."""
        late = [1e3 * (came - self.begin - seq / RATE) for came, seq in self._found if came >= time_s]
        return np.concatenate(late) if late else np.empty(0)


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
