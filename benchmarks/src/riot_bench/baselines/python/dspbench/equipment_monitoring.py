"""Equipment monitoring in plain Python."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from riot_bench.baselines.python.rows import new_rows
from riot_ops.core.parameters import duration

__all__ = ["DelayWindow", "equipment_monitoring"]

_SENSORS, _VALVES = ("bm05", "bm06", "bm07"), ("bm08", "bm09", "bm10")
_STATES = (*_SENSORS, *_VALVES)
_PAIRS = [f"{sensor}-{valve}" for sensor, valve in zip(_SENSORS, _VALVES, strict=True)]
#: Positions of time and states in files without a header, and the number of cells of a line.
_PLACES: tuple[int, ...] = (0, 12, 13, 14, 15, 16, 17)
_CELLS = 66
_TRUTH = {b"0": 0, b"1": 1, b"false": 0, b"true": 1}
_HOUR = 3.6e12

Reading = tuple[int, list[int]]
Row = tuple[Any, ...]


def _readings(lines: Iterable[bytes], delimiter: str) -> Iterator[Reading]:
    """Parse time and states of each valid line."""
    places, cells = _PLACES, _CELLS
    first, *others = delimiter.encode()
    comma = bytes([first])
    for line in lines:
        text = line.rstrip(b"\r\n")
        for other in others:
            text = text.replace(bytes([other]), comma)
        parts = text.split(comma)
        if b"ts" in parts:
            names = [part.strip().decode() for part in parts]
            if all(name in names for name in _STATES):
                places, cells = tuple(map(names.index, ("ts", *_STATES))), len(names)
                continue
        if len(parts) != cells:
            continue
        at, *states = (parts[place] for place in places)
        try:
            line.decode()
            time = int(at)
            try:
                found = [_TRUTH[state.lower()] for state in states]
            except KeyError:
                found = [_TRUTH[state.strip().lower()] for state in states]
        except (KeyError, ValueError):
            continue
        yield time, found


def _ordered(readings: Iterable[Reading], allowed_lateness: int) -> Iterator[Reading]:
    """Sort readings by time and drop late ones."""
    waiting: list[tuple[int, int, list[int]]] = []
    newest = -(1 << 63)
    for number, (at, states) in enumerate(readings):
        us = at // 1000
        newest = max(newest, us)
        if us + allowed_lateness < newest:
            continue
        heapq.heappush(waiting, (at, number, states))
        while waiting[0][0] // 1000 + allowed_lateness < newest:
            yield waiting[0][0], heapq.heappop(waiting)[2]
    while waiting:
        at, _, states = heapq.heappop(waiting)
        yield at, states


def _delays(readings: Iterable[Reading], max_pending: int) -> Iterator[tuple[int, int, int]]:
    """Yield pair, time and delay of each valve change that follows a change of its sensor."""
    queues: list[deque[tuple[int, int]]] = [deque(maxlen=max_pending) for _ in _PAIRS]
    before: list[int] | None = None
    for at, states in readings:
        if before is None or states == before:
            before = states
            continue
        for pair, queue in enumerate(queues):
            if states[pair] != before[pair]:
                queue.append((states[pair], at))
        for pair, queue in enumerate(queues):
            value = states[3 + pair]
            if value == before[3 + pair]:
                continue
            for cause in queue:
                if cause[0] == value:
                    queue.remove(cause)
                    yield pair, at, at - cause[1]
                    break
        before = states


class DelayWindow:
    """Delays of a pair over the last day, with sums and extremes."""

    def __init__(self, size: int, growth: float, baseline: str) -> None:
        self.size, self.growth, self.baseline = size, growth, baseline
        self.held: deque[tuple[int, int]] = deque()
        self.low: deque[tuple[int, int]] = deque()
        self.high: deque[tuple[int, int]] = deque()
        # exact integer sums of delays and of times relative to the first: no rounding errors accumulate
        self.start = self.x = self.y = self.xx = self.xy = 0

    def add(self, at: int, delay: int) -> Row:
        """Add a delay and return ``count, mean, min, max, slope, alarm``."""
        held, low, high = self.held, self.low, self.high
        if not held:
            self.start = at
        while held and held[0][0] <= at - self.size:
            old, value = held.popleft()
            self._sum(old, value, -1)
            if low[0] == (old, value):
                low.popleft()
            if high[0] == (old, value):
                high.popleft()
        alarm = False
        if held:
            base = {"min": low[0][1], "first": held[0][1], "mean": self.y / len(held)}[self.baseline]
            alarm = delay > (1 + self.growth) * base
        held.append((at, delay))
        self._sum(at, delay, 1)
        while low and low[-1][1] >= delay:
            low.pop()
        while high and high[-1][1] <= delay:
            high.pop()
        low.append((at, delay))
        high.append((at, delay))
        n = len(held)
        below = n * self.xx - self.x * self.x
        slope = (n * self.xy - self.x * self.y) / below * _HOUR if below else None
        return n, self.y / n, low[0][1], high[0][1], slope, alarm

    def _sum(self, at: int, value: int, sign: int) -> None:
        x = at - self.start
        self.x += sign * x
        self.y += sign * value
        self.xx += sign * x * x
        self.xy += sign * x * value


def equipment_monitoring(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    window: timedelta | str = timedelta(days=1),
    growth: float = 0.01,
    baseline: str = "min",
    allowed_lateness: timedelta | str = timedelta(seconds=1),
    max_pending: int = 16,
    delimiter: str = "\t,",
) -> dict[str, list[Row]]:
    """``delays``, ``alarms``: pair, ts, delay; ``monitor``: pair, ts, count, mean, min, max, slope, alarm.

    ``inputs`` has ``readings``.
    """
    size, late = (
        (duration(time) if isinstance(time, str) else time) // timedelta(microseconds=1)
        for time in (window, allowed_lateness)
    )
    windows = [DelayWindow(size * 1000, growth, baseline) for _ in _PAIRS]
    found = {stream: new_rows() for stream in ("delays", "alarms", "monitor")}
    for pair, at, delay in _delays(_ordered(_readings(inputs["readings"], delimiter), late), max_pending):
        row = (_PAIRS[pair], at, delay)
        found["delays"].append(row)
        seen = windows[pair].add(at, delay)
        found["monitor"].append((*row[:2], *seen))
        if seen[-1]:
            found["alarms"].append(row)
    return found
