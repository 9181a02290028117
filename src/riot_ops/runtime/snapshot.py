"""A snapshot of state as bytes: two Arrow IPC streams, of rows and of keys, under a checksum."""

from __future__ import annotations

import json
import zlib
from typing import Any

import msgspec
import pyarrow as pa

from riot_ops.core.errors import StateError

__all__ = ["META", "NAMES", "from_ipc", "pack_snapshot", "to_ipc", "unpack_snapshot"]

#: Who wrote the snapshot, among the metadata of its rows.
META = b"riot_ops.state"
#: The fields of the task's output, among those of its keys.
NAMES = b"riot_ops.output"


def pack_snapshot(new: int, rows: bytes | memoryview, keys: bytes | memoryview) -> bytes:
    """A snapshot of its parts: rows and keys as Arrow IPC, and the slot that the first of the keys belongs to."""
    return msgspec.msgpack.encode([_checksum(new, rows, keys), new, rows, keys])


def unpack_snapshot(
    data: bytes, where: str = ""
) -> tuple[dict[str, Any], list[str], int, pa.RecordBatch, pa.RecordBatch]:
    """Who wrote a snapshot, the fields of the output, the slot of the first of the keys, rows, and keys."""
    try:
        # the keys stay as they came, and must not hold the rest
        checksum, new, rows_ipc, keys_ipc = msgspec.msgpack.decode(data, type=tuple[int, int, memoryview, bytes])
        if checksum != _checksum(new, rows_ipc, keys_ipc):
            raise ValueError("the checksum does not fit")
        rows, keys = from_ipc(rows_ipc), from_ipc(keys_ipc)
        identity = json.loads((rows.schema.metadata or {})[META])
        names = json.loads((keys.schema.metadata or {})[NAMES])
    except (msgspec.MsgspecError, pa.ArrowInvalid, KeyError, ValueError) as error:
        raise StateError(f"the state{where} is damaged or not riot_ops state: {error}") from None
    return identity, names, new, rows, keys


def _checksum(new: int, *parts: bytes | memoryview) -> int:
    """CRC-32 of a snapshot's parts; not of their whole, of which there need not be a copy then."""
    checksum = zlib.crc32(str(new).encode())
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def to_ipc(batch: pa.RecordBatch) -> memoryview:
    """A batch as an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(out.getvalue())


def from_ipc(data: bytes | memoryview) -> pa.RecordBatch:
    """The batch that :func:`to_ipc` wrote."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
