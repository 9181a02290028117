"""One delivery of records to several subscribers, by one thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from riot_ops.reuse.spark.subscriber import Records, Subscriber

__all__ = ["DeliveryRound"]


class DeliveryRound:
    """Delivers records to subscribers in turn, in a thread; a subscriber that takes too long keeps the thread.

    Attributes
    ----------
    pending : deque
        The deliveries that have not begun.
    """

    def __init__(self, deliveries: Sequence[tuple[Subscriber, Records]], name: str) -> None:
        self.pending = deque(deliveries)
        self.thread = threading.Thread(target=self._run, daemon=True, name=name)
        self._changed = threading.Condition()
        self._current: tuple[Subscriber, float] | None = None
        self._continuation: Callable[[], None] | None = None
        self._done = False

    def _run(self) -> None:
        while True:
            with self._changed:
                self._current = None
                if self._continuation is not None:
                    break
                if not self.pending:
                    self._done = True
                    self._changed.notify_all()
                    return
                one, records = self.pending.popleft()
                self._current = one, time.monotonic()
            one.deliver(records)
        self._continuation()

    def run(self, grace_s: float, detach: Callable[[Subscriber, threading.Thread], Callable[[], None]]) -> bool:
        """Deliver to all, and return True; or return False once a subscriber takes longer than ``grace_s``.

        That subscriber is passed to ``detach`` with the thread, which calls the returned function after the delivery.
        """
        self.thread.start()
        with self._changed:
            while not self._done:
                since = time.monotonic() if self._current is None else self._current[1]
                if (left := since + grace_s - time.monotonic()) > 0:
                    self._changed.wait(left)
                elif self._current is not None:
                    self._continuation = detach(self._current[0], self.thread)
                    return False
            return True
