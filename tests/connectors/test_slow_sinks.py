"""Slow sinks behind sources: the source is asked for no more, what waits is bounded, and nothing is dropped.

The slow HTTP server is in ``test_http_sink.py``, the Kafka source alone in ``kafka/test_source.py``.
"""

from __future__ import annotations

import threading
import time

import psycopg
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import InfluxSink, KafkaSource, MQTTSource, PostgresSink
from riot_ops.testing.services import Postgres, Tansu
from tests.connectors.http_server import Recorder
from tests.connectors.kafka.tools import Cluster, copy_flow
from tests.connectors.mqtt.tools import apply, until

#: Records of a generator, and how many may be read before they are sent: the buffers, an epoch, and the batch of a sink.
RECORDS, WAITING = 60_000, 20_000
BUFFERING = ro.Buffering(capacity=500, queue=1_000)


class Counted:
    """A generator of records that knows how many were asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def records(self):
        for number in range(RECORDS):
            self.asked += 1
            yield {"value": number}


def run(sink) -> int:
    """Run records through a dataflow; returns the largest number that were read and not yet written."""
    given, ahead = Counted(), 0
    sent = 0
    flow = ro.Dataflow("slow")
    flow.source("in", schema={"value": "int64"}).filter("value >= 0", id="kept").to("out")

    def note(rows: int) -> None:
        nonlocal sent, ahead
        ahead = max(ahead, given.asked - sent)
        sent += rows
        time.sleep(0.002)

    flow.run(given.records(), sinks=sink(note), buffering=BUFFERING, batch_size=250, epoch_rows=5_000)
    assert sent == RECORDS
    return ahead


@pytest.mark.long
def test_slow_influx():
    with Recorder() as server:

        class Slow(InfluxSink):
            note = None

            def send_batch(self, stream, batch, label):
                type(self).note(batch.num_rows)
                super().send_batch(stream, batch, label)

        def make(note):
            Slow.note = staticmethod(note)
            return Slow(url=server.url, database="plant", time=None, batch_size=500)

        assert run(make) <= WAITING
    lines = [line for request in server.requests for line in request.body.decode().splitlines()]
    assert len(lines) == RECORDS and max(len(request.body.splitlines()) for request in server.requests) == 500


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.slow  # the other sinks show it in make test
def test_slow_postgres():
    with Postgres(password="pw", options=("fsync=off",)) as server:

        class Slow(PostgresSink):
            note = None

            def writer(self, batch_id, partition):
                inner = super().writer(batch_id, partition)
                copy = inner.write

                def write(stream, batch):
                    type(self).note(batch.num_rows)
                    copy(stream, batch)

                inner.write = write
                return inner

        def make(note):
            Slow.note = staticmethod(note)
            return Slow(url=server.url, credential=ro.Secret("pw"), batch_size=500)

        assert run(make) <= WAITING
        with psycopg.connect(server.url, password="pw") as connection:
            found = connection.execute("SELECT count(*), count(DISTINCT value), max(value) FROM kept").fetchone()
    assert found == (RECORDS, RECORDS, RECORDS - 1)


class Gate:
    """A sink that waits until it is opened, and what was written to it."""

    def __init__(self) -> None:
        self.opened, self.found = threading.Event(), []

    def write(self, stream, batch):
        assert self.opened.wait(60)
        if stream == "raw":
            self.found += [bytes(payload.as_py()[:6]) for payload in batch.column("payload")]


def run_behind(source, gate, waits, **options) -> None:
    """Run a source into a closed gate; ``waits`` checks what waits meanwhile, then the gate is opened."""
    thread = threading.Thread(
        target=lambda: copy_flow(source).run(source, sinks=ro.CallbackSink(gate.write), **options), daemon=True
    )
    thread.start()
    try:
        waits()
    finally:
        gate.opened.set()
    thread.join(60)
    assert not thread.is_alive()


#: Payloads of 24 MB in all, each with its number.
PAYLOADS = [f"{i:06d}".encode() + bytes(99_994) for i in range(240)]
WANTED = [payload[:6] for payload in PAYLOADS]


@pytest.mark.integration
@pytest.mark.long
def test_slow_sink_behind_kafka(monkeypatch):
    """Messages stay at the broker: fetching pauses while few are taken."""
    with Tansu() as broker:
        cluster = Cluster(broker.servers)
        name = cluster.create("slow")
        cluster.produce(name, PAYLOADS)
        source = KafkaSource(servers=broker.servers, topics=name, ending_offsets="latest", max_queued_bytes=1 << 20)
        read, seen = KafkaSource.read, []

        def counted(self, split):
            for batch in read(self, split):
                seen.append(batch.num_rows)
                yield batch

        monkeypatch.setattr(KafkaSource, "read", counted)
        gate = Gate()

        def waits():
            until(lambda: seen)
            time.sleep(0.5)
            assert sum(seen) < 150

        run_behind(source, gate, waits, batch_size=10, epoch_rows=20, buffering=ro.Buffering(capacity=10, queue=20))
    assert gate.found == WANTED


@pytest.mark.integration
@pytest.mark.long
def test_slow_sink_behind_mqtt(mosquitto, tmp_path):
    """Nothing is acknowledged while the spool is full, so the broker keeps what has not come."""
    options = {"client_id": f"slow-{tmp_path.name}", "spool": str(tmp_path / "spool")}
    source = MQTTSource(
        url=mosquitto.url, topics=("slow",), messages=240, max_spool_bytes=4 << 20, max_in_flight=20, **options
    )
    source.open()
    out, _ = apply(t.PublishMQTT(url=mosquitto.url, topic="slow"), pa.RecordBatch.from_pydict({"payload": PAYLOADS}))
    assert out.num_rows == 240
    gate = Gate()

    def waits():
        until(lambda: any((tmp_path / "spool").glob("*.spool")))
        time.sleep(0.5)
        assert sum(f.stat().st_size for f in (tmp_path / "spool").glob("*.spool")) < 3 * (4 << 20)

    run_behind(source, gate, waits, batch_size=10, epoch_rows=20)
    source.close()
    assert gate.found == WANTED
