"""Smart grid in plain Python."""

from __future__ import annotations

import heapq
import math
import statistics
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from riot_bench.baselines.python.rows import new_rows
from riot_ops.core.parameters import duration

__all__ = ["Outliers", "Slices", "smart_grid"]

_DAY = 86_400
_LATEST = int(datetime.max.replace(tzinfo=UTC).timestamp())
#: House, household, plug.
Plug = tuple[int, int, int]
Reading = tuple[int, float, int, Plug]


def _readings(lines: Iterable[bytes]) -> Iterator[Reading]:
    """Parse time, value, property and plug; skip invalid and late lines."""
    now = -1
    for line in lines:
        try:
            cells = line.decode().rstrip("\r\n").split(",")
            if len(cells) != 7:
                continue
            time, value, kind = int(cells[1]), float(cells[2]), int(cells[3])
            plug = int(cells[6]), int(cells[5]), int(cells[4])
            known = kind in (0, 1) and min(*plug, int(cells[0])) >= 0
        except ValueError:
            continue
        if not now <= time <= _LATEST or not known or not 0 <= value < math.inf:
            continue
        now = time
        yield time, value, kind, plug


class _Median:
    """Median of a changing multiset: two heaps, from which removed numbers are dropped when they reach the top."""

    def __init__(self) -> None:
        self.low: list[float] = []  # negated
        self.high: list[float] = []
        self.removed_low: Counter[float] = Counter()
        self.removed_high: Counter[float] = Counter()
        self.n_low = self.n_high = 0

    def add(self, x: float) -> None:
        if self.n_low and x > -self.low[0]:
            heapq.heappush(self.high, x)
            self.n_high += 1
        else:
            heapq.heappush(self.low, -x)
            self.n_low += 1
        self._level()

    def remove(self, x: float) -> None:
        if x <= -self.low[0]:
            self.removed_low[-x] += 1
            self.n_low -= 1
        else:
            self.removed_high[x] += 1
            self.n_high -= 1
        self._level()

    def _level(self) -> None:
        _prune(self.low, self.removed_low)
        _prune(self.high, self.removed_high)
        if self.n_low > self.n_high + 1:
            heapq.heappush(self.high, -heapq.heappop(self.low))
            self.n_low, self.n_high = self.n_low - 1, self.n_high + 1
            _prune(self.low, self.removed_low)
        elif self.n_high > self.n_low:
            heapq.heappush(self.low, -heapq.heappop(self.high))
            self.n_low, self.n_high = self.n_low + 1, self.n_high - 1
            _prune(self.high, self.removed_high)

    def value(self) -> float | None:
        if not self.n_low:
            return None
        return -self.low[0] if self.n_low > self.n_high else (self.high[0] - self.low[0]) / 2


def _prune(heap: list[float], removed: Counter[float]) -> None:
    while heap and removed and removed.get(heap[0]):
        x = heapq.heappop(heap)
        removed[x] -= 1
        if not removed[x]:
            del removed[x]


class Outliers:
    """Share of the plugs of each house whose median over the window is above the median of all."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.now: int | None = None
        self.latest: deque[tuple[int, float, Plug]] = deque()
        self.all = _Median()
        self.plugs: dict[Plug, _Median] = {}
        self.medians: dict[Plug, float | None] = {}
        self.touched: set[Plug] = set()
        self.last: dict[int, float] = {}
        self.found = new_rows()

    def add(self, time: int, value: float, plug: Plug) -> None:
        if self.now is not None and time > self.now:
            self.end()
        self.now = time
        while self.latest and self.latest[0][0] <= time - self.window:
            _, old, of = self.latest.popleft()
            self.all.remove(old)
            self.plugs[of].remove(old)
            self.touched.add(of)
        self.latest.append((time, value, plug))
        self.all.add(value)
        if plug not in self.plugs:
            self.plugs[plug] = _Median()
        self.plugs[plug].add(value)
        self.touched.add(plug)

    def end(self) -> None:
        """Emit the outliers of the completed time."""
        for plug in self.touched:
            self.medians[plug] = self.plugs[plug].value()
        self.touched.clear()
        of_all = self.all.value()
        if self.now is None or of_all is None:
            return
        above: dict[int, int] = {}
        present: dict[int, int] = {}
        for plug, median in self.medians.items():
            if median is not None:
                house = plug[0]
                present[house] = present.get(house, 0) + 1
                if median > of_all:
                    above[house] = above.get(house, 0) + 1
        start, end = _time(self.now - self.window), _time(self.now)
        for house, n in present.items():
            share = 100 * above.get(house, 0) / n
            if self.last.get(house) != share:
                self.last[house] = share
                self.found.append((start, end, house, share))


class Slices:
    """Load predictions from the means of time slices."""

    def __init__(self, length: int, every: int, history: int) -> None:
        self.length, self.every, self.history = length, every, history
        self.first: int | None = None
        self.tick = 0
        self.slice = 0
        self.sums: dict[Plug, tuple[float, int]] = {}
        self.before: dict[tuple[Any, ...], deque[float]] = {}
        self.found = new_rows()

    def pass_to(self, time: int) -> None:
        """Process the ticks and the ends of slices up to a time."""
        if self.first is None:
            self.first, self.tick = time, time + self.every
        while self.tick < time:
            self._turn((self.tick - self.first) // self.length)
            if not self.sums:  # nothing to emit before the next reading
                self.tick += (time - self.tick - 1) // self.every * self.every
                if self.tick >= time:
                    break
                self._turn((self.tick - self.first) // self.length)
            self._emit()
            self.tick += self.every
        self._turn((time - self.first) // self.length)

    def add(self, value: float, plug: Plug) -> None:
        total, n = self.sums.get(plug, (0.0, 0))
        self.sums[plug] = total + value, n + 1

    def end(self, time: int) -> None:
        if self.tick == time and self.first is not None:
            self._emit()

    def _turn(self, number: int) -> None:
        """Store the means of the slice if a new one has begun."""
        if number == self.slice:
            return
        slot = self.slice % (_DAY // self.length)
        for key, mean in self._means():
            self.before.setdefault((*key, slot), deque(maxlen=self.history)).append(mean)
        self.sums.clear()
        self.slice = number

    def _means(self) -> list[tuple[tuple[Any, ...], float]]:
        """Return the means of plugs, and their sums for houses."""
        found: list[tuple[tuple[Any, ...], float]] = []
        houses: dict[int, float] = {}
        for plug, (total, n) in self.sums.items():
            found.append((plug, total / n))
            houses[plug[0]] = houses.get(plug[0], 0.0) + total / n
        return found + [((house, None, None), total) for house, total in houses.items()]

    def _emit(self) -> None:
        assert self.first is not None
        number = self.slice + 2
        slot, begin = number % (_DAY // self.length), _time(self.first + number * self.length)
        for key, mean in self._means():
            past = self.before.get((*key, slot))
            load = (mean + statistics.median(past)) / 2 if past else mean
            self.found.append((begin, *key, load))


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _seconds(length: Any) -> int:
    return int((duration(length) if isinstance(length, str) else length).total_seconds())


def smart_grid(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    window: Any = "1h",
    length: Any = "1min",
    every: Any = "30s",
    history: int = 31,
    parallelism: int = 1,
    partial: bool = True,
) -> dict[str, list[tuple[Any, ...]]]:
    """Outliers and predictions of ``readings``; ``parallelism`` has no effect.

    ``outliers``: window_start, window_end, house_id, percentage; ``predictions``: timestamp, house_id, household_id,
    plug_id, predicted_load.
    """
    outliers, slices = Outliers(_seconds(window)), Slices(_seconds(length), _seconds(every), history)
    time = 0
    for time, value, kind, plug in _readings(inputs["readings"]):
        slices.pass_to(time)
        if kind == 1:
            outliers.add(time, value, plug)
            slices.add(value, plug)
    if partial:
        outliers.end()
        slices.end(time)
    return {"outliers": outliers.found, "predictions": slices.found}
