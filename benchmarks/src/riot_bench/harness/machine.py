"""The machine that a benchmark runs on: its description, its load, and pinning to cores."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from riot_ops.core.errors import ConfigError

__all__ = ["describe_machine", "load_average", "pinned_to_cores", "pinned_to_one_core"]


def describe_machine() -> str:
    """Describe the processor, cores, memory and versions.

    >>> "Python" in describe_machine()
    True
    """
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
        memory = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (OSError, ValueError):
        memory = "unknown memory"
    versions = [f"Python {platform.python_version()}"]
    for package in ("pyspark", "numba"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory}, {', '.join(versions)}"


def load_average() -> float:
    """Return the machine's load average over the last minute; 0 if the system does not report it.

    >>> load_average() >= 0
    True
    """
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return 0.0


@contextmanager
def pinned_to_one_core() -> Iterator[None]:
    """Pin this thread, and the threads that it starts, to one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def pinned_to_cores(n: int) -> Iterator[None]:
    """Pin this thread, and the threads that it starts, to ``n`` cores."""
    before = os.sched_getaffinity(0)
    if not 1 <= n <= len(before):
        raise ConfigError(f"n must be 1 to {len(before)}, got {n}")
    os.sched_setaffinity(0, set(sorted(before)[-n:]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
