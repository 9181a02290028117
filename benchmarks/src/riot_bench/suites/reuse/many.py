"""Many dataflows over one MQTT stream: how late their results are, and what each costs."""

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

from riot_bench.harness.data import needs
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import folder, spark_session
from riot_ops import tasks as t
from riot_ops.connectors.mqtt.client import MqttConnection
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.connectors.mqtt.publisher import Outgoing, publisher
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

__all__ = ["many"]

TOPIC = "readings"
RATE = 500
SENSORS = 50
#: Seconds before it counts, and for which it does, in the full and in the quick form; on Spark, where the JVM compiles
#: what plans a micro-batch over some hundred of these, more before.
WARM, COUNTED = {"local": (10.0, 3.0), "spark": (60.0, 5.0)}, (30.0, 5.0)
#: On Spark: how often queries look for records.
TRIGGER = "0.2 seconds"
PATIENCE_SECONDS = 120.0
PAGE = os.sysconf("SC_PAGE_SIZE")


def many(n: int, quick: bool = False, backend: str = "local") -> Iterator[Measure]:
    """So many dataflows over one subscription, each a filter of its own on one field, and averages by sensor.

    500 messages per second are published in a thread of their own; the latency of a result is from when the message
    that led to it was due to when the dataflow's sink has it. All come as one action.
    """
    warm, counted = WARM[backend][quick], COUNTED[quick]
    opened = in_process(n) if backend == "local" else on_spark(n, warm + counted)
    with opened as (manager, source, send, memory, ready):
        latencies = Latencies()
        before, begin = memory(), time.process_time()
        manager.submit_all(Request(flow(i, n), source, latencies.sink()) for i in range(n))
        submitted = 1e3 * (time.process_time() - begin) / n
        ready()
        with publishing(send) as started:
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
    held = "memory of the process" if backend == "local" else "memory of driver, JVM and workers beyond that for one"
    yield Measure(f"{name}/bytes-per-dataflow", bytes_each, "bytes", held, 1 << 20, at_most=True)
    yield Measure(f"{name}/submit-ms", submitted, "ms", "CPU time of submitting one")


def _messages(manager: ReuseManager) -> int:
    """How many messages the dataflows have taken."""
    return sum(n for step, n in manager.stats()["records"].items() if step.startswith("readings."))


#: A manager, the source, what sends messages to it, the bytes in use, and what waits until the source takes messages.
Setting = tuple[ReuseManager, MQTTSource, Callable[[list[bytes]], None], Callable[[], float], Callable[[], None]]


@contextmanager
def in_process(n: int) -> Iterator[Setting]:
    """A broker and a back end in this process."""
    lines = [{"payload": b'{"sensor": "s", "value": 90}', "event_time": None}] * 100
    flow(0, n).run(MemorySource(lines, RAW), sinks=Latencies().sink())  # which loads all code
    with tempfile.TemporaryDirectory() as place:
        url = f"memory://many-{n}"
        broker = MemoryBroker.of(url)
        source = MQTTSource(url=url, topics=(TOPIC,), client_id="many", spool=str(Path(place) / "spool"))
        source.open()
        backend = LocalBackend(epoch_s=1.0)
        manager = ReuseManager(backend)
        gc.collect()

        def send(messages: list[bytes]) -> None:
            for message in messages:
                broker.publish(TOPIC, message)

        yield manager, source, send, _memory, backend.start
        manager.close()


@contextmanager
def on_spark(n: int, first_s: float) -> Iterator[Setting]:
    """A Mosquitto beside us, and queries in a session on two cores that has run one of the dataflows before.

    That runs for so long as all do: in its first fifty micro-batches the JVM comes to hold a hundred megabytes more,
    however few dataflows there are.
    """
    needs("this benchmark", "mqtt", "paho.mqtt.client")
    from riot_ops.reuse.spark.session import SparkBackend

    with folder() as place, spark_session(2) as spark, Mosquitto() as broker, ProcessTree(every_s=1.0) as tree:
        connection = MqttConnection(url=broker.url, client_id="many-out")

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
            given = [Outgoing(TOPIC, one) for one in messages]
            publisher(connection).publish(given, qos=1, retain=False, expiry_s=None)

        def memory() -> float:
            return float(tree.usage().memory[-3:].mean())

        manager, source, ready = opened("one")
        first = Latencies()
        manager.submit(flow(0, n), source, first.sink())
        ready()
        with publishing(send):
            _wait_for(lambda: first.since(0).size > 0, "no result has come")
            time.sleep(first_s)
            used = memory()
        manager.close()
        manager, source, ready = opened("many")
        yield manager, source, send, lambda: memory() if manager.names else used, ready
        manager.close()


def _wait_for(come: Callable[[], bool], what: str) -> None:
    """Until something has come to be that a process of Spark's does."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while not come():
        if time.monotonic() > limit:
            raise ConnectorError(f"{what} within {PATIENCE_SECONDS:g} s")
        time.sleep(0.05)


def flow(i: int, n: int) -> Dataflow:
    """One of n dataflows."""
    made = Dataflow(f"d{i}")
    lines = made.source("readings").to(
        t.ParseJSON(fields={"sensor": ("sensor", "string"), "value": ("value", "double")}), id="parse"
    )
    passing = lines.to(t.RangeFilter(by=None, bounds={"value": (25 + 50 * i / n, 1000)}), id="filter")
    return made.sink("out", passing.to(t.MovingAverage(by=("sensor",), window=10), id="average"))


@contextmanager
def publishing(send: Callable[[list[bytes]], None]) -> Iterator[float]:
    """Publish at the pace; gives when the first message is due."""
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
    """When results came, and of which messages."""

    def __init__(self) -> None:
        self.begin = 0.0
        self._found: list[tuple[float, np.ndarray]] = []

    def sink(self) -> CallbackSink:
        return CallbackSink(self._take)

    def _take(self, stream: str, batch: pa.RecordBatch) -> None:
        self._found.append((time.time(), int_column(batch.column("seq")).copy()))  # which holds nothing else

    def since(self, time_s: float) -> np.ndarray:
        """Latencies in milliseconds of the results that came from then on."""
        late = [1e3 * (came - self.begin - seq / RATE) for came, seq in self._found if came >= time_s]
        return np.concatenate(late) if late else np.empty(0)


def _memory() -> float:
    return float(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE)
