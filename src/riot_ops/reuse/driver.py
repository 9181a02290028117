"""A loop of turns, in the caller's thread or its own, that lets actions pass between two turns."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from riot_ops.core.backoff import Backoff
from riot_ops.core.errors import StateError
from riot_ops.core.interrupts import defer_interrupt

__all__ = ["Driver", "poll_until"]

#: How long a thread waits that lets actions pass, and the longest wait between two turns: checkpoints and sinks also
#: make progress in turns.
YIELD_SECONDS, MAX_WAIT_SECONDS = 0.0005, 0.25
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
        self._wake = threading.Event()
        self._backoff = Backoff()
        self._stop = threading.Event()
        self.error: Exception | None = None

    @abstractmethod
    def turn(self) -> bool:
        """Do the pending work; return whether there was any."""

    @abstractmethod
    def is_idle(self) -> bool:
        """Whether no further turn will find work."""

    def wait_time(self, wake: Callable[[], None]) -> float | None:
        """Return how long the next turn will find no work; None if that is unknown. ``wake`` ends the wait."""
        return None

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
            try:
                yield
            finally:
                self._wake.set()

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
        self._wake.clear()
        while (moved := self.turn()) or not self.is_idle():
            self._wait(moved)

    def _wait(self, moved: bool) -> None:
        """Let actions pass between two turns; after one without work, wait until another may have some."""
        if moved:
            self._backoff.found()
        else:
            with self._lock:
                seconds = self.wait_time(self._wake.set)
            self._wake.wait(
                min(max(self._backoff.pause() if seconds is None else seconds, YIELD_SECONDS), MAX_WAIT_SECONDS)
            )
        self._wake.clear()
        while self.waiting and not self._stop.is_set():
            time.sleep(YIELD_SECONDS)

    def start(self) -> None:
        """Run turns in a thread of its own until :meth:`close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_until_stopped, daemon=True, name="riot_ops-reuse")
            self._thread.start()

    def _run_until_stopped(self) -> None:
        while not self._stop.is_set():
            try:
                moved = self.turn()
            except BaseException:
                return  # the next action raises it
            self._wait(moved)

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
