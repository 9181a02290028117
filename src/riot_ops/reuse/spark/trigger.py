"""The trigger of a query: at intervals, and at once when there is news.

With Spark's own trigger an action would wait up to a whole interval for the next micro-batch. A query that reads
another's topic would see a new batch one micro-batch late.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Trigger"]

#: Maximum time that Spark waits for an answer, and interval at which the trigger checks for new records.
MAX_WAIT_SECONDS, POLL_SECONDS = 3.0, 0.1


@dataclass
class Trigger:
    """Fires every ``every_s`` seconds, at the same moments for all queries; always, with 0 seconds.

    Nothing waits while the file ``stop_file`` exists: Spark reports an error on stderr if a query is stopped while it
    waits for an answer.
    """

    every_s: float
    stop_file: Path
    _next: float = 0.0

    def wait(self, has_news: Callable[[], bool]) -> bool:
        """Wait until the trigger fires or there is news; False where neither happens in time."""
        until = time.monotonic() + MAX_WAIT_SECONDS
        while (left := self._next - time.monotonic()) > 0 and not has_news():
            if time.monotonic() > until or self.stop_file.exists():
                return False
            time.sleep(min(left, POLL_SECONDS))
        if left <= 0 < self.every_s:
            now = time.monotonic()
            begin = self._next or now - time.time() % self.every_s
            self._next = begin + self.every_s * (math.floor((now - begin) / self.every_s) + 1)
        return True

    def stop(self) -> None:
        """End all waiting; on return nothing waits."""
        if self.every_s:
            self.stop_file.touch()
            time.sleep(1.2 * POLL_SECONDS)
