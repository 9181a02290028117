"""Map matching, against distances to each road."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.tables import RoadNetwork

ON = ("latitude", "longitude")


def roads(path=None, on_missing="drop", columns=("road_id",), **options):
    return t.Lookup(table=RoadNetwork(path, **options), on=ON, on_missing=on_missing, columns=columns)


def test_position_without_a_road_is_missing():
    here, places = (
        {"latitude": 39.6983, "longitude": 116.3},
        [{"latitude": None}, {"longitude": float("nan")}, {"latitude": 39.68}],
    )
    rows = [here, *({**here, **change} for change in places)]
    assert [row["road_id"] for row in roads().session().push_many(rows)] == [1000]
    nulls = roads(on_missing="null", columns={"road": "road_id"}).session().push_many(rows)
    assert [row["road"] for row in nulls] == [1000, None, None, None]
    session = roads(on_missing="reject").session()
    assert len(session.push_many(rows)) == 1 and [e["reason"] for e in session.errors] == ["unknown_key"] * 3
    wide = roads(road_width=1e9).session()
    assert len(wide.push_many([here, {**here, "latitude": 90.1}, {**here, "longitude": -180.1}])) == 1
    assert len(roads(tolerance=0.0, road_width=0.1).session().push_many([{**here, "latitude": 39.69831}])) == 0


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
        return [[row["road_id"] for row in roads(str(path), **keys).session().push(p)] for p in (on, beside)]

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
        RoadNetwork(str(tmp_path / name), width_key="half" if name == "e.json" else None)
    with pytest.raises(ConfigError, match="cannot be read"):
        RoadNetwork(str(tmp_path / "none.csv"))


def test_changed_network_is_read_again(tmp_path):
    path = tmp_path / "roads.csv"
    path.write_text("road_id,seq,lon,lat\n1,1,0,0\n1,2,1,0\n")
    task = roads(str(path))
    point = pa.RecordBatch.from_pydict({"latitude": [0.0], "longitude": [0.5]})
    assert task.session().push_batch(point)["road_id"].to_pylist() == [1]
    path.write_text("road_id,seq,lon,lat\nnew,1,0,0\nnew,2,1,0\n")
    assert task.session().push_batch(point)["road_id"].to_pylist() == ["new"]


@pytest.mark.parametrize("parameters", [{"road_width": 0.0}, {"tolerance": -1.0}], ids=str)
def test_misuse_is_refused(parameters):
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        RoadNetwork(**parameters)


@pytest.mark.parametrize(
    "wrong", [{"on": "latitude"}, {"default": "?", "on_missing": "null"}, {"coded": True}, {"columns": "road"}]
)
def test_wrong_lookups_are_refused(wrong):
    with pytest.raises(
        ConfigError, match=r"latitude and the longitude|for tables of texts, not for RoadNetwork|no column 'road'"
    ):
        t.Lookup(**{"table": RoadNetwork(), "on": ON, **wrong})
