"""Ctrl-C at a better moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["held_back"]


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C back until the function that is yielded is called; a second one comes at once.

    In the midst of what has to be done whole it would leave half of it; in a call into the JVM it would break the
    connection.
    """
    asked = threading.Event()
    usual = signal.getsignal(signal.SIGINT)

    def hold(number: int, frame: Any) -> None:
        if asked.is_set() and callable(usual):
            usual(number, frame)
        asked.set()

    def check() -> None:
        if asked.is_set() and callable(usual):
            asked.clear()
            usual(signal.SIGINT, None)  # Python's own raises KeyboardInterrupt

    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield check  # Python hands no signals to other threads
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, usual)
