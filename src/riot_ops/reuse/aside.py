"""Sources that may wait for their records, or for who has them, without keeping others waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from riot_ops.core.source import Offset, Source, WrappedSource

__all__ = ["Aside"]

#: For how long a look at what there is may hold others up; one that takes longer goes on aside.
GRACE_SECONDS = 0.05


class Aside(WrappedSource):
    """A source in which looking for records may take as long as they, or a broker, do to come.

    A thread looks, and until it has found something there is nothing new.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._found: Offset | None = None
        self._error: BaseException | None = None
        self._looking = self._closed = False
        self._quick = True  # whether the last look was

    def __reduce__(self) -> tuple[Callable[[Source], Source], tuple[Source]]:
        """In a query on Spark, where nobody else waits, it is the source itself."""
        return _itself, (self.source,)

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        if self._thread is None:
            self._looking = True
            self._thread = threading.Thread(
                target=self._look, args=(start, limit), daemon=True, name="riot_ops-reuse-source"
            )
            self._thread.start()
            self._thread.join(GRACE_SECONDS if self._quick else 0.0)  # of others, who have waited once
        if self._thread.is_alive():
            return start
        self._thread = None
        if (error := self._error) is not None:
            self._error = None
            raise error
        assert self._found is not None
        return self._found

    def _look(self, start: Offset, limit: int | None) -> None:
        begun = time.monotonic()
        try:
            self._found = self.source.latest(start, limit)
        except BaseException as error:  # raised again where it is asked for
            self._error = error
        self._quick = time.monotonic() - begun < GRACE_SECONDS
        with self._lock:
            self._looking, closed = False, self._closed
        if closed:
            self.source.close()

    def finished(self, offset: Offset) -> bool:
        return self._thread is None and self.source.finished(offset)

    def close(self) -> None:
        """Close it, now or when the thread that looks is through."""
        with self._lock:
            self._closed, late = True, self._looking
        if not late:
            self.source.close()


def _itself(source: Source) -> Source:
    return source
