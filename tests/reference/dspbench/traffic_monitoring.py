"""Traffic monitoring, one position at a time."""

from __future__ import annotations

import csv
import itertools
import math
from datetime import datetime

BEIJING = (39.689602, 40.122410, 116.105789, 116.670021)


def roads_of_csv(path):
    """Return ``{road: points}``, where a point is longitude and latitude."""
    roads = {}
    with open(path) as file:
        for row in csv.DictReader(file):
            roads.setdefault(int(row["road_id"]), []).append((int(row["seq"]), float(row["lon"]), float(row["lat"])))
    return {road: [point[1:] for point in sorted(points)] for road, points in roads.items()}


def distance(lat, lon, a, b):
    """Return the distance in metres from a point to the segment between two others."""
    scale = 111_320 * math.cos(math.radians(lat))
    ax, ay, bx, by = (a[0] - lon) * scale, (a[1] - lat) * 111_320, (b[0] - lon) * scale, (b[1] - lat) * 111_320
    length = (bx - ax) ** 2 + (by - ay) ** 2
    part = 0 if length == 0 else max(0, min(1, -(ax * (bx - ax) + ay * (by - ay)) / length))
    return math.hypot(ax + part * (bx - ax), ay + part * (by - ay))


def nearest(lat, lon, roads, widths=None, width=5.0, tolerance=10.0):
    """Return the road of a point; None if it is not on a road."""
    found = [
        (min(distance(lat, lon, a, b) for a, b in itertools.pairwise(points)), road) for road, points in roads.items()
    ]
    best, road = min(found)
    half = (widths or {}).get(road) or width
    return road if best < math.hypot(half, tolerance) else None


class Speed:
    """The average of a road."""

    def __init__(self, window=30, sigma=2.0, integer=False):
        self.queue, self.average = [], None
        self.window, self.sigma, self.integer = window, sigma, integer

    def add(self, v):
        """Add a speed and return ``(average, count)``."""
        cut = int if self.integer else float
        v, q = cut(v), self.queue
        n = len(q)
        now = cut((sum(q) + v) / (n + 1))
        if n >= 2:
            a = self.average
            sd = math.sqrt((sum((x - a) ** 2 for x in q) + (v - a) ** 2) / n)
            if abs(v - now) > self.sigma * sd:
                return a, n
        self.queue = [*q, v][-self.window :]
        self.average = now
        return now, len(self.queue)


def traffic_monitoring(lines, roads, *, box=BEIJING, history=30, sigma=2.0, integer=False, **matching):
    """Return ``(line, road, average, count)`` of each position on a road, in order."""
    speeds = {}
    for number, line in enumerate(lines):
        cells = line.split(",")
        try:
            _, _, time, lat, lon, speed, bearing = cells
            time, lat, lon, speed, _ = datetime.fromisoformat(time), *map(float, (lat, lon, speed)), int(bearing)
        except ValueError:
            continue
        if (int(speed) if integer else speed) <= 0 or not (box[0] <= lat <= box[1] and box[2] <= lon <= box[3]):
            continue
        road = nearest(lat, lon, roads, **matching)
        if road is not None:
            yield number, road, *speeds.setdefault(road, Speed(history, sigma, integer)).add(speed)
