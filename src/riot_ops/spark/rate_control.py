"""Rate control: how many records the next micro-batch takes, to last about a target time."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["RateController", "RateLimit"]

#: Deviation from the target, as a share of it, that leaves the limit unchanged; and the largest factor of a change.
TOLERANCE = 0.2
MAX_STEP = 2.0
#: Default of the lowest limit, as a share of the highest. A target below the fixed cost of a micro-batch cannot be met
#: by fewer records, and must not bring the dataflow to a halt.
MIN_SHARE = 0.01


class RateLimit:
    """A limit of records that follows the duration of micro-batches.

    ``records`` becomes ``records · target / seconds``, at most twice and at least half of it, within the bounds. It
    stays the same if the duration was within 20 % of the target.

    Parameters
    ----------
    target_s : float, seconds
        Intended duration of a micro-batch.
    max_records : int
        The highest limit, which is also the first.
    min_records : int, optional
        The lowest limit; by default a hundredth of the highest.

    Examples
    --------
    >>> limit = RateLimit(1.0, max_records=1000)
    >>> for seconds in (1.6, 1.1, 9.0, 0.5):
    ...     limit.update(limit.records, seconds)
    ...     print(limit.records)
    625
    625
    312
    624
    """

    def __init__(self, target_s: float, max_records: int, min_records: int | None = None) -> None:
        self._target_s, self._max_records = target_s, max_records
        self._min_records = max(1, int(MIN_SHARE * max_records)) if min_records is None else min_records
        self.records: int = max_records

    def update(self, records: int | None, seconds: float) -> None:
        """Adapt the limit to a micro-batch of ``records``, None if unknown, that took ``seconds``."""
        if abs(seconds - self._target_s) <= TOLERANCE * self._target_s:
            return
        basis = self.records if records is None else min(records, self.records)
        factor = min(self._target_s / seconds, MAX_STEP) if seconds > 0 else MAX_STEP
        wanted = round(basis * max(factor, 1 / MAX_STEP))
        if factor > 1:  # few records in a short time do not speak against more
            wanted = max(wanted, self.records)
        self.records = min(max(wanted, self._min_records), self._max_records)


class RateController:
    """Measures micro-batches for a :class:`RateLimit`, by the machine's clock.

    Parameters
    ----------
    limit : RateLimit
    note : Path, optional
        File that the sink's commit touches: its time gives the duration of micro-batches that wait for a trigger.
        Without it micro-batches follow one another at once, and one ends when the next is requested.
    """

    def __init__(self, limit: RateLimit, note: Path | None = None) -> None:
        self._limit = limit
        self._note = note
        self._given: tuple[float, int | None] | None = None

    def next(self) -> int:
        """Return the limit of the micro-batch that is requested now; the one before has ended."""
        if self._given is not None:
            begun, records = self._given
            self._given = None
            self._limit.update(records, self._ended(begun) - begun)
        return self._limit.records

    def start_batch(self, records: int | None) -> None:
        """Record that a micro-batch begins now, with ``records``."""
        self._given = time.time(), records

    def _ended(self, begun: float) -> float:
        """Return the end of the micro-batch that began at ``begun``."""
        now = time.time()
        try:
            noted = now if self._note is None else self._note.stat().st_mtime
        except FileNotFoundError:  # nothing has been committed yet
            noted = now
        return noted if begun < noted < now else now
