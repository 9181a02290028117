"""A standalone Spark cluster for tests, whose workers see neither the driver's files nor each other's."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import fcntl
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from riot_ops.core.checks import check_count
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import write_atomic
from riot_ops.testing.machines import Machine, Network, can_isolate_networks, remove_abandoned
from riot_ops.testing.services import free_port, program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCluster"]

#: Command-line word of the processes that run tasks.
EXECUTOR = "CoarseGrainedExecutorBackend"
START_SECONDS = 180.0
REGISTERED = "Successfully registered with master"
#: Time between two looks at the processes of a cluster.
WATCH_SECONDS = 1.0
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
        Memory that each worker has for the heaps of executors, such as ``1g``; :meth:`session` asks for all of it.
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
        if not re.fullmatch(r"[1-9]\d*[kmgt]", memory.lower()):
            raise ConfigError(f"memory must be a size such as '1g' or '768m', got {memory!r}")
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
            self.url = f"spark://{self.host}:{free_port()}"
            shutil.rmtree(self._recovery, ignore_errors=True)  # of an earlier cluster in this folder
            self.start_master()
            for _ in range(self.workers):
                self.machines.append(self._machine(run))
                self.start_worker(-1, wait=False)
            for machine in self.machines:
                self._wait(self._log(machine.folder.name), REGISTERED)
        except BaseException:
            self.close()
            raise
        return self

    def _machine(self, run: str) -> Machine:
        name = f"worker{len(self.machines) + 1}"
        return Machine(
            f"{run}-{name}",
            self.folder / name,
            hidden=[self.folder],
            shared=[self.shared],
            installed=self._installed,
            network=self._network,
        )

    def start_master(self) -> None:
        """Start the master, also again after it was killed: it has the same address, and knows workers and jobs."""
        assert self._master is not None
        self._log("master").unlink(missing_ok=True)
        port = self.url.rpartition(":")[2]
        options = ["--host", self.host, "--port", port, "--webui-port", str(free_port())]
        self._start(self._master, "master.Master", options, self.host)
        self._wait(self._log("master"), "I have been elected leader")

    def kill_master(self) -> None:
        """Kill the master; queries continue with the executors that they have."""
        assert self._master is not None
        self._master.kill()

    def add_worker(self) -> None:
        """Start one more worker; a query that runs gets an executor there."""
        self.machines.append(self._machine(self.machines[0].name.rpartition("-")[0]))
        self.start_worker(-1)

    def start_worker(self, number: int, *, wait: bool = True) -> None:
        """Start a worker, also again after it was killed; workers count from 0."""
        machine = self.machines[number]
        log = self._log(machine.folder.name)
        log.unlink(missing_ok=True)
        options = ["--host", machine.host, "--port", str(free_port()), "--webui-port", str(free_port())]
        options += ["-c", str(self.cores), "-m", self.memory, "-d", str(machine.folder / "work"), self.url]
        self._start(machine, "worker.Worker", options, machine.host)
        if wait:
            self._wait(log, REGISTERED)

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

    def processes(self) -> dict[str, bool]:
        """Return whether the process of the master, and of each worker, runs."""
        machines = [*([self._master] if self._master else []), *self.machines]
        return {machine.folder.name: bool(machine.pids("org.apache.spark.deploy")) for machine in machines}

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

    @property
    def _recovery(self) -> Path:
        return self.folder / "master" / "recovery"

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
            # REST: its port is the same for all clusters of a computer. A port that is taken must fail: others
            # know it. A master that is started again finds workers and jobs in the folder
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false -Dspark.port.maxRetries=0 "
            "-Dspark.deploy.recoveryMode=FILESYSTEM",
            "SPARK_WORKER_OPTS": "-Dspark.port.maxRetries=0",
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        }
        if "JAVA_HOME" in os.environ:
            environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        if name == "master.Master":
            # as a file: options of the environment are divided at blanks
            settings = self.folder / "master" / "master.conf"
            settings.write_text(f"spark.deploy.recoveryDirectory {self._recovery}\n", encoding="utf-8")
            options = [*options, "--properties-file", str(settings)]
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
    parser = argparse.ArgumentParser(prog="cluster.sh start", description=main.__doc__)
    parser.add_argument("folder", type=Path, help="gets logs, the address and the folder that all workers share")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--memory", default="1g", help="of each worker, for the heaps of executors")
    parser.add_argument("--remove", type=int, metavar="PID", help="remove what a killed cluster has left, and end")
    given = parser.parse_args()
    if given.remove is not None:
        remove_abandoned(f"riot-{given.remove}-")
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        cluster = SparkCluster(given.folder, workers=given.workers, cores=given.cores, memory=given.memory)
        with hold(cluster.folder), cluster:
            shown = ""
            while True:
                if (text := _status(cluster)) != shown:
                    write_atomic(cluster.folder / "url", text.encode())
                    shown = text
                time.sleep(WATCH_SECONDS)
    except (ConfigError, ConnectorError) as error:
        sys.exit(f"cluster: {error}")


def _end(*_: object) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the end
    sys.exit(0)


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep other clusters out of a folder."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"a cluster runs in {folder} already") from None
        yield


def _status(cluster: SparkCluster) -> str:
    runs = cluster.processes()
    lines = [("master", cluster.url), ("driver", cluster.host), ("shared", str(cluster.shared))]
    lines += [(machine.folder.name, machine.host) for machine in cluster.machines]
    return "".join(f"{name}: {value}{'' if runs.get(name, True) else ' (ended)'}\n" for name, value in lines)


if __name__ == "__main__":
    main()
