"""Spike detection in plain Python."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from riot_bench.baselines.python.rows import new_rows

__all__ = ["spike_detection"]

_CELLS = {"temperature": 4, "humidity": 5, "light": 6, "voltage": 7}
#: Readings after which a running sum is recomputed, so that rounding errors do not accumulate.
_FRESH = 10_000


class _Average:
    """Mean of a device's latest readings."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.values: deque[float] = deque()
        self.sum = 0.0
        self.steps = 0

    def add(self, value: float) -> float:
        if len(self.values) == self.window:
            self.sum -= self.values.popleft()
        self.values.append(value)
        self.sum += value
        self.steps += 1
        if self.steps == _FRESH:
            self.sum, self.steps = math.fsum(self.values), 0
        return self.sum / len(self.values)


def spike_detection(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    quantity: str = "temperature",
    window: int = 1000,
    threshold: float = 0.03,
) -> dict[str, list[tuple[Any, ...]]]:
    """``spikes``: device_id, value, moving_average. ``inputs`` has ``sensors``."""
    cell = _CELLS[quantity]
    averages: dict[str, _Average] = {}
    spikes = new_rows()
    for line in inputs["sensors"]:
        try:
            cells = line.decode().split()
            if len(cells) != 8:
                continue
            datetime.fromisoformat(f"{cells[0]} {cells[1]}")  # a line with an invalid time does not count
            int(cells[2])
            values = [float(text) for text in cells[4:]]
        except ValueError:
            continue
        if not all(map(math.isfinite, values)):
            continue
        value = values[cell - 4]
        device = cells[3]
        average = averages.get(device)
        if average is None:
            average = averages[device] = _Average(window)
        mean = average.add(value)
        if abs(value - mean) > threshold * abs(mean):
            spikes.append((device, value, mean))
    return {"spikes": spikes}
