"""The nearest of many line segments on the earth, by a grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["METRES", "enter", "match"]

#: Metres of a degree of latitude.
METRES = 111_320.0
_RADIANS = math.pi / 180.0


@kernel
def _cell(length: Any, cell: Any, cells: Any) -> Any:
    """The cell, of so many, in which a length ends."""
    return min(max(np.int64(math.floor(length / cell)), 0), cells - 1)


@kernel
def _columns(x1: Any, y1: Any, x2: Any, y2: Any, low: Any, high: Any) -> Any:
    """Between which longitudes a segment is while its latitude is within a range; the first is larger where never."""
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
def enter(
    x1: Any, y1: Any, x2: Any, y2: Any, reach: Any, west: Any, south: Any, cell: Any, columns: Any, rows: Any,
    edges: Any, entries: Any,
) -> None:  # fmt: skip
    """Enter each segment in all cells in which there may be a point no further from it than ``lookback`` metres.

    Without room in ``entries`` the cells are only counted: cell c in ``edges[c + 1]``. Else ``edges[c]`` is where its
    next entry goes. Segments are entered in order.
    """
    up = reach / METRES * 1.000001
    for s in range(x1.size):
        cosine = math.cos(_RADIANS * min(max(abs(y1[s]), abs(y2[s])) + up, 89.9))
        aside = up / cosine
        first = _cell(min(y1[s], y2[s]) - up - south, cell, rows)
        last = _cell(max(y1[s], y2[s]) + up - south, cell, rows)
        for row in range(first, last + 1):
            low = south + row * cell
            left, right = _columns(x1[s], y1[s], x2[s], y2[s], low - up, low + cell + up)
            if left > right:
                continue
            begin = _cell(left - aside - west, cell, columns)
            end = _cell(right + aside - west, cell, columns)
            for column in range(begin, end + 1):
                c = row * columns + column
                if entries.size == 0:
                    edges[c + 1] += 1
                else:
                    entries[edges[c]] = s
                    edges[c] += 1


@kernel
def match(
    lat: Any, lon: Any, speed: Any, least_speed: Any, box: Any,
    x1: Any, y1: Any, x2: Any, y2: Any, road: Any, reach: Any,
    west: Any, south: Any, cell: Any, columns: Any, rows: Any, edges: Any, entries: Any, out: Any,
) -> None:  # fmt: skip
    """The road of the nearest segment for each point, -1 where that is not within the road's reach.

    Of segments at one distance the first counts. Points outside of ``box`` (least and greatest latitude, and of
    longitude) have no road, nor those with a speed that is not above 0 or below the least one; without speeds all move.
    """
    for i in range(lat.size):
        out[i] = -1
        x = lon[i]
        y = lat[i]
        if not (box[0] <= y <= box[1] and box[2] <= x <= box[3]):
            continue
        if speed.size > 0 and not (speed[i] > 0.0 and speed[i] >= least_speed):
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
            if t == 1.0:  # exactly the end, which is as far as the beginning of the next segment
                px = (x2[s] - x) * east
                py = (y2[s] - y) * METRES
            distance = px * px + py * py
            if distance < best:
                best = distance
                found = road[s]
        if best < reach[found] * reach[found]:
            out[i] = found
