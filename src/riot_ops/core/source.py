"""The contract of sources: a replayable log of records, addressed by offsets.

Both runners use a source in the same way: they ask for the latest offset, cut the range up to it into splits, and read
the splits. Since a range of offsets always has the same records, a replay after a crash gives the same bytes.
"""

from __future__ import annotations

import copy
import hashlib
import io
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import msgspec
import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.parameters import snake_case

__all__ = [
    "Offset",
    "Source",
    "Split",
    "WrappedSource",
    "fingerprint",
    "heartbeat",
    "initial_offset",
    "isolated_sources",
    "parse_heartbeat",
    "register_source",
    "registered_sources",
    "row_splits",
]

#: A position in a source: a small mapping of texts to values of JSON, comparable with ``==``.
Offset = dict[str, Any]

#: A part of a range of offsets, JSON-able. Its optional key ``due`` (``[first, last]``, microseconds since the epoch)
#: is when the records were meant to arrive from a paced source; latency counts from there.
Split = dict[str, Any]


class Source(ABC):
    """A replayable log of records.

    Instances are picklable: other processes read splits. The records have a column ``seq`` (int64, non-null, increasing
    along the log, the same for the same record at every read), and ``event_time`` (timestamp[us, tz=UTC]) if they have
    a time.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import riot_ops as ro
    >>> class Squares(ro.Source):
    ...     # The first n squares; an offset is the number of records before it
    ...     def __init__(self, n):
    ...         self.n = n
    ...     @property
    ...     def schema(self):
    ...         return pa.schema([pa.field("seq", pa.int64(), nullable=False), ("value", pa.int64())])
    ...     def initial(self):
    ...         return {"row": 0}
    ...     def latest(self, start, limit=None):
    ...         return {"row": self.n if limit is None else min(self.n, start["row"] + limit)}
    ...     def finished(self, offset):
    ...         return offset["row"] == self.n
    ...     def splits(self, start, end, n):
    ...         return [{"from": start["row"], "to": end["row"]}]
    ...     def read(self, split):
    ...         seq = range(split["from"], split["to"])
    ...         yield pa.RecordBatch.from_pydict({"seq": seq, "value": [i * i for i in seq]}, schema=self.schema)
    >>> flow = ro.Dataflow("squares")
    >>> _ = flow.sink("out", flow.source("squares", schema=Squares(7).schema).filter("value % 2 == 0", id="even"))
    >>> flow.run(Squares(7))["even"]["value"].to_pylist()
    [0, 4, 16, 36]
    """

    #: Code of a registered source, and its classification, as for tasks.
    code: ClassVar[str] = ""
    category: ClassVar[str] = "Custom"
    pattern: ClassVar[str] = "Source"
    selectivity: ClassVar[str] = ""
    stateful: ClassVar[bool] = False
    #: Whether a range can be read again, as a restart and the workers of Spark require.
    replayable: bool = True
    #: Whether :meth:`latest` may block for long, as when a broker must answer first.
    latest_blocks: bool = False

    @classmethod
    def name(cls) -> str:
        """Registry name: the class name in snake case."""
        return snake_case(cls.__name__)

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the records."""

    def description(self) -> dict[str, Any] | None:
        """Describe the records as JSON-able data without secrets; equal descriptions mean equal records.

        None, the default: the source is not known to equal any other.
        """
        return None

    def consumed_resources(self) -> frozenset[str]:
        """Resources that a commit consumes, such as a queue, in words: only one reader may use them.

        By default none: any number of readers may use the source.
        """
        return frozenset()

    def local_files(self) -> list[str]:
        """Files and folders of this machine that :meth:`read` needs, wherever it runs; by default none."""
        return []

    def carried(self) -> Source:
        """Return a source that others can read without the files of this machine, or the source itself.

        The splits of such a source hold the records: the machine that plans a micro-batch reads them. That suits a
        queue which one machine writes, and not files, which each machine reads faster from a common store.
        """
        return self

    def project(self, schema: pa.Schema) -> Source:
        """Return the source for a dataflow that declares these fields: it may omit others, or read with these types.

        Types may differ: the ingest step casts the records.
        """
        return self

    @abstractmethod
    def initial(self) -> Offset:
        """Return the offset of the first record: a mapping of texts to values of JSON, as all offsets."""

    @abstractmethod
    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        """Return the offset up to which records are available now, at most ``limit`` records after ``start``.

        Equal to ``start`` if no record is available (yet).
        """

    @abstractmethod
    def finished(self, offset: Offset) -> bool:
        """Whether there will never be a record after the offset."""

    @abstractmethod
    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        """Cut the range into at most n consecutive parts of about equal size."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Read the records of a part in order, in batches of any size; only a :func:`heartbeat` is empty."""

    def read_inputs(self, name: str, split: Split) -> Iterator[dict[str, list[pa.RecordBatch]]]:
        """Read a part, with the batches by name of the dataflow's source; this source has the given ``name``."""
        for batch in self.read(split):
            yield {name: [batch]}

    def waits(self) -> bool:
        """Whether a run must wait for records or never ends, as with a paced or an endless source.

        If no source waits, Spark processes the available records and ends; otherwise it polls until all sources have
        ended, or until it is stopped. By default: whether the records available now, from the beginning on, are not
        all. An endless source must return True; a source for which the default is costly overrides this.
        """
        return not self.finished(self.latest(self.initial()))

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        """Return how long a run should wait before it calls :meth:`latest` again, after that returned the offset.

        A source that knows when its next record comes, such as a paced one, returns the seconds until then. A source
        that notices records as they come, such as a subscriber, keeps ``wake``, calls it from any thread whenever
        there is something new (a record, its end, an error), and returns ``math.inf``, or the seconds until it ends.
        It may call ``wake`` more often than needed.

        None, the default: the source does not know. The run then asks again at once after records, and otherwise with
        pauses that grow with the time since the last record, up to 20 ms. Spark does not use this.
        """
        return None

    def count(self, start: Offset, end: Offset) -> int | None:
        """Return the number of records in the range; None if that is unknown before reading."""
        return None

    def seq_at(self, offset: Offset) -> int:
        """Return the ``seq`` of the next message at an offset, or a lower bound if that is unknown before reading."""
        return 0

    def commit(self, end: Offset) -> None:
        """Mark the records before the offset as processed; they will not be read again."""

    def cancel_waits(self) -> None:
        """End calls of :meth:`latest` that wait in other threads, as for a broker: the run is over.

        Such a call may return any offset, or raise. By default nothing happens.
        """

    def close(self) -> None:
        """Release resources; may be called twice."""


#: Rows per batch in the computation of a fingerprint.
FINGERPRINT_ROWS = 65_536

#: Metadata key of an empty batch: the number of the next message, and stream time.
HEARTBEAT_KEY = b"heartbeat"


def heartbeat(schema: pa.Schema, seq: int, time_us: int) -> pa.RecordBatch:
    """Make a heartbeat: an empty batch that advances stream time while no records arrive.

    It precedes message ``seq``, the number of the source's next one, and closes the windows that a record with this
    event time would close, for every key.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema of the source.
    seq : int
        Number of the next message.
    time_us : int
        Stream time, in microseconds since the epoch.

    Examples
    --------
    >>> beat = heartbeat(pa.schema([("seq", pa.int64())]), 7, 60_000_000)
    >>> beat.num_rows, parse_heartbeat(beat)
    (0, (7, 60000000))
    """
    note = {HEARTBEAT_KEY: f"{seq} {time_us}".encode()}
    return pa.RecordBatch.from_pylist([], schema.with_metadata((schema.metadata or {}) | note))


def parse_heartbeat(batch: pa.RecordBatch) -> tuple[int, int] | None:
    """Return the number of the next message, and stream time in microseconds; None if the batch is not a heartbeat."""
    note = None if batch.num_rows else (batch.schema.metadata or {}).get(HEARTBEAT_KEY)
    if note is None:
        return None
    seq, time_us = note.split()
    return int(seq), int(time_us)


class WrappedSource(Source):
    """A source that delegates to another one; subclasses override some methods."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def replayable(self) -> bool:  # type: ignore[override]
        return self.source.replayable

    @property
    def latest_blocks(self) -> bool:  # type: ignore[override]
        return self.source.latest_blocks

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def consumed_resources(self) -> frozenset[str]:
        return self.source.consumed_resources()

    def local_files(self) -> list[str]:
        return self.source.local_files()

    def carried(self) -> Source:
        inner = self.source.carried()
        if inner is self.source:
            return self
        changed = copy.copy(self)
        changed.source = inner
        return changed

    def project(self, schema: pa.Schema) -> Source:
        projected = copy.copy(self)
        projected.source = self.source.project(schema)
        return projected

    def initial(self) -> Offset:
        return self.source.initial()

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        return self.source.latest(start, limit)

    def finished(self, offset: Offset) -> bool:
        return self.source.finished(offset)

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return self.source.splits(start, end, n)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self.source.read(split)

    def read_inputs(self, name: str, split: Split) -> Iterator[dict[str, list[pa.RecordBatch]]]:
        if type(self).read is not WrappedSource.read:  # the subclass changes the records
            return super().read_inputs(name, split)
        return self.source.read_inputs(name, split)  # the source may merge several

    def waits(self) -> bool:
        return self.source.waits()

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        return self.source.wait_time(offset, wake)

    def count(self, start: Offset, end: Offset) -> int | None:
        return self.source.count(start, end)

    def seq_at(self, offset: Offset) -> int:
        return self.source.seq_at(offset)

    def commit(self, end: Offset) -> None:
        self.source.commit(end)

    def cancel_waits(self) -> None:
        self.source.cancel_waits()

    def close(self) -> None:
        self.source.close()


def initial_offset(name: str, source: Source) -> Offset:
    """Return the first offset of the source with a name; ConfigError unless a checkpoint can hold it.

    >>> class Bare(Source):
    ...     def initial(self):
    ...         return 7
    >>> Bare.__abstractmethods__ = frozenset()
    >>> initial_offset("readings", Bare())
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: source 'readings': initial() of Bare must return a mapping of texts to values of
    JSON, which a restart reads again, got 7 (int)
    """
    found = source.initial()
    try:
        is_kept = isinstance(found, dict) and msgspec.json.decode(msgspec.json.encode(found)) == found
    except (TypeError, ValueError):  # a type without a form, or whose form is not read again
        is_kept = False
    if not is_kept:
        raise ConfigError(
            f"source {name!r}: initial() of {type(source).__name__} must return a mapping of texts to values of JSON, "
            f"which a restart reads again, got {value_text(found)}"
        )
    return found


def row_splits(start: Offset, end: Offset, n: int, name: str = "row") -> list[Split]:
    """Cut a range of rows into at most n parts; ``name`` is that of the row's number in the offsets.

    >>> row_splits({"row": 0}, {"row": 5}, 2)
    [{'start': 0, 'end': 2}, {'start': 2, 'end': 5}]
    """
    edges = [start[name] + (end[name] - start[name]) * i // n for i in range(n + 1)]
    return [{"start": a, "end": b} for a, b in itertools.pairwise(edges) if a < b]


def fingerprint(records: pa.Table) -> str:
    """Hash the records of a table; the result does not depend on how they are cut into batches.

    >>> whole, cut = pa.table({"value": [1.0, 2.0]}), pa.table({"value": pa.chunked_array([[1.0], [2.0]])})
    >>> fingerprint(whole) == fingerprint(cut), fingerprint(whole) == fingerprint(cut.slice(1))
    (True, False)
    """
    digest = _DigestFile()
    with pa.ipc.new_stream(digest, records.schema) as stream:  # the stream also contains dictionaries
        stream.write_table(records.unify_dictionaries().combine_chunks(), max_chunksize=FINGERPRINT_ROWS)
    return digest.hash.hexdigest()


class _DigestFile(io.RawIOBase):
    """A file that keeps only the hash of its content."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)


# -- registry --------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Source]] = {}
T = TypeVar("T", bound=type[Source])


def register_source(cls: T) -> T:
    """Register a source under its name and code; RIoTBench lists it among the tasks."""
    if not cls.code:
        raise ConfigError(f"source {cls.__name__} cannot be registered: its code is empty")
    for label in (cls.name(), cls.code):
        known = _REGISTRY.get(label)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ConfigError(
                f"source {cls.__name__} cannot be registered as {label!r}: {known.__module__}.{known.__qualname__} "
                "has that name; give it another name and code"
            )
    _REGISTRY[cls.name()] = _REGISTRY[cls.code] = cls
    return cls


@contextmanager
def isolated_sources() -> Iterator[None]:
    """Undo all registrations of sources at the end of a ``with`` block; for tests."""
    before = dict(_REGISTRY)
    try:
        yield
    finally:
        _REGISTRY.clear()
        _REGISTRY.update(before)


def registered_sources() -> list[type[Source]]:
    """Return all registered sources, in order of category and code.

    >>> from riot_ops.connectors import MQTTSource
    >>> MQTTSource in registered_sources()
    True
    """
    return sorted(set(_REGISTRY.values()), key=lambda s: (s.category, s.code))
