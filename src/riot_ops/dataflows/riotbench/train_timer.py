"""Timer of TRAIN: ticks with the time spans to train on, from a timer file or as in the benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from riot_ops.core.errors import ConfigError, excerpt
from riot_ops.core.paths import local_path
from riot_ops.core.schema import TIMESTAMP, stream_schema

__all__ = ["TICKS", "read_ticks", "ticks"]

#: A tick: its time, and the half-open span of event time to train on, in milliseconds since the epoch.
TICKS = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("event_time", TIMESTAMP),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
    ]
)
#: First tick of the benchmark's timers, in seconds since the epoch.
FIRST_S = 1_443_033_000


class Timer(NamedTuple):
    """A timer: start of the first span, distance and lengths of the spans (the last length repeats), tick interval."""

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
    """Generate the ticks of the benchmark's timer for a stream, the source of :func:`riot_ops.dataflows.train`.

    CITY: a span every hour, the first three 1,000 s long and the others 100 s; TAXI: 864 s of each day; FIT and
    GRID: consecutive minutes. Ticks are 120 s apart (FIT, GRID: 60 s);
    ``PacedSource(MemorySource(ticks), speed=1)`` replays them in real time, see :class:`riot_ops.streams.PacedSource`.

    Parameters
    ----------
    stream : str, default "city"
        city, taxi, fit or grid.
    n : int, optional
        Number of ticks; by default as in the benchmark's file (7; fit, grid: 12).
    start_ms : int, optional
        Start of the first span, in milliseconds since the epoch; by default as in the benchmark.

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
    r"""Read the ticks of a timer file: lines ``number,time in s,start in ms,end in ms``, with or without a header.

    Parameters
    ----------
    path : str or path
        Path of the text file.

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
        lines = local_path(path).read_text(encoding="utf-8-sig").split("\n")
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
                f"line {number} of {path} must have a number above the previous one, a time in seconds, and start "
                f"and end of a span in milliseconds: {excerpt(line)!r}"
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
