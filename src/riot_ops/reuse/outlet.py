"""The sinks of one dataflow, which take records in their own time."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

import msgspec
import pyarrow as pa

from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.delivery import Delivery
from riot_ops.reuse.limits import Limits
from riot_ops.reuse.spool import Spool
from riot_ops.reuse.submission import Submission

__all__ = ["Mark", "Outlet", "Stood"]

_log = logging.getLogger("riot_ops")


class Stood(msgspec.Struct):
    """Where the sinks of a dataflow stand.

    Attributes
    ----------
    epoch : int or None
        The one that is under way; None where nothing of them has been kept.
    rows : int
        Records that they have got.
    gaps : dict of str to str
        By sink that lacks records, why.
    dropped : dict of str to int
        By stream, the records that some sink did not get.
    """

    epoch: int | None
    rows: int = 0
    gaps: dict[str, str] = {}
    dropped: dict[str, int] = {}


#: Records of a stream, or something else that is to be done when those before it are written.
Job = tuple[str, pa.RecordBatch] | Callable[[], None]


#: By what it is of: the outlets that want it, and their names for it.
Wanting = dict[str, list[tuple["Outlet", str]]]


class Outlet:
    """A :class:`Delivery` that takes records in its own time.

    Parameters
    ----------
    submission : Submission
    limits : Limits
    ready : deque
        Where it stands while something waits to be written by the thread of all.
    durable : bool, default False
        As for a delivery.
    stood : Stood, optional
        Where its sinks stood before a restart.
    """

    def __init__(
        self,
        submission: Submission,
        limits: Limits,
        ready: deque[Outlet],
        durable: bool = False,
        stood: Stood | None = None,
    ) -> None:
        if stood is None:
            self.delivery = Delivery(submission, durable=durable)
        else:
            self.delivery = Delivery(submission, stood.epoch, durable, again=True, gaps=stood.gaps)
            self.delivery.rows = stood.rows
        self.paused = False
        #: Where it is noted what it wants: the table, and the key in it.
        self._wanted: list[tuple[Wanting, str]] = []
        #: By stream, the records that never came to its sinks.
        self.dropped: Counter[str] = Counter(None if stood is None else stood.dropped)
        #: Whether it has a thread of its own; whether that is at an end.
        self.apart = self.done = False
        self.submission = submission
        self._ready = ready
        self._limits = limits
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._bytes = 0
        #: What did not fit into memory, and what is to be done behind it.
        self._spool: Spool | None = None
        self._after: list[Callable[[], None]] = []
        self._moved = 0.0
        self._listed = self._over = self._halted = False
        #: Whether records have come since the last commit.
        self._begun = False

    @property
    def failures(self) -> list[Exception]:
        """What went wrong."""
        return self.delivery.failures

    @property
    def waiting(self) -> int:
        """Bytes that its sinks have not taken yet."""
        with self._changed:
            return self._bytes + (self._spool.nbytes if self._spool is not None else 0)

    def stands(self) -> Stood:
        """Where its sinks stand now."""
        delivery = self.delivery
        gaps = delivery.lacking(all_of_them=self._over and bool(self.dropped))
        return Stood(delivery.epoch, delivery.rows, gaps, dict(self.dropped + delivery.lost))

    # -- from the thread that runs the steps -------------------------------------------------------

    def write(self, stream: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Add records of a stream, which has the dataflow's own name."""
        if not self.paused:
            for batch in batches:
                self._begun = True
                if self.apart:
                    self._queue(stream, batch)
                else:
                    self._now((stream, batch))

    def reject(self, label: str, batch: pa.RecordBatch) -> None:
        """Add rejected records of a step, which has this name in the dataflow."""
        column = batch.schema.get_field_index("task")
        names = pa.array([label] * batch.num_rows, pa.string())
        self.write(ERRORS_STREAM, [batch.set_column(column, batch.schema.field(column), names)])

    def commit(self) -> None:
        """End an epoch: what was written so far can be seen. One in which nothing has come goes on."""
        if self._begun:
            self._begun = False
            self._do(self.delivery.commit)

    def stop(self, error: Exception) -> None:
        """A step has failed: nothing more comes of it."""
        if error not in self.delivery.failures:
            self._do(lambda: self.delivery.stop(error))

    def want(self, table: Wanting, key: str, name: str) -> None:
        """What this is of is for it, by that name."""
        if (self, name) not in table.setdefault(key, []):
            table[key].append((self, name))
            self._wanted.append((table, key))

    def leave(self) -> None:
        """Nothing is for it any more."""
        for where, key in self._wanted:
            where[key] = [(one, label) for one, label in where.get(key, ()) if one is not self]
            if not where[key]:
                del where[key]

    def close(self) -> None:
        """The dataflow has ended; its sinks end when they have what waits for them."""
        self._do(self._end)

    def mark(self) -> Mark | None:
        """Where its sinks stand when they have committed what they had got by now; None where that waits in files."""
        mark = Mark(self)
        with self._changed:
            if self._spool is not None:
                return None
            if self.apart and not self._over:
                self._jobs.append(mark.note)
                self._changed.notify_all()
                return mark
        mark.note()
        return mark

    def halt(self) -> None:
        """Let go of its sinks as they are: another goes on."""
        with self._changed:
            self._over = self._halted = True
            self._changed.notify_all()
            if self.apart:
                self._changed.wait_for(lambda: self.done, self._limits.patience_s)
                return
        self._end()

    @property
    def over(self) -> bool:
        """Whether it writes nothing any more."""
        return self._over

    def _now(self, job: Job) -> None:
        self._jobs.append(job)
        if not self._listed:
            self._listed = True
            self._ready.append(self)

    def _do(self, what: Callable[[], None]) -> None:
        if not self.apart:
            self._now(what)
            return
        with self._changed:
            if self._spool is None:
                self._jobs.append(what)
            elif what != self.delivery.commit:  # what comes of files is committed file by file
                self._after.append(what)
            self._changed.notify_all()

    def _queue(self, stream: str, batch: pa.RecordBatch) -> None:
        on_slow = self.submission.on_slow
        with self._changed:
            if not self._over and self._spool is None and self._full(batch.nbytes):
                if on_slow == "detach":
                    self._spool = Spool(self.submission.flow.schemas())
                elif on_slow == "block":
                    self._wait(batch.nbytes)
                else:
                    self._drop(batch.nbytes)
            if self._over:
                self.dropped[stream] += batch.num_rows
            elif self._spool is not None:
                self._keep(self._spool, stream, batch)
            else:
                self._jobs.append((stream, batch))
                self._bytes += batch.nbytes
            self._changed.notify_all()

    def _keep(self, spool: Spool, stream: str, batch: pa.RecordBatch) -> None:
        """Put records into files; a disk that takes no more is this dataflow's matter alone."""
        spool.rows[stream] += batch.num_rows  # first: where it fails they count as dropped
        try:
            spool.put(stream, batch)
            behind = spool.nbytes
        except (OSError, RiotError) as error:
            self.give_up(f"its sinks are behind, and what waits for them cannot be kept: {error}")
            return
        if behind > self._limits.behind_bytes:
            self.give_up(f"its sinks are {behind:,} bytes behind")

    def _full(self, size: int) -> bool:
        return self._bytes > 0 and self._bytes + size > self._limits.queue_bytes

    def _drop(self, size: int) -> None:
        """Make room by the oldest records; what else is to be done stays."""
        kept: list[Job] = []
        while self._jobs and self._full(size):
            job = self._jobs.popleft()
            if isinstance(job, tuple):
                self._bytes -= job[1].nbytes
                self.dropped[job[0]] += job[1].num_rows
            else:
                kept.append(job)
        self._jobs.extendleft(reversed(kept))

    def _wait(self, size: int) -> None:
        """Until there is room; a sink that takes nothing for too long is given up."""
        while self._full(size) and not self._over:
            if not self._changed.wait(self._patience()):
                self.give_up(f"its sinks took nothing for {self._limits.patience_s:g} s, while others waited for them")

    def _patience(self) -> float:
        return max(0.0, self._moved + self._limits.patience_s - time.monotonic())

    def give_up(self, why: str) -> None:
        """Hand nothing more to it; what waits counts as dropped."""
        with self._changed:
            self._over = True
            self.delivery.failures.append(ConnectorError(why))
            for job in self._jobs:
                if isinstance(job, tuple):
                    self.dropped[job[0]] += job[1].num_rows
            self._jobs.clear()
            self._bytes = 0
            if self._spool is not None:
                self.dropped += self._spool.rows
                self._spool.close()
                self._spool = None
            name, lost = self.submission.name, self.dropped.total()
            _log.warning("the dataflow %r gets nothing more, %d records were dropped: %s", name, lost, why)
            self._changed.notify_all()

    def ended(self) -> None:
        """Wait until its own thread is at an end; one that takes nothing for too long is given up."""
        with self._changed:
            while not self.done:
                if not self._changed.wait(self._patience()) and not self._patience():
                    if not self._over:
                        self.give_up(f"its sinks took nothing for {self._limits.patience_s:g} s at the end")
                    return

    # -- from the thread that writes ---------------------------------------------------------------

    def drain(self) -> None:
        """Write what there is, until it has a thread of its own."""
        self._listed = False
        while True:
            with self._changed:
                if self.apart or not self._jobs:
                    return
                job = self._jobs.popleft()
            self._perform(job)

    def part(self) -> None:
        """From now on it has a thread of its own."""
        with self._changed:
            self.apart = True
            self._bytes = sum(job[1].nbytes for job in self._jobs if isinstance(job, tuple))
            self._moved = time.monotonic()

    def work(self) -> None:
        """Write what comes, to the end."""
        while not self._over:
            for job in self._next():
                self._perform(job)
                with self._changed:
                    self._moved = time.monotonic()
                    self._changed.notify_all()
        self._end()

    def _perform(self, job: Job) -> None:
        if isinstance(job, tuple):
            self.delivery.write(*job)
        else:
            job()

    def _next(self) -> list[Job]:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._spool is not None or self._over)
            self._moved = time.monotonic()
            if self._jobs:
                job = self._jobs.popleft()
                if isinstance(job, tuple):
                    self._bytes -= job[1].nbytes
                return [job]
            if self._spool is None:
                return []
            if self._spool.empty:  # it has caught up
                self._spool.close()
                self._spool = None
                after, self._after = self._after, []
                return [*after]
            try:
                return [*self._spool.take(), self.delivery.commit]
            except (OSError, RiotError) as error:
                self.give_up(f"what waits for its sinks cannot be read: {error}")
                return []

    def _end(self) -> None:
        try:
            (self.delivery.halt if self._halted else self.delivery.close)()
        finally:
            with self._changed:
                self._over = self.done = True
                self._changed.notify_all()


class Mark:
    """Where an outlet's sinks stand at a moment."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._place: Stood | None = None

    def note(self) -> None:
        """It is now."""
        self._place = self._outlet.stands()

    def place(self) -> Stood | None:
        """Where they stood; None where that moment is still to come."""
        if self._place is None and self._outlet.over:
            self.note()
        return self._place
