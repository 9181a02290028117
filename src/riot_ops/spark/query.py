"""A query: a dataflow that runs on Spark, with its progress and results."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException

from riot_ops.core.buffering import Buffering
from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import RiotError, StateError
from riot_ops.core.folder_lock import FolderLock
from riot_ops.core.interrupts import defer_interrupt, handle_termination
from riot_ops.core.ipc import decode
from riot_ops.core.parameters import Duration
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.graph.plan import Plan
from riot_ops.measure.metrics import Summary
from riot_ops.measure.probe import Probe
from riot_ops.measure.run_log import RunLog
from riot_ops.runtime.binding import ReadableStreams, end_sinks
from riot_ops.runtime.restart import RestartReport
from riot_ops.runtime.run_display import DisplayedRun
from riot_ops.spark.checkpoint import SparkCheckpoint, offset_of
from riot_ops.spark.driver_sink import DriverSink
from riot_ops.spark.exceptions import Py4JError, find_cause
from riot_ops.spark.rate_control import RateController
from riot_ops.spark.sink import NEWEST, SinkRoutes

__all__ = ["Query", "QuerySetup", "is_active"]

POLL_SECONDS, MAX_POLL_SECONDS = 0.1, 0.4
#: Spark's status message of a query that waits.
IDLE = "Waiting for data to arrive"


@dataclass(frozen=True, kw_only=True)
class QuerySetup:
    """What a query is made of, checked and bound."""

    flow: Graph
    stages: Plan
    sources: dict[str, Any]
    sinks: dict[str, Sink]
    routes: dict[str, list[str]]
    driver_sinks: dict[str, DriverSink]
    temporary: Path
    checkpoint: SparkCheckpoint
    ends: list[Any]  # of the sources in an earlier query with the checkpoint
    order: tuple[str, ...]
    partitions: int
    buffering: Buffering
    max_records: int | None
    small_memory: bool
    rate: RateController | None
    available_now: bool
    stops_idle: bool  # before 4.2 Spark's own trigger "available now" would take a single micro-batch of our sources
    planned: list[Any]  # ends of the sources in Spark's log
    base: int  # number of the micro-batch that Spark calls 0
    restart: RestartReport | None
    probe: Probe | None

    @property
    def sink_routes(self) -> SinkRoutes:
        """The sinks of each stream, as the stages write to them."""
        return SinkRoutes(self.routes, {**self.sinks, **self.driver_sinks}, self.flow.result_ordinals(), self.base)


class Query(ReadableStreams, DisplayedRun):
    """A running dataflow on Spark.

    Attributes
    ----------
    streaming : StreamingQuery
        Spark's own handle.
    summary : Summary
        Counts and latency so far; :meth:`poll` refreshes it.
    micro_batches : list of dict
        Number (``batch``), messages and Spark's ``durations_ms`` of each micro-batch so far.
    restart : RestartReport or None
        What ``restart="compatible"`` has kept of the checkpoint; None if there was nothing to continue.
    spark_ui : str or None
        Address of Spark's own page; None if the session has none, as by default (``spark.ui.enabled``).

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"device": "string", "value": "double"})
    >>> _ = flow.sink("out", readings.key_by("device").apply(ro.tasks.MovingAverage(window=2), id="mean"))
    >>> rows = [{"device": "a", "value": 1.0}, {"device": "a", "value": 3.0}, {"device": "b", "value": 9.0}]
    >>> query = flow.start(spark, rows)
    >>> _ = query.wait()
    >>> query.summary.messages, query.summary.rows["mean"], query.active
    (3, 1, False)
    """

    def __init__(self, setup: QuerySetup, streaming: Any, lock: FolderLock) -> None:
        self.flow, self.sinks, self.routes = setup.flow, setup.sinks, setup.routes
        self.plan = setup.stages
        self.restart = setup.restart
        self.streaming = streaming
        self.summary: Summary = Summary()
        self.micro_batches: list[dict[str, Any]] = []
        self.spark_ui = _ui_address(setup.checkpoint.session)
        self._setup = setup
        self._ends = list(setup.ends)
        self._lock = lock
        self._polling = threading.RLock()
        self._counts = self.summary.to_dict()  # at the last poll, for other threads
        self._newest: dict[str, pa.RecordBatch] = {}
        self._state_bytes: int | None = None
        self._stopped = False  # by stop() or wait()
        self._seen = -1
        self._started = time.time()
        self._log = RunLog(setup.flow.name)
        self._log.started("on Spark", continued=any(end is not None for end in setup.ends))
        self._ended = False
        self._error: BaseException | None = None  # that ended the wait
        if setup.stops_idle:
            threading.Thread(target=_stop_when_idle, args=(streaming,), daemon=True, name="riot_ops-spark-end").start()

    @property
    def active(self) -> bool:
        """Whether the query is running."""
        return is_active(self.streaming)

    def status(self) -> dict[str, Any]:
        """Return the state of the query and its counts so far, as JSON-able data.

        ``dataflow``, ``runner``, ``active``, ``error`` (type of the error that ended it, or None), ``micro_batch``
        (number of the last one that Spark has reported, or None), ``checkpoint``, ``state_bytes`` (memory of Spark's
        state stores after the last micro-batch, or None), and the keys of ``Summary.to_dict``.
        """
        active = self.active
        self.poll()
        return {
            "dataflow": self.flow.name,
            "runner": "spark",
            "active": active,
            "error": None if active else self._error_type(),
            "micro_batch": None if self._seen < 0 else self._seen,
            "checkpoint": self._setup.checkpoint.folder,
            "state_bytes": self._state_bytes,
            **self._counts,
        }

    def poll(self) -> Summary:
        """Refresh the summary, and feed the in-process sinks; does neither while another thread is doing it."""
        if not self._polling.acquire(blocking=False):
            return self.summary
        try:
            active = self.active  # read first: once it is False, no commit is under way
            for progress in self._new_progress():
                if progress["batchId"] > self._seen:
                    self._seen = progress["batchId"]
                    self._count(progress)
                    self._log.committed(self.summary)
            if not active:
                self._count_unreported()
            for name, sink in self._setup.driver_sinks.items():
                sink.drain(self.sinks[name], self._seen if active else None)
            if active:
                self.summary.seconds = time.time() - self._started
            self._counts = self.summary.to_dict()
            return self.summary
        finally:
            self._polling.release()

    def newest(self) -> dict[str, pa.RecordBatch]:
        """Return a sample of the newest records by stream, ``errors`` included: some of each bucket.

        Empty over Spark Connect and on a cluster whose driver is not this process.
        """
        path = self._metrics(0).with_name(NEWEST)
        if not path.exists():
            return self._newest
        found = msgspec.msgpack.decode(path.read_bytes())
        for stream, pieces in found.items():
            batches = [batch for piece in pieces for batch in decode(piece)]
            self._newest[stream] = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        return self._newest

    def wait(self, timeout: Duration | None = None, progress: Callable[[Query], None] | None = None) -> Summary:
        """Wait until the sources have ended, then stop; raises the error of a failed query.

        Ctrl-C stops the query; committed output stays, and the query can be continued from its checkpoint.
        """
        until = None if timeout is None else time.monotonic() + duration_seconds("timeout", timeout)
        with handle_termination(), defer_interrupt() as check:
            try:
                pause = POLL_SECONDS
                while self.active and (until is None or (left := until - time.monotonic()) > 0):
                    time.sleep(pause if until is None else min(pause, left))
                    check()
                    seen = self._seen
                    self.poll()
                    pause = POLL_SECONDS if self._seen != seen else min(1.5 * pause, MAX_POLL_SECONDS)
                    if progress is not None:
                        progress(self)
                    if self._all_read():
                        self._stopped = True
                        self.streaming.stop()
                self._raise()
                self.poll()
                if not self.active:
                    self._raise_if_cut_off()
                    self._end_sinks()
                check()
                return self.summary
            except BaseException as error:
                self._error = error
                if isinstance(error, KeyboardInterrupt):
                    self.stop()
                raise
            finally:
                if not self.active:
                    self.close()

    def stop(self) -> None:
        """Stop the query; it can be started again with its checkpoint."""
        self._stopped = True
        self.streaming.stop()
        self.poll()
        self._end_sinks()
        self.close()

    def close(self) -> None:
        """Remove temporary files, and let other processes write to the folders of a query that has ended."""
        self.newest()
        self.summary.warn(ended=True)
        if not self._ended:
            self._ended = True
            self._log.ended(self.summary, self._error)
        if self._setup.probe is not None:
            self._setup.probe.stop()
        shutil.rmtree(self._setup.temporary, ignore_errors=True)
        if not is_active(self.streaming):
            self._lock.release()

    def __getitem__(self, stream: str) -> pa.Table:
        """Read the records so far of a stream that ends in memory or in Parquet files; else :class:`KeyError`."""
        self.poll()
        return super().__getitem__(stream)

    def __bool__(self) -> bool:
        return True  # also a query none of whose streams can be read

    def __repr__(self) -> str:
        active = self.active
        state = "running" if active else "ended" if self._error_type() is None else "failed"
        return f"{self.flow.name} ({state}): {self.poll()!r}"

    def _new_progress(self) -> list[dict[str, Any]]:
        """Return Spark's reports of micro-batches since the last call."""
        last = self.streaming.lastProgress  # recentProgress takes a hundred calls of the JVM
        if last is None or self._as_dict(last)["batchId"] <= self._seen:
            return []
        return [self._as_dict(entry) for entry in self.streaming.recentProgress]

    def _as_dict(self, progress: Any) -> dict[str, Any]:
        """Return Spark's report of a micro-batch, with the number that it has for sinks."""
        found: dict[str, Any] = progress if isinstance(progress, dict) else json.loads(progress.json)
        return {**found, "batchId": self._setup.base + found["batchId"]}

    def _count(self, progress: dict[str, Any]) -> None:
        before = self.summary.messages
        described = progress["sources"]
        self._count_messages(self._offsets_of(described))
        self.summary.messages += sum(
            int(one["numInputRows"])
            for one, source in zip(described, self._setup.sources.values(), strict=False)
            if not isinstance(source, Source)
        )
        if stores := progress.get("stateOperators"):
            self._state_bytes = sum(int(one["memoryUsedBytes"]) for one in stores)
        self.micro_batches.append(
            {
                "batch": progress["batchId"],
                "messages": self.summary.messages - before,
                "durations_ms": progress["durationMs"],
            }
        )
        self._count_written(progress)

    def _count_written(self, progress: dict[str, Any]) -> None:
        counted = (progress.get("observedMetrics") or {}).get("riot_ops")
        if counted is not None:
            keys = counted["state_keys"] if isinstance(counted, Mapping) else getattr(counted, "state_keys", 0)
            self.summary.state_keys = int(keys or 0)
        self._count_records(self._metrics(progress["batchId"]))

    def _end_sinks(self) -> None:
        end_sinks(self.flow, self.sinks, self.routes)

    def _count_unreported(self) -> None:
        """Count micro-batches that were committed, but stopped before Spark reported their progress."""
        cut_off = sorted(int(path.stem) for path in self._metrics(0).parent.glob("*.json"))
        if cut_off:
            self._count_messages(self._setup.checkpoint.ends(cut_off[-1], self._setup.sources))
        for batch in cut_off:
            self._count_records(self._metrics(batch))

    def _count_messages(self, ends: list[Any]) -> None:
        for i, (end, source) in enumerate(zip(ends, self._setup.sources.values(), strict=False)):
            if isinstance(source, Source) and end is not None:
                start = source.initial() if self._ends[i] is None else self._ends[i]["at"]
                self.summary.messages += source.count(start, end["at"]) or 0
                self._ends[i] = end

    def _count_records(self, metrics: Path) -> None:
        if metrics.exists():
            counted = json.loads(metrics.read_text(encoding="utf-8"))
            self.summary.count(counted["rows"], counted["reasons"], counted["steps"])
            self.summary.latency.extend(counted["latency"])
            self.summary.warn(ended=False)
            self.summary.batches += 1
            metrics.unlink()

    def _offsets_of(self, described: list[dict[str, Any]]) -> list[Any]:
        """Return the offset of each source from the progress of a micro-batch."""
        pairs = zip(described, self._setup.sources.values(), strict=False)
        return [offset_of(one["endOffset"], source) for one, source in pairs]

    def _metrics(self, batch: int) -> Path:
        return self._setup.temporary / "metrics" / f"{batch}.json"

    def _all_read(self) -> bool:
        last = self.streaming.lastProgress
        if last is None or not all(isinstance(s, Source) for s in self._setup.sources.values()):
            return False
        progress = self._as_dict(last)
        if progress["batchId"] > self._seen:
            return False
        ends = self._offsets_of(progress["sources"])
        if not all(end is not None and end["ended"] for end in ends):
            return False
        # the end of a micro-batch planned by an earlier query is older than the new files
        pairs = zip(ends, self._setup.sources.values(), strict=True)
        return all(source.latest_blocks or source.finished(end["at"]) for end, source in pairs)

    def _error_type(self) -> str | None:
        """Return the type of the error that ended the query."""
        try:
            error = self.streaming.exception()
        except (Py4JError, PySparkException, OSError):  # its Spark is gone
            return RiotError.__name__
        return None if error is None else find_cause(str(error))[0].__name__

    def _raise(self) -> None:
        error = self.streaming.exception()
        if error is not None:
            kind, cause = find_cause(str(error))
            where = f" (checkpoint {self._setup.checkpoint.folder})" if kind is StateError else ""
            raise kind(f"the dataflow {self.flow.name!r} failed on Spark: {cause}{where}") from error

    def _raise_if_cut_off(self) -> None:
        """Raise if the query was stopped from outside: not by us, an error or the end of its sources."""
        if self._stopped or self._all_read():
            return
        status = self.streaming.status
        if self._setup.available_now and not status["isDataAvailable"] and not status["isTriggerActive"]:
            return
        raise RiotError(
            f"the dataflow {self.flow.name!r} was stopped from outside after {self.summary.messages:,} messages, "
            "before its sources had ended: through Spark itself, or by the end of its session; "
            f"start it again to go on from its checkpoint ({self._setup.checkpoint.folder})"
        )


def _ui_address(session: Any) -> str | None:
    with contextlib.suppress(Py4JError, PySparkException):
        context = getattr(session, "sparkContext", None)  # not over Spark Connect
        return None if context is None else context.uiWebUrl
    return None


def _stop_when_idle(streaming: Any) -> None:
    """Stop a query when it has no more data."""
    while is_active(streaming):
        time.sleep(POLL_SECONDS)
        with contextlib.suppress(Py4JError, PySparkException, OSError):
            if streaming.status["message"] == IDLE:
                streaming.stop()


def is_active(streaming: Any) -> bool:
    """Whether a query runs; False if its Spark is gone."""
    try:
        return bool(streaming.isActive)
    except (Py4JError, PySparkException, OSError):  # PySpark's own where the server of Spark Connect is gone
        return False
