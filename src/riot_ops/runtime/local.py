"""The local runner: one dataflow in this process, with bounded buffers after the source."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from riot_ops.core.backoff import MAX_SECONDS
from riot_ops.core.buffering import Buffering, as_buffering
from riot_ops.core.checks import check_count, duration_seconds
from riot_ops.core.display import cell_text, html_display, html_table
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.core.folder_lock import FolderLock
from riot_ops.core.interrupts import InterruptCheck, defer_interrupt, handle_termination
from riot_ops.core.sink import FanOutWriter, MemorySink, Sink
from riot_ops.core.source import Source, initial_offset
from riot_ops.core.storage import open_place
from riot_ops.graph.graph import Graph
from riot_ops.kernels.changeover import prefer_plain_python
from riot_ops.measure.metrics import Summary
from riot_ops.measure.probe import Probe
from riot_ops.measure.run_log import RunLog
from riot_ops.runtime.batches import ARRIVAL, EVENT_TIME
from riot_ops.runtime.binding import ReadableStreams, bind_sinks, bind_sources, end_sinks, sink_nodes
from riot_ops.runtime.checkpoint import Checkpoint, CheckpointData
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.fingerprint import StepContract, describe_difference, fingerprint
from riot_ops.runtime.input_buffer import WAKE, BufferedBatch, InputBuffer
from riot_ops.runtime.memory import SMALL_BATCH_SIZE, SMALL_BUFFERING, Memory, check_memory, retain_freed_memory
from riot_ops.runtime.merged_source import merge_sources
from riot_ops.runtime.parallel import MIN_THREADED_ROWS_IDLE, InFlightBatch, Pipeline, create_engine, is_reentrant
from riot_ops.runtime.reader import Reader
from riot_ops.runtime.restart import (
    AddedSinks,
    Restart,
    RestartReport,
    check_restart,
    kept_state,
    outlook,
    plan_restart,
    source_kind,
    step_contracts,
)

__all__ = ["BATCH_SIZE", "Job", "Result", "RunInterruptedError", "prepare", "run"]

#: Defaults: records in a batch, and its bytes. Each batch costs a step from microseconds to milliseconds; beyond this
#: size little is gained, and memory grows.
BATCH_SIZE, DEFAULT_BUFFERING = 131_072, Buffering(capacity=16 << 20, queue=32 << 20)
#: The same on one core, where batches do not overlap; but steps that may wait for other systems, such as stores, get
#: batches as long as on several cores.
SINGLE_CORE_BATCH_SIZE, SINGLE_CORE_BUFFERING = 262_144, Buffering(capacity=24 << 20, queue=48 << 20)
#: Where memory is scarce: longest pause before a silent source is asked again, which wakes the processor.
SMALL_PAUSE_S = 0.1
#: Maximum records that a step should read at once, and the records of the first batch, before the expansion is known.
#: Where steps make many records of one, such as the words of a text, the output of a larger batch would need more
#: memory than a batch leaves for the next, see :mod:`riot_ops.runtime.memory`.
MAX_STEP_ROWS, FIRST_ROWS = 4 * BATCH_SIZE, 16_384
#: Records of each stream that a notebook shows.
SHOWN_ROWS = 5
#: A source that gives no records for so long within a range may be blocked.
BLOCKED_SECONDS = 1.0

_log = logging.getLogger("riot_ops")


@dataclass
class Result(ReadableStreams):
    """The result of a local run.

    ``result["avg"]`` is the table of a stream that ended in memory or in Parquet files; for other streams
    it raises :class:`KeyError`. ``list(result)`` are the names of the streams that can be read. ``restart`` says what
    ``restart="compatible"`` has kept of the checkpoint; None if there was nothing to continue.
    """

    flow: Graph
    summary: Summary
    sinks: Mapping[str, Sink]
    routes: Mapping[str, list[str]]
    restart: RestartReport | None = None

    @property
    def errors(self) -> pa.Table:
        """The rejected records."""
        return self["errors"]

    def __repr__(self) -> str:
        return f"{self.flow.name}: {self.summary!r}"

    def _repr_html_(self) -> str:
        """Return the counts, and the first records of the streams that are in memory."""
        tables = []
        for stream, targets in self.routes.items():
            if any(type(self.sinks[name]) is MemorySink for name in targets) and self.summary.rows.get(stream):
                first = self[stream].slice(0, SHOWN_ROWS)
                rows = [[cell_text(value, 40) for value in row.values()] for row in first.to_pylist()]
                tables.append(html_table(rows, first.column_names, caption=f"{stream}, first {len(rows)} records"))
        title, *parts = self.summary.html_parts()
        return html_display(f"{self.flow.name}: {title}", *parts, *tables)


class RunInterruptedError(KeyboardInterrupt):
    """Ctrl-C or SIGTERM has ended a run in process, after a commit.

    Attributes
    ----------
    result : Result
        The counts and the records of what was committed. Without a checkpoint these are all records that were
        processed; windows that were open have no result. ``flow.partial_result`` is the same.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("kept")
    >>> _ = flow.sink("out", flow.source("readings", schema={"value": "double"}))
    >>> ended = RunInterruptedError(flow.run([{"value": 1.0}]))  # Ctrl-C raises it
    >>> len(ended.result["readings"])
    1
    """

    def __init__(self, result: Result) -> None:
        messages = result.summary.messages
        super().__init__(
            f"the run of {result.flow.name!r} was stopped after {messages:,} message{'s' * (messages != 1)}; "
            "partial_result of the dataflow has the records so far"
        )
        self.result = result


def run(
    flow: Graph,
    source: Any = None,
    *,
    sinks: Any = None,
    out: str | Path | None = None,
    batch_size: int | None = None,
    buffering: Buffering | str | None = None,
    epoch_rows: int = 4_000_000,
    epoch: timedelta | str = "10s",
    cores: int | None = None,
    order: Literal["arrival", "event_time"] = "arrival",
    checkpoint: str | Path | None = None,
    restart: Restart = "same",
    overwrite: bool = False,
    memory: Memory = "normal",
    progress: Callable[[Summary], None] | None = None,
    probe: Probe | None = None,
) -> Result:
    """Run a dataflow in this process until its sources end.

    Ctrl-C ends it after a commit, and so does SIGTERM in the main thread, unless the program handles SIGTERM itself: it
    raises :class:`RunInterruptedError`, a KeyboardInterrupt with the ``result`` so far. With a checkpoint the commit
    waits for the end of the range of records that the source is giving. A second signal takes effect at once.

    Parameters
    ----------
    source : source, table, frame, list or iterator of dicts, path, or mapping of source name to one of these
        See ``docs/howto/data_in.md``.
    sinks : sink or mapping of sink name to sink, optional
        By default Parquet files below ``out``, a folder or an address such as ``s3://bucket/folder``, if that is given,
        else memory.
    batch_size : int, optional
        Maximum records in a batch; by default 131,072, with one core 262,144. If steps make more records of it than
        524,288, a step that reads them processes the batch in parts.
    buffering : Buffering, "throughput", "latency" or "immediate", optional
        How many bytes make a batch, how long it waits for them, and how many bytes may wait between the source and the
        tasks before the source is blocked; see :class:`riot_ops.Buffering`. By default 16 MiB, no waiting, and 32 MiB;
        with one core half as much again.
    epoch_rows, epoch : int, and timedelta or text, default 4000000 and "10s"
        Output is committed (and the checkpoint written) after this many records or this time.
    cores : int, >= 1, optional
        Threads that run tasks; the results do not depend on their number. By default as many as this process has
        cores, for batches of at least 4,096 records, or of 32,768 while the tasks keep up with the source; but one if a
        task calls user functions, a store or a broker. If ``cores`` is given, such tasks still get one batch at a time,
        in order.
    order : "arrival" or "event_time"
        How the records of a key are ordered within a batch.
    checkpoint : path or address, optional
        Folder for offsets and state, also in an object store (``s3://…``): a later run with the same folder continues
        there.
    restart : "same" or "compatible", default "same"
        Whether a run may continue from a checkpoint of a dataflow that differs. "compatible" keeps the state of the
        steps that did not change, by their ids, and starts others empty; ``result.restart`` says which. What would be
        misread is refused. See ``docs/howto/change.md``.
    overwrite : bool, default False
        Whether a new run may replace the output of an earlier one in ``out``.
    memory : "normal" or "small", default "normal"
        "small" is for devices: one core, batches of at most 1,024 records and 64 KiB, unless these are given; freed
        memory is returned to the system; a source that is silent and does not report its records is asked every 0.1 s;
        and kernels stay plain Python as long as they need less than half of a core, as the compiler takes 150 MB.
    progress : function, optional
        Called with the :class:`Summary` so far after each batch.
    probe : Probe, optional
        Measures the run, see :class:`riot_ops.Probe`.
    """
    job = prepare(
        flow, source, sinks=sinks, out=out, batch_size=batch_size, buffering=buffering, epoch_rows=epoch_rows,
        epoch=epoch, cores=cores, order=order, checkpoint=checkpoint, restart=restart, overwrite=overwrite,
        memory=memory, progress=progress, probe=probe,
    )  # fmt: skip
    try:
        with job.locked(), handle_termination(), defer_interrupt(job.is_busy) as job.check_interrupt:
            job.run()
    except KeyboardInterrupt:
        if not job.begun:
            raise
        raise RunInterruptedError(job.result()) from None
    return job.result()


def prepare(
    flow: Graph,
    source: Any,
    *,
    sinks: Any = None,
    out: str | Path | None = None,
    batch_size: int | None = None,
    buffering: Buffering | str | None = None,
    epoch_rows: int = 4_000_000,
    epoch: timedelta | str = "10s",
    cores: int | None = None,
    order: Literal["arrival", "event_time"] = "arrival",
    checkpoint: str | Path | None = None,
    restart: Restart = "same",
    overwrite: bool = False,
    memory: Memory = "normal",
    progress: Callable[[Summary], None] | None = None,
    probe: Probe | None = None,
) -> Job:
    """Check the options of :func:`run` and bind sources and sinks; the job has not begun."""
    for name, number in (("batch_size", batch_size), ("cores", cores)):
        if number is not None:
            check_count(**{name: number})
    check_count(epoch_rows=epoch_rows)
    check_restart(restart, checkpoint)
    epoch_s = duration_seconds("epoch", epoch, zero=True)
    buffers = None if buffering is None else as_buffering(buffering)
    if order not in ("arrival", "event_time"):
        raise ConfigError(f"order must be 'arrival' or 'event_time', got {order!r}")
    bound = bind_sources(flow, source, again=None if checkpoint is None else "a run with a checkpoint")
    for name, one in bound.items():
        if not isinstance(one, Source):
            raise ConfigError(f"source {name!r} is a Spark DataFrame; start the dataflow on Spark instead")
    check_memory(memory)
    if memory == "small":
        prefer_plain_python()
        cores = cores or 1
    targets, routes = bind_sinks(flow, sinks, out)
    final = [name for name, sink in targets.items() if sink.transactional]
    if len(final) > 1:
        raise ConfigError(
            f"the sinks {final[0]!r} and {final[1]!r} are transactional, but one checkpoint can only go with one "
            "transaction; let one sink take both streams, with {stream} in its topic"
        )
    engine, pipeline = create_engine(flow, set(routes), ARRIVAL if order == "arrival" else EVENT_TIME, cores)
    alone = pipeline is None and all(map(is_reentrant, engine.steps))
    size, usual = (SINGLE_CORE_BATCH_SIZE, SINGLE_CORE_BUFFERING) if alone else (BATCH_SIZE, DEFAULT_BUFFERING)
    if memory == "small":
        size, usual = SMALL_BATCH_SIZE, SMALL_BUFFERING
    watched_sources, watched_sinks = (bound, targets) if probe is None else probe.attach(flow, bound, targets)
    setup = RunSetup(
        flow=flow,
        engine=engine,
        pipeline=pipeline,
        sources=merge_sources(flow, watched_sources),
        sinks=watched_sinks,
        targets=targets,
        sink_nodes=sink_nodes(flow, sinks, out),
        routes=routes,
        batch_size=batch_size or size,
        buffering=usual if buffers is None else buffers,
        epoch_rows=epoch_rows,
        epoch_s=epoch_s,
        progress=progress,
        checkpoint=None if checkpoint is None else Checkpoint(open_place(checkpoint, None, "checkpoint")),
        restart=restart,
        kinds={name: source_kind(one) for name, one in merge_sources(flow, bound).items()},
        overwrite=overwrite,
        retain_memory=memory == "normal",
        probe=probe,
    )
    return Job(setup)


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """What a run is made of, checked and bound."""

    flow: Graph
    engine: Engine
    pipeline: Pipeline | None  # processes large batches in other threads
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]  # of the user, or as a probe watches them
    targets: Mapping[str, Sink]  # of the user
    sink_nodes: Mapping[str, set[str]]
    routes: Mapping[str, list[str]]
    batch_size: int
    buffering: Buffering
    epoch_rows: int
    epoch_s: float
    progress: Callable[[Summary], None] | None
    checkpoint: Checkpoint | None
    restart: Restart
    kinds: dict[str, str]  # of the sources
    overwrite: bool
    retain_memory: bool
    probe: Probe | None


@dataclass
class Job:
    """A local run: reads, processes and commits until its sources end."""

    setup: RunSetup
    summary: Summary = field(default_factory=Summary)
    epoch: int = 0
    begun: bool = False  # whether state is restored and sinks are open
    ended: bool = False
    #: Batches in flight in other threads, in order.
    in_flight: deque[tuple[BufferedBatch, InFlightBatch]] = field(default_factory=deque)
    partial_sources: set[str] = field(default_factory=set)  # sources within a range
    partly_written: bool = False  # whether the output of a batch is written in part
    closing: bool = False  # whether the epoch is being closed
    closed: bool = False  # whether it is closed, and the next one not yet open
    committed: tuple[int, int] = (0, 0)  # messages and batches of the epochs so far
    error: BaseException | None = None  # that ended the run
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)  # kept by a run that continues
    check_interrupt: InterruptCheck = field(init=False)  # raises a Ctrl-C that was deferred
    warned: bool = False  # whether it is said what a second one does
    report: RestartReport | None = None  # what a restart has kept
    contracts: dict[str, StepContract] = field(default_factory=dict)  # of the steps with state
    sampling: bool = False  # whether the newest records are kept, from the next epoch on
    on_begin: Callable[[], None] = lambda: None  # called when state is restored and sinks and sources are open
    #: Called between batches; returns the maximum seconds until it is called again, while no batch is processed.
    on_pause: Callable[[], float] = lambda: math.inf

    def is_busy(self) -> bool:
        """Whether a commit is in progress, or would lose processed records."""
        return self.partly_written or self.closing or (self.setup.checkpoint is not None and bool(self.partial_sources))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folders of the sinks and of the checkpoint against other runs."""
        folders = [folder for sink in self.setup.targets.values() for folder in sink.folders()]
        if self.setup.checkpoint is not None and isinstance(self.setup.checkpoint.folder, Path):
            folders.append(self.setup.checkpoint.folder)
        try:
            with FolderLock(folders):
                yield
        finally:
            if self.setup.probe is not None:
                self.setup.probe.stop()

    def snapshot(self) -> Summary:
        """Return the counts so far, those of the open epoch included; only for :attr:`on_pause` and after the end."""
        counted = self.summary
        found = replace(counted, rows=dict(counted.rows), reasons=dict(counted.reasons), steps=dict(counted.steps))
        if not self.closed:
            engine = self.setup.pipeline or self.setup.engine
            found.count(self.writer.rows, self.writer.reasons, self.writer.steps)
            found.count({}, {}, engine.counts(reset=False))
            found.seconds = time.time() - self.started
            found.state_keys = self.setup.engine.keys
        return found

    def result(self) -> Result:
        """Return the result of a run that has ended."""
        return Result(self.setup.flow, self.summary, self.setup.targets, self.setup.routes, self.report)

    def run(self) -> None:
        """Run until the sources end; raises a Ctrl-C after a commit."""
        if self.setup.retain_memory:
            retain_freed_memory(2 if self.setup.pipeline is None else self.setup.pipeline.max_in_flight)
        self.offsets = {name: initial_offset(name, s) for name, s in self.setup.sources.items()}
        self._restore()
        self.started = time.time()
        self.log = RunLog(self.setup.flow.name)
        self.log.started("in process", continued=self.epoch > 0)
        self.buffer = buffer = InputBuffer(self.setup.buffering, self.setup.batch_size)
        if self.setup.pipeline is not None:
            self.setup.pipeline.on_complete = buffer.wake
        reader = Reader(
            f"riot_ops-{self.setup.flow.name}-source",
            self.setup.sources,
            self.offsets,
            buffer,
            self.setup.buffering,
            MAX_SECONDS if self.setup.retain_memory else SMALL_PAUSE_S,
        )
        reader.start()
        self._open_epoch()
        self.begun = True
        self.on_begin()
        try:
            while (batch := self._next(buffer)) is not None:
                self._process(batch)
            self._collect()
            if self.setup.probe is not None:
                self.setup.probe.ended()
            if not self.ended:  # else the run had ended before and has read no new records
                self.partly_written = True
                self._emit(self.setup.engine.process({}, flush=True), 0.0, 0.0)
                self.partly_written = False
            self.ended = True
            self._close_epoch()
            self.check_interrupt()
            end_sinks(self.setup.flow, self.setup.sinks, self.setup.routes)
        except KeyboardInterrupt as error:
            self.error = error
            partial = self.partial_sources or self.partly_written or self.closing
            if self.closed or (partial and self.setup.checkpoint is not None):  # the records will be read again
                self._abort()
            elif self.message is not None:
                self._commit(self.message)  # which is idempotent
            else:
                self._close_epoch()  # keep processed records
            end_sinks(self.setup.flow, self.setup.sinks, self.setup.routes)
            raise
        except BaseException as error:
            self.error = error
            self._abort()
            raise
        finally:
            buffer.stop()
            reader.wake()
            self.summary.buffered = buffer.max_size
            if self.setup.pipeline is not None:
                self.setup.pipeline.stop()
            reader.stop()
            for source in self.setup.sources.values():
                source.close()
            self.summary.seconds = time.time() - self.started
            self.summary.warn(ended=True)
            self.log.ended(self.summary, self.error)

    def _next(self, buffer: InputBuffer) -> Any:
        """Return the next batch, None at the end; closes epochs while the source is silent."""
        begun = time.monotonic()
        while True:
            pause = self.on_pause()
            # batches should wait in the source, where they go on growing
            self._collect(0 if self.setup.pipeline is None else self.setup.pipeline.max_in_flight - 1)
            until = None
            if not self.partial_sources and self.epoch_count > 0:
                until = self.epoch_started + self.setup.epoch_s - time.time()
                if until <= 0:
                    self._close_epoch()
                    self._open_epoch()
                    until = None
            if not self.is_busy():
                self.check_interrupt()
            elif until is None:
                until = BLOCKED_SECONDS
            # while batches are in flight, let the next one grow: each batch has a fixed cost
            min_rows = self.in_flight[-1][0].rows // 2 if self.in_flight else 0
            if pause < math.inf:
                until = pause if until is None else min(until, pause)
            if (batch := buffer.get(until, min_rows)) is not WAKE:
                return batch
            if self.check_interrupt.pending and not self.warned and time.monotonic() - begun >= BLOCKED_SECONDS:
                self.warned = True
                _log.warning(
                    "the run ends when the source %s gives the rest of its range; a second signal ends it at once, and "
                    "the next run reads the records since the last checkpoint again",
                    ", ".join(sorted(self.partial_sources)),
                )

    def _process(self, batch: BufferedBatch) -> None:
        """Process a batch, in parts if steps expand it."""
        pipeline = self.setup.pipeline
        min_rows = 0 if pipeline is None else pipeline.min_rows
        if min_rows and not batch.full:
            min_rows = MIN_THREADED_ROWS_IDLE
        threaded = bool(self.in_flight) or batch.rows >= min_rows  # keep the order of batches in flight
        while (parts := batch.split(self._max_rows())) is not None:
            first, batch = parts
            self._push(first, threaded)
        self._push(batch, threaded)

    def _push(self, batch: BufferedBatch, threaded: bool) -> None:
        self.partial_sources.add(batch.source)
        if batch.inputs:
            self.ended = False
            self.epoch_count += max(batch.rows, 1)  # counts heartbeats as well
            if self.setup.pipeline is not None and threaded:
                self._collect(self.setup.pipeline.max_in_flight - 1)
                self.in_flight.append((batch, self.setup.pipeline.begin(batch.inputs)))
            else:
                self._collect()
                self._done(batch, self.setup.engine.process(batch.inputs))
        if batch.offset is None:
            return
        self.offsets[batch.source] = batch.offset
        self.partial_sources.discard(batch.source)
        over = self.epoch_count >= self.setup.epoch_rows or time.time() - self.epoch_started >= self.setup.epoch_s
        if over and not self.partial_sources:
            self._close_epoch()
            self._open_epoch()
        if self.setup.progress is not None:
            self.summary.seconds = time.time() - self.started
            self.setup.progress(self.summary)

    def _max_rows(self) -> int:
        """Return how many records to process at once, from how steps expanded those before."""
        rows_in, max_rows = (self.setup.pipeline or self.setup.engine).row_counts()
        return max(1, MAX_STEP_ROWS * rows_in // max_rows) if rows_in else FIRST_ROWS

    def _collect(self, limit: int = 0) -> None:
        """Take finished batches in order, and wait until at most ``limit`` are in flight."""
        while self.in_flight and (len(self.in_flight) > limit or self.in_flight[0][1].done.is_set()):
            assert self.setup.pipeline is not None
            outputs = self.setup.pipeline.finish(self.in_flight[0][1])
            self.partly_written = True  # until the output is written, as the offset is already past the batch
            self._done(self.in_flight.popleft()[0], outputs)
            self.partly_written = False

    def _done(self, batch: BufferedBatch, outputs: Mapping[str, list[pa.RecordBatch]]) -> None:
        self.summary.messages += batch.rows
        self._emit(outputs, batch.first_us, batch.last_us)
        self.summary.batches += 1

    def _emit(self, outputs: Mapping[str, list[pa.RecordBatch]], first_us: float, last_us: float) -> None:
        rows = 0
        for stream, batches in outputs.items():
            for batch in batches:
                self.writer.write(stream, batch)
                rows += batch.num_rows
        if first_us:
            self.summary.latency.add(first_us, last_us, time.time() * 1e6, rows)

    # -- epochs --------------------------------------------------------------------------------------

    def _open_epoch(self) -> None:
        self.writer = FanOutWriter(
            self.setup.routes,
            self.setup.sinks,
            self.epoch,
            0,
            self.setup.flow.result_ordinals(),
            sampling=self.sampling,
        )
        self.epoch_started = time.time()
        self.epoch_count = 0
        self.closing = self.closed = False
        self.message: Any = None
        self.counts = dict(self.summary.rows), dict(self.summary.reasons), dict(self.summary.steps)

    def _close_epoch(self) -> None:
        self._collect()
        self.closing = True
        self.writer.count((self.setup.pipeline or self.setup.engine).counts())
        self.message = self.writer.finish()
        self._commit(self.message)
        self.closing = False

    def _abort(self) -> None:
        """Drop the output of the epoch; the summary must not count its records."""
        self.writer.abort()
        self.closed = True
        self.summary.messages, self.summary.batches = self.committed

    def _commit(self, message: Any) -> None:
        final = {name: sink for name, sink in self.setup.sinks.items() if sink.transactional}
        for name, sink in self.setup.sinks.items():
            if name not in final:
                sink.commit(self.epoch, [message["sinks"][name]])
                if self.setup.checkpoint is not None:
                    sink.sync(self.epoch)
        rows, reasons, steps = self.counts  # of the epochs before: after an interrupt this may be the second time
        self.summary.rows, self.summary.reasons, self.summary.steps = dict(rows), dict(reasons), dict(steps)
        self.summary.count(message["rows"], message["reasons"], message["steps"])
        self.summary.warn(ended=False)
        self.committed = self.summary.messages, self.summary.batches
        self.closed = True
        self.epoch += 1
        if self.setup.checkpoint is not None:
            self._save()
        for name, sink in final.items():  # a restart continues from this checkpoint only if this has taken place
            sink.commit(self.epoch - 1, [message["sinks"][name]])
        for name, source in self.setup.sources.items():
            source.commit(self.offsets[name])
        self.summary.seconds = time.time() - self.started
        self.summary.state_keys = self.setup.engine.keys
        self.log.committed(self.summary)

    def _save(self) -> None:
        assert self.setup.checkpoint is not None
        state = self.setup.engine.snapshot()
        self.setup.checkpoint.write(
            CheckpointData(
                self.epoch,
                self.ended,
                self.offsets,
                fingerprint(self.setup.flow),
                state,
                self.run_id,
                self.contracts,
                self.setup.kinds,
            )
        )

    def _restore(self) -> None:
        if self.setup.checkpoint is not None:
            self.contracts = step_contracts(self.setup.flow)
        path = None if self.setup.checkpoint is None else self.setup.checkpoint.latest_path()
        if self.setup.checkpoint is None or path is None:
            for sink in self.setup.sinks.values():
                sink.identify(self.run_id)
                sink.begin(self.setup.overwrite)
            if self.setup.checkpoint is not None:
                self.setup.checkpoint.claim()
                self._save()  # from now on the content of the sinks belongs to this run
            return
        saved = self.setup.checkpoint.read(path)
        differs = describe_difference(saved.flow, fingerprint(self.setup.flow))
        if differs and self.setup.restart == "same":
            raise StateError(
                f"the checkpoint {path} is of another dataflow: {differs}; use the old dataflow or a new checkpoint"
                f"{outlook(lambda: self._plan_restart(saved, str(path)))}"
            )
        if self.setup.restart == "compatible":
            self.report = self._plan_restart(saved, str(path))
        self.setup.checkpoint.claim()  # not before this run is known to be able to continue
        if self.setup.checkpoint.latest_path() != path:  # the run before has written once more
            self._restore()
            return
        self.run_id = saved.run or self.setup.checkpoint.default_run
        for sink in self.setup.sinks.values():
            sink.identify(self.run_id)
        saved = self._committed(saved, path)
        if differs:
            self._change(saved, str(path))
            return
        self.setup.engine.restore(saved.state)
        self.epoch, self.ended, self.offsets = saved.epoch, saved.ended, saved.offsets
        for sink in self.setup.sinks.values():
            sink.recover(self.epoch)

    def _is_added(self, name: str) -> bool:
        """Whether a sink was not part of the dataflow that wrote the checkpoint."""
        return self.report is not None and self.setup.sink_nodes[name] <= {*self.report.added_sinks}

    def _plan_restart(self, saved: CheckpointData, path: str) -> RestartReport:
        where = f"the checkpoint {path}"
        setup = self.setup
        report = plan_restart(
            setup.flow, saved.flow, saved.steps, self.contracts, saved.sources, setup.sources, saved.offsets, where
        )
        return report.with_lost({step: [[data]] for step, data in saved.state.items()})

    def _change(self, saved: CheckpointData, path: str) -> None:
        """Continue from the checkpoint of another dataflow, and write one of this: the next epoch, without records."""
        assert self.report is not None
        assert self.setup.checkpoint is not None
        self.report.announce(self.setup.flow.name, path)
        for step in self.report.kept:
            where = f" of step {step!r} in {path}"
            self.setup.engine.restore({step: kept_state(saved.state[step], self.contracts[step], where)})
        self.offsets |= {name: saved.offsets[name] for name in self.offsets if name in saved.offsets}
        self.epoch, self.ended = saved.epoch + 1, saved.ended
        sinks = AddedSinks(self.setup.sinks, self.setup.sink_nodes, self.setup.overwrite)
        sinks.begin(self.report, self.run_id, saved.epoch)
        self._save()
        for sink in self.setup.sinks.values():
            if sink.transactional:
                sink.commit(saved.epoch, [])

    def _committed(self, saved: CheckpointData, path: object) -> CheckpointData:
        """Return the checkpoint whose epochs are committed: this one, or the one before if its transaction was not."""
        assert self.setup.checkpoint is not None
        for name, sink in self.setup.sinks.items():
            if not sink.transactional or self._is_added(name):
                continue
            last = sink.last_committed()
            done = 0 if last is None else last + 1
            before = self.setup.checkpoint.path_of(saved.epoch - 1)
            if done == saved.epoch - 1 and before is not None:
                saved = self.setup.checkpoint.read(before)
            if done != saved.epoch:
                raise StateError(
                    f"the checkpoint {path} has {saved.epoch} epochs, but the sink {name!r} has committed {done} of "
                    "this run: it is not the checkpoint with which the sink was written"
                )
        return saved
