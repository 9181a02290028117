"""Road networks, and the nearest road of a point against distances to each road."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.models import Roads, grid_roads, winding_roads
from riot_ops.models.roads import RoadIndex
from tests.reference.dspbench.traffic_monitoring import distance, nearest

places = st.floats(-0.01, 0.01).map(lambda x: round(x, 5))
networks = st.dictionaries(
    st.integers(1, 20), st.lists(st.tuples(places, places), min_size=2, max_size=5), min_size=1, max_size=6
)


def road_distance(lat, lon, points):
    """The distance of a road in metres."""
    return min(distance(lat, lon, a, b) for a, b in pairwise(points))


@given(networks, st.sampled_from([0.0, 60.0, -85.0]), st.integers(0, 1 << 32), st.sampled_from([5.0, 300.0]))
def test_find_equals_the_nearest_road(network, up, seed, width):
    network = {road: [(x, y + up) for x, y in points] for road, points in network.items()}
    rng = np.random.default_rng(seed)
    index = RoadIndex(Roads.of([(road, np.nan, points) for road, points in network.items()]), width)
    # near the roads, and anywhere
    ends = np.array([point for points in network.values() for point in points])
    near = ends[rng.integers(0, len(ends), 30)] + rng.normal(0, 2e-4, (30, 2))
    points = np.concatenate([near, rng.uniform(-0.02, 0.02, (30, 2)) + np.array([0, up])])
    ids = [*index.roads.ids, None]
    for place, (x, y) in zip(index.find(points[:, 1], points[:, 0]), points, strict=True):
        found, wanted = ids[place], nearest(y, x, network, width=width)
        if found != wanted:  # equally near, apart from rounding
            assert None not in (found, wanted)
            assert nearest(y, x, {found: network[found], wanted: network[wanted]}, width=width) == wanted
            assert road_distance(y, x, network[found]) == pytest.approx(road_distance(y, x, network[wanted]), abs=1e-6)


def test_smallest_id_wins_where_roads_meet():
    """Roads with a common end are exactly as far from a point beyond it."""
    network = {2: [(0.0, 0.00781), (0.0, 0.0)], 1: [(0.0, 0.0), (0.001, 0.01)], 3: [(-0.003, 0.002), (0.0, 0.0)]}
    index = RoadIndex(Roads.of([(road, np.nan, points) for road, points in network.items()]), 300.0)
    rng = np.random.default_rng(5)
    below = -rng.uniform(1e-5, 1e-3, 200)
    beside = rng.uniform(0, 0.5, 200) * below  # nearest to the common end of all three
    assert index.find(below, beside).tolist() == [0] * 200


def test_road_along_a_meridian_has_the_same_width_everywhere():
    """Degrees of longitude are shorter in the north."""
    index = RoadIndex(Roads.of([(1, np.nan, [(0.0, -10.0), (0.0, 84.0)])]), width=5000.0, tolerance=0.0)
    lat = np.repeat([-9.0, 0.0, 45.0, 70.0, 83.0], 4)
    metres = np.tile([-5010.0, -4990.0, 4990.0, 5010.0], 5)
    lon = metres / (111_320 * np.cos(np.radians(lat)))
    assert index.find(lat, lon).tolist() == [-1, 0, 0, -1] * 5


def test_widths_of_roads_and_ties():
    lines = [(5, 50.0, [(0, 0), (0.01, 0)]), (4, np.nan, [(0, 0.0008), (0.01, 0.0008)]), (9, 0.0, [(0, 0), (0, 0.01)])]
    index = RoadIndex(Roads.of(lines), width=5.0, tolerance=10.0)
    assert index.roads.ids == [4, 5, 9]
    # 44 m from both: the road with the smaller id wins, but it is too narrow
    points = {(0.0004, 0.005): -1, (0.000399, 0.005): 1, (0.0, 0.0): 1, (0.00005, 0.0): 2, (0.0004, 0.0): 2}
    found = index.find(np.array([lat for lat, _ in points]), np.array([lon for _, lon in points]))
    assert found.tolist() == [*points.values()]
    assert RoadIndex(Roads.of(lines), tolerance=60.0).find(np.array([0.0004]), np.array([0.005])).tolist() == [0]


def test_ids_are_integers_or_texts():
    assert Roads.of([("10", 1.0, [(0, 0), (1, 0)]), ("9", 1.0, [(0, 0), (1, 0)])]).ids == [9, 10]
    assert Roads.of([("10", 1.0, [(0, 0), (1, 0)]), ("09", 1.0, [(0, 0), (1, 0)])]).ids == ["09", "10"]
    assert Roads.of([(1, 1.0, [(0, 0), (1, 0)]), (1, np.nan, [(3, 0), (4, 0)])]).ids == [1]
    with pytest.raises(ConfigError, match="lines must be"):
        grid_roads(lines=1)


def test_grid_roads_are_within_the_box():
    """The outermost lines are a fiftieth of the box from its edges."""
    roads = grid_roads((0.0, 5.0, 10.0, 20.0), lines=2)
    assert [line.round(9).tolist() for _, line in roads.lines] == [
        [[10.2, 0.1], [19.8, 0.1]],
        [[10.2, 4.9], [19.8, 4.9]],
        [[10.2, 0.1], [10.2, 4.9]],
        [[19.8, 0.1], [19.8, 4.9]],
    ]
    assert len(grid_roads(lines=3).ids) == 6


@pytest.mark.parametrize(("lines", "points"), [(2, 9), (40, 300)])
def test_winding_roads_do_not_meet_others_of_their_direction(lines, points):
    box = (0.0, 5.0, 10.0, 20.0)
    network = winding_roads(box, lines, points)
    assert network.ids == [*range(1000, 1000 + lines), *range(2000, 2000 + lines)]
    rows = np.array([line for _, line in network.lines])
    assert rows.shape == (2 * lines, points, 2)
    assert (rows[:, :, 0] > 10).all() or lines == 2
    for across, its in ((1, rows[:lines]), (0, rows[lines:])):
        assert (np.diff(its[:, :, across], axis=0) > 0).all()
        bends = np.abs(np.diff(its[:, :, across], n=2, axis=1)).max(axis=1)
        assert (bends > 1e-6).all()  # none is straight


@pytest.mark.parametrize("wrong", [{"lines": 1}, {"lines": 1001}, {"points": 1}, {"points": 10_001}])
def test_misuse_of_winding_roads_is_refused(wrong):
    (name, value), *_ = wrong.items()
    with pytest.raises(ConfigError, match=f"{name} must be from 2 to .*, got {value}"):
        winding_roads(**wrong)
