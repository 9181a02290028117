"""Windows from their definition: one record at a time, in lists, without code of the product.

Times are whole microseconds. Stream time at a message is the largest time of all messages up to it. A time more than
``ahead`` after it (by multiples of ``grain``, as the product rounds), or before it and late, is a vote against it: three in a row that agree, or
fewer if stream time rests on fewer, move it, and where they move it back, all windows are closed first.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise


@dataclass
class Windows:
    """``kind`` is "time", "session" or "count"; a record is ``(message, time or None, key, value)``."""

    kind: str
    size: int = 0
    every: int = 0
    allowed_lateness: int = 0
    ahead: int | None = None
    grain: int = 1
    offset: int = 0
    now: int | None = None
    moved: int = 0
    support: int = 0
    votes: list = field(default_factory=list)
    open: dict = field(default_factory=dict)  # (key, end) -> values; of sessions a list of [times, values]
    ended: dict = field(default_factory=dict)  # by key: the latest end of its closed sessions
    results: list = field(default_factory=list)
    bad: list = field(default_factory=list)
    #: After each record, the windows that contain it, with their current values.
    updates: list = field(default_factory=list)

    def message(self, number: int, records: list) -> None:
        """Add all records of a message: their times first, since stream time at a message includes them."""
        before = self.now

        def agree(time: int, other: int) -> bool:
            return -max(self.ahead, self.allowed_lateness // self.grain * self.grain) <= time - other <= self.ahead

        for time in (time for _, time, *_ in records if time is not None):
            floor = time // self.grain * self.grain
            if self.now is None:
                self.now, self.support = floor, 1
            elif self.ahead is None or agree(floor, self.now):
                self.now, self.support, self.votes = max(self.now, floor), self.support + 1, []
            else:
                self.votes = [*(self.votes if self.votes and agree(floor, max(self.votes)) else []), floor]
                if len(self.votes) >= min(self.support, 3):
                    self.now, self.support, self.votes = max(self.votes), len(self.votes), []
        if self.now != before:
            self.moved = number
        if before is not None and self.now < before:
            self.close(number, everything=True)
            self.ended = {}
        self.close(number)
        for record in records:
            self.add(record)

    def close(self, number: int, everything: bool = False) -> None:
        """Close the windows that stream time has passed."""
        if self.now is None:
            return
        level = math.inf if everything else self.now - self.allowed_lateness
        due = []
        if self.kind == "time":
            for key, end in [one for one in self.open if one[1] <= level]:
                due.append((end, key, end - self.size, end, self.open.pop((key, end))))
        else:
            for key, sessions in self.open.items():
                for one in list(sessions):
                    end = max(one[0]) + self.size
                    tick = -(-end // self.every) * self.every
                    if tick <= level:
                        sessions.remove(one)
                        self.ended[key] = max(end, self.ended.get(key, end))
                        due.append((tick, key, min(one[0]), end, list(zip(*one, strict=True))))
        for at, key, start, end, values in due:
            self.results.append((number, at, key, start, end, values))

    def add(self, record: tuple) -> None:
        number, time, key, value = record
        if time is None:
            self.bad.append((number, "no_event_time"))
            return
        if time >= self.now + self.grain:
            self.bad.append((number, "from_the_future"))
            return
        level = self.now - self.allowed_lateness
        if self.kind == "time":
            first = (time - self.offset) // self.every * self.every + self.offset
            starts = [s for s in range(first - self.size + self.every, first + 1, self.every)]
            alive = [s for s in starts if s + self.size > level]
            if not alive:
                self.bad.append((number, "late"))
            for start in alive:
                values = self.open.setdefault((key, start + self.size), [])
                values.append((time, value))
                self.updates.append((number, key, start, start + self.size, list(values)))
            return
        sessions = self.open.setdefault(key, [])
        mine = [one for one in sessions if min(one[0]) - self.size < time < max(one[0]) + self.size]
        mine.sort(key=lambda one: min(one[0]))
        closed = time < self.ended.get(key, -math.inf)
        if closed or (not mine and time + self.size <= level // self.every * self.every):
            self.bad.append((number, "late"))
            return
        times = [t for one in mine for t in one[0]] + [time]
        values = [v for one in mine for v in one[1]] + [value]
        for one in mine:
            sessions.remove(one)
        sessions.append([times, values])
        together = list(zip(times, values, strict=True))
        self.updates.append((number, key, min(times), max(times) + self.size, together))


def aggregates(values: list, pane: int | None = None, offset: int = 0) -> dict:
    """Aggregates of ``(time, value)`` pairs; None values are missing.

    Gaps are those between records in their order; with the length of a pane, pane by pane.
    """
    found = _of_values(values)
    ordered = values if pane is None else sorted(values, key=lambda pair: (pair[0] - offset) // pane)
    gaps = [(b - a) / 1e6 for (a, _), (b, _) in pairwise(ordered)]
    given = [t for t, v in ordered if v is not None]
    found["mean_gap"] = sum(b - a for a, b in pairwise(given)) / 1e6 / (len(given) - 1) if len(given) > 1 else -1.0
    found["std_gap"] = statistics.stdev(gaps) if len(gaps) > 1 else None
    return found


def _of_values(values: list) -> dict:
    given = [(t, v) for t, v in values if v is not None]
    numbers = [v for _, v in given]
    total = float(sum(map(Fraction, numbers))) if numbers else None
    return {
        "n": len(values),
        "values": len(numbers),
        "sum": total,
        "mean": None if total is None else float(sum(map(Fraction, numbers)) / len(numbers)),
        "min": min(numbers, default=None),
        "max": max(numbers, default=None),
        "first": min(given, key=lambda pair: pair[0])[1] if given else None,
        "last": max(enumerate(given), key=lambda pair: (pair[1][0], pair[0]))[1][1] if given else None,
        "std": statistics.stdev(numbers) if len(numbers) > 1 else None,
        "unique": len(set(numbers)),
        "above": sum(v > 1 for v in numbers),
        "low": sum(v <= 1 for v in numbers) / len(numbers) if numbers else None,
        "bits": sum(int(v) & 6 != 0 for v in numbers),
        "duration": (max(t for t, _ in values) - min(t for t, _ in values)) / 1e6,
        "value_duration": (max(t for t, _ in given) - min(t for t, _ in given)) / 1e6 if given else None,
    }
