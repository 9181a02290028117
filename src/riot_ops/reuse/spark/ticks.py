"""When a query looks for records: by the clock, and as soon as there is news for it.

Spark's own trigger would let an action wait for the next micro-batch that is due, be it a minute away, and a query that
reads another's topic come only with the micro-batch behind the one that has brought it something.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ticks"]

#: For how long Spark is kept waiting for one answer, and how often there may be news.
LONGEST_SECONDS, POLL_SECONDS = 3.0, 0.1


@dataclass
class Ticks:
    """Moments so many seconds apart, which all queries have in common; 0 seconds: there is one at any time.

    While the file ``leaving`` is there nobody waits: who is stopped while Spark waits for an answer says so on stderr.
    """

    every_s: float
    leaving: Path
    _next: float = 0.0

    def come(self, news: Callable[[], bool]) -> bool:
        """Wait until it is time, or there is news; False where neither is so for now."""
        until = time.monotonic() + LONGEST_SECONDS
        while (left := self._next - time.monotonic()) > 0 and not news():
            if time.monotonic() > until or self.leaving.exists():
                return False
            time.sleep(min(left, POLL_SECONDS))
        if left <= 0 < self.every_s:
            now = time.monotonic()
            begin = self._next or now - time.time() % self.every_s
            self._next = begin + self.every_s * (math.floor((now - begin) / self.every_s) + 1)
        return True

    def leave(self) -> None:
        """Let nobody wait any more; when it returns nobody does."""
        if self.every_s:
            self.leaving.touch()
            time.sleep(1.2 * POLL_SECONDS)
