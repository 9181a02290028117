"""Map matching, against distances to each road."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.models import Roads, grid_roads, read_roads
from riot_ops.models.roads import BEIJING, RoadIndex
from tests.reference.dspbench.traffic_monitoring import distance, nearest

places = st.floats(-0.01, 0.01).map(lambda x: round(x, 5))
networks = st.dictionaries(
    st.integers(1, 20), st.lists(st.tuples(places, places), min_size=2, max_size=5), min_size=1, max_size=6
)


def away(lat, lon, points):
    """How far a road is, in metres."""
    return min(distance(lat, lon, a, b) for a, b in pairwise(points))


@given(networks, st.sampled_from([0.0, 60.0, -85.0]), st.integers(0, 1 << 32), st.sampled_from([5.0, 300.0]))
def test_the_nearest_road(network, up, seed, width):
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
        if found != wanted:  # as near, but for rounding
            assert None not in (found, wanted)
            assert nearest(y, x, {found: network[found], wanted: network[wanted]}, width=width) == wanted
            assert away(y, x, network[found]) == pytest.approx(away(y, x, network[wanted]), abs=1e-6)


def test_where_roads_meet_the_smallest_id_counts():
    """Exactly: the end of one is the beginning of another, and both are as far from a point beyond."""
    network = {2: [(0.0, 0.00781), (0.0, 0.0)], 1: [(0.0, 0.0), (0.001, 0.01)], 3: [(-0.003, 0.002), (0.0, 0.0)]}
    index = RoadIndex(Roads.of([(road, np.nan, points) for road, points in network.items()]), 300.0)
    rng = np.random.default_rng(5)
    below = -rng.uniform(1e-5, 1e-3, 200)
    beside = rng.uniform(0, 0.5, 200) * below  # nearest to the common end of all three
    assert index.find(below, beside).tolist() == [0] * 200


def test_a_road_along_a_meridian_is_as_wide_in_the_north():
    """Where degrees of longitude are short, many of them are within its width."""
    index = RoadIndex(Roads.of([(1, np.nan, [(0.0, -10.0), (0.0, 84.0)])]), width=5000.0, tolerance=0.0)
    lat = np.repeat([-9.0, 0.0, 45.0, 70.0, 83.0], 4)
    metres = np.tile([-5010.0, -4990.0, 4990.0, 5010.0], 5)
    lon = metres / (111_320 * np.cos(np.radians(lat)))
    assert index.find(lat, lon).tolist() == [-1, 0, 0, -1] * 5


def test_own_widths_and_ties():
    lines = [(5, 50.0, [(0, 0), (0.01, 0)]), (4, np.nan, [(0, 0.0008), (0.01, 0.0008)]), (9, 0.0, [(0, 0), (0, 0.01)])]
    index = RoadIndex(Roads.of(lines), width=5.0, tolerance=10.0)
    assert index.roads.ids == [4, 5, 9]
    # 44 m from both: the one with the smaller id counts, which is too narrow
    points = {(0.0004, 0.005): -1, (0.000399, 0.005): 1, (0.0, 0.0): 1, (0.00005, 0.0): 2, (0.0004, 0.0): 2}
    found = index.find(np.array([lat for lat, _ in points]), np.array([lon for _, lon in points]))
    assert found.tolist() == [*points.values()]
    assert RoadIndex(Roads.of(lines), tolerance=60.0).find(np.array([0.0004]), np.array([0.005])).tolist() == [0]


def test_names_of_roads_may_be_texts():
    assert Roads.of([("10", 1.0, [(0, 0), (1, 0)]), ("9", 1.0, [(0, 0), (1, 0)])]).ids == [9, 10]
    assert Roads.of([("10", 1.0, [(0, 0), (1, 0)]), ("09", 1.0, [(0, 0), (1, 0)])]).ids == ["09", "10"]
    assert Roads.of([(1, 1.0, [(0, 0), (1, 0)]), (1, np.nan, [(3, 0), (4, 0)])]).ids == [1]
    with pytest.raises(ConfigError, match="lines must be"):
        grid_roads(lines=1)


def test_a_grid_lies_in_its_box():
    """The outermost lines are a fiftieth of it inside."""
    roads = grid_roads((0.0, 5.0, 10.0, 20.0), lines=2)
    assert [line.round(9).tolist() for _, line in roads.lines] == [
        [[10.2, 0.1], [19.8, 0.1]],
        [[10.2, 4.9], [19.8, 4.9]],
        [[10.2, 0.1], [10.2, 4.9]],
        [[19.8, 0.1], [19.8, 4.9]],
    ]
    assert len(grid_roads(lines=3).ids) == 6


def test_positions_that_are_dropped():
    session = t.MatchRoads(speed="v", least_speed=2.0, box=BEIJING, output="road").session()
    here = {"latitude": 39.6983, "longitude": 116.3, "v": 2.0}
    assert session.push(here)[0]["road"] == 1000
    for change in ({"v": 1.9}, {"v": None}, {"latitude": None}, {"longitude": float("nan")}, {"latitude": 39.68}):
        assert session.push({**here, **change}) == []
    wide = t.MatchRoads(box=BEIJING, width=1e6).session()
    for lat, lon in ((BEIJING[0], BEIJING[2]), (BEIJING[1], BEIJING[3])):  # on the border
        assert len(wide.push({"latitude": lat, "longitude": lon})) == 1
        beyond = 0.0 if lat == BEIJING[0] else np.inf
        for name, of in (("latitude", lat), ("longitude", lon)):
            assert wide.push({"latitude": lat, "longitude": lon, name: np.nextafter(of, beyond)}) == []
    standing = t.MatchRoads(speed="v").session()
    assert len(standing.push({**here, "v": 1e-9})) == 1
    assert standing.push({**here, "v": 0.0}) == []


def geojson(*features):
    return json.dumps({"type": "FeatureCollection", "features": features})


def feature(kind, coordinates, **rest):
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, **rest}


def test_roads_in_files(tmp_path):
    path = tmp_path / "roads.csv"
    path.write_text("lat,lon,road_id,seq,half,x\n0.5,1,7,10,,a\n0.25,1,7,9,,b\n0,0,6,1,4.5,c\n1,1,6,2,4.5,d\n")
    roads = read_roads(str(path), width_key="half")
    assert roads.ids == [6, 7]
    assert [line.tolist() for _, line in roads.lines] == [[[0, 0], [1, 1]], [[1, 0.25], [1, 0.5]]]
    assert np.array_equal(roads.widths, [4.5, np.nan], equal_nan=True)
    path = tmp_path / "roads.geojson"
    one = feature("LineString", [[0, 0, 5], [1, 1, 5]], properties={"osm_id": "12", "half": "3"})
    two = feature("MultiLineString", [[[2, 2], [3, 3]], [[4, 4], [5, 5]]], id=3)
    path.write_text(geojson(one, two, feature("Point", [1, 1]), {"type": "Feature", "geometry": None}))
    roads = read_roads(str(path), width_key="half")
    assert roads.ids == [3, 12]
    assert [(road, line.tolist()) for road, line in roads.lines] == [
        (0, [[2, 2], [3, 3]]),
        (0, [[4, 4], [5, 5]]),
        (1, [[0, 0], [1, 1]]),
    ]
    assert np.array_equal(roads.widths, [np.nan, 3], equal_nan=True)


def test_ids_and_widths_by_other_names(tmp_path):
    path = tmp_path / "roads.geojson"
    path.write_text(
        geojson(feature("LineString", [[0, 0], [1, 0]], properties={"osm_id": 9, "name": "A 1", "half": 300}))
    )
    on, beside = {"latitude": 0.0, "longitude": 0.5}, {"latitude": 0.002, "longitude": 0.5}  # 223 m from it

    def found(**keys):
        return [
            [row["road_id"] for row in t.MatchRoads(roads=str(path), **keys).session().push(p)] for p in (on, beside)
        ]

    assert found() == [[9], []]
    assert found(id_key="name") == [["A 1"], []]
    assert found(width_key="half") == [[9], [9]]
    assert found(id_key="half", width_key="none") == [[300], []]


def test_roads_in_a_shapefile(tmp_path):
    shapefile = pytest.importorskip("shapefile")
    with shapefile.Writer(str(tmp_path / "roads")) as writer:
        writer.field("osm_id", "C")
        writer.field("half", "N", decimal=1)
        writer.line([[[0.0, 0.0], [1.0, 1.0]], [[2.0, 2.0], [3.0, 3.0]]])
        writer.record("44", 7.5)
        writer.null()
        writer.record("45", 1)
    roads = read_roads(str(tmp_path / "roads.shp"), width_key="half")
    assert (roads.ids, roads.widths.tolist()) == ([44], [7.5])
    assert [line.tolist() for _, line in roads.lines] == [[[0, 0], [1, 1]], [[2, 2], [3, 3]]]
    (tmp_path / "no.shp").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="no shapefile"):
        read_roads(str(tmp_path / "no.shp"))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "road_id,seq,lon\n1,1,1\n", "columns"),
        ("b.csv", "road_id,seq,lon,lat\n1,1,1,x\n", "columns"),
        ("c.csv", "road_id,seq,lon,lat\n1,1,1,1\n", "two points"),
        ("d.csv", "road_id,seq,lon,lat\n1,1,1,1\n1,2,1,91\n", "latitudes"),
        ("e.csv", "road_id,seq,lon,lat\n1,1,,1\n1,2,1,9\n", "without a value"),
        ("a.json", "[]", "no GeoJSON"),
        ("b.json", "{", "no GeoJSON"),
        ("c.json", geojson(), "no road"),
        ("d.json", geojson(feature("LineString", [[0, 0], [1, 1]])), "osm_id"),
        (
            "e.json",
            geojson(feature("LineString", [[0, 0], [1, 1]], id=1, properties={"half": "wide"})),
            "width of the road",
        ),
        ("a.txt", "", "must be a file"),
    ],
)
def test_files_that_are_no_roads(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        t.MatchRoads(roads=str(tmp_path / name), width_key="half" if name == "e.json" else None)
    with pytest.raises(ConfigError, match="cannot be read"):
        t.MatchRoads(roads=str(tmp_path / "none.csv"))


def test_a_network_that_changes_is_read_anew(tmp_path):
    path = tmp_path / "roads.csv"
    path.write_text("road_id,seq,lon,lat\n1,1,0,0\n1,2,1,0\n")
    task = t.MatchRoads(roads=str(path))
    point = pa.RecordBatch.from_pydict({"latitude": [0.0], "longitude": [0.5]})
    assert task.session().push_batch(point)["road_id"].to_pylist() == [1]
    path.write_text("road_id,seq,lon,lat\nnew,1,0,0\nnew,2,1,0\n")
    assert task.session().push_batch(point)["road_id"].to_pylist() == ["new"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"box": (1, 0, 0, 1)}, "box"),
        ({"least_speed": 1.0}, "least_speed"),
        ({"width": 0.0}, "width"),
        ({"tolerance": -1.0}, "tolerance"),
    ],
    ids=str,
)
def test_misuse_is_refused(parameters, said):
    with pytest.raises(ConfigError, match=said):
        t.MatchRoads(**parameters)
