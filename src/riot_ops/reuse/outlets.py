"""Where records leave what is shared: each dataflow's sinks take them without holding up the others.

What a turn of the steps gives to dataflows is written by one thread for all, and the next turn waits for it. A sink
that takes longer than the grace keeps that thread for itself from then on, and another takes its place: so a thousand
quick sinks cost one thread, and a slow one is alone with its own. Records that come meanwhile wait in a queue; what
happens when that is full is the dataflow's choice (``on_slow``).
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import Any

from riot_ops.reuse.errors import told
from riot_ops.reuse.limits import Limits
from riot_ops.reuse.outlet import Outlet, Stood
from riot_ops.reuse.submission import Submission

__all__ = ["Outlets"]


class Outlets:
    """The outlets of a back end, and the threads that write.

    All but :meth:`begun` is called by the thread that runs the steps, or while that waits.
    """

    def __init__(self, limits: Limits, durable: bool = False) -> None:
        self.limits, self.durable = limits, durable
        self.of: dict[str, Outlet] = {}
        #: Those in which something waits to be written.
        self.ready: deque[Outlet] = deque()
        #: Of dataflows that are gone: what is still being written, and what has failed or was dropped.
        self._leaving: list[Outlet] = []
        self._failed: dict[str, str] = {}
        self._dropped: dict[str, dict[str, int]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._at: tuple[Outlet, float] | None = None

    def begun(self, submission: Submission, stood: Stood | None = None) -> Outlet:
        """An outlet for a dataflow, which may go on where it stood; raises where a sink of a new one cannot begin."""
        return Outlet(submission, self.limits, self.ready, self.durable, stood)

    def take(self, outlet: Outlet) -> None:
        """The dataflow has come."""
        name = outlet.submission.name
        self.of[name] = outlet
        self._failed.pop(name, None)
        self._dropped.pop(name, None)

    def close(self, name: str) -> Outlet | None:
        """The dataflow has ended: its sinks end when they have what is theirs, and nobody waits for slow ones."""
        outlet = self.of.pop(name, None)
        if outlet is not None:
            outlet.leave()
            outlet.close()
            self.settle()
            self._leaving.append(outlet)
            self._look()
        return outlet

    def commit(self) -> None:
        """End an epoch in all of them."""
        for outlet in self.of.values():
            outlet.commit()
        self.settle()

    def settle(self) -> None:
        """Have all that waits written, but for what is slow."""
        with self._changed:
            while self.ready or self._at is not None:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, daemon=True, name="riot_ops-sinks")
                    self._thread.start()
                since = time.monotonic() if self._at is None else self._at[1]
                if (left := since + self.limits.grace_s - time.monotonic()) > 0:
                    self._changed.notify_all()
                    self._changed.wait(left)
                elif self._at is not None:
                    self._at[0].part()  # with the thread that it holds
                    self._thread = self._at = None

    def _work(self) -> None:
        """Write for all, or from when it takes too long for one."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.ready or self._thread is not threading.current_thread())
                if self._thread is not threading.current_thread():
                    return
                outlet = self.ready.popleft()
                self._at = outlet, time.monotonic()
            outlet.drain()
            with self._changed:
                if self._thread is threading.current_thread():
                    self._at = None
                    if not self.ready:
                        self._changed.notify_all()
                    continue
            outlet.work()
            return

    def end(self) -> None:
        """End all, and wait for what is slow."""
        for name in list(self.of):
            self.close(name)
        for outlet in self._leaving:
            outlet.ended()
        self._look()
        with self._changed:
            self._thread = None
            self._changed.notify_all()

    def halt(self) -> None:
        """Let go of all: others go on."""
        for outlet in self.of.values():
            outlet.leave()
            outlet.halt()
        self.of = {}
        self.end()

    def stats(self) -> dict[str, Any]:
        """``rows`` that each dataflow got, those that ``failed`` and why, ``dropped`` records, ``slow`` ones."""
        self._look()
        behind: Counter[str] = Counter()
        for outlet in (*self._leaving, *self.of.values()):
            if outlet.apart and not outlet.done:
                behind[outlet.submission.name] += outlet.waiting
        return {
            "rows": {name: outlet.delivery.rows for name, outlet in self.of.items()},
            "failed": dict(self._failed),
            "dropped": {name: dict(streams) for name, streams in self._dropped.items()},
            "slow": dict(behind),
        }

    def _look(self) -> None:
        """Note what has failed or was dropped."""
        for outlet in (*self._leaving, *self.of.values()):
            name = outlet.submission.name
            if outlet.failures:
                self._failed[name] = "; ".join(dict.fromkeys(map(told, outlet.failures)))
            if dropped := outlet.dropped + outlet.delivery.lost:
                self._dropped[name] = dict(dropped)
        self._leaving = [outlet for outlet in self._leaving if not outlet.done]
