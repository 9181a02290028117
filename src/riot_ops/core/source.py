"""What a source is: a replayable log of records, addressed by offsets.

Both runners drive a source the same way: ask how far one may read now, cut that range into splits,
read the splits. Since a range of offsets always gives the same records, a replay after a crash
gives the same bytes.
"""

from __future__ import annotations

import copy
import hashlib
import io
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import snake_case

__all__ = [
    "Offset",
    "Source",
    "Split",
    "WrappedSource",
    "fingerprint",
    "heartbeat",
    "heartbeat_of",
    "register_source",
    "row_splits",
    "sources",
]

#: A position in a source: small, JSON-able, comparable with ``==``.
Offset = dict[str, Any]

#: A part of a range of offsets, JSON-able. Its key ``due`` (``[first, last]``, microseconds since
#: the epoch), if present, says when a paced source meant its records to arrive; latency counts
#: from there.
Split = dict[str, Any]


class Source(ABC):
    """A replayable log of records.

    Instances are picklable: splits are read in other processes. The records have a column ``seq``
    (int64, non-null, growing along the log, the same for the same record at every read), and
    ``event_time`` (timestamp[us, tz=UTC]) where there is one.
    """

    #: Code of a registered source; what it is, as for tasks.
    code: ClassVar[str] = ""
    category: ClassVar[str] = "Custom"
    pattern: ClassVar[str] = "Source"
    selectivity: ClassVar[str] = ""
    stateful: ClassVar[bool] = False
    #: Whether a range can be read again, which a restart and Spark's workers need.
    replayable: bool = True
    #: Whether :meth:`latest` may take long, as where a broker has to answer first.
    lingers: bool = False

    @classmethod
    def name(cls) -> str:
        """Registry name: the class name in snake case."""
        return snake_case(cls.__name__)

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the records."""

    def description(self) -> dict[str, Any] | None:
        """What is read, as JSON-able data without secrets: sources of one description give the same records.

        By default None: it may be like no other.
        """
        return None

    def consumed(self) -> frozenset[str]:
        """What is gone once it is committed, in words, such as a queue: two who read it would take from each other.

        By default nothing: any number may read it.
        """
        return frozenset()

    def declared(self, schema: pa.Schema) -> Source:
        """The source for a dataflow that declares these fields: it may leave out others, or follow the types.

        Types need not agree: what a source delivers is cast where records come in.
        """
        return self

    @abstractmethod
    def initial(self) -> Offset:
        """The offset of the first record."""

    @abstractmethod
    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        """How far one may read now from start: at most ``limit`` records further.

        Equals ``start`` where nothing is available (yet).
        """

    @abstractmethod
    def finished(self, offset: Offset) -> bool:
        """Whether no record will ever come after the offset."""

    @abstractmethod
    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        """Cut the range into at most n consecutive parts of about equal size."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The records of a part, in order; batches of any size, none empty but a :func:`heartbeat`."""

    def inputs(self, name: str, split: Split) -> Iterator[dict[str, list[pa.RecordBatch]]]:
        """The records of a part by the source of a dataflow that they are of: of this one, which has that name."""
        for batch in self.read(split):
            yield {name: [batch]}

    def waits(self) -> bool:
        """Whether a run has to wait for records, or has no end: as with a paced or an endless source.

        Spark takes what is there and ends only where no source waits; else it polls until all have
        ended, or it is stopped. By default: whether what can be read now, from the beginning on, is not
        all. A source that is endless must answer True; one that finds it costly to look, and
        knows the answer, gives it here.
        """
        return not self.finished(self.latest(self.initial()))

    def count(self, start: Offset, end: Offset) -> int | None:
        """Number of records in the range, if known without reading."""
        return None

    def number(self, offset: Offset) -> int:
        """The ``seq`` of the next message at an offset, or a smaller number where only reading tells."""
        return 0

    def commit(self, end: Offset) -> None:
        """Everything before the offset has been processed and will not be read again."""

    def close(self) -> None:
        """Release what the source holds; may be called twice."""


#: Rows that are looked at together for a fingerprint.
FINGERPRINTED = 65_536

#: Names, in the metadata of a batch without records, the message that it stands before and its time.
HEARTBEAT = b"heartbeat"


def heartbeat(schema: pa.Schema, seq: int, time_us: int) -> pa.RecordBatch:
    """What a source delivers where nothing comes but time goes on: no record, and the stream time.

    It stands before message ``seq``, the number that the source's next one has, and closes what a record with this
    event time would close, in every key.

    Parameters
    ----------
    schema : pyarrow.Schema
        That of the source.
    seq : int
        Number of the next message.
    time_us : int
        Stream time, in microseconds since the epoch.

    Examples
    --------
    >>> beat = heartbeat(pa.schema([("seq", pa.int64())]), 7, 60_000_000)
    >>> beat.num_rows, heartbeat_of(beat)
    (0, (7, 60000000))
    """
    note = {HEARTBEAT: f"{seq} {time_us}".encode()}
    return pa.RecordBatch.from_pylist([], schema.with_metadata((schema.metadata or {}) | note))


def heartbeat_of(batch: pa.RecordBatch) -> tuple[int, int] | None:
    """Number of the next message, and stream time in microseconds; None where a batch is no heartbeat."""
    note = None if batch.num_rows else (batch.schema.metadata or {}).get(HEARTBEAT)
    if note is None:
        return None
    seq, time_us = note.split()
    return int(seq), int(time_us)


class WrappedSource(Source):
    """A source that asks another one for everything; subclasses change a part of that."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def replayable(self) -> bool:  # type: ignore[override]
        return self.source.replayable

    @property
    def lingers(self) -> bool:  # type: ignore[override]
        return self.source.lingers

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def consumed(self) -> frozenset[str]:
        return self.source.consumed()

    def declared(self, schema: pa.Schema) -> Source:
        made = copy.copy(self)
        made.source = self.source.declared(schema)
        return made

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

    def inputs(self, name: str, split: Split) -> Iterator[dict[str, list[pa.RecordBatch]]]:
        if type(self).read is not WrappedSource.read:  # what is read is the part that changes
            return super().inputs(name, split)
        return self.source.inputs(name, split)  # which may be several

    def waits(self) -> bool:
        return self.source.waits()

    def count(self, start: Offset, end: Offset) -> int | None:
        return self.source.count(start, end)

    def number(self, offset: Offset) -> int:
        return self.source.number(offset)

    def commit(self, end: Offset) -> None:
        self.source.commit(end)

    def close(self) -> None:
        self.source.close()


def row_splits(start: Offset, end: Offset, n: int) -> list[Split]:
    """The parts of a range of rows.

    >>> row_splits({"row": 0}, {"row": 5}, 2)
    [{'start': 0, 'end': 2}, {'start': 2, 'end': 5}]
    """
    edges = [start["row"] + (end["row"] - start["row"]) * i // n for i in range(n + 1)]
    return [{"start": a, "end": b} for a, b in itertools.pairwise(edges) if a < b]


def fingerprint(records: pa.Table) -> str:
    """A short text that tells records from others, however they are cut into batches.

    >>> whole, cut = pa.table({"value": [1.0, 2.0]}), pa.table({"value": pa.chunked_array([[1.0], [2.0]])})
    >>> fingerprint(whole) == fingerprint(cut), fingerprint(whole) == fingerprint(cut.slice(1))
    (True, False)
    """
    digest = _Digest()
    with pa.ipc.new_stream(digest, records.schema) as stream:  # dictionaries too, which no batch has by itself
        stream.write_table(records.unify_dictionaries().combine_chunks(), max_chunksize=FINGERPRINTED)
    return digest.found.hexdigest()


class _Digest(io.RawIOBase):
    """A file of which the digest is left."""

    def __init__(self) -> None:
        self.found = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.found.update(data)
        return len(data)


# -- registry --------------------------------------------------------------------------------------

_REGISTRY: dict[str, type[Source]] = {}
T = TypeVar("T", bound=type[Source])


def register_source(kind: T) -> T:
    """List a source among the tasks, as the benchmark does."""
    if not kind.code:
        raise ConfigError(f"source {kind.__name__} cannot be registered: its code is empty")
    for label in (kind.name(), kind.code):
        known = _REGISTRY.get(label)
        if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
            raise ConfigError(
                f"source {kind.__name__} cannot be registered as {label!r}: {known.__module__}.{known.__qualname__} "
                "has that name; give it another name and code"
            )
    _REGISTRY[kind.name()] = _REGISTRY[kind.code] = kind
    return kind


def sources() -> list[type[Source]]:
    """All registered sources, in order of category and code.

    >>> [kind.code for kind in sources()]
    ['MQS']
    """
    return sorted(set(_REGISTRY.values()), key=lambda s: (s.category, s.code))
