"""Spike detection, one line at a time."""

from __future__ import annotations

import math
import re

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")


def spike_detection(lines, *, cell=4, window=1000, threshold=0.03):
    """Return ``(line, device, value, moving average)`` of each spike, and the rejected lines by reason."""
    readings, found, bad = {}, [], []
    for number, line in enumerate(lines):
        cells = line.split()
        if len(cells) != 8:
            bad.append((number, "wrong_cells"))
        elif not TIME.fullmatch(" ".join(cells[:2])):
            bad.append((number, "bad_time"))
        elif not all(re.fullmatch(r"-?\d+(\.\d+)?", cells[i]) for i in (2, 4, 5, 6, 7)):
            bad.append((number, "bad_number"))
        else:
            values = readings.setdefault(cells[3], [])
            values.append(float(cells[cell]))
            latest = values[-window:]
            average = math.fsum(latest) / len(latest)
            if abs(values[-1] - average) > threshold * abs(average):
                found.append((number, cells[3], values[-1], average))
    return found, bad
