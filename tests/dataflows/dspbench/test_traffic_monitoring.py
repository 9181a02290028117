"""Traffic monitoring, against a naive reference and the figures of the specification."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.dataflows import traffic_monitoring
from riot_ops.streams import replay
from tests.reference.dspbench.traffic_monitoring import BEIJING, roads_of_csv
from tests.reference.dspbench.traffic_monitoring import traffic_monitoring as reference
from tests.samples import MADE, expected
from tests.simulated_query import SimulatedQuery

CARS, ROADS, TAXIS = (f"dspbench/{name}" for name in ("synthetic/taxi-grid.csv", "synthetic/roads-grid.csv", "taxi-traces.csv.gz"))  # fmt: skip
NETWORK = {7: [(0.0, 0.0), (0.002, 0.0), (0.002, 0.002)], 12: [(0.0, 0.001), (0.004, 0.0012)], 3: [(0.003, -0.001), (0.003, 0.002)]}  # fmt: skip
BOX = {"box": (-0.01, 0.01, -0.01, 0.01)}

positions = st.builds(
    "1,v,2009-01-06T05:20:{:02d},{:.5f},{:.5f},{},9".format,
    st.integers(0, 59),
    st.floats(-0.0012, 0.0022),
    st.floats(-0.0002, 0.0042),
    st.sampled_from(["0", "0.5", "30", "30", "31.25", "33.4", "90", "-1"]),
)
on_roads = st.builds(
    "1,v,2009-01-06T05:20:07,{:.5f},{:.5f},{},9".format,
    st.sampled_from([0.00001, 0.0001, 0.00011]),
    st.floats(0.0, 0.0019),
    st.sampled_from(["30", "31.25", "33.4", "36", "29", "90"]),
)
dirt = st.sampled_from(["", "1,v,2009-01-06T05:20:07,0.0,0.0,5", "1,v,now,0.0,0.0,5,1", "1,v,2009-01-06T05:20:07,x,0.0,5,1"])  # fmt: skip
lines = st.lists(on_roads | positions | dirt, max_size=14)


def table(texts):
    return pa.table(
        {"event_time": pa.nulls(len(texts), pa.timestamp("us", "UTC")), "payload": [t.encode() for t in texts]}
    )


def found(rows):
    return [(r["seq"], r["road_id"], pytest.approx(r["average_speed"]), r["count"]) for r in rows.to_pylist()]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("roads") / "roads.csv"
    rows = [f"{road},{i},{lon},{lat}\n" for road, points in NETWORK.items() for i, (lon, lat) in enumerate(points)]
    path.write_text("road_id,seq,lon,lat\n" + "".join(rows))
    return str(path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({}, {}),
        ({"window": 3, "sigma": 1.0, "road_width": 10.0, "tolerance": 1.0}, {}),
        ({"integer": True, "box": (0.0, 0.0001, -0.01, 0.01)}, {"box": (0.0, 0.0001, -0.01, 0.01)}),
    ],
    ids=["default", "others", "integer"],
)
@given(lines=lines, batch_size=st.integers(1, 5))
def test_results_equal_the_reference(network, options, same, lines, batch_size):
    names = {"window": "history", "road_width": "width"}
    plain = {names.get(name, name): value for name, value in options.items()}
    wanted = list(reference(lines, NETWORK, **{**BOX, **plain, **same}))
    flow = traffic_monitoring(roads=network, **{**BOX, **options})
    assert found(flow.run(table(lines), batch_size=batch_size)["speeds"]) == wanted
    staged = SimulatedQuery(flow, ro.MemorySource(table(lines)), random.Random(len(lines)), max_records=batch_size)
    assert found(staged["speeds"].sort_by("seq")) == wanted


def test_restarted_run_continues(network, tmp_path):
    cars = [f"1,v,2009-01-06T05:20:07,0.0,0.001,{30 + i % 7},9" for i in range(40)]
    whole = found(traffic_monitoring(roads=network, **BOX).run(table(cars))["speeds"])
    head, tail = (traffic_monitoring(roads=network, **BOX) for _ in range(2))
    kept = {"checkpoint": tmp_path / "checkpoint", "out": tmp_path / "out"}
    head.run(ro.MemorySource(table(cars[:17])), **kept)
    assert found(tail.run(ro.MemorySource(table(cars)), **kept)["speeds"]) == whole


@pytest.mark.long
def test_figures_of_the_specification(sample_data):
    lines = (sample_data / CARS).read_text().splitlines()
    roads = roads_of_csv(sample_data / ROADS)
    flow = traffic_monitoring(roads=str(sample_data / ROADS))
    speeds = flow.run(replay(sample_data / CARS))["speeds"]
    last = {row["road_id"]: (row["average_speed"], row["count"]) for row in speeds.to_pylist()}
    assert (speeds.num_rows, len(last)) == expected(sample_data, made=(216, 17), papers=(2607, 24))
    if sample_data != MADE:
        for road, average in {1000: 39.101252, 1001: 40.518690, 1002: 40.852490}.items():
            assert last[road] == (pytest.approx(average, abs=5e-7), 30)
    assert found(speeds) == list(reference(lines, roads))


@pytest.mark.long
def test_taxis_of_beijing(sample_data):
    flow = traffic_monitoring(
        road_width=100_000.0
    )  # every position is on a road, so that the options alone drop positions
    for integer, wanted in expected(
        sample_data, made=((False, 340), (True, 340)), papers=((False, 11_388), (True, 11_382))
    ):
        again = traffic_monitoring(road_width=100_000.0, integer=integer)
        result = again.run(replay(sample_data / TAXIS))
        assert (result["speeds"].num_rows, result["errors"].num_rows) == (wanted, 0)
    with gzip.open(sample_data / TAXIS, "rt") as file:
        cells = [line.split(",") for line in file]
    inside = [c for c in cells if BEIJING[0] <= float(c[3]) <= BEIJING[1] and BEIJING[2] <= float(c[4]) <= BEIJING[3]]
    assert (len(cells), len(inside)) == expected(sample_data, made=(400, 387), papers=(75_000, 65_889))
    moving = Counter(c[1] for c in inside if float(c[5]) > 0)
    rows = flow.run(replay(sample_data / TAXIS))["speeds"]
    assert Counter(rows["vehicle_id"].to_pylist()) == moving
    first = rows.slice(0, 1).to_pylist()[0]
    assert first["event_time"].utcoffset() == timedelta(0)


def test_properties_of_roads(tmp_path):
    path = tmp_path / "roads.geojson"
    path.write_text(
        '{"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {"ref": "A 7", "half": 40},'
        '"geometry": {"type": "LineString", "coordinates": [[0, 0], [0.01, 0]]}}]}'
    )
    car = "1,v,2009-01-06T05:20:07,0.0003,0.001,30,9"  # 33 m away
    wide = traffic_monitoring(roads=str(path), id_key="ref", width_key="half", **BOX)
    narrow = traffic_monitoring(roads=str(path), id_key="ref", **BOX)
    assert wide.run(table([car]))["speeds"]["road_id"].to_pylist() == ["A 7"]
    assert narrow.run(table([car]))["speeds"].num_rows == 0
