"""Sources polled in a background thread, so that a slow one does not delay the others."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from riot_ops.core.source import Offset, Source, WrappedSource

__all__ = ["BackgroundSource"]

#: A poll that takes longer than this continues in the background.
GRACE_SECONDS = 0.05


class BackgroundSource(WrappedSource):
    """A source whose :meth:`latest` may block for as long as a broker does, or until records come.

    A thread polls the source; until it is done, the source has nothing new.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._latest: Offset | None = None
        self._error: BaseException | None = None
        self._polling = self._closed = False
        self._quick = True  # whether the last poll was
        self._wake: Callable[[], None] | None = None  # for the end of the poll that is under way

    def __reduce__(self) -> tuple[Callable[[Source], Source], tuple[Source]]:
        """Pickle the wrapped source: a query on Spark polls it alone."""
        return _unwrapped, (self.source,)

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        if self._thread is None:
            self._polling = True
            self._thread = threading.Thread(
                target=self._poll, args=(start, limit), daemon=True, name="riot_ops-reuse-source"
            )
            self._thread.start()
            # a source that was slow once makes the others wait no more
            self._thread.join(GRACE_SECONDS if self._quick else 0.0)
        if self._thread.is_alive():
            return start
        self._thread = None
        if (error := self._error) is not None:
            self._error = None
            raise error
        assert self._latest is not None
        return self._latest

    def _poll(self, start: Offset, limit: int | None) -> None:
        begun = time.monotonic()
        try:
            self._latest = self.source.latest(start, limit)
        except BaseException as error:  # raised by the next call of latest
            self._error = error
        self._quick = time.monotonic() - begun < GRACE_SECONDS
        with self._lock:
            self._polling, closed = False, self._closed
            wake, self._wake = self._wake, None
        if closed:
            self.source.close()
        if wake is not None:
            wake()

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        with self._lock:
            if self._polling:
                self._wake = wake
                return math.inf
        return 0.0 if self._thread is not None else self.source.wait_time(offset, wake)

    def finished(self, offset: Offset) -> bool:
        return self._thread is None and self.source.finished(offset)

    def close(self) -> None:
        """Close the source, now or when the poll that is under way ends."""
        with self._lock:
            self._closed, polling = True, self._polling
        if not polling:
            self.source.close()


def _unwrapped(source: Source) -> Source:
    return source
