"""Apache Kafka from jars, in KRaft mode: one broker or several, each a process that a test can kill."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from riot_ops.core.errors import ConnectorError
from riot_ops.testing.services import START_SECONDS, Service, free_port, program

#: Any text of 22 characters of URL-safe Base64 names a cluster.
CLUSTER_ID = "riotOpsTestsOfItsOwn01"


def java() -> str:
    """Return the program that runs jars."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else program("java", "Debian: apt-get install openjdk-17-jre-headless")


class Broker(Service):
    """A broker that is a controller too; ``voters`` are the ids and ports of all controllers.

    With ``certificates``, a folder of ``write_certificates``, it has a further listener (``secure``) with TLS that asks
    for certificates and for the login of a user, whose name and password are ``login``.
    """

    name = "kafka"

    def __init__(
        self,
        jars: Path,
        number: int,
        port: int,
        voters: dict[int, int],
        certificates: Path | None = None,
        login: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__()
        self._certificates = certificates
        self._login = login
        self.secure = f"localhost:{free_port()}"
        self._jars = jars
        self._number = number
        self._port = port
        self._voters = voters

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    def prepare(self) -> None:
        copies = len(self._voters)
        lines = [
            "process.roles=broker,controller",
            f"node.id={self._number}",
            "controller.quorum.voters=" + ",".join(f"{n}@127.0.0.1:{port}" for n, port in self._voters.items()),
            f"listeners=PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._voters[self._number]}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.folder}/data/logs",
            f"offsets.topic.replication.factor={copies}",
            f"transaction.state.log.replication.factor={copies}",
            f"transaction.state.log.min.isr={min(copies, 2)}",
            f"default.replication.factor={copies}",
            f"min.insync.replicas={min(copies, 2)}",
            "offsets.topic.num.partitions=3",
            "transaction.state.log.num.partitions=3",
            "group.initial.rebalance.delay.ms=0",
            "auto.create.topics.enable=false",
            f"broker.session.timeout.ms={3000 if copies > 1 else 18000}",  # one that is alone is missed by none
            "broker.heartbeat.interval.ms=500",
            "controlled.shutdown.enable=false",
            "log.retention.ms=-1",  # tests write old times, and a look for expired ones comes twice a second
            "log.retention.check.interval.ms=500",
            "log.cleaner.backoff.ms=200",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
        ]
        more = []
        if self._certificates is not None:
            lines = [*lines, *self._secure_lines()]
            user, password = self._login
            more = ["--add-scram", f"SCRAM-SHA-256=[name={user},password={password}]"]
        self._config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config), *more]
        subprocess.run(command, check=True, capture_output=True)

    def _secure_lines(self) -> list[str]:
        plain = f"127.0.0.1:{self._port}"
        user, password = self._login
        module = "org.apache.kafka.common.security"
        listener = "listener.name.secure"
        return [
            f"listeners=PLAINTEXT://{plain},CONTROLLER://127.0.0.1:{self._voters[self._number]},SECURE://{self.secure}",
            f"advertised.listeners=PLAINTEXT://{plain},SECURE://{self.secure}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
            f"{listener}.ssl.keystore.type=PEM",
            f"{listener}.ssl.keystore.location={self._certificates}/both.pem",
            f"{listener}.ssl.truststore.type=PEM",
            f"{listener}.ssl.truststore.location={self._certificates}/ca.crt",
            f"{listener}.ssl.client.auth=required",
            f"{listener}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            f'{listener}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required user_{user}="{password}";',
            f"{listener}.scram-sha-256.sasl.jaas.config={module}.scram.ScramLoginModule required;",
        ]

    def _java(self) -> list[str]:
        options = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
        return [java(), *options, "-cp", f"{self._jars}/*"]

    def command(self) -> Sequence[str]:
        return [*self._java(), "kafka.Kafka", str(self._config)]

    def ports(self) -> Sequence[int]:
        return ()  # they answer once most brokers of the cluster have started

    def urls(self) -> dict[str, str]:
        return {"Kafka": f"127.0.0.1:{self._port}"}

    def stop(self) -> None:
        """Kill it: an orderly end takes seconds."""
        self.kill()


class KafkaCluster:
    """Brokers of one cluster; use it in a ``with`` block."""

    def __init__(self, jars: Path, brokers: int = 1, **secure: Any) -> None:
        voters = {n + 1: free_port() for n in range(brokers)}
        ports = {n: free_port() for n in voters}
        self.servers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self.brokers = [Broker(jars, n, ports[n], voters, **secure) for n in voters]

    def __enter__(self) -> Self:
        for one in self.brokers:
            one.start()
        until = time.monotonic() + START_SECONDS
        while any(_refuses(server) for server in self.servers.split(",")):
            if time.monotonic() > until:
                self.__exit__()
                raise ConnectorError(f"the brokers {self.servers} do not start")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.brokers:
            one.close()


def _refuses(server: str) -> bool:
    host, _, port = server.partition(":")
    with socket.socket() as one:
        return one.connect_ex((host, int(port))) != 0
