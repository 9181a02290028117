"""A pair of implementations that do the same work, and the time limit of both."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from riot_ops.core.errors import RiotError

__all__ = ["Edge", "Pair", "PairTimeoutError", "Side", "time_limit"]

#: Does the work once; returns the seconds, and what it has moved, to compare.
Side = Callable[[], tuple[float, Any]]


@dataclass(frozen=True)
class Pair:
    """Two sides that move the same ``messages`` messages or rows.

    Attributes
    ----------
    messages : int
    ours, theirs : Side
    against : str
        What the other side does.
    unit : str
    equal : function
        Whether the results of both sides are the same.
    """

    messages: int
    ours: Side
    theirs: Side
    against: str
    unit: str = "messages/s"
    equal: Callable[[Any, Any], bool] = lambda a, b: bool(a == b)


#: Opens what both sides of a pair share, for a ``with`` block; the argument says whether to be quick.
Edge = Callable[[bool], AbstractContextManager[Pair]]


class PairTimeoutError(RiotError):
    """A pair took longer than its time limit."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`PairTimeoutError` in the block after some seconds; in the main thread only.

    >>> import time
    >>> with time_limit(0.01):
    ...     time.sleep(10)
    Traceback (most recent call last):
    riot_bench.suites.edges.pair.PairTimeoutError: it takes longer than 0.01 s
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_: int, __: FrameType | None) -> None:
        raise PairTimeoutError(f"it takes longer than {seconds:g} s")

    handler = signal.signal(signal.SIGALRM, expire)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, handler)
