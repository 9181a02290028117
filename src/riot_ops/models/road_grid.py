"""Nearest road segments on the earth, by a grid of cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["METRES", "fill_grid", "match_points"]

#: Metres per degree of latitude.
METRES = 111_320.0
_RADIANS = math.pi / 180.0


@kernel
def _cell(length: Any, cell: Any, cells: Any) -> Any:
    """Return the index of the cell, below ``cells``, that contains a coordinate."""
    return min(max(np.int64(math.floor(length / cell)), 0), cells - 1)


@kernel
def _columns(x1: Any, y1: Any, x2: Any, y2: Any, low: Any, high: Any) -> Any:
    """The longitude range of a segment within a range of latitudes; the first is larger if they do not intersect."""
    if max(y1, y2) < low or min(y1, y2) > high:
        return 1.0, 0.0
    if y1 == y2:
        return min(x1, x2), max(x1, x2)
    a = min(max((low - y1) / (y2 - y1), 0.0), 1.0)
    b = min(max((high - y1) / (y2 - y1), 0.0), 1.0)
    u = x1 + a * (x2 - x1)
    v = x1 + b * (x2 - x1)
    return min(u, v), max(u, v)


@kernel
def fill_grid(
    x1: Any, y1: Any, x2: Any, y2: Any, reach: Any, west: Any, south: Any, cell: Any, columns: Any, rows: Any,
    edges: Any, entries: Any,
) -> None:  # fmt: skip
    """Enter each segment into all cells that may contain a point within ``reach`` metres of it.

    With empty ``entries`` it only counts: the entries of cell c in ``edges[c + 1]``. Otherwise ``edges[c]`` is where
    the next entry of the cell is written. Segments are entered in order.
    """
    margin_y = reach / METRES * 1.000001
    for s in range(x1.size):
        cosine = math.cos(_RADIANS * min(max(abs(y1[s]), abs(y2[s])) + margin_y, 89.9))
        margin_x = margin_y / cosine
        first = _cell(min(y1[s], y2[s]) - margin_y - south, cell, rows)
        last = _cell(max(y1[s], y2[s]) + margin_y - south, cell, rows)
        for row in range(first, last + 1):
            low = south + row * cell
            left, right = _columns(x1[s], y1[s], x2[s], y2[s], low - margin_y, low + cell + margin_y)
            if left > right:
                continue
            begin = _cell(left - margin_x - west, cell, columns)
            end = _cell(right + margin_x - west, cell, columns)
            for column in range(begin, end + 1):
                c = row * columns + column
                if entries.size == 0:
                    edges[c + 1] += 1
                else:
                    entries[edges[c]] = s
                    edges[c] += 1


@kernel
def match_points(
    lat: Any, lon: Any,
    x1: Any, y1: Any, x2: Any, y2: Any, road: Any, reach: Any,
    west: Any, south: Any, cell: Any, columns: Any, rows: Any, edges: Any, entries: Any, out: Any,
) -> None:  # fmt: skip
    """Write the road of the nearest segment of each point, -1 if the point is not within the road's reach.

    Among segments at the same distance the first counts. Points that are not on Earth have no road.
    """
    for i in range(lat.size):
        out[i] = -1
        x = lon[i]
        y = lat[i]
        if not (-90.0 <= y <= 90.0 and -180.0 <= x <= 180.0):
            continue
        column = (x - west) / cell
        row = (y - south) / cell
        if not (0.0 <= column < columns and 0.0 <= row < rows):
            continue
        c = np.int64(row) * columns + np.int64(column)
        first = edges[c]
        last = edges[c + 1]
        if first == last:
            continue
        east = METRES * math.cos(_RADIANS * y)
        best = np.inf
        found = -1
        for k in range(first, last):
            s = entries[k]
            ax = (x1[s] - x) * east
            ay = (y1[s] - y) * METRES
            dx = (x2[s] - x1[s]) * east
            dy = (y2[s] - y1[s]) * METRES
            square = dx * dx + dy * dy
            t = 0.0
            if square > 0.0:
                t = min(max(-(ax * dx + ay * dy) / square, 0.0), 1.0)
            px = ax + t * dx
            py = ay + t * dy
            if t == 1.0:  # exactly the end, so that the distance equals that of the next segment's beginning
                px = (x2[s] - x) * east
                py = (y2[s] - y) * METRES
            distance = px * px + py * py
            if distance < best:
                best = distance
                found = road[s]
        if best < reach[found] * reach[found]:
            out[i] = found
