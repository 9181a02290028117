"""Messages of one size that know when they were sent, and a sink that checks that all come, once and in order."""

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

__all__ = ["FRAME", "POOL_BYTES", "Messages", "Received", "Relayed"]

#: Bytes of a message besides its filler: number and time of sending.
FRAME = 16
#: Messages whose fillers are made once and for all, and bytes of these: on Spark they travel to each task.
POOL, POOL_BYTES = 65_536, 4 << 20
#: Latencies that stand for those of a batch.
SAMPLES = 8


class Messages(Source):
    """Messages, as fast as they are asked for, for a time or up to a number.

    Parameters
    ----------
    size : int, bytes
        Of a message: number, time of sending in ns, and filler.
    seconds : float, optional
        How long from the first look on.
    total : int, optional
        How many; without either there is no end.
    fillers : sequence of bytes, optional
        What the messages hold by turns, of any length; by default bytes that are alike.
    first : int, default 0
        Number of the first.
    read : int, bytes
        Size of the batches in which they are read.

    Attributes
    ----------
    given : int
        Messages that were read in this process, up to the last one.
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
        self.pool = min(POOL, max(1, min(read, POOL_BYTES) // size))
        self._fillers = pa.array(pool, kind).take(pa.array(np.arange(self.pool) % len(pool)))
        self._schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("seq", "sent")]).append(
            pa.field("filler", kind, nullable=False)
        )
        self._until: float | None = None
        self._over = False
        self.given = 0

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
        """Messages, sent when they are read, or when they were due where the split tells it."""
        self.given = max(self.given, split["end"])
        for row in range(split["start"], split["end"], self.pool):
            rows = np.arange(row, min(row + self.pool, split["end"]))
            columns = [pa.array(self.first + rows), pa.array(_sent(split, rows)), self._fillers.slice(0, rows.size)]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _sent(split: Split, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """When some rows of a split were sent, in ns: else what waits in a source that falls behind would not count."""
    if "due" not in split:
        return np.full(rows.size, time.time_ns())
    first, last = (1000 * int(due) for due in split["due"])
    since = np.interp(rows, (split["start"], split["end"] - 1), (0, last - first))  # of the whole only 256 ns are exact
    return first + since.astype(np.int64)


@dataclass(frozen=True)
class Relayed:
    """What came of a relay.

    Attributes
    ----------
    messages : int
        That arrived.
    rate : float
        Messages per second behind the warm-up.
    mean, deviation, p99 : float
        Latency there, in milliseconds.
    lost, disorder : int
        Messages that did not come, less than 0 where some came twice; and batches or messages that did not follow the
        one before.
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
        """All that is wrong: what came twice does not make up for what is lost or out of order.

        >>> Relayed(8, 1.0, 1.0, 0.0, 1.0, lost=-4, disorder=1).faults
        5
        """
        return abs(self.lost) + self.disorder


class Received(Sink):
    """Notes what arrives: when, how many, with which numbers, and how long it took.

    Parameters
    ----------
    folder : Path, optional
        Where other processes leave their notes.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.notes: list[list[float]] = []  # time, first number, rows, breaks of the order, latencies

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _Noting(self.folder and self.folder / f"{batch_id:08d}-{partition:08d}.npy")

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        for message in messages:
            self.notes += message["notes"]

    def relayed(self, given: int, warm: float = 0.2) -> Relayed:
        """The figures, of so many messages that were given, without a first share of the time."""
        left = [] if self.folder is None else [np.load(path) for path in sorted(self.folder.glob("*.npy"))]
        notes = np.concatenate(left) if left else np.array(self.notes)
        times, begins, rows, breaks = notes[:, 0], notes[:, 1], notes[:, 2], notes[:, 3]
        following = np.concatenate([[0], begins[:-1] + rows[:-1]])
        disorder = int(breaks.sum() + np.count_nonzero(begins != following))
        lost = given - int(rows.sum())
        steady = times >= times[0] + warm * (times[-1] - times[0])
        steady[np.argmax(steady)] = False  # what had come when the time began
        spent = times[-1] - times[int(np.argmax(steady)) - 1] if steady.any() else np.nan
        latencies, weights = notes[steady, 4:].ravel() / 1e6, np.repeat(rows[steady] / SAMPLES, SAMPLES)
        mean = float(np.average(latencies, weights=weights)) if weights.size else np.nan
        spread = float(np.sqrt(np.average((latencies - mean) ** 2, weights=weights))) if weights.size else np.nan
        p99 = quantiles(latencies, weights, (0.99,))[0] if weights.size else np.nan
        return Relayed(int(rows.sum()), float(rows[steady].sum() / spent), mean, spread, float(p99), lost, disorder)


class _Noting(Writer):
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
