"""Measure a running dataflow at its sources and sinks, with either runner.

Sources and sinks are wrapped. The source's wrapper notes which message numbers (``seq``) were due and
read when, the sink's wrapper samples the numbers that arrive. Both write their notes to files in one
folder, since with Spark they live in other processes; :meth:`Probe.report` puts both together.
"""

from __future__ import annotations

import math
import shutil
import socket
import struct
import threading
import time
import uuid
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration
from riot_ops.core.paths import local_path, temporary_folder
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.sink import Message, Sink, Writer
from riot_ops.core.source import Offset, Source, Split, WrappedSource
from riot_ops.graph.graph import Graph
from riot_ops.graph.merges import Merges, numbered_as
from riot_ops.graph.selectivity import declared_selectivity
from riot_ops.ingest.renumber import Renumber
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.measure.clock_offsets import ClockOffsets
from riot_ops.measure.probe_report import ARRIVED, COMMITTED, NO_SEQ, SENT, Report
from riot_ops.measure.processes import ProcessTree

__all__ = ["Probe", "ProbedSink", "ProbedSource", "ProbedWriter"]

#: Entries held in memory before they are written, and batches whose samples are combined into entries.
HELD, GATHERED = 4096, 256
#: An entry of the kind SENT.
SENT_ENTRY = struct.Struct("<qqqqdddqd")
#: Part of file names: the machine whose clock gave their times.
HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"
#: When a split was made, by the driver's clock.
PLANNED = "planned"
INT64 = pa.int64()


class Probe:
    """Measure one run of a dataflow: latency, throughput, jitter, queue, CPU and memory.

    Pass it to ``run`` or ``start``. Latency is by message number: a record that a task derives keeps
    the number of the message that triggered it, so that the latency of a window's result is that of
    the window's last message. Output of a task at the end of its input, without a trigger, is
    counted but has no latency.

    Parameters
    ----------
    samples : int, default 64
        Maximum number of records of a batch whose latency is noted, evenly spread; each represents its neighbours.
    every : timedelta or text such as "1s", or None, default "5s"
        Time between samples of CPU and memory, of this process and its descendants; None takes none.
    folder : str or Path, optional
        Where notes are written; by default a temporary folder. Spark's workers must reach it.
    selectivity : float, optional
        Records that the dataflow should deliver per message, which its jitter is measured against; by
        default what its tasks declare (:func:`riot_ops.graph.selectivity.declared_selectivity`).

    Clocks
    ------
    Messages are due, and on Spark records are delivered, by the driver's clock. When a message was
    read, and in process when a record was delivered, is by the clock of the machine where it happened.
    A machine whose clock shows a split read before it was made, or a record delivered after its commit,
    is wrong by at least that difference: its times are corrected by it, and the report holds it (``skew``).

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("smooth")
    >>> obs = flow.source("readings", schema={"value": "double"})
    >>> _ = flow.sink("out", obs >> ro.tasks.KalmanFilter())
    >>> probe = ro.Probe()
    >>> _ = flow.run([{"value": 1.0}, {"value": 2.0}], probe=probe)
    >>> report = probe.report()
    >>> report.inputs, report.outputs, report.latency(0.5)[0] > 0
    (2, 2, True)
    """

    def __init__(
        self,
        *,
        samples: int = 64,
        every: Duration | None = "5s",
        folder: str | Path | None = None,
        selectivity: float | None = None,
    ) -> None:
        if samples < 1:
            raise ConfigError(f"samples must be >= 1, got {samples}")
        if selectivity is not None and not 0 < selectivity < math.inf:
            raise ConfigError(f"selectivity must be a finite number > 0, got {selectivity!r}")
        self.selectivity = selectivity
        self.samples = samples
        self._tree = None if every is None else ProcessTree(every)
        self.folder: Path = temporary_folder("riot_ops-probe-") if folder is None else local_path(folder, "folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._flow: Graph | None = None
        self._turns: dict[str, tuple[int, int]] = {}
        self._sources: dict[str, Any] = {}
        self._by_commit = False
        self._ended = math.inf

    def attach(
        self, flow: Graph, sources: Mapping[str, Any], sinks: Mapping[str, Sink], *, by_commit: bool = False
    ) -> tuple[dict[str, Any], dict[str, Sink]]:
        """Wrap the sources and sinks of a run, by name, and start to sample CPU and memory.

        Parameters
        ----------
        by_commit : bool, default False
            Whether a record is delivered when its batch is committed, not when the sink receives it.
        """
        if self._flow is not None:
            raise ConfigError("a probe measures one run: make another one")
        self._flow, self._by_commit = flow, by_commit
        streams = (*flow.nodes, ERRORS_STREAM)
        self._turns, numbers = _numbering(flow)
        self._sources = {
            name: ProbedSource(source, self.folder, i, *self._turns[name]) if isinstance(source, Source) else source
            for i, (name, source) in enumerate(sources.items())
        }
        if self._tree is not None:
            self._tree.start()
        return self._sources, {n: ProbedSink(s, self.folder, streams, self.samples, numbers) for n, s in sinks.items()}

    def ended(self) -> None:
        """Note the end of the input: no message triggers later deliveries."""
        self._ended = time.time()

    def stop(self) -> None:
        """Stop sampling CPU and memory; may be called twice."""
        if self._tree is not None:
            self._tree.stop()

    def report(self) -> Report:
        """Return the measurements so far; at the sinks, those of committed output."""
        assert self._flow is not None, "the probe was not passed to a run"
        for source in self._sources.values():
            if isinstance(source, ProbedSource):
                source.flush()
        clocks = ClockOffsets()
        sent = [(_host(path), np.fromfile(path, SENT)) for path in sorted(self.folder.glob("sent-*"))]
        arrived = [
            (_host(path), float(commit["time"]), np.fromfile(path, ARRIVED))
            for commit in _entries(self.folder, "committed-*", COMMITTED)
            for path in self.folder.glob(f"arrived-{commit['writer'].decode()}")
        ]
        for host, entries in sent:
            clocks.at_most(host, entries["read"] - entries["planned"])
        for host, committed, samples in arrived:
            clocks.at_least(host, samples["time"] - committed)
        for host, entries in sent:
            for name in ("due", "due_last"):  # a message without a due time was due when it was read
                entries[name] -= np.where(entries[name] == entries["read"], clocks.ahead(host), 0.0)
            entries["read"] -= clocks.ahead(host)
        for host, committed, samples in arrived:
            samples["time"] -= clocks.ahead(host)
            samples["seq"][samples["time"] >= self._ended] = NO_SEQ
            if self._by_commit:
                samples["time"] = committed
        return Report(
            np.concatenate([np.empty(0, SENT), *(entries for _, entries in sent)]),
            np.concatenate([np.empty(0, ARRIVED), *(samples for _, _, samples in arrived)]),
            list(self._sources),
            (*self._flow.nodes, ERRORS_STREAM),
            _upstream(self._flow),
            None if self._tree is None else self._tree.usage(),
            declared_selectivity(self._flow) if self.selectivity is None else self.selectivity,
            clocks.skew(),
            [self._turns[name] for name in self._sources],
        )


def _numbering(flow: Graph) -> tuple[dict[str, tuple[int, int]], dict[str, Renumber]]:
    """Return numbers that tell apart the messages of all sources: ``(shift, step)`` by source; a step for each stream.

    The streams whose messages have such numbers already are left out.
    """
    nodes = flow.nodes_of_kind("source")
    if flow.merging != "arrival" or len(nodes) == 1:
        return flow.numbering(), {}
    found = {id: Renumber(sources, len(nodes)) for id, sources in Merges(flow).sources.items()}
    return {node.id: (place, len(nodes)) for place, node in enumerate(nodes)}, found


def _host(path: Path) -> str:
    """Return the machine that wrote a file."""
    return path.name.partition("-")[2][: len(HOST)]


def _entries(folder: Path, pattern: str, dtype: Any) -> Any:
    return np.concatenate([np.empty(0, dtype), *(np.fromfile(path, dtype) for path in sorted(folder.glob(pattern)))])


def _upstream(flow: Graph) -> dict[str, frozenset[str]]:
    """Sources that may have produced the records of each stream."""
    found: dict[str, frozenset[str]] = {ERRORS_STREAM: frozenset(n.id for n in flow.nodes_of_kind("source"))}
    for node in flow.topological_order():
        before = [found[e.source] for e in flow.inputs(node.id)]
        found[node.id] = frozenset({node.id}) if node.kind == "source" else frozenset().union(*before)
    return found


class _Log:
    """Entries of one kind, appended to a file of this process."""

    def __init__(self, folder: Path, kind: str, token: str = "") -> None:
        self.token: str = token or HOST + uuid.uuid4().hex[len(HOST) :]
        self._path = folder / f"{kind}-{self.token}"
        self._held: list[bytes] = []
        self._lock = threading.Lock()

    def add(self, entries: bytes) -> None:
        with self._lock:
            self._held.append(entries)
        if len(self._held) >= HELD:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            if self._held:
                with open(self._path, "ab") as file:
                    file.write(b"".join(self._held))
                self._held.clear()

    def drop(self) -> None:
        with self._lock:
            self._held.clear()
            self._path.unlink(missing_ok=True)


class ProbedSource(WrappedSource):
    """Wrap a source to note which messages it produced, and when they were due and read."""

    def __init__(self, source: Source, folder: Path, number: int, place: int = 0, of: int = 1) -> None:
        super().__init__(source)
        self._folder, self._number, self._place, self._of = folder, number, place, of
        self._log: _Log | None = _Log(folder, "sent")

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the log: a copy in another process opens its own for each split."""
        return {**self.__dict__, "_log": None}

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return [{**split, PLANNED: time.time()} for split in super().splits(start, end, n)]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        read: list[tuple[int, int, int, float, int]] = []
        try:
            for batch in self.source.read({k: v for k, v in split.items() if k != PLANNED}):
                seq = int_column(batch.column("seq"))
                messages = 1 + int(np.count_nonzero(seq[1:] != seq[:-1]))
                first, last = (int(n) * self._of + self._place for n in (seq[0], seq[-1]))  # as the dataflow counts
                read.append((first, last, messages, time.time(), seq.size))
                yield batch
        finally:
            self._note(read, split.get("due"), split.get(PLANNED, math.nan))

    def _note(
        self, read: Sequence[tuple[int, int, int, float, int]], due: Sequence[float] | None, planned: float
    ) -> None:
        log = self._log or _Log(self._folder, "sent")
        start, step, before = 0.0, 0.0, 0
        if due is not None:  # the messages of a split count as due at equal intervals
            total = sum(messages for _, _, messages, _, _ in read)
            start, step = due[0] / 1e6, (due[1] - due[0]) / 1e6 / max(total - 1, 1)
        for first, last, messages, at, records in read:
            times = (start + before * step, start + (before + messages - 1) * step) if due is not None else (at, at)
            log.add(SENT_ENTRY.pack(self._number, first, last, messages, *times, at, records, planned))
            before += messages
        if log is not self._log:
            log.flush()

    def flush(self) -> None:
        """Write the notes to the file."""
        if self._log is not None:
            self._log.flush()

    def close(self) -> None:
        self.flush()
        self.source.close()


class ProbedSink(Sink):
    """Wrap a sink to sample the numbers of the messages that arrive."""

    def __init__(
        self,
        sink: Sink,
        folder: Path,
        streams: Sequence[str],
        samples: int,
        numbers: Mapping[str, Renumber] | None = None,
    ) -> None:
        self.sink = sink
        self._numbers = numbers or {}
        self.__dict__["in_process"] = sink.in_process  # elsewhere it is one of the class
        self._folder, self._samples = folder, samples
        self._streams = {name: i for i, name in enumerate(streams)}

    def writer(self, batch_id: int, partition: int) -> Writer:
        return ProbedWriter(
            self.sink.writer(batch_id, partition),
            _Log(self._folder, "arrived"),
            self._streams,
            self._samples,
            self._numbers,
        )

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        self.sink.commit(batch_id, [m["sink"] for m in messages])
        entries = np.empty(len(messages), COMMITTED)
        entries["time"] = time.time()
        entries["writer"] = [m["probe"] for m in messages]
        log = _Log(self._folder, "committed", f"{batch_id}-{uuid.uuid4().hex}")
        log.add(entries.tobytes())
        log.flush()

    def sync(self, batch_id: int) -> None:
        self.sink.sync(batch_id)

    def folders(self) -> list[Path]:
        return self.sink.folders()

    def worker_folders(self) -> list[Path]:
        return self.sink.worker_folders()

    def table(self, stream: str) -> pa.Table:
        return self.sink.table(stream)

    def begin(self, overwrite: bool) -> None:
        self.sink.begin(overwrite)

    def abort(self, batch_id: int) -> None:
        self.sink.abort(batch_id)

    def recover(self, batch_id: int) -> None:
        self.sink.recover(batch_id)

    def resume(self, batch_id: int) -> None:
        self.sink.resume(batch_id)

    @property
    def transactional(self) -> bool:  # type: ignore[override]
        return self.sink.transactional

    def last_committed(self) -> int | None:
        return self.sink.last_committed()

    def identify(self, run: str) -> None:
        self.sink.identify(run)

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        self.sink.end(schemas)


class ProbedWriter(Writer):
    """Combine samples of several batches, which may be small, into entries."""

    def __init__(
        self,
        writer: Writer,
        log: _Log,
        streams: Mapping[str, int],
        samples: int,
        numbers: Mapping[str, Renumber] | None = None,
    ) -> None:
        self._writer, self._log, self._streams, self._samples = writer, log, streams, samples
        self._numbers = numbers or {}
        self._gathered: list[tuple[int, float, float, pa.Array]] = []

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self._writer.write(stream, batch)
        n = batch.num_rows
        if n == 0:
            return
        place = batch.schema.get_field_index("seq")
        seq = pa.nulls(n, INT64) if place < 0 else batch.column(place)
        k = min(n, self._samples)
        rows = None
        if k < n:
            rows = pa.array((2 * np.arange(k) + 1) * n // (2 * k))
            seq = seq.take(rows)
        if self._numbers:
            seq = self._renumbered(stream, seq, batch, rows)
        self._gathered.append((self._streams[stream], n / k, time.time(), seq))
        if len(self._gathered) >= GATHERED:
            self._note()

    def _renumbered(self, stream: str, seq: pa.Array, batch: pa.RecordBatch, rows: pa.Array | None) -> pa.Array:
        """Return the numbers of sampled rows of a stream as numbers that tell apart the messages of all sources."""
        if stream != ERRORS_STREAM:
            return self._numbers[stream].numbers(seq) if seq.type == INT64 else seq
        # a rejected record has a number of the stream that the task reads
        tasks = (batch.column("task") if rows is None else batch.column("task").take(rows)).to_pylist()
        steps = [self._numbers.get(numbered_as(task)) for task in tasks]
        return pa.array(
            [
                number if step is None or number is None else step.numbers(pa.array([number], INT64))[0].as_py()
                for step, number in zip(steps, seq.to_pylist(), strict=True)
            ],
            INT64,
        )

    def _note(self) -> None:
        if not self._gathered:
            return
        streams, weights, times, columns = zip(*self._gathered, strict=True)
        counts = [len(c) for c in columns]
        entries = np.empty(sum(counts), ARRIVED)
        for name, values in (("stream", streams), ("weight", weights), ("time", times)):
            entries[name] = np.repeat(values, counts)
        seq = pa.concat_arrays([c if c.type == INT64 else c.cast(INT64) for c in columns])
        entries["seq"] = seq.fill_null(NO_SEQ).to_numpy()
        self._log.add(entries.tobytes())
        self._gathered.clear()

    def finish(self) -> Message:
        message = self._writer.finish()
        self._note()
        self._log.flush()
        return {"sink": message, "probe": self._log.token}

    def abort(self) -> None:
        self._writer.abort()
        self._log.drop()
