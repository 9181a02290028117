"""What starts TRAIN: spans of time to learn from, from a timer file or as the benchmark's timers have them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from riot_ops.core.errors import ConfigError, excerpt
from riot_ops.core.paths import local_path
from riot_ops.core.schema import TIMESTAMP, stream_schema

__all__ = ["TICKS", "read_ticks", "ticks"]

#: A tick: its time, and the span of event time to learn from, in milliseconds since the epoch, half-open.
TICKS = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("event_time", TIMESTAMP),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
    ]
)
#: When the benchmark's timers begin, in seconds since the epoch.
FIRST_S = 1_443_033_000


class Timer(NamedTuple):
    """Where the first span begins, from one to the next, the lengths (the last for the rest); from tick to tick."""

    start: int
    every: int
    lengths: tuple[int, ...]
    tick_s: int
    n: int


TIMERS = {
    "city": Timer(1_422_748_800_000, 3_600_000, (1_000_000,) * 3 + (100_000,), 120, 7),
    "taxi": Timer(1_358_101_800_000, 86_400_000, (864_000,), 120, 7),
    "fit": Timer(1_417_890_600_000, 60_000, (60_000,), 60, 12),
    "grid": Timer(1_247_511_001_000, 60_000, (60_000,), 60, 12),
}


def ticks(stream: str = "city", n: int | None = None, start_ms: int | None = None) -> pa.Table:
    """The ticks of the benchmark's timer for a stream, for the source of :func:`riot_ops.dataflows.train`.

    CITY: an hour from one span to the next, the first three 1,000 s long and the others 100 s; TAXI: 864 s
    of each day; FIT and GRID: one minute after the other. Ticks are 120 s apart (FIT, GRID: 60 s), which
    ``Paced(MemorySource(ticks), speed=1)``, see :class:`riot_ops.streams.Paced`, keeps to.

    Parameters
    ----------
    stream : str, default "city"
        City, taxi, fit or grid.
    n : int, optional
        How many; by default as many as in the benchmark's file (7; fit, grid: 12).
    start_ms : int, optional
        Where the first span begins, in milliseconds since the epoch; by default where the benchmark's does.

    Examples
    --------
    >>> [(row["start"], row["end"]) for row in ticks("grid", n=2, start_ms=0).to_pylist()]
    [(0, 60000), (60000, 120000)]
    """
    timer = TIMERS[stream_schema(stream).name]
    n, start = timer.n if n is None else n, timer.start if start_ms is None else start_ms
    if n < 1:
        raise ConfigError(f"n must be >= 1, got {n}")
    rows: list[tuple[int, ...]] = []
    for i in range(n):
        begin = start + i * timer.every
        rows.append((i + 1, FIRST_S + i * timer.tick_s, begin, begin + timer.lengths[min(i, len(timer.lengths) - 1)]))
    return _table(rows)


def read_ticks(path: str | Path) -> pa.Table:
    r"""The ticks of a timer file: lines ``number,time in s,start in ms,end in ms``, behind a header or not.

    Parameters
    ----------
    path : str or path
        Of a text file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "timer.csv"
    ...     _ = path.write_text("msgId,timestamp,rowstart,rowend\n1,120,0,60000\n")
    ...     read_ticks(path).to_pylist()[0]["end"]
    60000
    """
    try:
        lines = local_path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the ticks {path} cannot be read: {error}") from None
    rows: list[tuple[int, ...]] = []
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.split(",")]
        if not line.strip() or (number == 1 and not cells[0].isdecimal()):
            continue
        try:
            row = tuple(map(int, cells))
            if len(row) != 4 or row[2] >= row[3] or (rows and row[0] <= rows[-1][0]):
                raise ValueError
        except ValueError:
            raise ConfigError(
                f"line {number} of {path} must be a number above the one before, a time in seconds, and start and end "
                f"of a span in milliseconds: {excerpt(line)!r}"
            ) from None
        rows.append(row)
    if not rows:
        raise ConfigError(f"{path} has no ticks")
    return _table(rows)


def _table(rows: list[tuple[int, ...]]) -> pa.Table:
    number, seconds, start, end = zip(*rows, strict=True)
    times = pa.array([1_000_000 * s for s in seconds], pa.int64()).cast(TIMESTAMP)
    columns = [pa.array(number, pa.int64()), times, pa.array(start, pa.int64()), pa.array(end, pa.int64())]
    return pa.Table.from_arrays(columns, schema=TICKS)
