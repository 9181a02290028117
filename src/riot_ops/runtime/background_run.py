"""A dataflow that runs in the background of this process."""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Self

import pyarrow as pa

from riot_ops.core.checks import duration_seconds
from riot_ops.core.interrupts import InterruptCheck, handle_termination
from riot_ops.core.parameters import Duration
from riot_ops.graph.graph import Graph
from riot_ops.measure.metrics import Summary
from riot_ops.runtime.binding import ReadableStreams
from riot_ops.runtime.local import Job, prepare
from riot_ops.runtime.restart import RestartReport
from riot_ops.runtime.run_display import DisplayedRun

__all__ = ["Run", "launch"]

#: Minimum time between two looks of a run at its counts, maximum time until it notices :meth:`Run.stop`, and until a
#: thread that waits for a run notices its end.
LOOK_SECONDS, STOP_SECONDS, MAX_SLEEP_SECONDS = 0.05, 0.25, 0.1


def launch(flow: Graph, source: Any = None, **options: Any) -> Run:
    """Run a dataflow in a thread of this process; ``options`` are those of :func:`riot_ops.runtime.local.run`.

    Sources, sinks and options are checked, and the folders locked, before it returns. When the program ends, the run is
    stopped after a commit.
    """
    return Run(prepare(flow, source, **options))


class Run(ReadableStreams, DisplayedRun):
    """A dataflow that runs in the background of this process.

    ``run["avg"]`` is the table of the records so far of a stream that ends in memory or in Parquet files. As a context
    manager it stops at the end of the block.

    Attributes
    ----------
    restart : RestartReport or None
        What ``restart="compatible"`` has kept of the checkpoint; None if there was nothing to continue.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"value": "double"})
    >>> _ = readings.apply(ro.tasks.KalmanFilter(), id="kalman").to("out")
    >>> run = flow.launch([{"value": 21.5}, {"value": 21.0}])
    >>> run.wait().messages, run["kalman"].num_rows, run.active
    (2, 2, False)
    """

    def __init__(self, job: Job) -> None:
        setup = job.setup
        self.flow, self.sinks, self.routes = setup.flow, setup.targets, setup.routes
        self._job = job
        # only plain attributes lead from thread to thread: Ctrl-C could leave a lock taken in the user's
        self._summary, self._epoch, self._queues = job.summary, 0, dict[str, int]()
        self._state_bytes, self._step_seconds = 0, dict[str, float]()
        self._newest: dict[str, pa.RecordBatch] = {}
        self._seen: tuple[int, ...] = ()
        self._seen_at = 0.0
        self._begun = self._ended = self._abandoned = False
        self._error: BaseException | None = None
        self._stopping = threading.Event()
        job.check_interrupt = InterruptCheck(self._raise_stop, self._stopping)
        job.on_begin, job.on_pause = self._begin, self._pause
        self._thread = threading.Thread(target=self._main, daemon=True, name=f"riot_ops-{setup.flow.name}")
        self._thread.start()
        try:
            _sleep_until(lambda: self._begun or self._ended)
        except KeyboardInterrupt:
            self.stop()
            raise
        if not self._begun:
            raise self._error or KeyboardInterrupt
        end = weakref.WeakMethod(self._end_with_program)
        atexit.register(lambda: None if (found := end()) is None else found())

    @property
    def active(self) -> bool:
        """Whether it is running."""
        return not self._ended

    @property
    def restart(self) -> RestartReport | None:
        return self._job.report

    @property
    def summary(self) -> Summary:
        """Counts and latency so far, those of the open epoch included."""
        return self._summary

    def status(self) -> dict[str, Any]:
        """Return the state of the run and its counts so far, as JSON-able data.

        ``dataflow``, ``runner``, ``active``, ``error`` (type of the error that ended it, or None), ``epoch`` (number of
        the last one that is committed, or None), ``checkpoint``, ``queue_bytes`` (that wait between sources and steps
        now), ``queues`` (the same by source), ``state_bytes`` (memory of the state of all steps), ``step_seconds`` (by
        step, the time it has taken since the first call of :meth:`newest`, of all threads together), and the keys of
        ``Summary.to_dict``, those of the open epoch included.
        """
        summary = self.summary
        checkpoint = self._job.setup.checkpoint
        return {
            "dataflow": self.flow.name,
            "runner": "in process",
            "active": self.active,
            "error": None if self._error is None else type(self._error).__name__,
            "epoch": self._epoch - 1 if self._epoch else None,
            "checkpoint": None if checkpoint is None else str(checkpoint.folder),
            "queue_bytes": sum(self._queues.values()),
            "queues": dict(self._queues),
            "state_bytes": self._state_bytes,
            "step_seconds": {step: round(seconds, 6) for step, seconds in self._step_seconds.items()},
            **summary.to_dict(),
        }

    def newest(self) -> dict[str, pa.RecordBatch]:
        """Return a sample of the newest records by stream, ``errors`` included; from the second call on."""
        self._job.sampling = self._job.writer.sampling = True
        return self._newest

    def wait(self, timeout: Duration | None = None) -> Summary:
        """Wait until the sources have ended, or for a time; raises the error of a failed run.

        Ctrl-C and SIGTERM stop the run after a commit.
        """
        until = math.inf if timeout is None else time.monotonic() + duration_seconds("timeout", timeout)
        with handle_termination():
            try:
                _sleep_until(lambda: self._ended or time.monotonic() >= until)
            except KeyboardInterrupt:
                self.stop()
                raise
        if self._error is not None:
            raise self._error
        return self.summary

    def stop(self) -> None:
        """Stop after a commit, and wait for it; the run can be continued from its checkpoint.

        Ctrl-C ends the wait; then the end of the program does not wait for the commit either.
        """
        self._stopping.set()
        try:
            _sleep_until(lambda: self._ended)
        except KeyboardInterrupt:
            self._abandoned = True
            raise

    def _end_with_program(self) -> None:
        if not self._abandoned:
            self.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.active else "ended" if self._error is None else "failed"
        return f"{self.flow.name} ({state}): {self.summary!r}"

    # -- in the thread of the run ----------------------------------------------------------------------

    def _main(self) -> None:
        try:
            with self._job.locked():
                self._job.run()
        except KeyboardInterrupt:
            pass  # by stop()
        except BaseException as error:
            self._error = error
        finally:
            if self._begun:
                self._look()
            self._ended = True

    def _begin(self) -> None:
        self._begun = True

    def _raise_stop(self) -> None:
        if self._stopping.is_set():
            raise KeyboardInterrupt

    def _pause(self) -> float:
        """Look at the job if anything has changed since, but not too often."""
        job, now = self._job, time.monotonic()
        if (job.summary.batches, job.epoch, job.buffer.size) == self._seen:
            return STOP_SECONDS
        if now - self._seen_at < LOOK_SECONDS:
            return LOOK_SECONDS
        self._look()
        return STOP_SECONDS

    def _look(self) -> None:
        job = self._job
        self._seen = job.summary.batches, job.epoch, job.buffer.size
        engine = job.setup.pipeline or job.setup.engine
        if job.sampling:
            engine.time_steps()
        self._step_seconds = engine.step_seconds()
        self._summary, self._epoch, self._queues = job.snapshot(), job.epoch, dict(job.buffer.sizes)
        self._state_bytes = job.setup.engine.nbytes
        self._newest = self._newest | job.writer.newest
        self._seen_at = time.monotonic()


def _sleep_until(condition: Callable[[], bool]) -> None:
    pause = 0.001
    while not condition():
        time.sleep(pause)
        pause = min(2 * pause, MAX_SLEEP_SECONDS)
