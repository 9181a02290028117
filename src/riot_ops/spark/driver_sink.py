"""How records get from Spark's workers to a sink in the user's process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConnectorError
from riot_ops.core.payload import decode, encode
from riot_ops.core.sink import Message, Sink, Writer
from riot_ops.runtime.batches import aligned

__all__ = ["Relay"]

SUFFIX = ".blocks"
#: A block is made of so many rows, or batches.
BLOCK_ROWS, MOST_HELD = 131_072, 4096
#: Most bytes of blocks that one writer hands over: they cross the JVM in one piece.
MOST_BYTES = 1 << 30


class Relay(Sink):
    """Stands in for a sink in the user's process.

    Records cross in the writers' messages, so that workers need not see the driver's disk. The commit,
    which runs in a process of its own beside the driver, puts them into a folder, where the user's process
    finds them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _Blocks(partition)

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        blocks = [block for m in sorted(messages, key=lambda m: int(m["partition"])) for block in m["blocks"]]
        if not blocks:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        hidden = self.folder / f".{batch_id}"
        hidden.write_bytes(msgspec.msgpack.encode(blocks))
        os.replace(hidden, self.folder / f"{batch_id:012d}{SUFFIX}")

    def drain(self, to: Sink, until: int | None) -> None:
        """Hand batches over to a sink: those up to a number, since a later commit may be half done, or all."""
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


class _Blocks(Writer):
    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._blocks: list[tuple[str, bytes]] = []
        self._bytes = 0

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self._held.setdefault(stream, []).append(batch)
        self._rows[stream] = self._rows.get(stream, 0) + batch.num_rows
        if self._rows[stream] >= BLOCK_ROWS or len(self._held[stream]) >= MOST_HELD:
            self._pack(stream)

    def _pack(self, stream: str) -> None:
        self._rows[stream] = 0
        payload = encode(aligned(self._held.pop(stream)), Buffering())
        self._blocks.append((stream, payload))
        self._bytes += len(payload)
        if self._bytes > MOST_BYTES:
            raise ConnectorError(
                f"a micro-batch gives more than {MOST_BYTES:,} bytes for a sink in the user's process: "
                "take fewer records at a time (max_records=), or write files (out=)"
            )

    def finish(self) -> Message:
        for stream in list(self._held):
            self._pack(stream)
        return {"partition": self._partition, "blocks": self._blocks}
