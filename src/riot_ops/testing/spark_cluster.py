"""A standalone Spark cluster for tests, whose workers see neither the driver's files nor each other's."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from riot_ops.core.checks import check_count
from riot_ops.core.errors import ConnectorError
from riot_ops.testing.machines import Machine, Network, can_isolate_networks
from riot_ops.testing.services import free_port, program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCluster"]

#: Command-line word of the processes that run tasks.
EXECUTOR = "CoarseGrainedExecutorBackend"
START_SECONDS = 180.0
#: Small and quick to start: the machines of a test share its cores.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k"


class SparkCluster:
    """A standalone Spark cluster of separate processes; use it in a ``with`` block.

    Each worker runs on a :class:`~riot_ops.testing.machines.Machine` of its own: with its own working, temporary and
    cache folders, which neither the driver nor the other workers see, with its own copy of riot_ops, and, where root
    runs it, in a network namespace of its own. The temporary folders of the driver are hidden from the workers.

    Parameters
    ----------
    folder : Path, optional
        Folder for logs and the machines' folders; by default a temporary one that ``close`` removes.
    workers : int, default 2
        Number of workers.
    cores : int, default 1
        Cores of each worker.
    memory : str, default "768m"
        Memory of each worker's executor, such as ``1g``.
    installed : bool, default True
        Whether the workers have riot_ops; otherwise jobs must bring it (``spark.archives``).
    network : bool, optional
        Whether each worker has a network namespace of its own; by default where that is possible.

    Attributes
    ----------
    url : str
        Address of the master.
    host : str
        Address of this computer, for the driver and for servers that workers reach.
    shared : Path
        A folder that the driver and all workers see, as a mounted volume.
    machines : list of Machine
        Those of the workers.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "768m",
        installed: bool = True,
        network: bool | None = None,
    ) -> None:
        check_count(workers=workers, cores=cores)
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="riot_ops-cluster-")) if folder is None else folder.absolute()
        self.shared = self.folder / "shared"
        self.shared.mkdir(parents=True, exist_ok=True)
        self.workers, self.cores, self.memory = workers, cores, memory
        self._installed = installed
        self._wants_network = can_isolate_networks() if network is None else network
        self._network: Network | None = None
        self._master: Machine | None = None
        self.machines: list[Machine] = []
        self.host = self.url = ""
        atexit.register(self.close)

    def start(self) -> Self:
        """Start master and workers, and wait until the workers have registered."""
        from riot_ops.spark.launcher import find_java

        program("bash", "Debian: apt-get install bash")
        find_java()
        run = f"riot-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        try:
            self._network = Network() if self._wants_network else None
            self.host = "127.0.0.1" if self._network is None else self._network.host
            self._master = Machine(f"{run}-master", self.folder / "master")
            port, web = free_port(), free_port()
            self.url = f"spark://{self.host}:{port}"
            options = ["--host", self.host, "--port", str(port), "--webui-port", str(web)]
            self._start(self._master, "master.Master", options, self.host)
            self._wait(self._log("master"), "I have been elected leader")
            for number in range(1, self.workers + 1):
                name = f"worker{number}"
                self.machines.append(
                    Machine(
                        f"{run}-{name}",
                        self.folder / name,
                        hidden=[self.folder],
                        shared=[self.shared],
                        installed=self._installed,
                        network=self._network,
                    )
                )
                self.start_worker(number - 1, wait=False)
            for number in range(1, self.workers + 1):
                self._wait(self._log(f"worker{number}"), "Successfully registered with master")
        except BaseException:
            self.close()
            raise
        return self

    def start_worker(self, number: int, *, wait: bool = True) -> None:
        """Start a worker, also again after it was killed; workers count from 0."""
        machine = self.machines[number]
        log = self._log(machine.folder.name)
        log.unlink(missing_ok=True)
        options = ["--host", machine.host, "--port", str(free_port()), "--webui-port", str(free_port())]
        options += ["-c", str(self.cores), "-m", "8g", "-d", str(machine.folder / "work"), self.url]
        self._start(machine, "worker.Worker", options, machine.host)
        if wait:
            self._wait(log, "Successfully registered with master")

    def kill_worker(self, number: int) -> None:
        """Kill all processes of a worker's machine at once."""
        self.machines[number].kill()

    def kill_executor(self, number: int) -> int:
        """Kill the executors of a worker, which starts others; returns their number."""
        return self.machines[number].kill(EXECUTOR)

    def session(self, settings: Mapping[str, str] | None = None) -> SparkSession:
        """Return a session of :func:`riot_ops.spark.session` whose driver is this process."""
        from riot_ops.spark import session

        return session(
            self.workers * self.cores,
            memory="1g",
            settings={
                "spark.master": self.url,
                "spark.driver.host": self.host,
                "spark.driver.bindAddress": self.host,
                "spark.executor.memory": self.memory,
                "spark.executor.cores": str(self.cores),
                "spark.executor.extraJavaOptions": JAVA_OPTIONS,
                "spark.locality.wait": "100ms",
                **(settings or {}),
            },
        )

    @property
    def separate_networks(self) -> bool:
        """Whether each worker has a network namespace of its own."""
        return self._network is not None

    def outputs(self) -> str:
        """Return what the executors and their Python processes have written."""
        files = sorted(self.folder.glob("worker*/work/app-*/*/std*"))
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)

    def close(self) -> None:
        """End all processes and remove the temporary folder; may be called twice."""
        for machine in [*self.machines, *([self._master] if self._master else [])]:
            machine.stop()
        self.machines, self._master = [], None
        if self._network is not None:
            self._network.close()
            self._network = None
        atexit.unregister(self.close)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _start(self, machine: Machine, name: str, options: list[str], host: str) -> None:
        import pyspark

        home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
        environment = {
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            # its port is the same for all clusters of a computer
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        }
        if "JAVA_HOME" in os.environ:
            environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *options]
        machine.start(command, environment, self._log(machine.folder.name))

    def _wait(self, log: Path, text: str) -> None:
        """Wait until a log contains a text."""
        until = time.monotonic() + START_SECONDS
        while True:
            content = ""
            with contextlib.suppress(FileNotFoundError):
                content = log.read_text(encoding="utf-8", errors="replace")
            if text in content:
                return
            machine = next((m for m in [*self.machines, self._master] if m and m.folder.name == log.stem), None)
            ended = machine is None or machine.processes[-1].poll() is not None
            if ended or time.monotonic() > until:
                raise ConnectorError(f"the cluster's {log.stem} does not start:\n{content[-2000:]}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> None:
    """Run a cluster until SIGTERM; ``tools/cluster.sh`` starts and stops it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="gets logs, the address and the folder that all workers share")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--memory", default="768m", help="of each worker's executor")
    given = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    cluster = SparkCluster(given.folder, workers=given.workers, cores=given.cores, memory=given.memory)
    with cluster:
        lines = [f"master: {cluster.url}", f"driver: {cluster.host}", f"shared: {cluster.shared}"]
        lines += [f"{machine.folder.name}: {machine.host}" for machine in cluster.machines]
        (given.folder / "url").write_text("\n".join(lines) + "\n", encoding="utf-8")
        ended.wait()


if __name__ == "__main__":
    main()
