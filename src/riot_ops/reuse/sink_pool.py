"""The queues of all dataflows' sinks, which take records without delaying each other.

One thread writes the records of a turn for all dataflows, and the next turn waits for it. A queue whose sinks take
longer than the grace keeps that thread, and the pool starts another one: a thousand quick sinks cost one thread, and
each slow one has its own. Records for a slow sink wait in its queue; the dataflow chooses what happens when the queue
is full (``on_slow``).
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from riot_ops.reuse.errors import describe_error
from riot_ops.reuse.limits import Limits
from riot_ops.reuse.sink_queue import SinkPosition, SinkQueue
from riot_ops.reuse.submission import Submission

__all__ = ["SinkPool"]


class SinkPool:
    """The sink queues of a back end, and the threads that write.

    The thread that runs the steps makes all calls except :meth:`open`, or waits while another thread makes them.
    """

    def __init__(self, limits: Limits, durable: bool = False) -> None:
        self.limits, self.durable = limits, durable
        self.queues: dict[str, SinkQueue] = {}
        #: Queues with waiting jobs.
        self.ready: deque[SinkQueue] = deque()
        #: Queues of removed dataflows that still write; failures and dropped records also of those.
        self._closing: list[SinkQueue] = []
        self._failed: dict[str, str] = {}
        self._dropped: dict[str, dict[str, int]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._current: tuple[SinkQueue, float] | None = None

    def open(
        self, submission: Submission, position: SinkPosition | None = None, placed: Mapping[str, str] | None = None
    ) -> SinkQueue:
        """Open the sinks of a dataflow, possibly at a kept position; raise if a sink of a new one cannot begin."""
        return SinkQueue(submission, self.limits, self.ready, self.durable, position, placed)

    def add(self, queue: SinkQueue) -> None:
        """Add the queue of a new dataflow."""
        name = queue.submission.name
        self.queues[name] = queue
        self._failed.pop(name, None)
        self._dropped.pop(name, None)

    def close(self, name: str) -> SinkQueue | None:
        """End a dataflow's sinks after their waiting records, without waiting for slow ones."""
        queue = self.queues.pop(name, None)
        if queue is not None:
            queue.unsubscribe()
            queue.close()
            self.flush()
            self._closing.append(queue)
            self._note_failures()
        return queue

    def commit(self) -> None:
        """End the epoch of all dataflows."""
        for queue in self.queues.values():
            queue.commit()
        self.flush()

    def flush(self) -> None:
        """Wait until all waiting records are written, except those of slow sinks."""
        with self._changed:
            while self.ready or self._current is not None:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, daemon=True, name="riot_ops-sinks")
                    self._thread.start()
                since = time.monotonic() if self._current is None else self._current[1]
                if (left := since + self.limits.grace_seconds - time.monotonic()) > 0:
                    self._changed.notify_all()
                    self._changed.wait(left)
                elif self._current is not None:
                    self._current[0].move_to_own_thread()  # it keeps the thread that writes it
                    self._thread = self._current = None

    def _work(self) -> None:
        """Write for all queues, or for one alone after that has exceeded the grace."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.ready or self._thread is not threading.current_thread())
                if self._thread is not threading.current_thread():
                    return
                queue = self.ready.popleft()
                self._current = queue, time.monotonic()
            queue.drain()
            with self._changed:
                if self._thread is threading.current_thread():
                    self._current = None
                    if not self.ready:
                        self._changed.notify_all()
                    del queue  # while this thread waits, it must not keep a removed dataflow's sources and sinks
                    continue
            queue.run()
            return

    def end(self) -> None:
        """End all sinks, and wait for slow ones within limits."""
        for name in list(self.queues):
            self.close(name)
        for queue in self._closing:
            queue.wait()
        self._note_failures()
        with self._changed:
            self._thread = None
            self._changed.notify_all()

    def halt(self) -> None:
        """Release all sinks without ending them: another process continues."""
        for queue in self.queues.values():
            queue.unsubscribe()
            queue.halt()
        self.queues = {}
        self.end()

    def stats(self) -> dict[str, Any]:
        """``rows`` of each dataflow, ``failed`` with reasons, ``dropped`` records by stream, ``slow`` bytes waiting."""
        self._note_failures()
        pending: Counter[str] = Counter()
        for queue in (*self._closing, *self.queues.values()):
            if queue.own_thread and not queue.done:
                pending[queue.submission.name] += queue.pending_bytes
        return {
            "rows": {name: queue.writer.rows for name, queue in self.queues.items()},
            "failed": dict(self._failed),
            "dropped": {name: dict(streams) for name, streams in self._dropped.items()},
            "slow": dict(pending),
        }

    def _note_failures(self) -> None:
        """Note failures and dropped records."""
        for queue in (*self._closing, *self.queues.values()):
            name = queue.submission.name
            if queue.failures:
                self._failed[name] = "; ".join(dict.fromkeys(map(describe_error, queue.failures)))
            if dropped := queue.dropped + queue.writer.lost:
                self._dropped[name] = dict(dropped)
        self._closing = [queue for queue in self._closing if not queue.done]
