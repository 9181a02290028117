"""The thread that reads the sources of a run in process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.source import Offset, Source
from riot_ops.runtime.inbound import Arrival, Inbound

__all__ = ["IDLE_SECONDS", "Reader"]

IDLE_SECONDS = 0.0005
#: What a record is taken to have before some have been read, and records that are worth a reading.
GUESSED_BYTES, LEAST_ROWS = 256, 16
#: While a batch waits for more, or for the steps: looks at a source, and the longest time between two.
LOOKS, LOOK_SECONDS = 4, 0.005


class Reader(threading.Thread):
    """Reads sources from offsets on, as far as there is something, as much as there is room for."""

    def __init__(
        self,
        name: str,
        sources: Mapping[str, Source],
        offsets: Mapping[str, Offset],
        inbound: Inbound,
        buffering: Buffering,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._sources = sources
        self._offsets = dict(offsets)
        self._inbound = inbound
        self._capacity = buffering.capacity
        wait_s = buffering.flush_ms / 1e3
        self._look_s = min(max(wait_s / LOOKS, IDLE_SECONDS), LOOK_SECONDS) if wait_s else LOOK_SECONDS
        self._bytes = dict.fromkeys(sources, float(GUESSED_BYTES))  # of a record

    def run(self) -> None:
        try:
            self._read()
            self._inbound.end()
        except BaseException as error:  # shown to the caller, in whose thread the run is
            self._inbound.end(error)

    def _read(self) -> None:
        stopped = self._inbound.stopped
        open_sources = dict(self._sources)
        while open_sources and not stopped.is_set():
            idle = True
            for name, source in list(open_sources.items()):
                start, most = self._offsets[name], self._most(name)
                end = source.latest(start, most)
                if end == start:
                    if source.finished(end):
                        del open_sources[name]
                    continue
                idle = False
                size = rows = 0
                for arrival in _arrivals(name, source, start, end):
                    size, rows = size + arrival.size, rows + arrival.rows
                    if not self._inbound.put(arrival):
                        return
                if rows:
                    self._bytes[name] = size / rows
                if (source.count(start, end) or most) < most:
                    # all there was: let more come together in the source
                    self._inbound.rest(self._look_s)
                self._offsets[name] = end
            if idle and open_sources:
                stopped.wait(IDLE_SECONDS)

    def _most(self, name: str) -> int:
        """How many records to read at once: what the open batch has room for, or where that is little a whole one."""
        size, rows = self._inbound.left(name)
        record = max(self._bytes[name], 1.0)
        if size < LEAST_ROWS * record:
            size = self._capacity
        return min(rows, max(LEAST_ROWS, int(size / record)))


def _arrivals(name: str, source: Source, start: Offset, end: Offset) -> Iterator[Arrival]:
    """The batches of a range.

    Only the last carries the new offset, so that no checkpoint falls between them.
    """
    for split in source.splits(start, end, 1):
        now = time.time() * 1e6
        first, last = split.get("due", (now, now))
        held: dict[str, list[pa.RecordBatch]] = {}
        for inputs in source.inputs(name, split):
            if held:
                yield Arrival(name, held, None, first, last)
            held = inputs
        yield Arrival(name, held, end, first, last)
