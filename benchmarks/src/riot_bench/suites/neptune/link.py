"""Links: batches from one process to another over a socket, framed, numbered and checked."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConnectorError
from riot_ops.core.payload import decode, packed
from riot_ops.core.sink import Message, Sink, Writer
from riot_ops.core.source import Offset, Source, Split, row_splits

__all__ = ["Frame", "LinkSink", "LinkSource", "accepted", "connected", "framed", "unframed"]

#: Magic, version, flags, link, sender, number of the first record, records, length, CRC-32 of the payload.
HEADER = struct.Struct("<4sBBHIQIII")
MAGIC, VERSION, COMPRESSED = b"RIOT", 1, 1
#: How long a look at a link waits, and a process for the other end.
LOOK_SECONDS, CONNECT_SECONDS = 0.001, 30.0

Frame = tuple[int, int, int, pa.RecordBatch]


def framed(batch: pa.RecordBatch, buffering: Buffering, first: int, link: int = 0, sender: int = 0) -> bytes:
    """A batch as it goes over a link.

    >>> batch = pa.record_batch({"value": [1.0, 2.0]})
    >>> sent = framed(batch, Buffering(), 7, link=1)
    >>> unframed(sent[: HEADER.size], sent[HEADER.size :]) == (1, 0, 7, batch)
    True
    """
    payload, compressed = packed([batch], buffering)
    flags = COMPRESSED if compressed else 0
    header = (MAGIC, VERSION, flags, link, sender, first, batch.num_rows, len(payload), zlib.crc32(payload))
    return HEADER.pack(*header) + payload


def unframed(header: bytes, payload: bytes) -> Frame:
    """Link, sender, number of the first record, and the batch; ConnectorError where it is damaged."""
    magic, version, _, link, sender, first, rows, size, crc = HEADER.unpack(header)
    if (magic, version) != (MAGIC, VERSION):
        raise ConnectorError(f"a link brought {magic!r}, version {version}; known is {MAGIC!r}, version {VERSION}")
    if size != len(payload) or zlib.crc32(payload) != crc:
        raise ConnectorError(f"a batch of {size:,} bytes, from record {first:,} on, is damaged: its checksum differs")
    (batch,) = decode(payload)
    if batch.num_rows != rows:
        raise ConnectorError(f"a batch from record {first:,} on has {batch.num_rows:,} records instead of {rows:,}")
    return link, sender, first, batch


def accepted(server: socket.socket) -> socket.socket:
    """The other end, once it calls."""
    server.settimeout(CONNECT_SECONDS)
    other, _ = server.accept()
    return other


def connected(path: Path) -> socket.socket:
    """A link to a process that waits at a path."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(CONNECT_SECONDS)
    made.connect(str(path))
    made.settimeout(None)
    return made


class LinkSink(Sink):
    """Sends batches over a link, by a codec and a ratio; a receiver that is slow holds it back.

    Attributes
    ----------
    sent, bytes, frames, compressed : int
        Records, bytes, batches, and those of them that went compressed.
    """

    in_process = True

    def __init__(self, link: socket.socket, buffering: Buffering, number: int = 0) -> None:
        self.link, self.buffering, self.number = link, buffering, number
        self.sent = self.bytes = self.frames = self.compressed = 0

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _Sending(self)

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_WR)


class _Sending(Writer):
    def __init__(self, sink: LinkSink) -> None:
        self._sink = sink

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        sink = self._sink
        frame = framed(batch, sink.buffering, sink.sent, sink.number)
        sink.link.sendall(frame)
        sink.sent += batch.num_rows
        sink.bytes += len(frame)
        sink.frames += 1
        sink.compressed += HEADER.unpack_from(frame)[2] & COMPRESSED

    def finish(self) -> Message:
        return {}


class LinkSource(Source):
    """The records that come over a link, once: it cannot be read again."""

    replayable = False

    def __init__(self, link: socket.socket, schema: pa.Schema) -> None:
        self.link = link
        self._schema = schema
        self._held: deque[tuple[int, pa.RecordBatch]] = deque()
        self._end = 0
        self._over = False

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def initial(self) -> Offset:
        return {"row": 0}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        while self._held and self._held[0][0] + self._held[0][1].num_rows <= start["row"]:
            self._held.popleft()
        wanted, patience = int(start["row"]) + (limit or 1), LOOK_SECONDS
        while self._end < wanted and not self._over and select.select([self.link], [], [], patience)[0]:
            self._receive()
            patience = 0.0  # what else is there: who gets less than asked for takes it that no more is
        return {"row": self._end if limit is None else min(self._end, start["row"] + limit)}

    def finished(self, offset: Offset) -> bool:
        return bool(self._over and offset["row"] >= self._end)

    def waits(self) -> bool:
        return True

    def count(self, start: Offset, end: Offset) -> int:
        return int(end["row"] - start["row"])

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return row_splits(start, end, n)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for first, batch in list(self._held):
            a, b = max(split["start"] - first, 0), min(split["end"] - first, batch.num_rows)
            if a < b:
                yield batch.slice(a, b - a)

    def close(self) -> None:
        self.link.close()

    def _receive(self) -> None:
        header = self._exactly(HEADER.size)
        if not header:
            self._over = True
            return
        payload = self._exactly(HEADER.unpack(header)[7])
        _, _, first, batch = unframed(header, payload)
        if first != self._end:
            raise ConnectorError(f"record {first:,} came over a link where {self._end:,} was due")
        self._held.append((self._end, batch))
        self._end += batch.num_rows

    def _exactly(self, size: int) -> bytes:
        """So many bytes; none at the end of the link, where no batch is under way."""
        found = bytearray(size)
        view, done = memoryview(found), 0
        while done < size:
            n = self.link.recv_into(view[done:])
            if n == 0:
                if done or size != HEADER.size:
                    raise ConnectorError("a link ended within a batch: its other end is gone")
                return b""
            done += n
        return bytes(found)
