"""A loop of turns, in the caller's thread or its own, that lets actions pass between two turns."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from riot_ops.core.errors import StateError
from riot_ops.core.interrupts import defer_interrupt

__all__ = ["Driver", "poll_until"]

#: First and longest wait of an idle thread; the wait doubles with each turn without records.
IDLE_SECONDS, LONGEST_IDLE = 0.0005, 0.008
T = TypeVar("T")


def poll_until(what: Callable[[], T], until: float, interval_s: float) -> T:
    """Call a function until it returns neither None nor False, or until a time; return its last result."""
    while (found := what()) in (None, False) and time.monotonic() < until:
        time.sleep(interval_s)
    return found


class Driver(ABC):
    """Base of a back end that works in turns.

    Attributes
    ----------
    error : Exception, optional
        Why nothing moves any more: a failure that concerns all dataflows, such as of the back end's disk.
    waiting : int
        Number of actions that wait for the current turn to end.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.waiting = 0
        self._count = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.error: Exception | None = None

    @abstractmethod
    def turn(self) -> bool:
        """Do the pending work; return whether there was any."""

    @abstractmethod
    def is_idle(self) -> bool:
        """Whether no further turn will find work."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock between two turns; a running loop lets the caller pass."""
        with self._count:
            self.waiting += 1
        try:
            with self._lock:
                yield
        finally:
            with self._count:
                self.waiting -= 1

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock between two turns to change something; raise if the driver failed or is closed."""
        with self.locked():
            if self.error is not None:
                raise self.error
            if self._stop.is_set():
                raise StateError("the back end is closed; continue with a new back end and manager")
            yield

    @contextmanager
    def guarded_turn(self) -> Iterator[None]:
        """Run a turn: Ctrl-C is raised after it. A turn that fails, or is aborted by a second Ctrl-C, is the last."""
        with defer_interrupt() as check, self._lock:
            if self.error is not None:
                raise self.error
            try:
                yield
            except BaseException as error:
                aborted = StateError("a turn was aborted; continue with a new manager")
                self.error = error if isinstance(error, Exception) else aborted
                raise
        check()

    def run(self) -> None:
        """Run turns until all sources have ended or are paused."""
        idle = IDLE_SECONDS
        while (moved := self.turn()) or not self.is_idle():
            idle = IDLE_SECONDS if moved else min(2 * idle, LONGEST_IDLE)
            if not moved:
                time.sleep(idle)
            self._yield_lock()

    def start(self) -> None:
        """Run turns in a thread of its own until :meth:`close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_until_stopped, daemon=True, name="riot_ops-reuse")
            self._thread.start()

    def _run_until_stopped(self) -> None:
        idle = IDLE_SECONDS
        while not self._stop.is_set():
            try:
                moved = self.turn()
            except BaseException:
                return  # the next action raises it
            idle = IDLE_SECONDS if moved else min(2 * idle, LONGEST_IDLE)
            if not moved:
                self._stop.wait(idle)
            self._yield_lock()

    def _yield_lock(self) -> None:
        while self.waiting and not self._stop.is_set():
            time.sleep(IDLE_SECONDS)

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
