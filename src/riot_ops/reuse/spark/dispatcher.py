"""Dispatchers read the topics that dataflows share and deliver the records to the sinks of each dataflow."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from riot_ops.core.errors import RiotError
from riot_ops.reuse.spark.progress import DispatcherProgress, ProgressFile, TopicCursor
from riot_ops.reuse.spark.source import NON_BLOCKING
from riot_ops.reuse.spark.subscriber import Records, Subscriber
from riot_ops.reuse.spark.unread_batches import collect_records, count_dropped, pending_bytes, select_batches
from riot_ops.reuse.topic import Marker, Topic

__all__ = ["DispatchContext", "Dispatcher", "deferring_save"]


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


IDLE_SECONDS = 0.5
POLL_SECONDS = 0.02
#: How long one subscriber may hold up the others of its dispatcher before it gets a dispatcher of its own.
GRACE_SECONDS = 0.5
_log = logging.getLogger("riot_ops")


@contextlib.contextmanager
def deferring_save(name: str) -> Iterator[None]:
    """Log an error in saving progress instead of raising it: the action has succeeded; the next turn saves again."""
    try:
        yield
    except RiotError as error:
        _log.warning("the progress of the sinks of %s is saved later: %s", name, error)


@dataclass(frozen=True)
class DispatchContext:
    """State that dispatchers share.

    Attributes
    ----------
    max_lag_bytes : int
        How far sinks may lag where queries do not wait for them.
    patience_s : float, seconds
    new_batches : Condition
        Notified when topics have new batches.
    by_dataflow : dict of str to Dispatcher
    draining : set of Dispatcher
        Those that deliver the remaining records of removed dataflows.
    """

    max_lag_bytes: int
    patience_s: float
    new_batches: threading.Condition = field(default_factory=threading.Condition)
    by_dataflow: dict[str, Dispatcher] = field(default_factory=dict)
    draining: set[Dispatcher] = field(default_factory=set)

    def notify(self) -> None:
        """Wake all dispatchers, as topics have new batches or one is to stop."""
        with self.new_batches:
            self.new_batches.notify_all()


class Dispatcher:
    """Delivers records of topics to the sinks of dataflows, with one thread and one reader of each topic for all.

    The records of a subscriber in a turn form an epoch of its sinks, which they commit; then progress is saved. After a
    restart, an epoch whose progress was not saved is repeated; sinks that replace an epoch have it once.

    A thread that changes a dispatcher holds its lock. A dedicated dispatcher holds it only between two
    deliveries, any other for at most one grace period for each sink.

    Parameters
    ----------
    path : path
        Of its progress file.
    topics : mapping of str to Topic
        By fragment.
    progress : DispatcherProgress
    subscribers : sequence of Subscriber
        With the same ``on_slow``.
    context : DispatchContext
    thread : Thread, optional
        The thread to run in; by default a new one.

    Attributes
    ----------
    dedicated : bool
        Whether it serves a single subscriber, which it does not hold the lock for.
    drained : Event
        Set when a removed dataflow has got all that was left for it, or nothing waits for it any more.
    """

    def __init__(
        self,
        path: Path,
        topics: Mapping[str, Topic],
        progress: DispatcherProgress,
        subscribers: Sequence[Subscriber],
        context: DispatchContext,
        thread: threading.Thread | None = None,
    ) -> None:
        self.subscribers = list(subscribers)
        self.on_slow = self.subscribers[0].submission.on_slow
        self._file = ProgressFile(path, progress)
        try:
            reader = ("" if self.on_slow == "block" else NON_BLOCKING) + path.stem
            self.cursor = TopicCursor(reader, topics, progress.at)
        except BaseException:
            self._file.delete()
            raise
        self._context = context
        self.dedicated = thread is not None
        #: Since when the sinks of a dedicated dispatcher have been busy.
        self._busy_since = time.monotonic() if self.dedicated else None
        self._stop = threading.Event()
        #: For a removed dataflow, the last batches of its topics that it gets.
        self._drain_until: dict[str, int] | None = None
        self.drained = threading.Event()
        #: Where the batches end that the sinks of a dedicated dispatcher are writing.
        self._in_flight_end: Mapping[str, int] = {}
        self._skip_lock = threading.Lock()
        self._known_failures = 0  # at removal
        self.lock = threading.RLock()
        for one in self.subscribers:
            context.by_dataflow[one.name] = self
        self.name = self.subscribers[0].name
        self._thread = thread or self._new_thread()

    # -- turns -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, daemon=True, name=f"riot_ops-to-{self.name}")

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._drain_until is not None and (self.closed or self.cursor.has_read(self._drain_until)):
                self._finish_draining()
                return
            if not self.dispatch():
                with self._context.new_batches:
                    self._context.new_batches.wait(IDLE_SECONDS if self._drain_until is None else POLL_SECONDS)
            with self.lock:
                if not self.subscribers:  # each has a dispatcher of its own
                    self.delete()
                    return

    def dispatch(self) -> bool:
        """Deliver available batches, up to a limit; returns whether there were any."""
        try:
            with self.lock:
                if self.closed:
                    self._skip_unread()
                    return False
                if self._file.unsaved and not self._save():
                    return False  # unsaved batches are repeated after a restart; a sink must not have later ones then
                ending = [one for one in self.subscribers if one.reaches_end(self.cursor.at)]
                found = {} if ending else self._next_batches()
                if not found and not ending:
                    return False
                records = collect_records(self.cursor.topics, found, self.subscribers)
                end = {name: found[name][-1][0] + 1 if name in found else at for name, at in self.cursor.at.items()}
                if not self.dedicated:
                    takers = [one for one in self.subscribers if records[one.name] or one in ending]
                    self._deliver([(one, records[one.name]) for one in takers], end)
                    self._advance(end, bool(takers))
                    return True
                [one] = self.subscribers
                self._in_flight_end, self._busy_since = end, time.monotonic()
            one.deliver(records[one.name])
            self._finish_delivery(end, bool(records[one.name] or ending))
            return True
        except RiotError as error:
            if self.closed:
                self.cursor.leave()  # the unread batches cannot be counted as dropped
            else:
                self._fail(error)
            return False
        finally:
            self._busy_since = None

    def _skip_unread(self) -> None:
        """Count unread batches as dropped, so that no query waits for closed sinks; needs no lock."""
        with self._skip_lock:
            for name, topic, at in self.cursor.positions():
                if markers := list(topic.pending(at)):
                    count_dropped(name, topic, markers, self.subscribers)
                    self.cursor.advance({name: markers[-1][0] + 1})
            self._save()

    @property
    def closed(self) -> bool:
        """Whether no sink takes records any more."""
        return all(one.closed for one in self.subscribers)

    def _advance(self, end: Mapping[str, int], delivered: bool = True) -> None:
        """Count the epochs of subscribers, save progress, and let topics trim the batches before ``end``."""
        self.cursor.advance(end)
        for one in self.subscribers:
            one.count_epoch()
        self._save(delivered)

    def _save(self, changed: bool = True) -> bool:
        return self._file.save(self.cursor, self.subscribers, changed)

    def _fail(self, error: RiotError) -> None:
        for one in self.subscribers:
            one.fail(error)

    # -- batches -----------------------------------------------------------------------------------

    def _next_batches(self) -> dict[str, list[tuple[int, Marker]]]:
        """Return, by topic, the batches of a turn."""
        self._drop_replaced()
        max_bytes = None if self.on_slow == "block" else self._context.max_lag_bytes
        return select_batches(self.cursor, self.subscribers, max_bytes)

    def _drop_replaced(self) -> None:
        """Leave replaced topics that have been read to the end."""
        read = {name for one in self.subscribers for name in one.progress.before if not self.cursor.has_unread(name)}
        # a list: each subscriber drops its topics
        if any([one.drop_replaced(one.progress.before if one.closed else read) for one in self.subscribers]):
            self._leave_unwanted()

    def pending_bytes(self) -> dict[str, int]:
        """Return the bytes by dataflow that are not delivered yet."""
        return {} if self.closed else pending_bytes(self.cursor, self.subscribers)

    def lags(self) -> bool:
        """Return whether there are batches to deliver, or sinks to end."""
        return not self.closed and (self.cursor.lags() or any(one.ending for one in self.subscribers))

    # -- slow sinks --------------------------------------------------------------------------------

    def _deliver(
        self,
        deliveries: Sequence[tuple[Subscriber, Records]],
        end: Mapping[str, int],
        begin: Mapping[str, int] | None = None,
    ) -> None:
        """Deliver records; a subscriber that takes too long gets a dispatcher of its own."""
        since = self.cursor.at if begin is None else begin
        while deliveries:
            turn = DeliveryRound(deliveries, f"riot_ops-to-{self.name}")
            if turn.run(GRACE_SECONDS, lambda one, thread: self._detach(one, thread, since, end)):
                return
            deliveries = list(turn.pending)

    def _detach(
        self, one: Subscriber, thread: threading.Thread, begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Callable[[], None]:
        """Move a subscriber to a dedicated dispatcher in ``thread``; returns what that runs after the delivery."""
        try:
            own = self._dedicated_dispatcher(one, begin, thread)
        except RiotError as error:
            one.abandon(str(error))
            return lambda: None
        finally:
            self.subscribers.remove(one)
        own._in_flight_end = {name: end[name] for name in own.cursor.at}  # noqa: SLF001
        if self._stop.is_set():
            own.stop()
        return lambda: own._resume(end)  # noqa: SLF001

    def _dedicated_dispatcher(
        self, one: Subscriber, begin: Mapping[str, int], thread: threading.Thread | None = None
    ) -> Dispatcher:
        """Make a dispatcher for one subscriber, from ``begin`` on."""
        progress = DispatcherProgress({name: begin[name] for name in one.topics}, {one.name: one.snapshot()})
        topics = {name: self.cursor.topics[name] for name in one.topics}
        return Dispatcher(self._file.sibling(), topics, progress, [one], self._context, thread)

    def _resume(self, end: Mapping[str, int]) -> None:
        """Continue in the kept thread after the delivery up to ``end`` that had kept it."""
        try:
            self._finish_delivery(end)
        except RiotError as error:
            self._fail(error)
        self._run()

    def _finish_delivery(self, end: Mapping[str, int], delivered: bool = True) -> None:
        """Advance a dedicated dispatcher after a delivery, even an abandoned one."""
        with self.lock:
            self._busy_since = None
            if self.closed:
                self.cursor.advance(end)  # the writer counts records that the sinks dropped
            else:
                self._advance(end, delivered)

    def check_stalled(self) -> None:
        """Abandon sinks that hang while others wait for them; needs no lock, as its holder may be waiting for them."""
        since = self._busy_since
        stalled = since is not None and time.monotonic() - since > self._context.patience_s
        if not stalled or self._stop.is_set() or not (self.on_slow == "block" or self._drain_until is not None):
            return
        if not self.closed:
            self._warn_lost(f"took nothing for {self._context.patience_s:g} s")
            for one in self.subscribers:
                one.abandon(f"its sinks took nothing for {self._context.patience_s:g} s, while others waited for them")
            self.cursor.advance(self._in_flight_end)  # the sinks may still write these
        try:
            if self._drain_until is None:
                self._skip_unread()
            else:
                self.cursor.leave()
                self.drained.set()
        except RiotError:
            self.cursor.leave()

    # -- changes of subscribers --------------------------------------------------------------------

    def add(self, subscribers: Sequence[Subscriber], topics: Mapping[str, Topic], at: Mapping[str, int]) -> bool:
        """Add subscribers from these batches on, and deliver to them those that the others have had already.

        Returns False if all its sinks are closed.
        """
        with self.lock:
            if self.closed:
                return False
            for one in subscribers:
                one.start_at({name: at[name] for name in one.subscriptions})
            for name, topic in topics.items():
                self.cursor.add(name, topic, at[name])
            self.subscribers += subscribers
            self._context.by_dataflow.update(dict.fromkeys((one.name for one in subscribers), self))
            self._file.write(self.cursor.at, self.subscribers)
            missed = {
                name: [(n, marker) for n, marker in topic.pending(at[name]) if n < self.cursor.at[name]]
                for name, topic in topics.items()
            }
            records = collect_records(topics, missed, subscribers)
            deliveries = [(one, records[one.name]) for one in subscribers if records[one.name]]
            self._deliver(deliveries, self.cursor.at, at)
            self._advance(self.cursor.at)
            return True

    def remove(self, one: Subscriber) -> None:
        """Remove a subscriber whose submission has failed."""
        with self.lock:
            if one in self.subscribers:
                self.subscribers.remove(one)
                self._leave_unwanted()

    def reassign(self, replacements: Mapping[str, tuple[str, Topic]]) -> None:
        """Switch dataflows to new topics, each with its fragment, after the batches left in their present ones."""
        with self.lock:
            for one in self.subscribers:
                if one.name in replacements:
                    name, topic = replacements[one.name]
                    one.reassign(name, one.subscriptions)
                    self.cursor.add(name, topic, 0)
            with deferring_save(self.name):
                if self.closed:
                    self._skip_unread()
                self._drop_replaced()
                self._save()

    def _leave_unwanted(self) -> None:
        """Leave the topics that no subscriber reads, and save progress."""
        wanted = {name for one in self.subscribers for name in one.topics}
        unwanted = self.cursor.retain(wanted.__contains__)
        try:
            self._save()
        finally:
            for topic in unwanted:
                topic.leave(self.cursor.reader)

    def switch_pause(self, one: Subscriber, border: Mapping[str, int]) -> None:
        """Pause, or resume, a dataflow at these batches of its topics."""
        with self.lock:
            one.switch_pause(border, self.cursor.at)
            with deferring_save(self.name):
                self._save()

    def drain(self, one: Subscriber) -> None:
        """Deliver its remaining records to a removed dataflow, in a dispatcher of its own, and then end its sinks."""
        if self.subscribers != [one]:
            own = self._dedicated_dispatcher(one, self.cursor.at)
            self.subscribers.remove(one)
            with own.lock:
                own.drain(one)
            self._leave_unwanted()
            return
        until = {name: topic.head().batch for name, topic in self.cursor.topics.items()}
        one.end_at({name: batch + 1 for name, batch in until.items()})
        self._known_failures = len(one.writer.failures)
        self._file.delete()
        self._drain_until, self.dedicated, self.name = until, True, one.name
        self._context.draining.add(self)
        if not self._thread.is_alive():
            self._thread = self._new_thread()
            self.start()
        self._context.notify()

    def _finish_draining(self) -> None:
        """End the sinks of a removed dataflow."""
        self._busy_since = time.monotonic()
        try:
            for one in self.subscribers:
                (one.writer.halt if one.abandoned else one.writer.close)()
                for error in one.writer.failures[self._known_failures :] if not one.abandoned else ():
                    self._warn_lost(f"failed: {error}")
            self.delete()
        finally:
            self._busy_since = None
            self._context.draining.discard(self)
            self.drained.set()

    def _warn_lost(self, why: str) -> None:
        """Log records lost for a removed dataflow: its user gets no more reports."""
        if self._drain_until is not None:
            left = sum(self.pending_bytes().values())
            _log.warning("the sinks of %s, which was removed, %s; %d bytes were not delivered", self.name, why, left)

    # -- end ---------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask the thread to stop after the current delivery."""
        self._stop.set()

    def halt(self) -> bool:
        """Stop and wait for the thread; False if a sink does not return it in time."""
        self.stop()
        self._context.notify()
        if not self.join(0 if all(one.abandoned for one in self.subscribers) else self._context.patience_s):
            for one in self.subscribers:
                one.abandoned = True
            return False
        return True

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; returns whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop and release the sinks; another dispatcher can resume. A removed dataflow gets its records first."""
        if self._drain_until is not None and not self.drained.wait(self._context.patience_s):
            self._warn_lost("did not take all records before the end")
        if self.halt():
            for one in self.subscribers:
                one.writer.halt()

    def delete(self) -> None:
        """Delete its progress and leave its topics."""
        self._file.delete()
        self.cursor.leave()
