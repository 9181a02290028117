"""A Spark cluster of local processes that a benchmark can kill."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from riot_bench.harness.child_process import die_with_parent
from riot_bench.harness.requirements import require_extra
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.spark.session import LIGHT_JVM
from riot_ops.testing.services import free_port

__all__ = [
    "Cluster",
    "cluster_session",
    "completed_tasks",
    "executor_addresses",
    "idle_executors",
    "kill_executor",
    "local_cluster_master",
    "wait_for_executors",
]

#: Seconds between the termination signal and the kill.
SHUTDOWN_S = 5.0
#: Seconds within which the workers must have registered.
START_S = 60.0
#: Memory of a worker and of its executor.
WORKER_MEMORY, EXECUTOR_MEMORY = "1g", "768m"
#: How long a stateful task waits for the executor that held its state, and then for its machine, even if both are lost.
#: Spark's default is three seconds.
LOCALITY_WAIT = "100ms"
#: The first tasks of a new executor take seconds because it starts its Python processes. Idle executors run copies of
#: these tasks meanwhile; Spark places such a copy on another machine only.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "3",
    "spark.speculation.minTaskRuntime": "500ms",
}


class Cluster:
    """Spark's standalone master and workers of one core each, on loopback.

    The processes are those of the installed PySpark, each in its own process group. Leaving the ``with`` block ends
    all of them, also after an error.

    Parameters
    ----------
    workers : int, >= 1

    Attributes
    ----------
    url : str
        Address of the master.
    pids : dict of str to int
        Running processes by name: ``master``, ``worker-0`` …

    Examples
    --------
    ::

        with Cluster(2) as cluster, cluster_session(cluster.url, 2) as spark:
            cluster.kill("worker-1")
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ConfigError(f"workers must be >= 1, got {workers}")
        self.workers = workers
        self.url = ""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._hosts: dict[str, str] = {}
        self._started = 0

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._running.items()}

    def __enter__(self) -> Self:
        require_extra("a cluster", "spark", "pyspark")
        self._folder = Path(tempfile.mkdtemp(prefix="riot_ops-cluster-"))
        try:
            port = free_port()
            self.url = f"spark://127.0.0.1:{port}"
            own = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
            self._start("master", "org.apache.spark.deploy.master.Master", own)
            self._wait_for_port(port)
            for _ in range(self.workers):
                self.add()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def add(self) -> str:
        """Start another worker and return its name."""
        name = f"worker-{self._started}"
        self._started += 1
        host = self._hosts[name] = _loopback_address(self._started)
        own = ["--host", host, "--cores", "1", "--memory", WORKER_MEMORY, "--webui-port", "0"]
        folder = ["--work-dir", str(self._folder / name)]
        self._start(name, "org.apache.spark.deploy.worker.Worker", [*own, *folder, self.url], host)
        return name

    def worker_at(self, host: str) -> str:
        """Return the name of the running worker with an address; raise if there is none, or several."""
        found = [name for name, its in self._hosts.items() if its == host and name in self._running]
        if len(found) != 1:
            raise RiotError(f"{len(found)} workers have the address {host}")
        return found[0]

    def kill(self, name: str) -> None:
        """Kill a process and its executors immediately, as if a machine were lost."""
        if name not in self._running:
            raise ConfigError(f"name must be one of {', '.join(self._running)}, got {name!r}")
        self._end(self._running.pop(name), signal.SIGKILL)

    def crash(self, name: str) -> None:
        """Kill the executors of a worker but not the worker itself, so that Spark replaces them."""
        if not name.startswith("worker-") or name not in self._running:
            workers = ", ".join(one for one in self._running if one.startswith("worker-"))
            raise ConfigError(f"name must be one of {workers}, got {name!r}")
        if not _kill_executors(self._running[name].pid):
            raise RiotError(f"{name} has no executor")

    def close(self) -> None:
        """End all processes."""
        running, self._running = list(self._running.values()), {}
        for process in reversed(running):
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + SHUTDOWN_S
        while time.monotonic() < until and any(process.poll() is None for process in running):
            time.sleep(0.05)
        for process in running:  # its group may outlive it
            self._end(process, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self, name: str) -> str:
        """Return the output of a process."""
        return (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    @staticmethod
    def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        _signal(process, how)
        process.wait()

    def _start(self, name: str, main_class: str, arguments: list[str], host: str = "127.0.0.1") -> None:
        from riot_ops.spark.launcher import find_java

        find_java()
        command = [*die_with_parent(), str(_spark_home() / "bin" / "spark-class"), main_class, *arguments]
        own = {"SPARK_HOME": str(_spark_home()), "SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": LIGHT_JVM}
        environment = {**os.environ, "SPARK_LOCAL_IP": host, **own}
        with open(self._folder / f"{name}.log", "wb") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _wait_for_port(self, port: int) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self._running["master"].poll() is not None:
                break
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise RiotError(f"Spark's master did not start: {self.log('master')[-500:]}")


def _signal(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)


def _spark_home() -> Path:
    """Return the Spark home that sessions of riot_ops use, so that Python workers need not read the module archive."""
    import pyspark

    from riot_ops.spark.launcher import linked_spark_home

    with linked_spark_home():
        return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _loopback_address(number: int) -> str:
    """Return a separate loopback address for each worker, so that Spark treats workers as different machines."""
    host = f"127.0.0.{2 + number % 250}"
    with socket.socket() as one:
        try:
            one.bind((host, 0))
        except OSError:
            return "127.0.0.1"
    return host


@contextmanager
def cluster_session(master: str, executor_count: int, *, copies: bool = False) -> Iterator[Any]:
    """Open a session on a cluster, wait for its executors, and stop the session at the end.

    Parameters
    ----------
    master : str
        Address of a :class:`Cluster`, or one from :func:`local_cluster_master`.
    executor_count : int
    copies : bool, default False
        Whether idle executors run copies of slow tasks (speculation); for stateless dataflows.
    """
    from riot_bench.harness.session import spark_session

    settings = {
        **(SPECULATION if copies else {}),
        "spark.master": master,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": LIGHT_JVM,
        "spark.locality.wait": LOCALITY_WAIT,
    }
    with spark_session(executor_count, settings=settings) as spark:
        wait_for_executors(spark, executor_count)
        yield spark


def local_cluster_master(workers: int) -> str:
    """Return the master address for one-core workers whose executors are child processes of the driver.

    >>> local_cluster_master(2)
    'local-cluster[2,1,1024]'
    """
    return f"local-cluster[{workers},1,1024]"


def executor_addresses(spark: Any) -> set[str]:
    """Return the addresses of a session's driver and executors; a replaced executor has a new address."""
    status = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 (no public word)
    return set(status.keySet().mkString(" ").split())


def idle_executors(spark: Any) -> list[str]:
    """Return the ids of the executors that have not completed any task."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)  # noqa: SLF001 (no public word)
    every = [found.apply(number) for number in range(found.size())]
    return [one.id() for one in every if one.id() != "driver" and not one.completedTasks()]


def completed_tasks(spark: Any) -> dict[str, int]:
    """Return the number of completed tasks of each executor by its address (``host:port``)."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)  # noqa: SLF001 (no public word)
    every = [found.apply(number) for number in range(found.size())]
    return {one.hostPort(): int(one.completedTasks()) for one in every if one.id() != "driver"}


def wait_for_executors(spark: Any, count: int, limit_s: float = START_S) -> None:
    """Wait until ``count`` executors have registered; raise if they have not after ``limit_s`` seconds."""
    until = time.monotonic() + limit_s
    while (there := len(executor_addresses(spark)) - 1) != count:
        if time.monotonic() > until:
            raise RiotError(f"{there} executors instead of {count} after {limit_s:g} s")
        time.sleep(0.1)


def kill_executor(spark: Any) -> int:
    """Kill an executor that is a child process of this session's JVM (``local-cluster``) and return its process id."""
    for killed in _kill_executors(spark.sparkContext._gateway.proc.pid, limit=1):  # noqa: SLF001
        return killed
    raise RiotError("the executors of this session are not separate processes")


def _kill_executors(above: int, limit: int | None = None) -> list[int]:
    """Kill up to ``limit`` executors below a process and return their process ids."""
    import psutil

    found = list[int]()
    for process in psutil.Process(above).children(recursive=True):
        with suppress(psutil.Error):  # the process has just ended
            if len(found) != limit and any("CoarseGrainedExecutorBackend" in part for part in process.cmdline()):
                process.kill()
                found.append(int(process.pid))
    return found
