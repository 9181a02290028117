"""Messages of one size with number and send time, and a sink that checks that all arrive once and in order."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.sink import Message, Sink, Writer
from riot_ops.core.source import Offset, Source, Split, row_splits
from riot_ops.measure.metrics import quantiles

__all__ = ["FRAME", "POOL_BYTES", "MessageSource", "ReceivingSink", "RelayResult"]

#: Bytes of a message without its filler: number and send time.
FRAME = 16
#: Maximum number and bytes of the fillers that are generated once; on Spark they are sent with each task.
MAX_POOL, POOL_BYTES = 65_536, 4 << 20
#: Sampled latencies of a batch.
SAMPLES = 8


class MessageSource(Source):
    """Source of messages without a pace, for a time or up to a number.

    Parameters
    ----------
    size : int, bytes
        Size of a message: number, send time in ns, and filler.
    seconds : float, optional
        Duration from the first poll on.
    total : int, optional
        Number of messages; without ``seconds`` and ``total`` the source is unbounded.
    fillers : sequence of bytes, optional
        Fillers of the messages, used cyclically, of any length; by default equal bytes.
    first : int, default 0
        Number of the first message.
    read : int, bytes
        Size of the batches.

    Attributes
    ----------
    messages_read : int
        Messages that were read in this process.
    """

    def __init__(
        self,
        size: int,
        seconds: float | None = None,
        total: int | None = None,
        fillers: Sequence[bytes] | None = None,
        first: int = 0,
        read: int = POOL_BYTES,
    ) -> None:
        self.size, self.seconds, self.total, self.first = size, seconds, total, first
        kind = pa.binary(size - FRAME) if fillers is None else pa.binary()
        pool = [b"x" * (size - FRAME)] if fillers is None else list(fillers)
        self.pool = min(MAX_POOL, max(1, min(read, POOL_BYTES) // size))
        self._fillers = pa.array(pool, kind).take(pa.array(np.arange(self.pool) % len(pool)))
        self._schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("seq", "sent")]).append(
            pa.field("filler", kind, nullable=False)
        )
        self._until: float | None = None
        self._over = False
        self.messages_read = 0

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def initial(self) -> Offset:
        return {"row": 0}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        row = int(start["row"])
        if self.seconds is not None:
            self._until = self._until or time.monotonic() + self.seconds
            self._over = self._over or time.monotonic() >= self._until
        end = row if self._over else row + (limit or self.pool)
        return {"row": end if self.total is None else min(end, self.total)}

    def finished(self, offset: Offset) -> bool:
        return self._over or (self.total is not None and offset["row"] >= self.total)

    def waits(self) -> bool:
        return self.total is None

    def count(self, start: Offset, end: Offset) -> int:
        return int(end["row"] - start["row"])

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return row_splits(start, end, n)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Read messages; they count as sent when they are read, or when they were due if the split has due times."""
        self.messages_read = max(self.messages_read, split["end"])
        for row in range(split["start"], split["end"], self.pool):
            rows = np.arange(row, min(row + self.pool, split["end"]))
            columns = [
                pa.array(self.first + rows),
                pa.array(_send_times(split, rows)),
                self._fillers.slice(0, rows.size),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _send_times(split: Split, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the send times of rows in ns; due times include the wait in a lagging source."""
    if "due" not in split:
        return np.full(rows.size, time.time_ns())
    first, last = (1000 * int(due) for due in split["due"])
    since = np.interp(
        rows, (split["start"], split["end"] - 1), (0, last - first)
    )  # relative, as floats of whole times resolve 256 ns only
    return first + since.astype(np.int64)


@dataclass(frozen=True)
class RelayResult:
    """Result of a relay.

    Attributes
    ----------
    messages : int
        Received messages.
    rate : float
        Messages per second after the warm-up.
    mean, deviation, p99 : float
        Latency after the warm-up in milliseconds.
    lost, disorder : int
        Missing messages, negative if there are duplicates; batches or messages that do not follow their predecessor.
    """

    messages: int
    rate: float
    mean: float
    deviation: float
    p99: float
    lost: int
    disorder: int

    @property
    def faults(self) -> int:
        """Number of all faults; duplicates do not compensate for lost or misordered messages.

        >>> RelayResult(8, 1.0, 1.0, 0.0, 1.0, lost=-4, disorder=1).faults
        5
        """
        return abs(self.lost) + self.disorder


class ReceivingSink(Sink):
    """Sink that records the time, number, order and latency of arriving messages.

    Parameters
    ----------
    folder : Path, optional
        Folder to which other processes write their records.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.notes: list[list[float]] = []  # time, first number, rows, breaks of the order, latencies

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _NoteWriter(self.folder and self.folder / f"{batch_id:08d}-{partition:08d}.npy")

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        for message in messages:
            self.notes += message["notes"]

    def result(self, given: int, warm: float = 0.2) -> RelayResult:
        """Compute the result for ``given`` sent messages, without the first ``warm`` share of the time."""
        left = [] if self.folder is None else [np.load(path) for path in sorted(self.folder.glob("*.npy"))]
        notes = np.concatenate(left) if left else np.array(self.notes)
        times, begins, rows, breaks = notes[:, 0], notes[:, 1], notes[:, 2], notes[:, 3]
        following = np.concatenate([[0], begins[:-1] + rows[:-1]])
        disorder = int(breaks.sum() + np.count_nonzero(begins != following))
        lost = given - int(rows.sum())
        steady = times >= times[0] + warm * (times[-1] - times[0])
        steady[np.argmax(steady)] = False  # messages that arrived before the time began
        spent = times[-1] - times[int(np.argmax(steady)) - 1] if steady.any() else np.nan
        latencies, weights = notes[steady, 4:].ravel() / 1e6, np.repeat(rows[steady] / SAMPLES, SAMPLES)
        mean = float(np.average(latencies, weights=weights)) if weights.size else np.nan
        spread = float(np.sqrt(np.average((latencies - mean) ** 2, weights=weights))) if weights.size else np.nan
        p99 = quantiles(latencies, weights, (0.99,))[0] if weights.size else np.nan
        return RelayResult(int(rows.sum()), float(rows[steady].sum() / spent), mean, spread, float(p99), lost, disorder)


class _NoteWriter(Writer):
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._notes: list[list[float]] = []

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        now = time.time_ns()
        numbers, sent = (batch.column(name).to_numpy() for name in ("seq", "sent"))
        n = numbers.size
        breaks = int(np.count_nonzero(numbers[1:] - numbers[:-1] != 1))
        places = [(2 * i + 1) * n // (2 * SAMPLES) for i in range(SAMPLES)]
        self._notes.append([now / 1e9, float(numbers[0]), float(n), breaks, *(now - sent[places]).tolist()])

    def finish(self) -> Message:
        if self._path is None:
            return {"notes": self._notes}
        if self._notes:
            np.save(self._path, np.array(self._notes))
        return {"notes": []}
