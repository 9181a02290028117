"""Machine outlier in plain Python."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from riot_bench.baselines.python.rows import new_rows

__all__ = ["machine_outlier"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
#: By format: number of cells, positions of time, machine, CPU and memory, unit of time in µs, maximum load.
_FORMATS = {"alibaba": (9, (1, 0, 2, 3), 1_000_000, 100.0), "google": (19, (0, 4, 5, 6), 1, 1.0)}

#: Machine, CPU load, memory load.
Load = tuple[str, float, float]
#: Machine, its score over time, and its score at this time.
Score = tuple[str, float, float]


def _batches(lines: Iterable[bytes], format: str, scales: tuple[float, float]) -> Iterator[tuple[int, list[Load]]]:
    """Group the loads by time and drop late ones."""
    n, (time, machine, cpu, memory), unit, largest = _FORMATS[format]
    limits = max(largest, scales[0]), max(largest, scales[1])
    now, batch = -1, list[Load]()
    for line in lines:
        try:
            cells = line.decode().rstrip("\r\n").split(",")
            if len(cells) != n or not cells[machine]:
                continue
            at, load = int(cells[time]) * unit, (cells[machine], float(cells[cpu]), float(cells[memory]))
            others = [float(cell) for i, cell in enumerate(cells) if cell and i not in (time, machine, cpu, memory)]
        except ValueError:
            continue
        if min(load[1:]) < 0 or load[1] > limits[0] or load[2] > limits[1] or not all(map(math.isfinite, others)):
            continue
        if not (math.isfinite(load[1]) and math.isfinite(load[2])) or at > _LATEST or (batch and at < now):
            continue
        if batch and at > now:
            yield now, batch
            batch = []
        now = at
        batch.append(load)
    if batch:
        yield now, batch


def _distances(batch: list[Load], scales: tuple[float, float]) -> list[tuple[str, float]]:
    """Return each machine's distance from the centre of all, plus 1."""
    points = [(cpu / scales[0], memory / scales[1]) for _, cpu, memory in batch]
    x = math.fsum(point[0] for point in points) / len(points)
    y = math.fsum(point[1] for point in points) / len(points)
    return [(load[0], 1 + math.hypot(px - x, py - y)) for load, (px, py) in zip(batch, points, strict=True)]


class _Windows:
    """Sums of each machine's latest scores."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.latest: dict[str, deque[float]] = {}

    def add(self, scores: list[tuple[str, float]]) -> list[Score]:
        found = []
        for machine, score in scores:
            latest = self.latest.get(machine)
            if latest is None:
                latest = self.latest[machine] = deque(maxlen=self.window)
            latest.append(score)
            found.append((machine, sum(latest), score))
        return found


class _Fading:
    """Decaying sums of all machines' scores."""

    def __init__(self, decay: float) -> None:
        self.keep = math.exp(-decay)
        self.min_total = 0.5 / (1 - self.keep)
        self.totals: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.clear = False

    def add(self, scores: list[tuple[str, float]]) -> list[Score]:
        if self.clear:
            self.totals, self.clear = dict.fromkeys(self.totals, 0.0), False
        for machine, score in scores:
            self.totals[machine] = total = self.totals.get(machine, 0.0) * self.keep + score
            self.last[machine] = score
            self.clear = self.clear or total > self.min_total
        return [(machine, total, self.last[machine]) for machine, total in self.totals.items()]


def machine_outlier(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    format: str = "alibaba",
    cpu_scale: float | None = None,
    memory_scale: float | None = None,
    scorer: str = "window",
    window: int = 10,
    decay: float = 0.02,
    method: str = "median",
    k: int = 3,
    partial: bool = True,
) -> dict[str, list[tuple[Any, ...]]]:
    """``alerts``: machine_id, stream_score, timestamp, instance_score. ``inputs`` has ``usage``."""
    largest = _FORMATS[format][3]
    scales = cpu_scale or largest, memory_scale or largest
    over_time: _Windows | _Fading = _Windows(window) if scorer == "window" else _Fading(decay)
    alerts = new_rows()
    # each step that waits for the end of a time loses the last time
    lost = 0 if partial else 2 if scorer == "window" else 3
    times: deque[list[tuple[Any, ...]]] = deque()
    for at, batch in _batches(inputs["usage"], format, scales):
        scores = over_time.add(_distances(batch, scales))
        when = _EPOCH + timedelta(microseconds=at)
        if method == "median":
            sums = sorted([score for _, score, _ in scores])
            low, min_score = sums[0], min([score for *_, score in scores]) + 0.1
            min_total = max(2 * sums[len(sums) // 2] - low, low + 2 * math.sqrt(2))
            scores = [one for one in scores if one[1] > min_total and one[2] > min_score]
        times.append([(machine, total, when, score) for machine, total, score in scores])
        if len(times) > lost:
            alerts.extend(times.popleft())
    return {"alerts": alerts}
