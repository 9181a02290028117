"""The queue before the sinks of one dataflow, and the files for records that wait for slow ones."""

from __future__ import annotations

import logging
import shutil
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

import msgspec
import pyarrow as pa

from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.core.paths import temporary_folder
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.reuse.limits import Limits
from riot_ops.reuse.sink_writer import SinkWriter
from riot_ops.reuse.submission import Submission
from riot_ops.reuse.topic import Topic
from riot_ops.reuse.topic_sink import TopicSink
from riot_ops.reuse.topic_source import TopicSource

__all__ = ["Barrier", "SinkPosition", "SinkQueue", "Spool"]

#: Records of this many bytes become a batch of the topic.
BATCH_BYTES = 4 << 20
READER = "sinks"


class Spool:
    """Keeps records in files until they are taken, each stream in its order.

    Attributes
    ----------
    rows : Counter
        By stream, the records that were not taken; the caller of :meth:`put` counts them.
    """

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._folder = temporary_folder("riot_ops-reuse-")
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.topic = Topic(self._folder / "topic")
        self.topic.join(READER, 0)
        self._sink = TopicSink(self.topic)
        self._source = TopicSource(self.topic, READER, schemas)
        self._writer = self._sink.writer(0, 0)
        self._written = self._read = 0
        #: Bytes that are not in files yet.
        self._held = 0
        self.rows: Counter[str] = Counter()

    def put(self, stream: str, batch: pa.RecordBatch) -> None:
        """Append records."""
        self._writer.write(stream, batch)
        self._held += batch.nbytes
        if self._held >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._sink.commit(self._written, [self._writer.finish()])
            self._held = 0
            self._written += 1
            self._writer = self._sink.writer(self._written, 0)

    def take(self) -> list[tuple[str, pa.RecordBatch]]:
        """Remove the next records; empty only if there are none."""
        if self._read == self._written:
            self._flush()
        if self._read == self._written:
            return []
        found = []
        for split in self._source.splits({"batch": self._read}, {"batch": self._read + 1}, 1):
            for inputs in self._source.read_inputs("", split):
                found += [(stream, batch) for stream, batches in inputs.items() for batch in batches]
        self._read += 1
        self._source.commit({"batch": self._read})
        for stream, batch in found:
            self.rows[stream] -= batch.num_rows
        return found

    @property
    def empty(self) -> bool:
        """Whether all records have been taken."""
        return not self._held and self._read == self._written

    @property
    def nbytes(self) -> int:
        """Bytes that have not been taken yet."""
        return self._held + self.topic.unread_bytes()

    def close(self) -> None:
        """Remove the files."""
        self._writer.abort()
        self._remove()


_log = logging.getLogger("riot_ops")


class SinkPosition(msgspec.Struct):
    """Where the sinks of a dataflow stand.

    Attributes
    ----------
    epoch : int or None
        Number of the current epoch; None if nothing of the sinks has been kept.
    rows : int
        Records that they have got.
    gaps : dict of str to str
        By sink that lacks records, why.
    dropped : dict of str to int
        By stream, the records that some sink did not get.
    run : str
        Identity of the dataflow's run for its sinks.
    """

    epoch: int | None
    rows: int = 0
    gaps: dict[str, str] = {}
    dropped: dict[str, int] = {}
    run: str = ""


#: Records of a stream, or a call to make after the jobs before it.
Job = tuple[str, pa.RecordBatch] | Callable[[], None]


#: By stream or step: the queues that subscribe to it, each with its dataflow's name for it.
QueuesByKey = dict[str, list[tuple["SinkQueue", str]]]


class SinkQueue:
    """A queue of records before a :class:`~riot_ops.reuse.sink_writer.SinkWriter`.

    Parameters
    ----------
    submission : Submission
    limits : Limits
    ready : deque
        The queues with jobs for the pool's common thread; this one appends itself.
    durable : bool, default False
        As for :class:`~riot_ops.reuse.sink_writer.SinkWriter`.
    position : SinkPosition, optional
        Position of the sinks before a restart.
    placed : mapping of str to str, optional
        As for :class:`~riot_ops.reuse.sink_writer.SinkWriter`.

    Attributes
    ----------
    dropped : Counter
        By stream, the records that never reached the sinks.
    own_thread : bool
        Whether the queue has a thread of its own.
    done : bool
        Whether its sinks have ended or been released.
    spool : Spool, optional
        The records that did not fit into memory.
    """

    def __init__(
        self,
        submission: Submission,
        limits: Limits,
        ready: deque[SinkQueue],
        durable: bool = False,
        position: SinkPosition | None = None,
        placed: Mapping[str, str] | None = None,
    ) -> None:
        if position is None:
            self.writer = SinkWriter(submission, durable=durable, placed=placed)
        else:
            self.writer = SinkWriter(submission, position.epoch, durable, True, position.gaps, placed, position.run)
            self.writer.rows = position.rows
        self.paused = False
        #: The tables in which it subscribes, and the keys there.
        self._subscriptions: list[tuple[QueuesByKey, str]] = []
        self.dropped: Counter[str] = Counter(None if position is None else position.dropped)
        self.own_thread = self.done = False
        self.submission = submission
        self._ready = ready
        self._limits = limits
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._bytes = 0
        #: Calls to make after the spooled records.
        self._deferred: list[Callable[[], None]] = []
        self.spool: Spool | None = None
        self._progressed = 0.0
        self._listed = self._finished = self._halted = False
        #: Whether records have come since the last commit.
        self._dirty = False

    @property
    def failures(self) -> list[Exception]:
        """Errors so far."""
        return self.writer.failures

    @property
    def pending_bytes(self) -> int:
        """Bytes that the sinks have not taken yet."""
        with self._changed:
            return self._bytes + (self.spool.nbytes if self.spool is not None else 0)

    def position(self) -> SinkPosition:
        """Return where the sinks stand now."""
        writer = self.writer
        gaps = writer.incomplete_sinks(include_all=self._finished and bool(self.dropped))
        return SinkPosition(writer.epoch, writer.rows, gaps, dict(self.dropped + writer.lost), writer.run)

    # -- called by the thread that runs the steps --------------------------------------------------

    def write(self, stream: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Add records of a stream; its name is the dataflow's own."""
        if not self.paused:
            for batch in batches:
                self._dirty = True
                if self.own_thread:
                    self._enqueue(stream, batch)
                else:
                    self._schedule((stream, batch))

    def reject(self, label: str, batch: pa.RecordBatch) -> None:
        """Add rejected records of a step; ``label`` is its name in the dataflow."""
        column = batch.schema.get_field_index("task")
        names = pa.array([label] * batch.num_rows, pa.string())
        self.write(ERRORS_STREAM, [batch.set_column(column, batch.schema.field(column), names)])

    def commit(self) -> None:
        """End the epoch: its records become visible. An epoch without records continues."""
        if self._dirty:
            self._dirty = False
            self._schedule_call(self.writer.commit)

    def fail(self, error: Exception) -> None:
        """Note that a step has failed: it gives no more records."""
        if error not in self.writer.failures:
            self._schedule_call(lambda: self.writer.fail(error))

    def subscribe(self, table: QueuesByKey, key: str, name: str) -> None:
        """Enter itself in a table under a key, with the dataflow's name for the stream or step."""
        if (self, name) not in table.setdefault(key, []):
            table[key].append((self, name))
            self._subscriptions.append((table, key))

    def unsubscribe(self) -> None:
        """Remove itself from all tables."""
        for where, key in self._subscriptions:
            where[key] = [(one, label) for one, label in where.get(key, ()) if one is not self]
            if not where[key]:
                del where[key]

    def close(self) -> None:
        """End the sinks after the records that wait for them."""
        self._schedule_call(self._end)

    def barrier(self) -> Barrier | None:
        """Mark the current end of the queue; None if records wait in files."""
        barrier = Barrier(self)
        with self._changed:
            if self.spool is not None:
                return None
            if self.own_thread and not self._finished:
                self._append(barrier.reach)
                self._changed.notify_all()
                return barrier
        barrier.reach()
        return barrier

    def halt(self) -> None:
        """Release the sinks without ending them: another process continues."""
        with self._changed:
            self._finished = self._halted = True
            self._changed.notify_all()
            if self.own_thread:
                self._changed.wait_for(lambda: self.done, self._limits.patience_seconds)
                return
        self._end()

    @property
    def finished(self) -> bool:
        """Whether it takes no more records."""
        return self._finished

    def _schedule(self, job: Job) -> None:
        self._jobs.append(job)
        if not self._listed:
            self._listed = True
            self._ready.append(self)

    def _schedule_call(self, what: Callable[[], None]) -> None:
        if not self.own_thread:
            self._schedule(what)
            return
        with self._changed:
            if self.spool is None:
                self._append(what)
            elif what != self.writer.commit:  # spooled records are committed file by file
                self._deferred.append(what)
            self._changed.notify_all()

    def _enqueue(self, stream: str, batch: pa.RecordBatch) -> None:
        on_slow = self.submission.on_slow
        with self._changed:
            if not self._finished and self.spool is None and self._full(batch.nbytes):
                if on_slow == "detach":
                    self.spool = Spool(self.submission.flow.schemas())
                elif on_slow == "block":
                    self._wait_for_room(batch.nbytes)
                else:
                    self._drop(batch.nbytes)
            if self._finished:
                self.dropped[stream] += batch.num_rows
            elif self.spool is not None:
                self._spill(self.spool, stream, batch)
            else:
                self._append((stream, batch))
                self._bytes += batch.nbytes
            self._changed.notify_all()

    def _append(self, job: Job) -> None:
        if not self._jobs:  # patience begins with work, also where its thread has not woken yet
            self._progressed = time.monotonic()
        self._jobs.append(job)

    def _spill(self, spool: Spool, stream: str, batch: pa.RecordBatch) -> None:
        """Write records to files; a full disk concerns this dataflow alone."""
        spool.rows[stream] += batch.num_rows  # first: if the write fails, they count as dropped
        try:
            spool.put(stream, batch)
            lag_bytes = spool.nbytes
        except (OSError, RiotError) as error:
            self.abandon(f"its sinks lag, and the records that wait for them cannot be stored: {error}")
            return
        if lag_bytes > self._limits.max_lag_bytes:
            self.abandon(f"its sinks lag by {lag_bytes:,} bytes")

    def _full(self, size: int) -> bool:
        return self._bytes > 0 and self._bytes + size > self._limits.max_queue_bytes

    def _drop(self, size: int) -> None:
        """Make room by dropping the oldest records; calls stay."""
        kept: list[Job] = []
        while self._jobs and self._full(size):
            job = self._jobs.popleft()
            if isinstance(job, tuple):
                self._bytes -= job[1].nbytes
                self.dropped[job[0]] += job[1].num_rows
            else:
                kept.append(job)
        self._jobs.extendleft(reversed(kept))

    def _wait_for_room(self, size: int) -> None:
        """Wait until there is room; abandon sinks that take nothing for too long."""
        while self._full(size) and not self._finished:
            if not self._changed.wait(self._remaining_patience()):
                self.abandon(
                    f"its sinks took nothing for {self._limits.patience_seconds:g} s, while others waited for them"
                )

    def _remaining_patience(self) -> float:
        return max(0.0, self._progressed + self._limits.patience_seconds - time.monotonic())

    def abandon(self, why: str) -> None:
        """Send nothing more to the sinks, and count the waiting records as dropped."""
        with self._changed:
            self._finished = True
            self.writer.failures.append(ConnectorError(why))
            for job in self._jobs:
                if isinstance(job, tuple):
                    self.dropped[job[0]] += job[1].num_rows
            self._jobs.clear()
            self._bytes = 0
            if self.spool is not None:
                self.dropped += self.spool.rows
                self.spool.close()
                self.spool = None
            name, lost = self.submission.name, self.dropped.total()
            _log.warning("the dataflow %r gets nothing more, %d records were dropped: %s", name, lost, why)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until its own thread has ended; abandon sinks that take nothing for too long."""
        with self._changed:
            while not self.done:
                if not self._changed.wait(self._remaining_patience()) and not self._remaining_patience():
                    if not self._finished:
                        self.abandon(f"its sinks took nothing for {self._limits.patience_seconds:g} s at the end")
                    return

    # -- called by the thread that writes ----------------------------------------------------------

    def drain(self) -> None:
        """Do the waiting jobs until there are none, or the queue gets a thread of its own."""
        self._listed = False
        while True:
            with self._changed:
                if self.own_thread or not self._jobs:
                    return
                job = self._jobs.popleft()
            self._perform(job)

    def move_to_own_thread(self) -> None:
        """Keep the current thread for this queue alone."""
        with self._changed:
            self.own_thread = True
            self._bytes = sum(job[1].nbytes for job in self._jobs if isinstance(job, tuple))
            self._progressed = time.monotonic()

    def run(self) -> None:
        """Do all jobs until the end."""
        while not self._finished:
            for job in self._next():
                self._perform(job)
                with self._changed:
                    self._progressed = time.monotonic()
                    self._changed.notify_all()
        self._end()

    def _perform(self, job: Job) -> None:
        if isinstance(job, tuple):
            self.writer.write(*job)
        else:
            job()

    def _next(self) -> list[Job]:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self.spool is not None or self._finished)
            self._progressed = time.monotonic()
            if self._jobs:
                job = self._jobs.popleft()
                if isinstance(job, tuple):
                    self._bytes -= job[1].nbytes
                return [job]
            if self.spool is None:
                return []
            if self.spool.empty:  # the sinks have caught up
                self.spool.close()
                self.spool = None
                deferred, self._deferred = self._deferred, []
                return [*deferred]
            try:
                return [*self.spool.take(), self.writer.commit]
            except (OSError, RiotError) as error:
                self.abandon(f"the records that wait for its sinks cannot be read: {error}")
                return []

    def _end(self) -> None:
        try:
            (self.writer.halt if self._halted else self.writer.close)()
        finally:
            with self._changed:
                self._finished = self.done = True
                self._changed.notify_all()


class Barrier:
    """A mark in a queue: where its sinks stand when they reach it."""

    def __init__(self, queue: SinkQueue) -> None:
        self._queue = queue
        self._position: SinkPosition | None = None

    def reach(self) -> None:
        """Note that the sinks have reached it."""
        self._position = self._queue.position()

    def position(self) -> SinkPosition | None:
        """Return the position of the sinks; None if they have not reached the barrier yet."""
        if self._position is None and self._queue.finished:
            self.reach()
        return self._position
