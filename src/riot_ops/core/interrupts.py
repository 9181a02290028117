"""Ctrl-C deferred to a safe point, and SIGTERM handled like Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["TERMINATED", "InterruptCheck", "defer_interrupt", "handle_termination"]

#: Exit code of a program that SIGTERM ended: 128 and the number of the signal, as shells report it.
TERMINATED = 143


class InterruptCheck:
    """Raises a deferred Ctrl-C when called; ``pending`` says whether there is one."""

    def __init__(self, raise_deferred: Callable[[], None], deferred: threading.Event) -> None:
        self._raise_deferred = raise_deferred
        self._deferred = deferred

    def __call__(self) -> None:
        self._raise_deferred()

    @property
    def pending(self) -> bool:
        """Whether Ctrl-C is deferred."""
        return self._deferred.is_set()


@contextmanager
def defer_interrupt(busy: Callable[[], bool] = lambda: True) -> Iterator[InterruptCheck]:
    """Defer Ctrl-C while ``busy`` holds, until the yielded function is called; a second Ctrl-C takes effect at once.

    Ctrl-C would leave an operation that must be atomic half done, and break the connection in a call into the JVM.
    """
    interrupted, deferred = threading.Event(), threading.Event()
    handler = signal.getsignal(signal.SIGINT)

    def hold(number: int, frame: Any) -> None:
        second = interrupted.is_set()
        if second:
            interrupted.clear()  # the next one is a first one again
        else:
            interrupted.set()
        if (second or not busy()) and callable(handler):
            deferred.clear()
            handler(number, frame)
        else:
            deferred.set()

    def check() -> None:
        if deferred.is_set() and callable(handler):
            deferred.clear()
            interrupted.clear()
            handler(signal.SIGINT, None)  # Python's own handler raises KeyboardInterrupt

    checked = InterruptCheck(check, deferred)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield checked  # Python delivers signals to the main thread only
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield checked
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def handle_termination() -> Iterator[threading.Event]:
    """Handle SIGTERM like Ctrl-C, so that a run that a service manager ends commits as well.

    Only in the main thread, and only if the user has not installed a handler; the default is restored afterwards.
    The yielded event is set when SIGTERM has arrived.
    """
    terminated = threading.Event()

    def interrupt(number: int, frame: Any) -> None:
        terminated.set()
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)  # may defer it
            return
        raise KeyboardInterrupt  # a process in the background ignores SIGINT

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield terminated
        return
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield terminated
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
