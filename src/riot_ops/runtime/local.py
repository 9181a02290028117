"""The in-process runner: one dataflow in one process, with bounded buffers behind the source."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_ops.core.buffering import Buffering, as_buffering
from riot_ops.core.checks import check_count, check_seconds
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.core.paths import local_path
from riot_ops.core.sink import Fan, Sink
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.measure.metrics import Summary
from riot_ops.measure.probe import Probe
from riot_ops.runtime.batches import ARRIVAL, EVENT_TIME
from riot_ops.runtime.binding import bind_sinks, bind_sources, end_sinks, read_back
from riot_ops.runtime.checkpoint import Checkpoint, Saved
from riot_ops.runtime.claim import Claim
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.identity import difference, identity
from riot_ops.runtime.inbound import WAKE, Arrival, Inbound
from riot_ops.runtime.memory import keep_freed
from riot_ops.runtime.merging import merged
from riot_ops.runtime.parallel import KEEPING_UP, Pipeline, Wave, engine_for, reentrant
from riot_ops.runtime.reader import Reader

__all__ = ["BATCH_SIZE", "Result", "run"]

#: Where nothing is said: most records in a batch, and its bytes. A batch has a price of its own, a step some
#: microseconds to milliseconds; beyond this little is gained, and memory grows.
BATCH_SIZE, GATHERED = 131_072, Buffering(capacity=16 << 20, queue=32 << 20)
#: The same on one core, where no other batch is under way nor another core waits for it; but where a step may wait for
#: others, such as stores, a batch is as long as on several.
BATCH_ALONE, GATHERED_ALONE = 262_144, Buffering(capacity=24 << 20, queue=48 << 20)
#: Most records that a step should take at once. Where records become many, as texts that become their words, what is
#: made of a batch is else more memory than one batch leaves for the next, see :mod:`riot_ops.runtime.memory`. And how
#: many records are done at first, when it is not known what becomes of them.
WIDEST, FIRST = 4 * BATCH_SIZE, 16_384


@dataclass
class Result:
    """What a run in process gave.

    ``result["avg"]`` is the table of a stream that ended in memory or in Parquet files; of one that ended
    elsewhere or nowhere it raises :class:`KeyError`.
    """

    flow: Graph
    summary: Summary
    sinks: Mapping[str, Sink]
    routes: Mapping[str, list[str]]

    def __getitem__(self, stream: str) -> pa.Table:
        return read_back(self.flow, self.sinks, self.routes, stream)

    @property
    def errors(self) -> pa.Table:
        """The rejected records."""
        return self["errors"]

    def __repr__(self) -> str:
        return f"{self.flow.name}: {self.summary!r}"


def run(
    flow: Graph,
    source: Any = None,
    *,
    sinks: Any = None,
    out: str | Path | None = None,
    batch_size: int | None = None,
    buffering: Buffering | str | None = None,
    epoch_rows: int = 4_000_000,
    epoch_s: float = 10.0,
    cores: int | None = None,
    order: str = "arrival",
    checkpoint: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[Summary], None] | None = None,
    probe: Probe | None = None,
) -> Result:
    """Run a dataflow in this process until its sources end.

    Parameters
    ----------
    source : source, table, frame, list or iterator of dicts, path, or mapping of source name to one of these
        See ``docs/howto/data_in.md``.
    sinks : sink or mapping of sink name to sink, optional
        By default Parquet files below ``out`` where that is given, else memory.
    batch_size : int, optional
        Most records in a batch; by default 131,072, with one core 262,144. Where steps make so many of one that a step
        would take more than 524,288 it is done in parts.
    buffering : Buffering, "throughput", "latency" or "immediate", optional
        How many bytes make a batch, how long it waits for them, and how many may wait between the source and the tasks
        before the source is held back; see :class:`riot_ops.Buffering`. By default 16 MiB, no waiting, and 32 MiB;
        with one core half as much again.
    epoch_rows, epoch_s : int and float
        Output is committed (and the checkpoint written) after so many records or seconds.
    cores : int, >= 1, optional
        Threads that run tasks; the results are the same, whatever their number. By default as many as this process
        has cores, for batches of at least 4,096 records, or 32,768 while the tasks keep up with the source; but one
        where a task calls functions of the user's, or a store or a broker. Where a number is given, these still get one
        batch at a time, in order.
    order : "arrival" or "event_time"
        How the records of a key are ordered within a batch.
    checkpoint : path, optional
        Folder for position and state: a later run with the same folder continues there.
    overwrite : bool, default False
        Whether a new run may replace the output of an earlier one in ``out``.
    progress : function, optional
        Called with the :class:`Summary` so far after each batch.
    probe : Probe, optional
        Measures the run, see :class:`riot_ops.Probe`.
    """
    for name, number in (("batch_size", batch_size), ("cores", cores)):
        if number is not None:
            check_count(name, number)
    check_count("epoch_rows", epoch_rows)
    check_seconds("epoch_s", epoch_s, zero=True)
    given = None if buffering is None else as_buffering(buffering)
    if order not in ("arrival", "event_time"):
        raise ConfigError(f"order must be 'arrival' or 'event_time', got {order!r}")
    bound = bind_sources(flow, source, again=None if checkpoint is None else "a run with a checkpoint")
    for name, one in bound.items():
        if not isinstance(one, Source):
            raise ConfigError(f"source {name!r} is a Spark DataFrame; start the dataflow on Spark instead")
    targets, routes = bind_sinks(flow, sinks, out)
    engine, least = engine_for(flow, set(routes), ARRIVAL if order == "arrival" else EVENT_TIME, cores)
    alone = isinstance(engine, Engine) and all(map(reentrant, engine.steps))
    size, usual = (BATCH_ALONE, GATHERED_ALONE) if alone else (BATCH_SIZE, GATHERED)
    watched_sources, watched_sinks = (bound, targets) if probe is None else probe.attach(flow, bound, targets)
    job = _Job(
        flow,
        engine,
        least,
        merged(flow, watched_sources),
        watched_sinks,
        routes,
        epoch_rows,
        epoch_s,
        progress,
        None if checkpoint is None else Checkpoint(local_path(checkpoint, "checkpoint")),
        overwrite,
        probe,
    )
    folders = [folder for sink in targets.values() for folder in sink.folders()]
    if job.checkpoint is not None:
        folders.append(job.checkpoint.folder)
    try:
        with Claim(folders):
            job.run(batch_size or size, usual if given is None else given)
    finally:
        if probe is not None:
            probe.stop()
    return Result(flow, job.summary, targets, routes)


@dataclass
class _Job:
    flow: Graph
    engine: Engine | Pipeline
    least: int  # records of a batch that goes to other threads; 0: each does
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    routes: Mapping[str, list[str]]
    epoch_rows: int
    epoch_s: float
    progress: Callable[[Summary], None] | None
    checkpoint: Checkpoint | None
    overwrite: bool
    probe: Probe | None
    summary: Summary = field(default_factory=Summary)
    epoch: int = 0
    ended: bool = False
    #: Batches under way in other threads, in order.
    underway: deque[tuple[Arrival, Wave]] = field(default_factory=deque)
    halfway: set[str] = field(default_factory=set)  # sources of which a part of a range has been processed
    torn: bool = False  # whether some of what a batch came to is written, and not all
    closing: bool = False  # whether an epoch is being ended
    closed: bool = False  # whether it is, and there is no other yet

    def run(self, batch_size: int, buffering: Buffering) -> None:
        keep_freed(self.engine.most if isinstance(self.engine, Pipeline) else 2)
        self.offsets = {name: s.initial() for name, s in self.sources.items()}
        self._restore()
        self.started = time.time()
        inbound = Inbound(buffering, batch_size)
        if isinstance(self.engine, Pipeline):
            self.engine.tell(inbound.wake)
        reader = Reader(f"riot_ops-{self.flow.name}-source", self.sources, self.offsets, inbound, buffering)
        reader.start()
        self._open_epoch()
        try:
            while (arrival := self._next(inbound)) is not None:
                self._process(arrival)
            self._collect()
            if self.probe is not None:
                self.probe.ended()
            if not self.ended:  # a run that had ended and went on without new records has nothing to add
                self.torn = True
                self._emit(self.engine.process({}, flush=True), 0.0, 0.0)
                self.torn = False
            self.ended = True
            self._close_epoch()
            end_sinks(self.flow, self.sinks, self.routes)
        except KeyboardInterrupt:
            half = self.halfway or self.torn or self.closing
            if self.closed or (half and self.checkpoint is not None):  # then it will be read again
                self.writer.abort()
            elif self.message is not None:
                self._commit(self.message)  # which may be asked for again
            else:
                self._close_epoch()  # what was read has been processed: keep it
            raise
        except BaseException:
            self.writer.abort()
            raise
        finally:
            inbound.stop()
            self.summary.buffered = inbound.most
            if isinstance(self.engine, Pipeline):
                self.engine.stop()
            reader.join()
            for source in self.sources.values():
                source.close()
            self.summary.seconds = time.time() - self.started
            self.summary.warn(ended=True)

    def _next(self, inbound: Inbound) -> Any:
        """What the source gives next; while it is silent, epochs end as well."""
        while True:
            # what has to wait does so in the source, where it goes on growing
            self._collect(self.engine.most - 1 if isinstance(self.engine, Pipeline) else 0)
            until = None
            if not self.halfway and self.epoch_count > 0:
                until = self.epoch_started + self.epoch_s - time.time()
                if until <= 0:
                    self._close_epoch()
                    self._open_epoch()
                    until = None
            # what comes next while some are under way would be small, and each batch has a price of its own
            least = self.underway[-1][0].rows // 2 if self.underway else 0
            if (arrival := inbound.get(until, least)) is not WAKE:
                return arrival

    def _process(self, arrival: Arrival) -> None:
        """Have a batch done, in parts where steps make much of it."""
        enough = bool(self.underway) or arrival.rows >= self._enough(arrival)  # none waits for all under way
        while (parts := arrival.parted(self._fitting())) is not None:
            first, arrival = parts
            self._push(first, enough)
        self._push(arrival, enough)

    def _push(self, arrival: Arrival, enough: bool) -> None:
        self.halfway.add(arrival.source)
        if arrival.inputs:
            self.ended = False
            self.epoch_count += max(arrival.rows, 1)  # a heartbeat is something, too
            if isinstance(self.engine, Pipeline) and enough:
                self._collect(self.engine.most - 1)
                self.underway.append((arrival, self.engine.begin(arrival.inputs)))
            else:
                self._collect()
                self._done(arrival, self.engine.process(arrival.inputs))
        if arrival.offset is None:
            return
        self.offsets[arrival.source] = arrival.offset
        self.halfway.discard(arrival.source)
        over = self.epoch_count >= self.epoch_rows or time.time() - self.epoch_started >= self.epoch_s
        if over and not self.halfway:
            self._close_epoch()
            self._open_epoch()
        if self.progress is not None:
            self.summary.seconds = time.time() - self.started
            self.progress(self.summary)

    def _fitting(self) -> int:
        """How many records may be done at once, by what the steps have made of those before."""
        came, most = self.engine.taken()
        return max(1, WIDEST * came // most) if came else FIRST

    def _enough(self, arrival: Arrival) -> int:
        """Records from which on a batch goes to other threads."""
        return self.least if arrival.full or not self.least else KEEPING_UP

    def _collect(self, most: int = 0) -> None:
        """Take what other threads have finished, in order, and wait until no more than so many are under way."""
        while self.underway and (len(self.underway) > most or self.underway[0][1].done.is_set()):
            assert isinstance(self.engine, Pipeline)
            outputs = self.engine.finish(self.underway[0][1])
            self.torn = True  # until the outputs are written, though the offset is beyond the batch
            self._done(self.underway.popleft()[0], outputs)
            self.torn = False

    def _done(self, arrival: Arrival, outputs: Mapping[str, list[pa.RecordBatch]]) -> None:
        self.summary.messages += arrival.rows
        self._emit(outputs, arrival.first_us, arrival.last_us)
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
        self.writer = Fan(self.routes, self.sinks, self.epoch, 0)
        self.epoch_started = time.time()
        self.epoch_count = 0
        self.closing = self.closed = False
        self.message: Any = None

    def _close_epoch(self) -> None:
        self._collect()
        self.closing = True
        self.writer.count(self.engine.counts())
        self.message = self.writer.finish()
        self._commit(self.message)

    def _commit(self, message: Any) -> None:
        for name, sink in self.sinks.items():
            sink.commit(self.epoch, [message["sinks"][name]])
            if self.checkpoint is not None:
                sink.sync(self.epoch)
        self.summary.count(message["rows"], message["reasons"], message["steps"])
        self.summary.warn(ended=False)
        self.closed = True
        self.epoch += 1
        if self.checkpoint is not None:
            self._save()
        for name, source in self.sources.items():
            source.commit(self.offsets[name])

    def _save(self) -> None:
        assert self.checkpoint is not None
        state = self.engine.snapshot()
        self.checkpoint.write(Saved(self.epoch, self.ended, self.offsets, identity(self.flow), state))

    def _restore(self) -> None:
        path = None if self.checkpoint is None else self.checkpoint.newest()
        if self.checkpoint is None or path is None:
            for sink in self.sinks.values():
                sink.begin(self.overwrite)
            if self.checkpoint is not None:
                self._save()  # from here on what is in the sinks is this run's own
            return
        saved = self.checkpoint.read(path)
        if differs := difference(saved.flow, identity(self.flow)):
            raise StateError(
                f"the checkpoint {path} is of another dataflow: {differs}; use the old dataflow or a new checkpoint"
            )
        self.engine.restore(saved.state)
        self.epoch, self.ended, self.offsets = saved.epoch, saved.ended, saved.offsets
        for sink in self.sinks.values():
            sink.recover(self.epoch)
