"""Generated positions: on the roads, with the shares of the specification, in time and late."""

from __future__ import annotations

import re
from datetime import datetime

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.models.roads import BEIJING, RoadIndex, grid_roads, winding_roads
from riot_ops.streams import generate
from riot_ops.streams.dspbench import TracesSource
from tests.streams.generated_lines import lines

LINE = r"\d+,\d+,\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,-?\d+\.\d{6},\d+\.\d{6},\d+\.\d\d,(0|90|180|270)"


def cells(n=20_000, **options):
    return [line.split(",") for line in lines(TracesSource(dirt=False, **options), 0, n)]


def positions(found):
    lat, lon, speed, bearing = (np.array([float(c[i]) for c in found]) for i in (3, 4, 5, 6))
    return lat, lon, speed, bearing


def test_lines_have_the_format_of_the_data_set():
    found = cells()
    assert all(re.fullmatch(LINE, ",".join(c)) for c in found)
    assert len({c[0] for c in found}) == len(found)
    assert len({c[1] for c in found}) == 500


@pytest.mark.long
def test_most_taxis_are_on_roads():
    lat, lon, speed, _ = positions(cells())
    inside = (lat >= BEIJING[0]) & (lat <= BEIJING[1]) & (lon >= BEIJING[2]) & (lon <= BEIJING[3])
    assert 1 - inside.mean() == pytest.approx(0.03, abs=0.005)
    assert np.mean(lat == 0) == pytest.approx(0.015, abs=0.004)
    roads = RoadIndex(grid_roads()).find(lat, lon)[inside]
    assert np.mean(roads >= 0) > 0.998
    assert set(roads.tolist()) - {-1} == set(range(24))
    assert np.mean(speed == 0) == pytest.approx(0.1, abs=0.01)


@pytest.mark.long
def test_speeds_of_a_road():
    lat, lon, speed, _ = positions(cells(60_000))
    roads = RoadIndex(grid_roads()).find(lat, lon)
    moving = [speed[(roads == road) & (speed > 0)] for road in range(24)]
    usual = np.array([np.median(values) for values in moving])
    assert 20 - 1 < usual.min() < 30
    assert 50 < usual.max() < 61
    away = np.concatenate([values - middle for values, middle in zip(moving, usual, strict=True)])
    assert np.percentile(away, 84) - np.percentile(away, 16) == pytest.approx(12, rel=0.1)
    assert np.mean(away > 19) == pytest.approx(0.03 / 0.9, abs=0.01)


def test_taxi_moves_along_its_bearing_at_its_speed():
    found = cells(400, taxis=1)
    lat, lon, speed, bearing = positions(found)
    metres = np.column_stack([np.diff(lat) * 111_320, np.diff(lon) * 111_320 * np.cos(np.radians(lat[1:]))])
    way = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])[(bearing[1:] / 90).astype(int)]
    driven = (metres * way).sum(axis=1)
    usual = (driven > 200) & (driven < 1200) & (bearing[1:] == bearing[:-1])
    assert usual.sum() > 300  # not where it leaves a road, turns or is lost
    assert np.corrcoef(driven[usual & (speed[1:] > 0)], speed[1:][usual & (speed[1:] > 0)])[0, 1] > 0.3


def test_taxis_drive_on_winding_roads():
    lat, lon, _, bearing = positions(cells(network="winding"))
    inside = (lat >= BEIJING[0]) & (lat <= BEIJING[1]) & (lon >= BEIJING[2]) & (lon <= BEIJING[3])
    network = winding_roads()
    roads = RoadIndex(network).find(lat, lon)[inside]
    assert np.mean(roads >= 0) > 0.99
    assert len(set(roads.tolist()) - {-1}) == len(network.ids) == 240
    eastward = roads < 120
    turn = bearing[inside] % 180
    assert np.median(np.minimum(turn, 180 - turn)[~eastward & (roads >= 0)]) < 45 < np.median(turn[eastward]) < 135
    assert np.unique(bearing).size > 50


@pytest.mark.long
@pytest.mark.parametrize("late", [0.02, 0.5])
def test_times_are_nearly_ascending(late):
    found = cells(taxis=60, late=late)
    times = np.array([datetime.fromisoformat(c[2] + "+00:00").timestamp() for c in found])
    back = 1_231_164_002 + np.arange(times.size) - times
    assert np.mean(back > 0) == pytest.approx(late, rel=0.15)
    assert back.min() == 0
    assert 500 < back.max() < 600
    assert TracesSource(taxis=60).gap_ms == 1000


def test_dirty_lines_have_their_share_and_form():
    found = [line.split(",") for line in lines(TracesSource(), 0, 60_000)]
    for kind in (
        sum(len(c) == 3 for c in found),
        sum(len(c) == 7 and c[3] == "N/A" for c in found),
        sum(c[2] == "2009-02-30T00:00:00" for c in found),
    ):
        assert kind == pytest.approx(100, rel=0.3)


def test_options_and_misuse():
    assert repr(generate("traces", messages=7, taxis=9, late=0.5)) == (
        "TracesSource(messages=7, seed=0, dirt=True, taxis=9, late=0.5, network='grid')"
    )
    for options in ({"taxis": 0}, {"taxis": 2.5}, {"late": 1.5}, {"late": -0.1}, {"network": "motorways"}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            TracesSource(**options)
