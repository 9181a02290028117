"""Fragments without Spark: each query runs in a thread, and can be killed and resumed."""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import traceback
import uuid
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from pyspark import TaskContext
from pyspark.cloudpickle import dumps, loads

from riot_ops.core.checks import duration_seconds
from riot_ops.core.source import Offset, Source, WrappedSource
from riot_ops.reuse.spark import stage
from riot_ops.reuse.spark.backend import FragmentsBackend
from riot_ops.reuse.spark.fragment import Fragment, QueryOptions
from riot_ops.spark import stage as runtime_stage
from riot_ops.spark.blocks import blocks_to_batch
from riot_ops.spark.stage import read_blocks
from tests.simulated_query import Chain

PAUSE_SECONDS = 0.005
#: Number of workers, and how often the state of a bucket moves to a random one.
WORKERS, MOVES = 2, 0.2


class Gated(WrappedSource):
    """Gives no records until a file exists, and only the first n rows while the file contains n."""

    def __init__(self, source: Source, gate: Path) -> None:
        super().__init__(source)
        self.gate = gate

    def description(self) -> dict[str, Any] | None:
        return self.source.description()

    def open(self, rows: int | str = "") -> None:
        """Let the first rows through, or all."""
        made = self.gate.with_suffix(".new")
        made.write_text(str(rows))
        made.replace(self.gate)

    def _rows(self) -> int | None:
        text = self.gate.read_text()
        return int(text) if text.isdecimal() else None

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        if not self.gate.exists():
            return start
        if (rows := self._rows()) is not None:
            (begun,) = start.values()  # rows, messages
            limit = min(rows - begun, rows if limit is None else limit)
        return self.source.latest(start, limit)

    def finished(self, offset: Offset) -> bool:
        return self.gate.exists() and self._rows() is None and self.source.finished(offset)


class _Context(threading.local):
    """The task context of Spark, by thread."""

    batch = 0

    def __init__(self) -> None:
        self.parts = itertools.count()
        self.worker = 0
        self.engines: dict[tuple[int, str], dict[tuple[int, int], Any]] = {}

    def of_worker(self, run: str) -> dict[tuple[int, int], Any]:
        """Return the engines that a worker caches; a bucket may move to another worker with each micro-batch."""
        return self.engines.setdefault((self.worker, run), {})

    def partitionId(self) -> int:  # noqa: N802 (Spark's name)
        return next(self.parts)

    def getLocalProperty(self, name: str) -> int:  # noqa: N802
        return self.batch


CONTEXT = _Context()


class FakeQuery:
    """A query that keeps offsets, commits and state in files, as Spark does."""

    def __init__(self, fragment: Fragment, options: QueryOptions) -> None:
        reader, processors, sink = fragment.query_parts(options)
        self._reader, self._sink = loads(dumps(reader)), loads(dumps(sink))
        self._processors = [loads(dumps(one)) for one in processors]
        self._folder = fragment.folder / "checkpoint"
        self._folder.mkdir(exist_ok=True)
        self._choose = random.Random(fragment.name)
        #: The worker of all buckets; by default each bucket moves at random.
        self.worker: int | None = None
        self._workers: dict[tuple[int, int], int] = {}
        self._stop = threading.Event()
        self._error: str | None = None
        #: Raised by the next micro-batch.
        self.harm: Exception | None = None
        #: Delay between planning a micro-batch and running it.
        self.delay_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"fake-query-{fragment.name}")
        self._thread.start()

    @property
    def active(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def failure(self) -> str | None:
        return self._error

    def _run(self) -> None:
        try:
            offsets = [json.loads(p.read_text()) for p in sorted(self._folder.glob("offset-*"))]
            done = len(list(self._folder.glob("state-*")))
            at = offsets[done - 1] if done else self._reader.initial_offset()
            if len(offsets) > done:  # the last one was planned, but not completed
                self._batch(done, at, offsets[done])
                at, done = offsets[done], done + 1
            while not self._stop.is_set():
                end = json.loads(json.dumps(self._reader.latest_offset(at, None)))
                if end == at and done:
                    self._stop.wait(PAUSE_SECONDS)
                    continue
                self._keep(f"offset-{done:06d}", json.dumps(end).encode())
                self._batch(done, at, end)
                at, done = end, done + 1
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"
            if self.harm is None:
                traceback.print_exc()
        finally:
            self._reader.stop()

    def _batch(self, number: int, start: Any, end: Any) -> None:
        self._stop.wait(self.delay_s)
        if self.harm is not None:
            raise self.harm
        CONTEXT.batch, CONTEXT.parts = number, itertools.count()
        states = self._states(number - 1)
        blocks = [
            block
            for part in loads(dumps(self._reader.partitions(start, end)))
            for rows in self._reader.read(part)
            for block in read_blocks(rows)
        ]
        for place, processor in enumerate(self._processors):
            self._choose.shuffle(blocks)
            made = []
            for bucket, rows in itertools.groupby(sorted(blocks, key=lambda b: b.bucket), lambda b: b.bucket):
                frames = [blocks_to_batch([row]) for row in rows]
                chain = states.setdefault((place, bucket), Chain())
                if self._choose.random() < MOVES:
                    self._workers[place, bucket] = self._choose.randrange(WORKERS)
                CONTEXT.worker = self._workers.get((place, bucket), 0) if self.worker is None else self.worker
                made += [b for frame in processor.process(bucket, iter(frames), chain) for b in read_blocks(frame)]
            blocks = made
        self._sink.commit([self._sink.write(iter([blocks_to_batch(blocks)] if blocks else []))], number)
        self._keep(f"state-{number:06d}", dumps(states))
        self._reader.commit(end)

    def _keep(self, name: str, data: bytes) -> None:
        """Write a file atomically, also if the process is killed."""
        hidden = self._folder / f".{name}-{uuid.uuid4().hex}"
        hidden.write_bytes(data)
        os.replace(hidden, self._folder / name)

    def _states(self, number: int) -> dict[tuple[int, int], Chain]:
        path = self._folder / f"state-{number:06d}"
        found: dict[tuple[int, int], Chain] = loads(path.read_bytes()) if path.exists() else {}
        return found


class FakeSpark(FragmentsBackend):
    """A back end of such queries; a fixture closes those that a failed test leaves open."""

    open: ClassVar[list[FakeSpark]] = []
    patches = (
        mock.patch.object(TaskContext, "get", return_value=CONTEXT),
        mock.patch.object(runtime_stage, "cached_engines", CONTEXT.of_worker),
        mock.patch.object(stage, "cached_engines", CONTEXT.of_worker),
    )

    def __init__(self, folder: Path, **options: Any) -> None:
        if not self.open:
            for patch in self.patches:
                patch.start()
        self.open.append(self)
        defaults = {"partitions": 2, "max_records": 7, "max_queue_bytes": 1 << 20, "every_s": 0.0}
        given = {name: options.pop(name, default) for name, default in defaults.items()}
        rest = {"fuse": "exact", "max_lag_bytes": 1 << 30, "patience_s": 10.0, "tries": 2, "join": False}
        if "patience" in options:
            rest["patience_s"] = duration_seconds("patience", options.pop("patience"))
        rest |= options
        try:
            super().__init__(FakeQuery, folder, QueryOptions(**given), **rest)
        except BaseException:
            self._remove_patches()
            raise

    def close(self) -> None:
        if self in self.open:
            try:
                super().close()
            finally:
                self._remove_patches()

    def _remove_patches(self) -> None:
        self.open.remove(self)
        if not self.open:
            for patch in self.patches:
                patch.stop()

    def kill(self) -> None:
        """Stop queries and dispatchers where they are and clean nothing up, as if the process had been killed."""
        self.stop_watch()
        for fragment in self.fragments.values():
            fragment.stop()
        for dispatcher in [*self.dispatchers.draining]:
            dispatcher.halt()
        self.dispatchers.draining.clear()
        self.dispatchers.close()
        self.folder_lock.release()
        self._remove_patches()
