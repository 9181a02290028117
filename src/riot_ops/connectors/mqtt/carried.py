"""An MQTT source whose splits hold the messages, for workers that do not see the spool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from riot_ops.connectors.mqtt.spool import end_within
from riot_ops.core.buffering import Buffering
from riot_ops.core.ipc import decode, encode
from riot_ops.core.source import Offset, Source, Split, WrappedSource

__all__ = ["CarriedMessages"]

#: Maximum bytes of the messages of a micro-batch, which the machine that plans it holds in memory. A task crosses to
#: its worker in one piece, and Spark allows 128 MiB for that (``spark.rpc.message.maxSize``).
MAX_BYTES = 64 << 20
BUFFERING = Buffering()


class CarriedMessages(WrappedSource):
    """The messages of an :class:`MQTTSource`, read from its spool where a micro-batch is planned.

    Offsets are those of the source, so that a query may change between the two. A range is cut after about 64 MiB.

    Parameters
    ----------
    source : MQTTSource
    spool : Path
        Its spool.

    Examples
    --------
    >>> import shutil, tempfile
    >>> from riot_ops.connectors import MQTTSource
    >>> from riot_ops.connectors.mqtt.memory import MemoryBroker
    >>> folder = tempfile.mkdtemp()
    >>> source = MQTTSource(url="memory://carried", topics=["#"], client_id="me", spool=folder, messages=2).carried()
    >>> source.source.open()
    >>> for text in (b"1", b"2"):
    ...     MemoryBroker.of("memory://carried").publish("a", text)
    >>> while (end := source.latest({"seq": 0})) != {"seq": 2}:
    ...     pass
    >>> splits = source.splits({"seq": 0}, end, 2)
    >>> source.close()
    >>> shutil.rmtree(folder)
    >>> [batch["payload"].to_pylist() for split in splits for batch in source.read(split)]
    [[b'1'], [b'2']]
    """

    def __init__(self, source: Source, spool: Path) -> None:
        super().__init__(source)
        self._spool = spool

    def local_files(self) -> list[str]:
        return []

    def carried(self) -> Source:
        return self

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        first = int(start["seq"])
        end = int(self.source.latest(start, limit)["seq"])
        return {"seq": end if end <= first else end_within(self._spool, first, end, MAX_BYTES)}

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return [
            {"records": [encode([batch], BUFFERING) for batch in self.source.read(split)]}
            for split in self.source.splits(start, end, n)
        ]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for data in split["records"]:
            yield from decode(data)
