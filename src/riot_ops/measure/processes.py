"""CPU and memory of a process and all that it started, sampled."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ConfigError, MissingExtraError

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
        """The samples of a time."""
        inside = (self.times >= since) & (self.times <= until)
        return Usage(self.times[inside], self.cpu[inside], self.memory[inside])


class ProcessTree:
    """Watches a process with its children and theirs, such as a JVM and its Python workers.

    Parameters
    ----------
    every_s : float, > 0, default 5
        Time between samples.
    pid : int, optional
        The process at the root; by default this one.

    Examples
    --------
    >>> with ProcessTree(every_s=0.01) as tree:
    ...     _ = sum(range(1_000_000))
    >>> usage = tree.usage()
    >>> len(usage.cpu) >= 1 and bool(usage.memory.min() > 1e6)
    True
    """

    def __init__(self, every_s: float = 5.0, pid: int | None = None) -> None:
        if not 0 < every_s < float("inf"):
            raise ConfigError(f"every_s must be a finite number > 0, got {every_s!r}")
        try:
            import psutil
        except ImportError:
            raise MissingExtraError("watching CPU and memory", "bench") from None
        self._psutil = psutil
        self._root = psutil.Process(pid or os.getpid())
        self._every = every_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples: list[tuple[float, float, float]] = []
        self._last: tuple[float, float] | None = None
        self._total = self._before = 0.0

    def start(self) -> Self:
        """Take the first look; samples follow."""
        self._last = time.time(), self._spent(self._processes())
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

    def spent(self) -> float:
        """CPU seconds so far of the processes that run, and of those that they have waited for; it never falls."""
        now = self._spent(self._processes())
        # a process that ended without being waited for takes its time with it
        self._total += max(0.0, now - self._before)
        self._before = now
        return self._total

    def usage(self) -> Usage:
        """What was seen so far."""
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
        processes = self._processes()
        now, spent = time.time(), self._spent(processes)
        assert self._last is not None
        then, before = self._last
        if not processes or now <= then:
            return
        self._last = now, spent
        # a process that ended without being waited for takes its time with it
        used = max(0.0, spent - before)
        self._samples.append((now, used / (now - then), float(self._memory(processes))))

    def _spent(self, processes: list[Any]) -> float:
        """CPU seconds of the processes, and of the children that they have waited for."""
        total = 0.0
        for process in processes:
            try:
                t = process.cpu_times()
            except self._psutil.Error:  # it has ended
                continue
            total += t.user + t.system + getattr(t, "children_user", 0.0) + getattr(t, "children_system", 0.0)
        return total

    def _memory(self, processes: list[Any]) -> int:
        """Bytes that they have; shares are not asked for where there is one, since that walks all of its pages."""
        held = 0
        for process in processes:
            with suppress(self._psutil.Error):  # it has ended
                held += (len(processes) > 1 and _shared_by_share(process.pid)) or int(process.memory_info().rss)
        return held


def _shared_by_share(pid: int) -> int:
    """Proportional set size in bytes where Linux tells it, else 0: workers are forks that share pages."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0
