"""How a run recovers from a failure, read from the files of its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riot_ops.core.errors import ConfigError

__all__ = ["CommitHistory", "count_lost_and_duplicated", "read_commits"]

#: A rate has recovered when it has this share of the earlier rate in each second, for this many seconds.
RECOVERED_SHARE, RECOVERED_S = 0.95, 3.0
#: Seconds within which a failure must show.
WINDOW_S = 20.0


@dataclass(frozen=True)
class CommitHistory:
    """Records committed over time.

    The rate between two commits is taken as constant, so a late commit appears as a low rate.

    Attributes
    ----------
    times : tuple of float
        Times of the commits in seconds, ascending.
    counts : tuple of int
        Cumulative records at each commit.
    """

    times: tuple[float, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, commits: Sequence[tuple[float, int]], begun: float) -> CommitHistory:
        """Build the history from commits (time, records) of a run that began at ``begun``.

        >>> CommitHistory.of([(12.0, 5), (11.0, 10)], begun=10.0)
        CommitHistory(times=(10.0, 11.0, 12.0), counts=(0, 10, 15))
        """
        ordered = [(max(time, begun), n) for time, n in sorted(commits)]
        counts = np.cumsum([0, *(n for _, n in ordered)]).tolist()
        return cls((begun, *(time for time, _ in ordered)), tuple(counts))

    def rate(self, start: float, end: float) -> float:
        """Return the records per second between two times.

        >>> CommitHistory((0.0, 10.0, 20.0), (0, 100, 400)).rate(5.0, 15.0)
        20.0
        """
        if not end > start:
            raise ConfigError(f"end must be after start, got {start:g} and {end:g}")
        first, last = np.interp([start, end], self.times, self.counts)
        return float((last - first) / (end - start))

    def series(self, start: float, end: float, step: float = 1.0) -> Iterator[tuple[float, float]]:
        """Yield the begin of each step, in seconds after ``start``, and the rate in it."""
        for number in range(int((end - start) / step + 1e-9)):
            at = start + number * step
            yield number * step, self.rate(at, at + step)

    def rate_before(self, failed: float, seconds: float) -> float:
        """Return the rate over ``seconds`` up to the last commit before a failure; NaN if there is no earlier commit.

        The time between that commit and the first one after the failure belongs to the outage.

        >>> CommitHistory((0.0, 10.0, 20.0), (0, 100, 400)).rate_before(15.0, 5.0)
        10.0
        """
        end = self._last(failed)
        earlier = [time for time in self.times if time < end]
        if not earlier:
            return float("nan")
        return self.rate(next((time for time in earlier if time >= end - seconds), earlier[-1]), end)

    def dip(self, failed: float, before: float) -> float:
        """Return the lowest rate of a second within 20 s of a failure, as a share of the earlier rate (at most 1).

        >>> CommitHistory((0.0, 10.0, 14.0, 20.0), (0, 100, 110, 200)).dip(10.0, 10.0)
        0.25
        """
        lowest = self._lowest(failed, min(failed + WINDOW_S + 1, self.times[-1]))
        return min(lowest / before, 1.0) if before > 0 else float("nan")

    def recovery_s(self, failed: float, before: float) -> float:
        """Return the seconds from a failure until each of three seconds has 95 % of the earlier rate; NaN if never.

        The search starts at the begin of a dip: the first second within 20 s of the failure whose rate is below that
        share and below every rate in the 20 s before the failure. Without a dip the result is 0.

        >>> run = CommitHistory((0.0, 10.0, 14.0, 20.0, 30.0), (0, 100, 110, 200, 300))
        >>> round(run.recovery_s(10.0, 10.0), 1)
        3.8
        """
        if not before > 0:  # nor NaN
            return float("nan")
        least = min(RECOVERED_SHARE * before, self._usual(failed, before)) * (1 - 1e-9)  # equal rates are no dip
        near = np.arange(failed, min(failed + WINDOW_S, self.times[-1] - 1) + 1e-9, 0.1)
        begun = next((at for at in near if self.rate(at, at + 1) < least), None)
        if begun is None:
            return 0.0
        for at in np.arange(begun, self.times[-1] - RECOVERED_S + 1e-9, 0.1):
            if min(self.rate(at, at + 0.5), self._lowest(at, at + RECOVERED_S)) >= RECOVERED_SHARE * before:
                return float(at - failed)
        return float("nan")

    def _last(self, failed: float) -> float:
        """Return the time of the last commit before a failure."""
        return max((time for time in self.times if time <= failed), default=self.times[0])

    def _usual(self, failed: float, before: float) -> float:
        """Return the lowest rate of a second in the 20 s before a failure, once the rate has settled."""
        end = self._last(failed)
        begins = np.arange(max(self.times[0], failed - WINDOW_S), end - 1 + 1e-9, 0.1)
        settled = next((at for at in begins if self.rate(at, at + 1) >= RECOVERED_SHARE * before), None)
        return float("inf") if settled is None else self._lowest(settled, end)

    def _lowest(self, start: float, end: float) -> float:
        """Return the lowest rate of a second between two times.

        The second begins or ends at a commit or at one of the times.
        """
        bends = [at for time in self.times for at in (time, time - 1) if start < at < end - 1]
        return min(self.rate(at, at + 1) for at in (start, *bends, max(start, end - 1)))


def read_commits(folder: Path) -> list[tuple[float, int]]:
    """Return the write time and the number of records of each file of a result stream."""
    files = [path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_"))]
    return [(path.stat().st_mtime, pq.read_metadata(path).num_rows) for path in files]


def count_lost_and_duplicated(folders: Sequence[Path], sent: int) -> tuple[int, int]:
    """Count the messages below ``sent`` without a result, and the duplicate results."""
    found = [np.empty(0, np.int64)]
    for folder in folders:
        for path in sorted(folder.glob("*.parquet")):
            column: pa.ChunkedArray = pq.read_table(path, columns=["seq"])["seq"]
            found.append(column.to_numpy())
    seq = np.concatenate(found)
    distinct = np.unique(seq).size
    return sent - distinct, seq.size - distinct
