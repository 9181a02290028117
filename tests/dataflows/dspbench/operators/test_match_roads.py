"""Map matching, against distances to each road."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.models.roads import BEIJING


def test_dropped_positions():
    session = t.MatchRoads(speed_field="v", min_speed=2.0, box=BEIJING, output="road").session()
    here = {"latitude": 39.6983, "longitude": 116.3, "v": 2.0}
    assert session.push(here)[0]["road"] == 1000
    for change in ({"v": 1.9}, {"v": None}, {"latitude": None}, {"longitude": float("nan")}, {"latitude": 39.68}):
        assert session.push({**here, **change}) == []
    wide = t.MatchRoads(box=BEIJING, road_width=1e6).session()
    for lat, lon in ((BEIJING[0], BEIJING[2]), (BEIJING[1], BEIJING[3])):  # on the border
        assert len(wide.push({"latitude": lat, "longitude": lon})) == 1
        beyond = 0.0 if lat == BEIJING[0] else np.inf
        for name, of in (("latitude", lat), ("longitude", lon)):
            assert wide.push({"latitude": lat, "longitude": lon, name: np.nextafter(of, beyond)}) == []
    standing = t.MatchRoads(speed_field="v").session()
    assert len(standing.push({**here, "v": 1e-9})) == 1
    assert standing.push({**here, "v": 0.0}) == []


def geojson(*features):
    return json.dumps({"type": "FeatureCollection", "features": features})


def feature(kind, coordinates, **rest):
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, **rest}


def test_ids_and_widths_by_other_names(tmp_path):
    path = tmp_path / "roads.geojson"
    path.write_text(
        geojson(feature("LineString", [[0, 0], [1, 0]], properties={"osm_id": 9, "name": "A 1", "half": 300}))
    )
    on, beside = {"latitude": 0.0, "longitude": 0.5}, {"latitude": 0.002, "longitude": 0.5}  # 223 m away

    def found(**keys):
        return [
            [row["road_id"] for row in t.MatchRoads(roads=str(path), **keys).session().push(p)] for p in (on, beside)
        ]

    assert found() == [[9], []]
    assert found(id_key="name") == [["A 1"], []]
    assert found(width_key="half") == [[9], [9]]
    assert found(id_key="half", width_key="none") == [[300], []]


@pytest.mark.parametrize(
    ("name", "text", "error_text"),
    [
        ("a.csv", "road_id,seq,lon\n1,1,1\n", "columns"),
        ("b.csv", "road_id,seq,lon,lat\n1,1,1,x\n", "columns"),
        ("c.csv", "road_id,seq,lon,lat\n1,1,1,1\n", "two points"),
        ("d.csv", "road_id,seq,lon,lat\n1,1,1,1\n1,2,1,91\n", "latitudes"),
        ("e.csv", "road_id,seq,lon,lat\n1,1,,1\n1,2,1,9\n", "has no value"),
        ("a.json", "[]", "not GeoJSON"),
        ("b.json", "{", "not GeoJSON"),
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
def test_invalid_road_files_are_refused(tmp_path, name, text, error_text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=error_text):
        t.MatchRoads(roads=str(tmp_path / name), width_key="half" if name == "e.json" else None)
    with pytest.raises(ConfigError, match="cannot be read"):
        t.MatchRoads(roads=str(tmp_path / "none.csv"))


def test_changed_network_is_read_again(tmp_path):
    path = tmp_path / "roads.csv"
    path.write_text("road_id,seq,lon,lat\n1,1,0,0\n1,2,1,0\n")
    task = t.MatchRoads(roads=str(path))
    point = pa.RecordBatch.from_pydict({"latitude": [0.0], "longitude": [0.5]})
    assert task.session().push_batch(point)["road_id"].to_pylist() == [1]
    path.write_text("road_id,seq,lon,lat\nnew,1,0,0\nnew,2,1,0\n")
    assert task.session().push_batch(point)["road_id"].to_pylist() == ["new"]


@pytest.mark.parametrize(
    ("parameters", "error_text"),
    [
        ({"box": (1, 0, 0, 1)}, "box"),
        ({"min_speed": 1.0}, "min_speed"),
        ({"road_width": 0.0}, "width"),
        ({"tolerance": -1.0}, "tolerance"),
    ],
    ids=str,
)
def test_misuse_is_refused(parameters, error_text):
    with pytest.raises(ConfigError, match=error_text):
        t.MatchRoads(**parameters)
