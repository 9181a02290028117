"""Traffic monitoring in plain Python."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from riot_bench.baselines.python.rows import new_rows

__all__ = ["traffic_monitoring"]

_METRES = 111_320.0
#: Size of a cell of the road index in degrees.
_CELL = 0.002

Segment = tuple[int, float, float, float, float, float]


class _Network:
    """Roads indexed by grid cells: each segment is in all cells that contain a point near it."""

    def __init__(self, roads: str | None, id_key: str, width_key: str | None, width: float, tolerance: float) -> None:
        from riot_ops.models.road_files import read_roads
        from riot_ops.models.roads import grid_roads

        network = grid_roads() if roads is None else read_roads(roads, id_key, width_key)
        self.ids = network.ids
        self.cells: dict[tuple[int, int], list[Segment]] = defaultdict(list)
        for road, points in network.lines:
            own = float(network.widths[road])
            reach = math.hypot(width if math.isnan(own) else own, tolerance)
            corners = points.tolist()
            for (x1, y1), (x2, y2) in pairwise(corners):
                up = 1.01 * reach / _METRES
                margin = up / math.cos(math.radians(min(max(abs(y1), abs(y2)) + up, 89.9)))
                west, east = math.floor((min(x1, x2) - margin) / _CELL), math.floor((max(x1, x2) + margin) / _CELL)
                south, north = math.floor((min(y1, y2) - up) / _CELL), math.floor((max(y1, y2) + up) / _CELL)
                for column in range(west, east + 1):
                    for row in range(south, north + 1):
                        self.cells[column, row].append((road, x1, y1, x2, y2, reach))

    def find(self, lat: float, lon: float) -> Any:
        """Return the road at a position, or None."""
        here = self.cells.get((math.floor(lon / _CELL), math.floor(lat / _CELL)))
        if here is None:
            return None
        across = math.cos(math.radians(lat)) * _METRES
        best, found, reached = math.inf, -1, 0.0
        for road, x1, y1, x2, y2, reach in here:
            ax, ay = (x1 - lon) * across, (y1 - lat) * _METRES
            dx, dy = (x2 - x1) * across, (y2 - y1) * _METRES
            length = dx * dx + dy * dy
            part = min(1.0, max(0.0, -(ax * dx + ay * dy) / length)) if length else 0.0
            px, py = ax + part * dx, ay + part * dy
            distance = px * px + py * py
            if distance < best or (distance == best and road < found):
                best, found, reached = distance, road, reach
        return self.ids[found] if found >= 0 and math.sqrt(best) < reached else None


class _Speed:
    """Average speed on a road over its latest positions, without outliers."""

    def __init__(self, history: int, sigma: float, integer: bool) -> None:
        self.latest: deque[float] = deque(maxlen=history)
        self.sigma = sigma
        self.integer = integer
        self.average = 0.0

    def add(self, speed: float) -> tuple[float, int]:
        latest, n = self.latest, len(self.latest)
        average = (sum(latest) + speed) / (n + 1)
        if self.integer:
            average = float(int(average))
        if n >= 2:
            a = self.average
            spread = math.sqrt((sum([(x - a) ** 2 for x in latest]) + (speed - a) ** 2) / n)
            if abs(speed - average) > self.sigma * spread:
                return a, n
        latest.append(speed)
        self.average = average
        return average, len(latest)


def traffic_monitoring(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    roads: str | None = None,
    box: tuple[float, float, float, float] = (39.689602, 40.122410, 116.105789, 116.670021),
    id_key: str = "osm_id",
    width_key: str | None = None,
    road_width: float = 5.0,
    tolerance: float = 10.0,
    window: int = 30,
    sigma: float = 2.0,
    integer: bool = False,
) -> dict[str, list[tuple[Any, ...]]]:
    """``speeds``: road_id, average_speed, count. ``inputs`` has ``traces``."""
    network = _Network(roads, id_key, width_key, road_width, tolerance)
    south, north, west, east = box
    known: dict[Any, _Speed] = {}
    speeds = new_rows()
    for line in inputs["traces"]:
        try:
            cells = line.decode().rstrip("\r\n").split(",")
            if len(cells) != 7 or not cells[1]:
                continue
            datetime.fromisoformat(cells[2].strip())
            lat, lon, speed = float(cells[3]), float(cells[4]), float(cells[5])
            int(cells[0])
            bearing = int(cells[6])
        except ValueError:
            continue
        if integer:
            speed = float(int(speed))
        if not (0 < speed < math.inf and 0 <= bearing <= 360 and south <= lat <= north and west <= lon <= east):
            continue
        road = network.find(lat, lon)
        if road is None:
            continue
        own = known.get(road)
        if own is None:
            own = known[road] = _Speed(window, sigma, integer)
        speeds.append((road, *own.add(speed)))
    return {"speeds": speeds}
