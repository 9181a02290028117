"""Many dataflows over one MQTT stream: latency of the results, and memory of each dataflow."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_ops import tasks as t
from riot_ops.connectors.mqtt.client import MQTTConnection
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.connectors.mqtt.publisher import OutgoingMessage, open_publisher
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.core.errors import ConnectorError
from riot_ops.core.schema import RAW
from riot_ops.core.sink import CallbackSink
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.measure.processes import ProcessTree
from riot_ops.reuse import LocalBackend, Request, ReuseManager
from riot_ops.testing.services import Mosquitto

__all__ = ["many_measures"]

TOPIC = "readings"
RATE = 500
SENSORS = 50
#: Warm-up and measured seconds (full and quick form). On Spark, the JVM compiles its planning of micro-batches over
#: some
#: hundred of them, which needs a longer warm-up.
WARM_UP_S, MEASURED_S = {"local": (10.0, 3.0), "spark": (60.0, 5.0)}, (30.0, 5.0)
#: Trigger of the queries on Spark.
TRIGGER = "0.2 seconds"
TIMEOUT_S = 120.0
PAGE = os.sysconf("SC_PAGE_SIZE")


def many_measures(n: int, quick: bool = False, backend: str = "local") -> Iterator[Measure]:
    """Measure ``n`` dataflows over one subscription, each with its own filter on a field and averages by sensor.

    A thread publishes 500 messages per second. The latency of a result is the time from when its message was due until
    the dataflow's sink receives it. All dataflows are submitted in one action.
    """
    warm, counted = WARM_UP_S[backend][quick], MEASURED_S[quick]
    opened = local_environment(n) if backend == "local" else spark_environment(n, warm + counted)
    with opened as (manager, source, send, memory, ready):
        latencies = Latencies()
        before, begin = memory(), time.process_time()
        manager.submit_all(Request(make_flow(i, n), source, latencies.sink()) for i in range(n))
        submitted = 1e3 * (time.process_time() - begin) / n
        ready()
        with publish_paced(send) as started:
            latencies.begin = started
            time.sleep(warm)
            since, messages = time.time(), _messages(manager)
            time.sleep(counted)
            took, messages = time.time() - since, _messages(manager) - messages
            bytes_each = (memory() - before) / n
        found = latencies.since(since)
    name = f"reuse/many/{n}"
    p50, p95 = np.quantile(found, [0.5, 0.95]) if found.size else (np.inf, np.inf)
    what = f"{RATE} messages/s, results of {counted:g} s; p50 {p50:.0f} ms"
    yield Measure(f"{name}/p95-ms", float(p95), "ms", what, 1000, at_most=True)
    kept_up = f"{messages / took:.0f} messages/s, each for {n} dataflows"
    yield Measure(f"{name}/records-per-s", messages / took * n, "records/s", kept_up, 0.95 * RATE * n)
    held = "memory of the process" if backend == "local" else "additional memory of driver, JVM and workers against one"
    yield Measure(f"{name}/bytes-per-dataflow", bytes_each, "bytes", held, 1 << 20, at_most=True)
    yield Measure(f"{name}/submit-ms", submitted, "ms", "CPU time of a submission")


def _messages(manager: ReuseManager) -> int:
    """Return the number of messages that the dataflows have read."""
    return sum(n for step, n in manager.stats()["records"].items() if step.startswith("readings."))


#: Manager, source, function that sends messages, function for the memory in use, and function that waits until the
#: source receives messages.
Environment = tuple[ReuseManager, MQTTSource, Callable[[list[bytes]], None], Callable[[], float], Callable[[], None]]


@contextmanager
def local_environment(n: int) -> Iterator[Environment]:
    """Set up a broker and a back end in this process."""
    lines = [{"payload": b'{"sensor": "s", "value": 90}', "event_time": None}] * 100
    make_flow(0, n).run(MemorySource(lines, RAW), sinks=Latencies().sink())  # loads all code
    with tempfile.TemporaryDirectory() as place:
        url = f"memory://many-{n}"
        broker = MemoryBroker.of(url)
        source = MQTTSource(url=url, topics=(TOPIC,), client_id="many", spool=str(Path(place) / "spool"))
        source.open()
        backend = LocalBackend(epoch="1s")
        manager = ReuseManager(backend)
        gc.collect()

        def send(messages: list[bytes]) -> None:
            for message in messages:
                broker.publish(TOPIC, message)

        yield manager, source, send, _resident_memory, backend.start
        manager.close()


@contextmanager
def spark_environment(n: int, first_s: float) -> Iterator[Environment]:
    """Set up a Mosquitto and a session on two cores that has run one of the dataflows before.

    That dataflow runs as long as all will: over its first fifty micro-batches the JVM grows by a hundred megabytes,
    however few dataflows there are.
    """
    require_extra("this benchmark", "mqtt", "paho.mqtt.client")
    from riot_ops.reuse.spark.spark_backend import SparkBackend

    with (
        temporary_folder() as place,
        spark_session(2) as spark,
        Mosquitto() as broker,
        ProcessTree(every="1s") as tree,
    ):
        connection = MQTTConnection(url=broker.url, client_id="many-out")

        def opened(name: str) -> tuple[ReuseManager, MQTTSource, Callable[[], None]]:
            manager = ReuseManager(SparkBackend(spark, place / name, trigger=TRIGGER))
            spool = place / f"{name}-spool"
            source = MQTTSource(url=broker.url, topics=(TOPIC,), client_id=name, spool=str(spool))
            return (
                manager,
                source,
                lambda: _wait_for((spool / "subscription.json").exists, "the source has not subscribed"),
            )

        def send(messages: list[bytes]) -> None:
            given = [OutgoingMessage(TOPIC, one) for one in messages]
            open_publisher(connection).publish(given, qos=1, retain=False, expiry_s=None)

        def memory() -> float:
            return float(tree.usage().memory[-3:].mean())

        manager, source, ready = opened("one")
        first = Latencies()
        manager.submit(make_flow(0, n), source, first.sink())
        ready()
        with publish_paced(send):
            _wait_for(lambda: first.since(0).size > 0, "no result has arrived")
            time.sleep(first_s)
            used = memory()
        manager.close()
        manager, source, ready = opened("many")
        yield manager, source, send, lambda: memory() if manager.names else used, ready
        manager.close()


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds that depends on another process."""
    limit = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > limit:
            raise ConnectorError(f"{what} within {TIMEOUT_S:g} s")
        time.sleep(0.05)


def make_flow(i: int, n: int) -> Dataflow:
    """Create dataflow ``i`` of ``n``."""
    flow = Dataflow(f"d{i}")
    lines = flow.source("readings").to(
        t.ParseJSON(schema={"sensor": ("sensor", "string"), "value": ("value", "double")}), id="parse"
    )
    passing = lines.to(t.RangeFilter(by=None, bounds={"value": (25 + 50 * i / n, 1000)}), id="filter")
    return flow.sink("out", passing.to(t.MovingAverage(by=("sensor",), window=10), id="average"))


@contextmanager
def publish_paced(send: Callable[[list[bytes]], None]) -> Iterator[float]:
    """Publish at the pace; yield the time at which the first message is due."""
    over = threading.Event()
    begin = time.time()
    values = np.random.default_rng(0).uniform(0, 100, 1 << 16).round(3).tolist()

    def publish() -> None:
        i = 0
        while not over.is_set():
            due = range(i, int((time.time() - begin) * RATE))
            if due:
                send([b'{"sensor": "s%d", "value": %.3f}' % (k % SENSORS, values[k % len(values)]) for k in due])
            i = max(i, due.stop)
            time.sleep(0.002)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield begin
    finally:
        over.set()
        thread.join()


class Latencies:
    """Arrival times of results and the numbers of their messages."""

    def __init__(self) -> None:
        self.begin = 0.0
        self._found: list[tuple[float, np.ndarray]] = []

    def sink(self) -> CallbackSink:
        """Create a sink that records arrivals."""
        return CallbackSink(self._take)

    def _take(self, stream: str, batch: pa.RecordBatch) -> None:
        self._found.append(
            (time.time(), int_column(batch.column("seq")).copy())
        )  # a copy does not keep the batch alive

    def since(self, time_s: float) -> np.ndarray:
        """Return the latencies in ms of the results that arrived since a time."""
        late = [1e3 * (came - self.begin - seq / RATE) for came, seq in self._found if came >= time_s]
        return np.concatenate(late) if late else np.empty(0)


def _resident_memory() -> float:
    return float(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE)
