"""Sample CPU and memory of a process and its descendants."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import MissingExtraError
from riot_ops.core.parameters import Duration

__all__ = ["ProcessTree", "Usage"]


@dataclass(frozen=True)
class Usage:
    """CPU and memory over time.

    Attributes
    ----------
    times : array of float
        When the samples were taken, seconds since the epoch.
    cpu : array of float
        Cores in use since the sample before: 1 is one core, always busy.
    memory : array of float
        Bytes; pages that several of these processes share count by share.
    """

    times: npt.NDArray[np.float64]
    cpu: npt.NDArray[np.float64]
    memory: npt.NDArray[np.float64]

    def between(self, since: float, until: float) -> Usage:
        """Return the samples of a time."""
        inside = (self.times >= since) & (self.times <= until)
        return Usage(self.times[inside], self.cpu[inside], self.memory[inside])


class ProcessTree:
    """Sample a process and its descendants, such as a JVM and its Python workers.

    Parameters
    ----------
    every : timedelta > 0 or text such as "1s", default "5s"
        Time between samples.
    pid : int, optional
        The process at the root; by default this one.

    Examples
    --------
    >>> with ProcessTree(every="10ms") as tree:
    ...     _ = sum(range(1_000_000))
    >>> usage = tree.usage()
    >>> len(usage.cpu) >= 1 and bool(usage.memory.min() > 1e6)
    True
    """

    def __init__(self, every: Duration = "5s", pid: int | None = None) -> None:
        try:
            import psutil
        except ImportError:
            raise MissingExtraError("watching CPU and memory", "bench") from None
        self._psutil = psutil
        self._root = psutil.Process(pid or os.getpid())
        self._every = duration_seconds("every", every)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples: list[tuple[float, float, float]] = []
        self._last: tuple[float, float] | None = None
        self._account = CpuAccount(psutil.Error)
        self._lock = threading.Lock()

    def start(self) -> Self:
        """Take the first sample, and start the thread that takes the others."""
        self._last = time.time(), self.cpu_seconds()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="riot_ops-process-tree")
        self._thread.start()
        return self

    def stop(self) -> None:
        """Take a last sample; may be called twice."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def cpu_seconds(self) -> float:
        """Return the CPU seconds so far of running and ended processes; never decreases."""
        return self._sample_cpu()[1]

    def _sample_cpu(self) -> tuple[list[Any], float]:
        """Return the running processes, and :meth:`cpu_seconds`."""
        with self._lock:
            processes = self._processes()
            return processes, self._account.update(processes)

    def memory_by_program(self) -> list[tuple[str, int]]:
        """Return the program and the memory in bytes of each descendant that runs now; shared pages count by share."""
        found = []
        for process in self._processes()[1:]:
            with suppress(self._psutil.Error):  # it has ended
                size = proportional_set_size(process.pid) or int(process.memory_info().rss)
                found.append((str(process.name()), size))
        return found

    def usage(self) -> Usage:
        """Return the samples taken so far."""
        samples = np.array(self._samples, np.float64).reshape(-1, 3)
        return Usage(samples[:, 0], samples[:, 1], samples[:, 2])

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self._sample()
        self._sample()

    def _processes(self) -> list[Any]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except self._psutil.Error:  # the root has ended
            return []

    def _sample(self) -> None:
        processes, spent = self._sample_cpu()
        now = time.time()
        assert self._last is not None
        then, before = self._last
        if not processes or now <= then:
            return
        self._last = now, spent
        self._samples.append((now, (spent - before) / (now - then), float(self._memory(processes))))

    def _memory(self, processes: list[Any]) -> int:
        """Return the memory of the processes in bytes.

        The proportional set size is read only for several processes, since the kernel walks all pages for it.
        """
        held = 0
        for process in processes:
            with suppress(self._psutil.Error):  # it has ended
                held += (len(processes) > 1 and proportional_set_size(process.pid)) or int(process.memory_info().rss)
        return held


class CpuAccount:
    """CPU seconds of a tree of processes, from the differences between samples.

    When a parent waits for a child, the system adds all of the child's time to the children's time of the parent. What
    was counted for the child before is subtracted there; the time of a child whose parent never waits stays as sampled.
    """

    #: A clock tick of the user's and one of the system's share.
    ROUNDED_S = 0.02

    def __init__(self, error: type[Exception]) -> None:
        self._error = error
        self._total = 0.0
        self._seen: dict[Any, tuple[float, float, int]] = {}
        self._ended: dict[int, list[float]] = {}  # by parent: time counted for children that it may have waited for

    def update(self, processes: list[Any]) -> float:
        """Return the total so far, including what these processes used since the last sample."""
        now: dict[Any, tuple[float, float, int]] = {}
        for process in processes:
            with suppress(self._error):  # it has ended
                with process.oneshot():
                    t, parent = process.cpu_times(), process.ppid()
                of_children = getattr(t, "children_user", 0.0) + getattr(t, "children_system", 0.0)
                now[process] = t.user + t.system, of_children, parent
        self._end(now)
        for process, (own, of_children, _) in now.items():
            own_before, before, _ = self._seen.get(process, (0.0, 0.0, 0))
            self._total += own - own_before + self._unsampled(process.pid, of_children - before)
        self._seen = now
        return self._total

    def _end(self, now: dict[Any, tuple[float, float, int]]) -> None:
        """Add the time of ended processes to their nearest ancestor that still runs."""
        above = {process.pid: parent for process, (_, _, parent) in self._seen.items()}
        alive = {process.pid for process in now}
        for process in self._seen.keys() - now.keys():
            own, of_children, parent = self._seen[process]
            while parent not in alive and parent in above:
                parent = above[parent]
            if parent in alive:
                self._ended.setdefault(parent, []).append(own + of_children)
        self._ended = {parent: times for parent, times in self._ended.items() if parent in alive}

    def _unsampled(self, parent: int, came: float) -> float:
        """Return the part of the children's time that was not counted while they ran."""
        left = []
        for seen in sorted(self._ended.pop(parent, ()), reverse=True):
            if seen <= came + self.ROUNDED_S:
                came -= seen
            else:
                left.append(seen)
        if left:
            self._ended[parent] = left
        return max(0.0, came)


def proportional_set_size(pid: int) -> int:
    """Return the proportional set size in bytes, 0 where Linux does not report it: forked workers share pages."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0
