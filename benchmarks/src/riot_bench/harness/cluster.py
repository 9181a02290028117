"""A Spark cluster of processes on this machine, of which some may be killed."""

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

from riot_bench.harness.data import needs
from riot_bench.harness.jobs import with_us
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.spark.session import LIGHT
from riot_ops.testing.services import free_port

__all__ = ["Cluster", "addresses", "cluster_session", "cold", "crashing", "kill_executor", "wait_for_executors"]

#: A process that is told to end has so many seconds.
GRACE_S = 5.0
#: Workers must be there within so many seconds.
START_S = 60.0
#: Memory of a worker, and of the executor in it.
WORKER, EXECUTOR = "1g", "768m"
#: So long a task with state waits for the executor that had it, and then for its machine, though both be lost: three
#: seconds by Spark's default.
LOCALITY = "100ms"
#: The first tasks of a new executor take seconds, as it starts its Python processes: those that have nothing to do
#: run them meanwhile. Spark gives such a copy to another machine only.
COPIES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "3",
    "spark.speculation.minTaskRuntime": "500ms",
}


class Cluster:
    """Spark's own master and workers, of one core each, on loopback.

    They are those of the installed PySpark, each in a process group of its own. What was started is ended at the end of
    the ``with``, however it comes about.

    Parameters
    ----------
    workers : int, >= 1

    Attributes
    ----------
    url : str
        Of the master.
    pids : dict of str to int
        Processes that run, by name: ``master``, ``worker-0`` …

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
        self._started = 0

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._running.items()}

    def __enter__(self) -> Self:
        needs("a cluster", "spark", "pyspark")
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
        """Start one more worker; returns its name."""
        name = f"worker-{self._started}"
        self._started += 1
        host = _host(self._started)
        own = ["--host", host, "--cores", "1", "--memory", WORKER, "--webui-port", "0"]
        folder = ["--work-dir", str(self._folder / name)]
        self._start(name, "org.apache.spark.deploy.worker.Worker", [*own, *folder, self.url], host)
        return name

    def kill(self, name: str) -> None:
        """Kill a process and its executors at once, as when a machine is lost."""
        if name not in self._running:
            raise ConfigError(f"name must be one of {', '.join(self._running)}, got {name!r}")
        self._end(self._running.pop(name), signal.SIGKILL)

    def crash(self, name: str) -> None:
        """Kill the executors of a worker, and leave the worker: Spark starts others in their place."""
        if not name.startswith("worker-") or name not in self._running:
            workers = ", ".join(one for one in self._running if one.startswith("worker-"))
            raise ConfigError(f"name must be one of {workers}, got {name!r}")
        if not _kill_executors(self._running[name].pid):
            raise RiotError(f"{name} has no executor")

    def close(self) -> None:
        """End all of it."""
        running, self._running = list(self._running.values()), {}
        for process in reversed(running):
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until and any(process.poll() is None for process in running):
            time.sleep(0.05)
        for process in running:  # its group may be left without it
            self._end(process, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self, name: str) -> str:
        """What a process has written."""
        return (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    @staticmethod
    def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        _signal(process, how)
        process.wait()

    def _start(self, name: str, kind: str, arguments: list[str], host: str = "127.0.0.1") -> None:
        from riot_ops.spark.launcher import find_java

        find_java()
        command = [*with_us(), str(_home() / "bin" / "spark-class"), kind, *arguments]
        own = {"SPARK_HOME": str(_home()), "SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": LIGHT}
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


def _home() -> Path:
    """Where sessions of riot_ops start Spark from: its Python processes then read no archive of modules anew."""
    import pyspark

    from riot_ops.spark.launcher import started_from

    with started_from():
        return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _host(number: int) -> str:
    """An address of loopback for each worker, where there are several: Spark takes them for machines of their own."""
    host = f"127.0.0.{2 + number % 250}"
    with socket.socket() as one:
        try:
            one.bind((host, 0))
        except OSError:
            return "127.0.0.1"
    return host


@contextmanager
def cluster_session(master: str, executor_count: int, *, copies: bool = False) -> Iterator[Any]:
    """A session on a cluster, when all executors are there; stopped at the end.

    Parameters
    ----------
    master : str
        Of a :class:`Cluster`, or such as :func:`crashing` gives.
    executor_count : int
    copies : bool, default False
        Whether executors that have nothing to do run the tasks of others that take long: for dataflows without state.
    """
    from riot_bench.harness.micro_batches import spark_session

    settings = {
        **(COPIES if copies else {}),
        "spark.master": master,
        "spark.executor.memory": EXECUTOR,
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": LIGHT,
        "spark.locality.wait": LOCALITY,
    }
    with spark_session(executor_count, settings=settings) as spark:
        wait_for_executors(spark, executor_count)
        yield spark


def crashing(workers: int) -> str:
    """The address of workers of one core each whose executors are processes below the driver's.

    >>> crashing(2)
    'local-cluster[2,1,1024]'
    """
    return f"local-cluster[{workers},1,1024]"


def addresses(spark: Any) -> set[str]:
    """Those of a session's driver and executors; who comes in the place of another has one of its own."""
    status = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 (no public word)
    return set(status.keySet().mkString(" ").split())


def cold(spark: Any) -> list[str]:
    """The executors of a session that have not done any task, by the names that Spark gives them."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)  # noqa: SLF001 (no public word)
    every = [found.apply(number) for number in range(found.size())]
    return [one.id() for one in every if one.id() != "driver" and not one.completedTasks()]


def wait_for_executors(spark: Any, count: int, limit_s: float = START_S) -> None:
    """Wait until there are so many executors; raises where there are not within a time."""
    until = time.monotonic() + limit_s
    while (there := len(addresses(spark)) - 1) != count:
        if time.monotonic() > until:
            raise RiotError(f"{there} executors instead of {count} after {limit_s:g} s")
        time.sleep(0.1)


def kill_executor(spark: Any) -> int:
    """Kill an executor that is a process below this session's JVM, as with ``local-cluster``; returns its id."""
    for killed in _kill_executors(spark.sparkContext._gateway.proc.pid, most=1):  # noqa: SLF001
        return killed
    raise RiotError("this session has no executors in processes of their own")


def _kill_executors(above: int, most: int | None = None) -> list[int]:
    """Kill executors below a process; returns their ids."""
    import psutil

    found = list[int]()
    for process in psutil.Process(above).children(recursive=True):
        with suppress(psutil.Error):  # one that has just ended
            if len(found) != most and any("CoarseGrainedExecutorBackend" in part for part in process.cmdline()):
                process.kill()
                found.append(int(process.pid))
    return found
