"""A dataflow that runs on Spark: its progress, its results, its end."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_ops import errors
from riot_ops.dataflow import Dataflow
from riot_ops.errors import RiotError
from riot_ops.metrics import Summary
from riot_ops.plan import Plan
from riot_ops.probe import Probe
from riot_ops.runtime.binding import end_sinks, read_back
from riot_ops.runtime.spark.relay import Relay
from riot_ops.sink import Sink
from riot_ops.source import Source

__all__ = ["Query"]

POLL_SECONDS = 0.1
#: In Spark's log, for a source of which nothing has been read.
NO_OFFSET = "-"


class Query:
    """A running dataflow on Spark.

    Attributes
    ----------
    streaming : StreamingQuery
        Spark's own handle.
    summary : Summary
        Counts and latency so far; :meth:`poll` refreshes it.
    """

    def __init__(
        self,
        flow: Dataflow,
        stages: Plan,
        streaming: Any,
        sources: dict[str, Any],
        sinks: dict[str, Sink],
        routes: dict[str, list[str]],
        relays: dict[str, Relay],
        temporary: Path,
        ends: Callable[[int], list[str]],
        first: int,
        probe: Probe | None,
    ) -> None:
        self.flow = flow
        self.plan = stages
        self.streaming = streaming
        self.summary = Summary()
        self.micro_batches: list[dict[str, Any]] = []
        self._sources = sources
        self._sinks = sinks
        self._routes = routes
        self._relays = relays
        self._temporary = temporary
        self._logged_ends = ends
        self._ends = self._positions(first - 1)
        self._probe = probe
        self._seen = -1
        self._started = time.time()

    @property
    def active(self) -> bool:
        """Whether the query is running."""
        return bool(self.streaming.isActive)

    def poll(self) -> Summary:
        """Refresh the summary, and feed the in-process sinks."""
        active = self.active  # asked first: once it is not, no commit is under way
        for entry in self.streaming.recentProgress:
            progress = entry if isinstance(entry, dict) else json.loads(entry.json)
            if progress["batchId"] > self._seen:
                self._seen = progress["batchId"]
                self._count(progress)
        if not active:
            self._count_cut_off()
        for name, relay in self._relays.items():
            relay.drain(self._sinks[name], self._seen if active else None)
        if active:
            self.summary.seconds = time.time() - self._started
        return self.summary

    def wait(self, timeout_s: float | None = None, progress: Callable[[Query], None] | None = None) -> Summary:
        """Wait until the sources have ended, then stop; raises what the query failed with.

        Ctrl-C stops the query; what was committed stays, and its checkpoint can be continued.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with _interrupts() as check:
            try:
                while self.active and (until is None or time.monotonic() < until):
                    time.sleep(POLL_SECONDS)
                    check()
                    self.poll()
                    if progress is not None:
                        progress(self)
                    if self._all_read():
                        self.streaming.stop()
                self._raise()
                self.poll()
                if not self.active:
                    end_sinks(self.flow, self._sinks, self._routes)
                check()
                return self.summary
            except KeyboardInterrupt:
                self.stop()
                raise
            finally:
                if not self.active:
                    self.close()

    def stop(self) -> None:
        """Stop the query; it can be started again with its checkpoint."""
        self.streaming.stop()
        self.poll()
        self.close()

    def close(self) -> None:
        """Remove temporary files."""
        self.summary.warn(ended=True)
        if self._probe is not None:
            self._probe.stop()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def __getitem__(self, stream: str) -> pa.Table:
        """The records so far of a stream that ends in memory or in Parquet files; else :class:`KeyError`."""
        self.poll()
        return read_back(self.flow, self._sinks, self._routes, stream)

    def _count(self, progress: dict[str, Any]) -> None:
        self.micro_batches.append({"batch": progress["batchId"], "durations_ms": progress["durationMs"]})
        described = progress["sources"]
        self._count_messages([one["endOffset"] for one in described])
        self.summary.messages += sum(
            int(one["numInputRows"])
            for one, source in zip(described, self._sources.values(), strict=False)
            if not isinstance(source, Source)
        )
        self._count_records(self._metrics(progress["batchId"]))

    def _count_cut_off(self) -> None:
        """Count micro-batches that were delivered, but whose progress was not told: the stop came in between."""
        cut_off = sorted(int(path.stem) for path in self._metrics(0).parent.glob("*.json"))
        if cut_off:
            self._count_messages(self._positions(cut_off[-1]))
        for batch in cut_off:
            self._count_records(self._metrics(batch))

    def _positions(self, batch: int) -> list[Any]:
        """Where a micro-batch ends in each source, from Spark's log."""
        return list(self._logged_ends(batch)) if batch >= 0 else [None] * len(self._sources)

    def _count_messages(self, ends: list[Any]) -> None:
        for i, (text, source) in enumerate(zip(ends, self._sources.values(), strict=False)):
            if not isinstance(source, Source):  # what others call an offset is theirs to read
                continue
            start, end = _offset(self._ends[i]), _offset(text)
            if end is not None:
                self.summary.messages += source.count(start["at"] if start else source.initial(), end["at"]) or 0
                self._ends[i] = end

    def _count_records(self, metrics: Path) -> None:
        if metrics.exists():
            counted = json.loads(metrics.read_text(encoding="utf-8"))
            self.summary.count(counted["rows"], counted["reasons"], counted["steps"])
            self.summary.latency.extend(counted["latency"])
            self.summary.warn(ended=False)
            self.summary.batches += 1
            metrics.unlink()

    def _metrics(self, batch: int) -> Path:
        return self._temporary / "metrics" / f"{batch}.json"

    def _all_read(self) -> bool:
        last = self.streaming.lastProgress
        if last is None or not all(isinstance(s, Source) for s in self._sources.values()):
            return False
        progress = last if isinstance(last, dict) else json.loads(last.json)
        if progress["batchId"] > self._seen:
            return False
        ends = [_offset(s["endOffset"]) for s in progress["sources"]]
        return all(end is not None and end["ended"] for end in ends)

    def _raise(self) -> None:
        error = self.streaming.exception()
        if error is not None:
            kind, cause = _cause(str(error))
            raise kind(f"the dataflow {self.flow.name!r} failed on Spark: {cause}") from error


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C back until the function that is yielded is called; a second one comes at once.

    In the midst of a call into the JVM it would break the connection, over which the query is to be stopped.
    """
    asked = threading.Event()
    usual = signal.getsignal(signal.SIGINT)

    def hold(number: int, frame: Any) -> None:
        if asked.is_set() and callable(usual):
            usual(number, frame)
        asked.set()

    def check() -> None:
        if asked.is_set():
            raise KeyboardInterrupt

    if usual is None or threading.current_thread() is not threading.main_thread():
        yield check  # Python hands no signals to other threads
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, usual)


def _offset(text: Any) -> Any:
    if isinstance(text, str):
        return None if text == NO_OFFSET else json.loads(text)
    return text


def _cause(text: str) -> tuple[type[RiotError], str]:
    """What a Spark error came from: the kind of error and the line that names it."""
    if named := re.findall(r"^\s*riot_ops\.errors\.(\w+): (.*)$", text, re.MULTILINE):
        name, message = named[-1]
        return getattr(errors, name, RiotError), message
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Error: " in line]
    return RiotError, told[-1] if told else lines[0] if lines else text
