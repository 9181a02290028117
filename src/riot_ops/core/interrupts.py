"""Ctrl-C deferred to a safe point."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["defer_interrupt"]


@contextmanager
def defer_interrupt() -> Iterator[Callable[[], None]]:
    """Defer Ctrl-C until the yielded function is called; a second Ctrl-C takes effect immediately.

    Ctrl-C would leave an operation that must be atomic half done, and break the connection in a call into the JVM.
    """
    interrupted = threading.Event()
    handler = signal.getsignal(signal.SIGINT)

    def hold(number: int, frame: Any) -> None:
        if interrupted.is_set() and callable(handler):
            handler(number, frame)
        interrupted.set()

    def check() -> None:
        if interrupted.is_set() and callable(handler):
            interrupted.clear()
            handler(signal.SIGINT, None)  # Python's own handler raises KeyboardInterrupt

    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield check  # Python delivers signals to the main thread only
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, handler)
