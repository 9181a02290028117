"""The thread that reads the sources of a local run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.source import Offset, Source
from riot_ops.runtime.input_buffer import BufferedBatch, InputBuffer

__all__ = ["IDLE_SECONDS", "Reader"]

IDLE_SECONDS = 0.0005
#: Assumed bytes of a record before any has been read, and the minimum number of records to read at once.
ASSUMED_ROW_BYTES, MIN_ROWS = 256, 16
#: Polls of a source while a batch waits for more records or for the steps, and the maximum time between two of them.
POLLS, MAX_POLL_SECONDS = 4, 0.005


class Reader(threading.Thread):
    """Reads sources from their offsets, as far as there are records and room in the buffer."""

    def __init__(
        self,
        name: str,
        sources: Mapping[str, Source],
        offsets: Mapping[str, Offset],
        buffer: InputBuffer,
        buffering: Buffering,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._sources = sources
        self._offsets = dict(offsets)
        self._buffer = buffer
        self._capacity = buffering.capacity
        wait_s = buffering.flush_ms / 1e3
        self._look_s = min(max(wait_s / POLLS, IDLE_SECONDS), MAX_POLL_SECONDS) if wait_s else MAX_POLL_SECONDS
        self._bytes = dict.fromkeys(sources, float(ASSUMED_ROW_BYTES))  # average per record

    def run(self) -> None:
        try:
            self._read()
            self._buffer.end()
        except BaseException as error:  # raised again in the thread that called run()
            self._buffer.end(error)

    def _read(self) -> None:
        stopped = self._buffer.stopped
        open_sources = dict(self._sources)
        while open_sources and not stopped.is_set():
            idle = True
            for name, source in list(open_sources.items()):
                start, limit = self._offsets[name], self._read_limit(name)
                end = source.latest(start, limit)
                if end == start:
                    if source.finished(end):
                        del open_sources[name]
                    continue
                idle = False
                size = rows = 0
                for batch in _range_batches(name, source, start, end):
                    size, rows = size + batch.size, rows + batch.rows
                    if not self._buffer.put(batch):
                        return
                if rows:
                    self._bytes[name] = size / rows
                if (source.count(start, end) or limit) < limit:
                    # the source has no more: let it accumulate records
                    self._buffer.wait_until_empty(self._look_s)
                self._offsets[name] = end
            if idle and open_sources:
                stopped.wait(IDLE_SECONDS)

    def _read_limit(self, name: str) -> int:
        """Return how many records to read: what the open batch has room for, or a whole batch if that is little."""
        size, rows = self._buffer.room_left(name)
        record = max(self._bytes[name], 1.0)
        if size < MIN_ROWS * record:
            size = self._capacity
        return min(rows, max(MIN_ROWS, int(size / record)))


def _range_batches(name: str, source: Source, start: Offset, end: Offset) -> Iterator[BufferedBatch]:
    """Yield the batches of a range.

    Only the last one carries the new offset, so that no checkpoint falls between them.
    """
    for split in source.splits(start, end, 1):
        now = time.time() * 1e6
        first, last = split.get("due", (now, now))
        held: dict[str, list[pa.RecordBatch]] = {}
        for inputs in source.read_inputs(name, split):
            if held:
                yield BufferedBatch(name, held, None, first, last)
            held = inputs
        yield BufferedBatch(name, held, end, first, last)
