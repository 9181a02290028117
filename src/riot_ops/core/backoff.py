"""Growing pauses between two polls of something that does not report its changes."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Backoff"]

#: Shortest and longest pause, and the share of the quiet time that a pause takes.
MIN_SECONDS, MAX_SECONDS, SHARE = 0.0005, 0.02, 0.5
#: Pause per CPU time of a look, and the longest such pause.
PER_COST, MAX_COSTLY_SECONDS = 50.0, 0.25


class Backoff:
    """Pauses that grow with the time since the last find: a rare change costs little, and frequent ones are seen soon.

    ``pause = min(max(0.5 ms, quiet / 2), 20 ms)``. Where a poll costs much CPU time, the pause grows to 50 times as
    much, at most 0.25 s.

    Parameters
    ----------
    clock : function, default ``time.monotonic``
        Returns seconds; for tests.
    max_s : float, seconds, default 0.02
        Longest pause after cheap polls.

    Examples
    --------
    >>> now = [0.0]
    >>> backoff = Backoff(clock=lambda: now[0])
    >>> now[0] = 0.01
    >>> backoff.pause()
    0.005
    >>> now[0] = 10.0
    >>> backoff.pause(), backoff.pause(cost_s=0.002)
    (0.02, 0.1)
    >>> backoff.found()
    >>> backoff.pause()
    0.0005
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_s: float = MAX_SECONDS) -> None:
        self._clock = clock
        self._max_s = max_s
        self._found_at = clock()

    def found(self) -> None:
        """Note that the last poll found something."""
        self._found_at = self._clock()

    def pause(self, cost_s: float = 0.0) -> float:
        """Return how many seconds to wait before the next look; the last one took ``cost_s`` of CPU time."""
        quiet = self._clock() - self._found_at
        pause = min(max(quiet * SHARE, MIN_SECONDS), self._max_s)
        return max(pause, min(cost_s * PER_COST, quiet, MAX_COSTLY_SECONDS))
