"""How a run goes through a failure: what was analysed when, read from the files of its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riot_ops.core.errors import ConfigError

__all__ = ["Analysed", "commits_of", "lost_and_doubled_of"]

#: A rate has come back when each second has this share of the rate before, for so many seconds.
BACK, FOR_S = 0.95, 3.0
#: A failure shows within so many seconds.
NEAR_S = 20.0


@dataclass(frozen=True)
class Analysed:
    """When how many records were analysed.

    Between two commits as many come about in each moment: a commit that is late shows as a rate that was low.

    Attributes
    ----------
    times : tuple of float
        Of the commits, in seconds, ascending.
    counts : tuple of int
        Records of all commits up to each.
    """

    times: tuple[float, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, commits: Sequence[tuple[float, int]], begun: float) -> Analysed:
        """The commits (time, records) of a run that began at a time.

        >>> Analysed.of([(12.0, 5), (11.0, 10)], begun=10.0)
        Analysed(times=(10.0, 11.0, 12.0), counts=(0, 10, 15))
        """
        ordered = [(max(time, begun), n) for time, n in sorted(commits)]
        counts = np.cumsum([0, *(n for _, n in ordered)]).tolist()
        return cls((begun, *(time for time, _ in ordered)), tuple(counts))

    def rate(self, start: float, end: float) -> float:
        """Records per second between two times.

        >>> Analysed((0.0, 10.0, 20.0), (0, 100, 400)).rate(5.0, 15.0)
        20.0
        """
        if not end > start:
            raise ConfigError(f"end must be behind start, got {start:g} and {end:g}")
        first, last = np.interp([start, end], self.times, self.counts)
        return float((last - first) / (end - start))

    def series(self, start: float, end: float, step: float = 1.0) -> Iterator[tuple[float, float]]:
        """Begin of each step, in seconds from the start on, and the rate in it."""
        for number in range(int((end - start) / step + 1e-9)):
            at = start + number * step
            yield number * step, self.rate(at, at + step)

    def before(self, failed: float, seconds: float) -> float:
        """The rate of the commits within so many seconds up to the last that ended by a failure; NaN: there is none.

        What is between it and the first behind the failure is the outage's.

        >>> Analysed((0.0, 10.0, 20.0), (0, 100, 400)).before(15.0, 5.0)
        10.0
        """
        end = self._last(failed)
        earlier = [time for time in self.times if time < end]
        if not earlier:
            return float("nan")
        return self.rate(next((time for time in earlier if time >= end - seconds), earlier[-1]), end)

    def dip(self, failed: float, before: float) -> float:
        """The lowest rate of a second within 20 s of a failure, as a share of the rate before.

        1: it is never lower.

        >>> Analysed((0.0, 10.0, 14.0, 20.0), (0, 100, 110, 200)).dip(10.0, 10.0)
        0.25
        """
        lowest = self._lowest(failed, min(failed + NEAR_S + 1, self.times[-1]))
        return min(lowest / before, 1.0) if before > 0 else float("nan")

    def recovery(self, failed: float, before: float) -> float:
        """Seconds from a failure until each second of three has 95 % of the rate before; NaN: it does not come back.

        They are looked for behind the begin of a dip: the first second within 20 s of the failure that is below that,
        and below all in the 20 s before it. 0: there is no dip.

        >>> run = Analysed((0.0, 10.0, 14.0, 20.0, 30.0), (0, 100, 110, 200, 300))
        >>> round(run.recovery(10.0, 10.0), 1)
        3.8
        """
        if not before > 0:  # nor NaN
            return float("nan")
        least = min(BACK * before, self._usual(failed, before)) * (1 - 1e-9)  # of equal ones none is below
        near = np.arange(failed, min(failed + NEAR_S, self.times[-1] - 1) + 1e-9, 0.1)
        begun = next((at for at in near if self.rate(at, at + 1) < least), None)
        if begun is None:
            return 0.0
        for at in np.arange(begun, self.times[-1] - FOR_S + 1e-9, 0.1):
            if min(self.rate(at, at + 0.5), self._lowest(at, at + FOR_S)) >= BACK * before:
                return float(at - failed)
        return float("nan")

    def _last(self, failed: float) -> float:
        """The time of the last commit by a failure."""
        return max((time for time in self.times if time <= failed), default=self.times[0])

    def _usual(self, failed: float, before: float) -> float:
        """The lowest rate of a second in the 20 s before a failure, from where it is first what it then is."""
        end = self._last(failed)
        begins = np.arange(max(self.times[0], failed - NEAR_S), end - 1 + 1e-9, 0.1)
        settled = next((at for at in begins if self.rate(at, at + 1) >= BACK * before), None)
        return float("inf") if settled is None else self._lowest(settled, end)

    def _lowest(self, start: float, end: float) -> float:
        """The lowest rate of a second between two times: it begins or ends with a commit, or with one of the two."""
        bends = [at for time in self.times for at in (time, time - 1) if start < at < end - 1]
        return min(self.rate(at, at + 1) for at in (start, *bends, max(start, end - 1)))


def commits_of(folder: Path) -> list[tuple[float, int]]:
    """When each file of a stream of results was written, and how many records it has."""
    files = [path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_"))]
    return [(path.stat().st_mtime, pq.read_metadata(path).num_rows) for path in files]


def lost_and_doubled_of(folders: Sequence[Path], sent: int) -> tuple[int, int]:
    """Of messages 0 to ``sent``: how many have no result, and how many results there are of others twice."""
    found = [np.empty(0, np.int64)]
    for folder in folders:
        for path in sorted(folder.glob("*.parquet")):
            column: pa.ChunkedArray = pq.read_table(path, columns=["seq"])["seq"]
            found.append(column.to_numpy())
    seq = np.concatenate(found)
    distinct = np.unique(seq).size
    return sent - distinct, seq.size - distinct
