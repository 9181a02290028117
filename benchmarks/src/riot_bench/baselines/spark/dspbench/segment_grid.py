"""A grid of cells over road segments in NumPy."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.models.roads import Roads

__all__ = ["SegmentGrid"]

Floats = npt.NDArray[np.float64]
METRES = 111_320.0


class SegmentGrid:
    """Finds the nearest segment within reach, comparing a position with the segments of its cell only.

    Each segment is entered in all cells that contain a point near it, so one look-up finds every candidate.

    Parameters
    ----------
    roads : Roads
        Their ids are integers.
    reach : float, metres
        Distance within which a position is on a road.
    """

    def __init__(self, roads: Roads, reach: float) -> None:
        segments = [(roads.ids[road], *a, *b) for road, points in roads.lines for a, b in pairwise(points.tolist())]
        segments.sort(key=lambda segment: segment[0])
        self._ids, self._x1, self._y1, self._x2, self._y2 = map(np.array, zip(*segments, strict=True))
        self._reach = reach
        margin_y = 1.01 * reach / METRES
        margin_x = margin_y / math.cos(math.radians(max(abs(self._y1).max(), abs(self._y2).max()) + margin_y))
        left, right = np.minimum(self._x1, self._x2) - margin_x, np.maximum(self._x1, self._x2) + margin_x
        low, high = np.minimum(self._y1, self._y2) - margin_y, np.maximum(self._y1, self._y2) + margin_y
        self._west, self._south = float(left.min()), float(low.min())
        width, height = float(right.max()) - self._west, float(high.max()) - self._south
        # cells of about a quarter of a segment's square, none smaller than the margin
        self._cell = max(margin_y, math.sqrt(width * height / max(16 * len(segments), 1 << 16)))
        self._columns, self._rows = int(width / self._cell) + 1, int(height / self._cell) + 1
        first_column, last_column = self._places(left, self._west), self._places(right, self._west)
        first_row, last_row = self._places(low, self._south), self._places(high, self._south)
        wide, tall = last_column - first_column + 1, last_row - first_row + 1
        owner = np.repeat(np.arange(len(segments)), wide * tall)
        within = _counting(wide * tall)
        row, column = first_row[owner] + within // wide[owner], first_column[owner] + within % wide[owner]
        cells = row * self._columns + column
        self._entries = owner[np.argsort(cells, kind="stable")]  # in the order of ids within a cell
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=self._columns * self._rows))])

    def find(self, lat: Floats, lon: Floats) -> npt.NDArray[np.int64]:
        """Return the id of the nearest road of each position, -1 if none is within reach; at a tie the smallest id."""
        column, row = self._places(lon, self._west), self._places(lat, self._south)
        inside = np.flatnonzero((column >= 0) & (column < self._columns) & (row >= 0) & (row < self._rows))
        cells = row[inside] * self._columns + column[inside]
        numbers = self._starts[cells + 1] - self._starts[cells]
        inside, cells, numbers = (values[numbers > 0] for values in (inside, cells, numbers))
        found = np.full(lat.size, -1, np.int64)
        if not inside.size:
            return found
        of = self._entries[np.repeat(self._starts[cells], numbers) + _counting(numbers)]
        distance = self._distance(np.repeat(inside, numbers), of, lat, lon)
        begins = np.cumsum(numbers) - numbers
        least = np.minimum.reduceat(distance, begins)
        nearest = np.flatnonzero(distance == np.repeat(least, numbers))
        nearest = nearest[np.searchsorted(nearest, begins)]  # the first of each position
        found[inside] = np.where(least < self._reach, self._ids[of[nearest]], -1)
        return found

    def _distance(self, point: Any, of: Any, lat: Floats, lon: Floats) -> Floats:
        """Return the distance of points from segments, in the plane that touches the earth at the point."""
        across = METRES * np.cos(np.radians(lat))[point]
        x, y = lon[point], lat[point]
        x1, y1 = self._x1[of], self._y1[of]
        ax, ay = (x1 - x) * across, (y1 - y) * METRES
        dx, dy = (self._x2[of] - x1) * across, (self._y2[of] - y1) * METRES
        part = np.clip(-(ax * dx + ay * dy) / (dx * dx + dy * dy), 0.0, 1.0)
        distance: Floats = np.hypot(ax + part * dx, ay + part * dy)
        return distance

    def _places(self, coordinates: Floats, origin: float) -> npt.NDArray[np.int64]:
        return np.floor((coordinates - origin) / self._cell).astype(np.int64)


def _counting(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 0, 1 … below each number, one after the other.

    >>> _counting(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(int(numbers.sum())) - np.repeat(np.cumsum(numbers) - numbers, numbers)
