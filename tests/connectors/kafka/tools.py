"""Bare clients of confluent-kafka, which know nothing of riot_ops."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import riot_ops as ro

#: One record per batch: the broker of the tests knows the end of a partition by its batches.
SINGLE = {"batch.num.messages": 1, "linger.ms": 0}


class Cluster:
    """What a test does with a broker beside riot_ops."""

    #: Whether consumers of committed messages do not get those of aborted transactions, as Kafka promises.
    hides_aborted = False

    def __init__(self, servers: str, **settings: Any) -> None:
        self.servers = servers.split(",")
        self.settings = {"bootstrap.servers": servers, "log_level": 0, **settings}
        self.admin = AdminClient(self.settings)

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        one = NewTopic(name, partitions, config={k.replace("_", "."): v for k, v in config.items()})
        try:
            self.admin.create_topics([one])[name].result(20)
        except KafkaException as error:  # tansu's answer may be damaged, although the topic is there
            if error.args[0].code() != KafkaError._BAD_MSG:
                raise
        until(lambda: name in self.admin.list_topics(timeout=10).topics)
        return name

    def grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(20)

    def produce(self, topic: str, values: Iterable[Any], *, batched: bool = False, **options: Any) -> None:
        """Produce values; each option is one value for all, or a function of the value."""
        producer = Producer(self.settings | ({} if batched else SINGLE))
        for value in values:
            given = {name: one(value) if callable(one) else one for name, one in options.items()}
            payload = value if value is None or isinstance(value, bytes) else str(value)
            producer.produce(topic, payload, **given)
        assert producer.flush(20) == 0

    def read(self, topic: str, n: int, partitions: int = 1, seconds: float = 20.0, **settings: Any) -> list[Any]:
        """Return the first n messages of a topic, or all if there are fewer."""
        consumer = Consumer(
            self.settings | {"group.id": "bare", "enable.auto.commit": False, "enable.partition.eof": True} | settings
        )
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        found, ended, end = [], set(), time.monotonic() + seconds
        while len(found) < n and len(ended) < partitions and time.monotonic() < end:
            for message in consumer.consume(n, 0.2):
                if message.error() is None:
                    found.append(message)
                else:
                    ended.add(message.partition())
        consumer.close()
        return found


class TLSProxy:
    """Takes connections with TLS, and passes them on to a port without.

    Parameters
    ----------
    certificates : Path
        Folder with ``ca.crt``, ``server.crt`` and ``server.key``.
    client_authority : Path, optional
        File with the authority of the certificates that clients must have; by default they need none.
    """

    def __init__(self, certificates: Path, client_authority: Path | None = None) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        if client_authority is not None:
            self._context.load_verify_locations(client_authority)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._server = socket.create_server(("127.0.0.1", 0))
        self.servers = f"localhost:{self._server.getsockname()[1]}"
        self.target = ("127.0.0.1", 0)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            near = self._context.wrap_socket(plain, server_side=True)
            far = socket.create_connection(self.target)
            threading.Thread(target=self._pump, args=(far, near), daemon=True).start()
            self._pump(near, far)

    def _pump(self, a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(65_536):
                b.sendall(data)
        b.close()


def until(condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def read_all(source, *, limit: int | None = None, splits: int = 1) -> list[dict[str, Any]]:
    """Return the records of a source as planned ranges, read by themselves."""
    start = source.initial()
    end = source.latest(start, limit)
    rows = [row for split in source.splits(start, end, splits) for b in source.read(split) for row in b.to_pylist()]
    source.close()
    return rows


def copy_flow(source, name: str = "copy") -> ro.Dataflow:
    """A dataflow that passes the records of a source on, as the stream ``raw``."""
    flow = ro.Dataflow(name)
    raw = flow.source("raw", schema=source.schema)
    flow.sink("out", raw)
    return flow
