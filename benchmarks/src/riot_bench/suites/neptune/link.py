"""Links that send batches between processes over sockets in numbered frames with checksums."""

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
from riot_ops.core.ipc import CompressionTrial, decode, encode_with_flag
from riot_ops.core.sink import Message, Sink, Writer
from riot_ops.core.source import Offset, Source, Split, row_splits

__all__ = ["Frame", "LinkSink", "LinkSource", "accept", "connect", "decode_frame", "encode_frame"]

#: Magic, version, flags, link, sender, number of the first record, records, length, CRC-32 of the payload.
HEADER = struct.Struct("<4sBBHIQIII")
MAGIC, VERSION, COMPRESSED = b"RIOT", 1, 1
#: Seconds that a poll of a link waits, and that a process waits for the other end.
POLL_SECONDS, CONNECT_SECONDS = 0.001, 30.0

Frame = tuple[int, int, int, pa.RecordBatch]


def encode_frame(
    batch: pa.RecordBatch,
    buffering: Buffering,
    first: int,
    link: int = 0,
    sender: int = 0,
    trial: CompressionTrial | None = None,
) -> bytes:
    """Encode a batch as a frame.

    >>> batch = pa.record_batch({"value": [1.0, 2.0]})
    >>> sent = encode_frame(batch, Buffering(), 7, link=1)
    >>> decode_frame(sent[: HEADER.size], sent[HEADER.size :]) == (1, 0, 7, batch)
    True
    """
    payload, compressed = encode_with_flag([batch], buffering, trial)
    flags = COMPRESSED if compressed else 0
    header = (MAGIC, VERSION, flags, link, sender, first, batch.num_rows, len(payload), zlib.crc32(payload))
    return HEADER.pack(*header) + payload


def decode_frame(header: bytes, payload: bytes) -> Frame:
    """Decode a frame to link, sender, number of the first record and batch; raise ConnectorError if it is damaged."""
    magic, version, _, link, sender, first, rows, size, crc = HEADER.unpack(header)
    if (magic, version) != (MAGIC, VERSION):
        raise ConnectorError(f"a frame begins with {magic!r}, version {version}, not {MAGIC!r}, version {VERSION}")
    if size != len(payload) or zlib.crc32(payload) != crc:
        raise ConnectorError(f"the frame of {size:,} bytes from record {first:,} on is damaged: its checksum differs")
    (batch,) = decode(payload)
    if batch.num_rows != rows:
        raise ConnectorError(f"the frame from record {first:,} on has {batch.num_rows:,} records instead of {rows:,}")
    return link, sender, first, batch


def accept(server: socket.socket) -> socket.socket:
    """Wait for the other end to connect and return its socket."""
    server.settimeout(CONNECT_SECONDS)
    other, _ = server.accept()
    return other


def connect(path: Path) -> socket.socket:
    """Connect to the process that listens at a path."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(CONNECT_SECONDS)
    link.connect(str(path))
    link.settimeout(None)
    return link


class LinkSink(Sink):
    """Sink that sends batches over a link; a slow receiver blocks it.

    Attributes
    ----------
    sent, bytes, frames, compressed : int
        Number of records, bytes, frames and compressed frames.
    """

    in_process = True

    def __init__(self, link: socket.socket, buffering: Buffering, number: int = 0) -> None:
        self.link, self.buffering, self.number = link, buffering, number
        self.sent = self.bytes = self.frames = self.compressed = 0
        self.trial = CompressionTrial()

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _LinkWriter(self)

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_WR)


class _LinkWriter(Writer):
    def __init__(self, sink: LinkSink) -> None:
        self._sink = sink

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        sink = self._sink
        frame = encode_frame(batch, sink.buffering, sink.sent, sink.number, trial=sink.trial)
        sink.link.sendall(frame)
        sink.sent += batch.num_rows
        sink.bytes += len(frame)
        sink.frames += 1
        sink.compressed += HEADER.unpack_from(frame)[2] & COMPRESSED

    def finish(self) -> Message:
        return {}


class LinkSource(Source):
    """Source of the records of a link, which can be read only once."""

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
        wanted, patience = int(start["row"]) + (limit or 1), POLL_SECONDS
        while self._end < wanted and not self._over and select.select([self.link], [], [], patience)[0]:
            self._receive()
            patience = 0.0  # take all that is available: fewer records than the limit mean that no more are
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
        _, _, first, batch = decode_frame(header, payload)
        if first != self._end:
            raise ConnectorError(f"the link delivered record {first:,} instead of {self._end:,}")
        self._held.append((self._end, batch))
        self._end += batch.num_rows

    def _exactly(self, size: int) -> bytes:
        """Receive exactly ``size`` bytes; none if the link ends between two frames."""
        found = bytearray(size)
        view, done = memoryview(found), 0
        while done < size:
            n = self.link.recv_into(view[done:])
            if n == 0:
                if done or size != HEADER.size:
                    raise ConnectorError("the link ended within a frame: the other end was closed")
                return b""
            done += n
        return bytes(found)
