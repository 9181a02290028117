"""The thread that looks at something which runs, and what it keeps for readers."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Self

import msgspec

from riot_ops.core.checks import duration_seconds
from riot_ops.core.parameters import Duration
from riot_ops.monitoring.memory import Memory

__all__ = ["Watcher"]

#: Points of the series that are kept: 15 minutes of seconds.
MAX_POINTS = 900

_log = logging.getLogger("riot_ops")


class Watcher(ABC):
    """Looks at something until it ends, and keeps what it saw: all of it, and the last look for readers that follow.

    Attributes
    ----------
    version : int
        Number of looks so far.
    """

    #: What :meth:`state` has as ``kind``.
    kind: str

    def __init__(self, name: str, every: Duration) -> None:
        self._name = name
        self._every = duration_seconds("every", every)
        self.version = 0
        self._points: deque[dict[str, Any]] = deque(maxlen=MAX_POINTS)
        self._state: dict[str, Any] = {}
        self._events: tuple[int, bytes, bytes | None] = (0, b"", None)  # the last look, and all, made when asked for
        self._memory = Memory()
        self._stopped = threading.Event()
        self._take_look()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="riot_ops-monitor")
        self._thread.start()

    @property
    def active(self) -> bool:
        """Whether it was active at the last look."""
        return bool(self._state["status"]["active"])

    def state(self) -> dict[str, Any]:
        """Return all that is known, as JSON-able data; it is not changed later."""
        return self._state

    def events(self, seen: int) -> tuple[int, bytes]:
        """Return the last look as a server-sent event, and its version; all that is known to a reader that missed one.

        Parameters
        ----------
        seen : int
            Version of what the reader has; 0 if it has nothing.
        """
        version, look, whole = self._events
        if seen == version - 1 and seen:
            return version, look
        if whole is None:
            whole = _event("state", self._state)
            self._events = version, look, whole
        return version, whole

    def stop(self) -> None:
        """Look a last time and stop; may be called twice."""
        self._stopped.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _look(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the last look, with ``status`` and a ``point`` of the series, and what of the state is not in it."""

    def _watch(self) -> None:
        try:
            while self.active and not self._stopped.is_set():
                self._stopped.wait(self._every)
                self._take_look()
        except Exception:
            _log.exception("%s is no longer watched", self._name)

    def _take_look(self) -> None:
        look, more = self._look()
        look["version"] = self.version + 1
        self._points.append(look["point"])
        kept = {name: value for name, value in look.items() if name != "point"}
        self._state = {"kind": self.kind, **kept, **more, "points": list(self._points)}
        self._events = self.version + 1, _event("look", look), None
        self.version += 1


def _event(name: str, data: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
