"""Sinks in the user's process: how records get there from Spark's workers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConnectorError
from riot_ops.core.ipc import decode, encode
from riot_ops.core.sink import Message, Sink, Writer
from riot_ops.runtime.batches import unify_schemas

__all__ = ["DriverSink"]

SUFFIX = ".blocks"
#: A block has this many rows, or batches.
BLOCK_ROWS, MAX_HELD_BATCHES = 131_072, 4096
#: How records for the driver are encoded.
BUFFERING = Buffering()
#: Maximum bytes of the blocks of one writer: they cross the JVM in one piece.
MAX_BYTES = 1 << 30


class DriverSink(Sink):
    """Stands in for a sink in the user's process.

    Records cross in the writers' messages, so workers need not see the driver's disk. The commit, which
    runs in a separate process beside the driver, puts them into a folder, where the user's process finds
    them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _BlockWriter(partition)

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        blocks = [block for m in sorted(messages, key=lambda m: int(m["partition"])) for block in m["blocks"]]
        if not blocks:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        hidden = self.folder / f".{batch_id}"
        hidden.write_bytes(msgspec.msgpack.encode(blocks))
        os.replace(hidden, self.folder / f"{batch_id:012d}{SUFFIX}")

    def drain(self, to: Sink, until: int | None) -> None:
        """Hand batches over to a sink: those up to number ``until``, since a later commit may be under way, or all."""
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            number = int(path.stem)
            if until is not None and number > until:
                break
            writer = to.writer(number, 0)
            for stream, payload in msgspec.msgpack.decode(path.read_bytes(), type=list[tuple[str, bytes]]):
                for batch in decode(payload):
                    writer.write(stream, batch)
            to.commit(number, [writer.finish()])
            path.unlink()


class _BlockWriter(Writer):
    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._blocks: list[tuple[str, bytes]] = []
        self._bytes = 0

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self._held.setdefault(stream, []).append(batch)
        self._rows[stream] = self._rows.get(stream, 0) + batch.num_rows
        if self._rows[stream] >= BLOCK_ROWS or len(self._held[stream]) >= MAX_HELD_BATCHES:
            self._pack(stream)

    def _pack(self, stream: str) -> None:
        self._rows[stream] = 0
        payload = encode(unify_schemas(self._held.pop(stream)), BUFFERING)
        self._blocks.append((stream, payload))
        self._bytes += len(payload)
        if self._bytes > MAX_BYTES:
            raise ConnectorError(
                f"a micro-batch has more than {MAX_BYTES:,} bytes for a sink in the user's process: "
                "take fewer records at a time (max_records=), or write files (out=)"
            )

    def finish(self) -> Message:
        for stream in list(self._held):
            self._pack(stream)
        return {"partition": self._partition, "blocks": self._blocks}
