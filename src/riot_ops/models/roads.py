"""Road networks: lines on the earth, and the index that finds the road of a point."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.models.road_grid import METRES, fill_grid, match_points

__all__ = ["BEIJING", "Box", "RoadIndex", "Roads", "grid_roads", "winding_roads"]

Floats = npt.NDArray[np.float64]
#: Minimum and maximum latitude, minimum and maximum longitude, in degrees.
Box = tuple[float, float, float, float]
#: The box of DSPBench's taxis.
BEIJING: Box = (39.689602, 40.122410, 116.105789, 116.670021)

#: Default of half the width of a road, in metres.
WIDTH = 5.0
#: Minimum and maximum number of grid cells.
CELLS = (1 << 16, 1 << 22)


@dataclass(frozen=True, eq=False)
class Roads:
    """A network of roads, each with one or more lines.

    Attributes
    ----------
    ids : list of int, or of str
        Ids of roads in ascending order; integers if all of them are.
    widths : array of float64, shape (roads,)
        Half the width of each road in metres; NaN if unknown.
    lines : list of (road, array of float64 of shape (points, 2))
        Index of the road in ``ids``, and longitude and latitude of the points of a line.

    Examples
    --------
    >>> import numpy as np
    >>> from riot_ops.models import Roads
    >>> line = np.array([[116.30, 39.90], [116.31, 39.90]])
    >>> roads = Roads([7], np.array([5.0]), [(0, line)])
    >>> roads.ids, len(roads.lines)
    ([7], 1)
    """

    ids: list[Any]
    widths: Floats
    lines: list[tuple[int, Floats]]

    @classmethod
    def of(cls, lines: Sequence[tuple[Any, float, Any]]) -> Roads:
        """Return the network of lines ``(id, half width or NaN, points)``; lines with the same id are one road.

        >>> Roads.of([("9", 5.0, [(0, 0), (0, 1)]), ("10", 5.0, [(1, 0), (1, 1)])]).ids
        [9, 10]
        """
        if not lines:
            raise ConfigError("the road network has no roads")
        names = {str(name) for name, _, _ in lines}
        whole = all(name.isdecimal() and (name == "0" or name[0] != "0") and int(name) < 1 << 63 for name in names)
        ids: list[Any] = sorted(int(name) for name in names) if whole else sorted(names)
        place = {str(name): i for i, name in enumerate(ids)}
        widths = np.full(len(ids), np.nan)
        placed_lines = []
        for name, width, coordinates in lines:
            points = np.asarray(coordinates, np.float64)
            fits = points.ndim == 2 and points.shape[0] > 1 and points.shape[1] == 2
            if not fits or not (np.abs(points) <= (180, 90)).all():
                raise ConfigError(
                    f"the road {value_text(name)} needs two points or more, longitudes from -180 to 180 and latitudes "
                    "from -90 to 90"
                )
            placed_lines.append((place[str(name)], points))
            if width > 0:
                widths[place[str(name)]] = width
        return cls(ids, widths, sorted(placed_lines, key=lambda line: line[0]))


class RoadIndex:
    """Finds the road of a point.

    Parameters
    ----------
    roads : Roads
    width : float
        Half the width of roads whose width is unknown, in metres.
    tolerance : float
        Error of measured positions, in metres: a point is on a road if it is less than ``sqrt(width^2 + tolerance^2)``
        away.
    """

    def __init__(self, roads: Roads, width: float = WIDTH, tolerance: float = 10.0) -> None:
        self.roads = roads
        reach = np.hypot(np.where(np.isnan(roads.widths), width, roads.widths), tolerance)
        ends = np.concatenate([np.hstack([line[:-1], line[1:]]) for _, line in roads.lines])
        self._segments = tuple(readonly(np.ascontiguousarray(column)) for column in ends.T)
        x1, y1, x2, y2 = self._segments
        owner = np.repeat([road for road, _ in roads.lines], [len(line) - 1 for _, line in roads.lines])
        max_reach = float(reach.max())
        south, north = min(y1.min(), y2.min()), max(y1.max(), y2.max())
        margin_y = 1.01 * max_reach / METRES
        margin_x = margin_y / math.cos(math.radians(min(max(abs(south), abs(north)) + margin_y, 89.9)))
        west, east = min(x1.min(), x2.min()) - margin_x, max(x1.max(), x2.max()) + margin_x
        south, north = south - margin_y, north + margin_y
        # enough cells for few segments per cell, but none smaller than twice the largest reach
        cells = min(max(2 * x1.size, CELLS[0]), CELLS[1])
        cell = max(2 * margin_y, math.sqrt((east - west) * (north - south) / cells))
        columns, rows = (int((high - low) / cell) + 1 for low, high in ((west, east), (south, north)))
        grid = (max_reach, float(west), float(south), cell, columns, rows)
        arguments: tuple[Any, ...] = (*self._segments, *grid)
        edges = np.zeros(columns * rows + 1, np.int64)
        fill_grid(*(*arguments, edges, np.empty(0, np.int32)))
        edges = np.cumsum(edges)
        entries = np.empty(int(edges[-1]), np.int32)
        if entries.size:
            fill_grid(*(*arguments, edges.copy(), entries))
        self._owner, self._reach = readonly(owner), readonly(reach)
        self._grid = (*grid[1:], readonly(edges), readonly(entries))

    @functools.cached_property
    def ids(self) -> pa.Array:
        """Ids of the roads."""
        return pa.array(self.roads.ids)

    def find(self, lat: Floats, lon: Floats) -> npt.NDArray[np.int64]:
        """Return the index of the nearest road of each point, -1 if none is within reach.

        Distances are in the plane that touches the earth at the point: ``dx = dlon cos(lat) 111 320 m`` and
        ``dy = dlat 111 320 m``. Among roads at the same distance the smallest id counts.
        """
        out = np.empty(lat.size, np.int64)
        arguments: tuple[Any, ...] = (
            readonly(lat),
            readonly(lon),
            *self._segments,
            self._owner,
            self._reach,
            *self._grid,
            out,
        )
        match_points(*arguments)
        return out


def grid_roads(box: Box = BEIJING, lines: int = 12) -> Roads:
    """Return a grid of ``lines`` straight roads from west to east (1000, 1001 …), and from south to north (2000 …).

    The outermost roads are a fiftieth of the box within its edges.

    >>> roads = grid_roads(lines=2)
    >>> roads.ids, roads.lines[0][1][:, 1].round(4).tolist()[:2]
    ([1000, 1001, 2000, 2001], [39.6983, 39.6983])
    """
    if not 2 <= lines <= 1000:
        raise ConfigError(f"lines must be from 2 to 1000, got {lines!r}")
    south, north, west, east = box
    found = []
    dy, dx = (north - south) / 50, (east - west) / 50
    ys, xs = (np.linspace(low, high, lines) for low, high in ((south + dy, north - dy), (west + dx, east - dx)))
    for i in range(lines):
        found.append((1000 + i, math.nan, np.column_stack([xs, np.full(lines, ys[i])])))
        found.append((2000 + i, math.nan, np.column_stack([np.full(lines, xs[i]), ys])))
    return Roads.of(found)


def winding_roads(box: Box = BEIJING, lines: int = 120, points: int = 121) -> Roads:
    """Return a network of ``lines`` winding roads from west to east (1000, 1001 …), and from south to north (2000 …).

    Each road has ``points`` points at equal distances along its direction and sways by up to 0.35 of the distance
    between roads, in two waves, so that roads of one direction do not meet. Without the sway, the outermost roads are
    a fiftieth of the box within its edges.

    >>> roads = winding_roads()
    >>> len(roads.ids), sum(len(line) - 1 for _, line in roads.lines)
    (240, 28800)
    """
    if not 2 <= lines <= 1000:
        raise ConfigError(f"lines must be from 2 to 1000, got {lines!r}")
    if not 2 <= points <= 10_000:
        raise ConfigError(f"points must be from 2 to 10000, got {points!r}")
    south, north, west, east = box
    dy, dx = (north - south) / 50, (east - west) / 50
    found = []
    for first, (low, high), (start, end) in (
        (1000, (south + dy, north - dy), (west + dx, east - dx)),
        (2000, (west + dx, east - dx), (south + dy, north - dy)),
    ):
        along, way = np.linspace(start, end, points), np.linspace(0, 2 * math.pi, points)
        for i, middle in enumerate(np.linspace(low, high, lines)):
            waves = 0.7 * np.sin(3 * way + 2.4 * i) + 0.3 * np.sin(11 * way + 1.1 * i)
            across = middle + 0.35 * (high - low) / (lines - 1) * waves
            road = [along, across] if first == 1000 else [across, along]
            found.append((first + i, math.nan, np.column_stack(road)))
    return Roads.of(found)
