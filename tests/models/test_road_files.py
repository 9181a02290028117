"""Reading road networks from files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.models import read_roads


def geojson(*features):
    return json.dumps({"type": "FeatureCollection", "features": features})


def feature(kind, coordinates, **rest):
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, **rest}


def test_roads_in_csv_and_geojson(tmp_path):
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
    with pytest.raises(ConfigError, match="not a shapefile"):
        read_roads(str(tmp_path / "no.shp"))


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "[]",
        '{"features": 7}',
        '{"type": "FeatureCollection", "features": [7]}',
        geojson(feature("LineString", ["ab", "cd"], id=1)),
        geojson(feature("LineString", [[0, "x"], [1, 1]], id=1)),
        geojson(feature("LineString", [[0], [1, 1]], id=1)),
        geojson(feature("LineString", [[[0, 0], [1, 1]]], id=1)),
        geojson(feature("LineString", [[0, None], [1, 1]], id=1)),
        geojson(feature("LineString", [[0, 10**400], [1, 1]], id=1)),
        geojson(feature("LineString", [[0, {}], [1, 1]], id=1)),
        geojson(feature("LineString", [[0, 0], [1, 1]], id=1, properties=7)),
        geojson(feature("LineString", [[0, 0], [1, 1]], id=1, properties={"half": []})),
        geojson(feature("MultiLineString", [7], id=1)),
        "[" * 5000,
    ],
)
def test_malformed_geojson_is_refused_with_its_path(tmp_path, text):
    path = tmp_path / "roads.geojson"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"roads: .*roads\.geojson: "):
        read_roads(str(path), width_key="half")
