"""Wall time of calls and of compiled kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from riot_ops.kernels.jit import Kernel

__all__ = ["KernelTimes", "kernel_times", "median", "median_seconds"]


def median(values: Iterable[float]) -> float:
    """Return the median.

    >>> median([3.0, 1.0, 2.0])
    2.0
    """
    return statistics.median(values)


def median_seconds(function: Callable[[], Any], repetitions: int, warm: int = 1) -> float:
    """Return the median wall time of ``repetitions`` calls, after ``warm`` calls that do not count.

    >>> median_seconds(lambda: None, 3) < 1
    True
    """
    times = []
    for i in range(warm + repetitions):
        start = time.perf_counter()
        function()
        if i >= warm:
            times.append(time.perf_counter() - start)
    return median(times)


class KernelTimes:
    """Seconds spent in kernels by module and name."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @property
    def total(self) -> float:
        return sum(self.spent.values())

    def shares(self, of: float) -> str:
        """Describe the three largest shares of ``of`` seconds."""
        largest = sorted(self.spent.items(), key=lambda item: -item[1])[:3]
        rest = max(0.0, of - self.total)
        return ", ".join(
            [
                *(f"{name.rsplit('.', 1)[-1]} {100 * t / of:.0f} %" for name, t in largest),
                f"outside kernels {100 * rest / of:.0f} %",
            ]
        )


@contextmanager
def kernel_times() -> Iterator[KernelTimes]:
    """Time every kernel call from Python; kernels that call one another count as one call.

    >>> from riot_ops import tasks
    >>> with kernel_times() as times:
    ...     _ = tasks.KalmanFilter().session().push({"value": 1.0})
    >>> "kalman_filter.kalman" in times.spent
    True
    """
    times = KernelTimes()
    call = Kernel.__call__

    def timed(self: Kernel[Any, Any], *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(self, *args, **kwargs)
        finally:
            name = f"{self.python.__module__.rsplit('.', 1)[-1]}.{self.python.__name__.strip('_')}"
            times.spent[name] = times.spent.get(name, 0.0) + time.perf_counter() - start

    Kernel.__call__ = timed  # type: ignore[method-assign]
    try:
        yield times
    finally:
        Kernel.__call__ = call  # type: ignore[method-assign]
