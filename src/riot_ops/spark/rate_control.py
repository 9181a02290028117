"""How many records the next micro-batch takes, so that it takes about a given time."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["Limit", "Pace"]

#: How far a micro-batch may be from the target, as a share of it, before the limit moves; and by what it moves at most.
LEEWAY = 0.2
STEP = 2.0
#: The lowest limit where none is given, as a share of the highest: a target below what a micro-batch costs without
#: records cannot be met by fewer of them, and must not bring the dataflow to a stand.
LEAST = 0.01


class Limit:
    """A limit of records that follows what micro-batches took.

    ``records`` becomes ``records · target / seconds``, at most twice and at least half of it, within the bounds; it
    stays where the micro-batch took the target to within 20 %.

    Parameters
    ----------
    target_s : float, seconds
        What a micro-batch should take.
    most : int
        The highest limit, with which it begins.
    least : int, optional
        The lowest; by default a hundredth of the highest.

    Examples
    --------
    >>> limit = Limit(1.0, most=1000)
    >>> for seconds in (1.6, 1.1, 9.0, 0.5):
    ...     limit.learn(limit.records, seconds)
    ...     print(limit.records)
    625
    625
    312
    624
    """

    def __init__(self, target_s: float, most: int, least: int | None = None) -> None:
        self._target_s, self._most = target_s, most
        self._least = max(1, int(LEAST * most)) if least is None else least
        self.records = most

    def learn(self, records: int | None, seconds: float) -> None:
        """Of a micro-batch that took so many records, as far as is known, and so long."""
        if abs(seconds - self._target_s) <= LEEWAY * self._target_s:
            return
        taken = self.records if records is None else min(records, self.records)
        factor = min(self._target_s / seconds, STEP) if seconds > 0 else STEP
        wanted = round(taken * max(factor, 1 / STEP))
        if factor > 1:  # few records in a short time say nothing against more of them
            wanted = max(wanted, self.records)
        self.records = min(max(wanted, self._least), self._most)


class Pace:
    """What a reader knows of its micro-batches: how many records it gave, and when; its clock is the machine's.

    Parameters
    ----------
    limit : Limit
    note : Path, optional
        What the sink's commit touches. Where micro-batches wait for a trigger this tells how long one really took;
        without it they follow each other at once, and one has taken as long as until the next is asked for.
    """

    def __init__(self, limit: Limit, note: Path | None = None) -> None:
        self._limit = limit
        self._note = note
        self._given: tuple[float, int | None] | None = None

    def next(self) -> int:
        """Most records of the micro-batch that is asked for now: so the one before is through."""
        if self._given is not None:
            begun, records = self._given
            self._given = None
            self._limit.learn(records, self._ended(begun) - begun)
        return self._limit.records

    def gave(self, records: int | None) -> None:
        """So many records are in the micro-batch that begins now."""
        self._given = time.time(), records

    def _ended(self, begun: float) -> float:
        """When the micro-batch was through that began then."""
        now = time.time()
        try:
            noted = now if self._note is None else self._note.stat().st_mtime
        except FileNotFoundError:  # nothing has been committed yet
            noted = now
        return noted if begun < noted < now else now
