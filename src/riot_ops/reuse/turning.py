"""What goes on turn by turn, here or in a thread of its own, and lets others act between two turns."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from riot_ops.core.errors import StateError
from riot_ops.core.interrupts import held_back

__all__ = ["Turning", "waited"]

#: For how long a thread waits where nothing has come; longer each time that nothing has, up to the second.
IDLE_SECONDS, LONGEST_IDLE = 0.0005, 0.008
T = TypeVar("T")


def waited(what: Callable[[], T], until: float, again_s: float) -> T:
    """What something gives when it is neither None nor False any more, or when that takes too long."""
    while (found := what()) in (None, False) and time.monotonic() < until:
        time.sleep(again_s)
    return found


class Turning(ABC):
    """Base of what has a :meth:`turn`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting = 0
        self._count = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._broken: Exception | None = None

    @abstractmethod
    def turn(self) -> bool:
        """Do what there is to do; returns whether there was anything."""

    @abstractmethod
    def idle(self) -> bool:
        """Whether there will be nothing to do, however long one waits."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Between two turns: a thread that turns lets others pass."""
        with self._count:
            self._waiting += 1
        try:
            with self._lock:
                yield
        finally:
            with self._count:
                self._waiting -= 1

    @contextmanager
    def between(self) -> Iterator[None]:
        """The same, for what changes something."""
        with self.looking():
            if self._broken is not None:
                raise self._broken
            if self._stop.is_set():
                raise StateError("it is closed, and nothing moves any more; go on with a new back end and manager")
            yield

    @contextmanager
    def turning(self) -> Iterator[None]:
        """Around a turn, behind which Ctrl-C comes; one that fails, or is broken off by a second one, is the last."""
        with held_back() as check, self._lock:
            if self._broken is not None:
                raise self._broken
            try:
                yield
            except BaseException as error:
                off = StateError("a turn was broken off; go on with a new manager")
                self._broken = error if isinstance(error, Exception) else off
                raise
        check()

    @property
    def error(self) -> Exception | None:
        """Why nothing moves any more: something failed that is of all dataflows, such as the disk of the back end."""
        return self._broken

    def run(self) -> None:
        """Turn until all sources have ended, or rest."""
        idle = IDLE_SECONDS
        while (moved := self.turn()) or not self.idle():
            idle = IDLE_SECONDS if moved else min(2 * idle, LONGEST_IDLE)
            if not moved:
                time.sleep(idle)
            self._breathe()

    def start(self) -> None:
        """Turn in a thread of its own, until :meth:`close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_on, daemon=True, name="riot_ops-reuse")
            self._thread.start()

    def _go_on(self) -> None:
        idle = IDLE_SECONDS
        while not self._stop.is_set():
            try:
                moved = self.turn()
            except BaseException:
                return  # whoever acts next gets to know
            idle = IDLE_SECONDS if moved else min(2 * idle, LONGEST_IDLE)
            if not moved:
                self._stop.wait(idle)
            self._breathe()

    def _breathe(self) -> None:
        while self._waiting and not self._stop.is_set():
            time.sleep(IDLE_SECONDS)

    def stop(self) -> None:
        """Have the thread end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
