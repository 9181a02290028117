"""The thread that reads the sources of a local run."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa

from riot_ops.core.backoff import MAX_SECONDS, MIN_SECONDS, Backoff
from riot_ops.core.buffering import Buffering
from riot_ops.core.source import Offset, Source
from riot_ops.runtime.input_buffer import BufferedBatch, InputBuffer

__all__ = ["Reader"]

#: Assumed bytes of a record before any has been read, and the minimum number of records to read at once.
ASSUMED_ROW_BYTES, MIN_ROWS = 256, 16
#: Reads of a source while a batch waits for more records or for the steps, and the maximum time between two of them.
#: Records of a batch from which its fixed cost is small, even at high rates.
READS, MAX_READ_SECONDS = 4, 0.005


class Reader(threading.Thread):
    """Reads sources from their offsets, as far as there are records and room in the buffer.

    A source without records is asked again when it calls :meth:`wake`, when its next record is due, or after a pause.
    """

    def __init__(
        self,
        name: str,
        sources: Mapping[str, Source],
        offsets: Mapping[str, Offset],
        buffer: InputBuffer,
        buffering: Buffering,
        max_pause_s: float = MAX_SECONDS,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._sources = sources
        self._offsets = dict(offsets)
        self._buffer = buffer
        self._capacity = buffering.capacity
        self._flush_s = wait_s = buffering.flush_seconds
        self._read_s = min(max(wait_s / READS, MIN_SECONDS), MAX_READ_SECONDS) if wait_s else MAX_READ_SECONDS
        self._gather_s = self._read_s if buffering.capacity else 0.0
        self._wake = threading.Event()
        self._backoff = {name: Backoff(max_s=max_pause_s) for name in sources}
        self._bytes = dict.fromkeys(sources, float(ASSUMED_ROW_BYTES))  # average per record

    def run(self) -> None:
        try:
            self._read()
            self._buffer.end()
        except BaseException as error:  # raised again in the thread that called run()
            self._buffer.end(error)

    def wake(self) -> None:
        """Ask the sources again at once; may be called from any thread."""
        self._wake.set()

    def stop(self) -> None:
        """Stop reading, and wait for the end of the thread."""
        self._buffer.stop()
        self.wake()
        for source in self._sources.values():
            source.cancel_waits()
        self.join()

    def _read(self) -> None:
        stopped = self._buffer.stopped
        open_sources = dict(self._sources)
        last_read = 0.0
        while open_sources and not stopped.is_set():
            self._wake.clear()
            pauses: list[float] = []  # until a source may have records
            for name, source in list(open_sources.items()):
                start, limit = self._offsets[name], self._read_limit(name)
                begun = time.thread_time()
                end = source.latest(start, limit)
                if end == start:
                    if source.finished(end):
                        del open_sources[name]
                        continue
                    pause = source.wait_time(end, self.wake)
                    if pause is None:
                        pause = self._backoff[name].pause(time.thread_time() - begun)
                    pauses.append(max(pause, MIN_SECONDS))
                    continue
                drained = (source.count(start, end) or limit) < limit
                left = source.wait_time(end, self.wake) if drained else None
                alone = left is not None and self._flush_s < left < math.inf  # no record comes in time to join these
                size = rows = 0
                for batch in _range_batches(name, source, start, end):
                    size, rows = size + batch.size, rows + batch.rows
                    if not self._buffer.put(batch, alone and batch.offset is not None):
                        return
                if rows:
                    self._bytes[name] = size / rows
                self._backoff[name].found()
                self._offsets[name] = end
                pauses.append(0.0)
                if drained:
                    # the source has no more: let it accumulate records, unless it knows that none will come so soon
                    left = source.wait_time(end, self.wake)
                    if left is None or left < self._read_s or left == math.inf:
                        self._buffer.wait_until_empty(self._read_s)
                        left = source.wait_time(end, self.wake)
                    if source.finished(end):
                        del open_sources[name]
                    elif left:
                        last_read, pauses[-1] = time.monotonic(), max(left, self._gather_s)
            if pauses and (pause := min(pauses)):
                self._wake.wait(min(pause, threading.TIMEOUT_MAX))
                if (rest := last_read + self._gather_s - time.monotonic()) > 0:
                    stopped.wait(rest)  # records that come now come together

    def _read_limit(self, name: str) -> int:
        """Return how many records to read: the room of the open batch, or a whole batch if that is little."""
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
