"""The grid of segments beside a comparison of each position with each segment."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from riot_bench.baselines.spark.dspbench.segment_grid import SegmentGrid

from riot_ops.models.roads import BEIJING, Roads, grid_roads, winding_roads

REACH = 30.0


def nearest(roads: Roads, lat: float, lon: float) -> int:
    """The road of a position, by the formula."""
    best = (REACH, -1)
    across = 111_320.0 * math.cos(math.radians(lat))
    for road, points in roads.lines:
        for (x1, y1), (x2, y2) in pairwise(points.tolist()):
            ax, ay = (x1 - lon) * across, (y1 - lat) * 111_320.0
            dx, dy = (x2 - x1) * across, (y2 - y1) * 111_320.0
            part = min(max(-(ax * dx + ay * dy) / (dx * dx + dy * dy), 0.0), 1.0)
            distance = math.hypot(ax + part * dx, ay + part * dy)
            if distance < best[0]:
                best = distance, roads.ids[road]
    return best[1]


@pytest.mark.parametrize("roads", [grid_roads(lines=3), winding_roads(lines=4, points=9)], ids=["straight", "winding"])
def test_segment_grid_finds_the_road_that_all_segments_give(roads: Roads) -> None:
    random = np.random.default_rng(3)
    corners = np.concatenate([points for _, points in roads.lines])
    near = corners[random.integers(0, len(corners), 150)] + random.normal(0, 3e-4, (150, 2))
    south, north, west, east = BEIJING
    anywhere = np.column_stack([random.uniform(west - 1, east + 1, 50), random.uniform(south - 1, north + 1, 50)])
    lon, lat = np.concatenate([near, anywhere, corners]).T
    wanted = [nearest(roads, *place) for place in zip(lat.tolist(), lon.tolist(), strict=True)]
    assert len(set(wanted)) > 5
    assert wanted.count(-1) > 50
    assert SegmentGrid(roads, REACH).find(lat, lon).tolist() == wanted


def test_segment_grid_without_a_candidate() -> None:
    grid = SegmentGrid(grid_roads(lines=2), REACH)
    assert grid.find(np.array([0.0, 39.9]), np.array([0.0, 116.3])).tolist() == [-1, -1]
    assert grid.find(np.empty(0), np.empty(0)).tolist() == []
