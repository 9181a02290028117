"""The functions that make generated streams hand every option on."""

from __future__ import annotations

import inspect

import pyarrow as pa
import pytest

from riot_ops.ingest import rates
from riot_ops.streams import PacedSource, city, fit, grid, taxi
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.streams.riotbench.fit import FitSource
from riot_ops.streams.riotbench.grid import GridSource
from riot_ops.streams.riotbench.taxi import TaxiSource

PACE = ("rate", "speed", "curve")
VALUES = {"seed": 3, "format": "csv", "drop": 0.9, "dirt": False, "burst": "5s"}


def records(source):
    (split,) = source.splits({"message": 0}, {"message": 3000}, 1)
    return pa.Table.from_batches(source.read(split))


@pytest.mark.long
@pytest.mark.parametrize(
    ("build", "kind", "sensors"),
    [
        (city, CitySource, "sensors"),
        (taxi, TaxiSource, "taxis"),
        (fit, FitSource, "subjects"),
        (grid, GridSource, "meters"),
    ],
)
def test_options_reach_the_source(build, kind, sensors):
    options = {name: VALUES[name] for name in inspect.signature(build).parameters if name in VALUES}
    ends = {"messages", "duration"} & {*inspect.signature(build).parameters}
    assert {sensors, *ends, *options, *PACE} == {*inspect.signature(build).parameters}, "all are tested"
    plain = records(build(**{sensors: 40}))
    assert plain.equals(records(kind(**{sensors: 40})))
    assert not plain.equals(records(build(**{sensors: 41})))
    for name, value in options.items():
        changed = records(build(**{sensors: 40, name: value}))
        assert changed.equals(records(kind(**{sensors: 40, name: value}))), name
        assert not changed.equals(plain), name
    assert build(**{sensors: 40}, messages=7).count({"message": 0}, {"message": 7}) == 7
    assert build(**{sensors: 40}, messages=7).finished({"message": 7})
    if "duration" in ends:
        wanted = kind(**{sensors: 40}, duration="12h")
        assert wanted.latest({"message": 0}) == build(**{sensors: 40}, duration="12h").latest({"message": 0})
    curve = rates.taxi(1000)
    for name, value in (("rate", 5.0), ("speed", 2.0), ("curve", curve)):
        paced = build(**{sensors: 40, name: value})
        assert isinstance(paced, PacedSource)
        assert [getattr(paced, one) for one in PACE] == [value if one == name else None for one in PACE]
