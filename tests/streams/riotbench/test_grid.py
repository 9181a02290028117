"""The GRID generator: reproducible anywhere, and as the specification's model."""

import json
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import GRID, OBSERVATIONS, RAW
from riot_ops.ingest import rates
from riot_ops.streams import grid
from riot_ops.streams.riotbench.grid import BASE_MS, GridSource
from tests.streams.records import any_split, check_any_split, table

HALF_HOUR = 1_800_000


@pytest.fixture(scope="module")
def clean():
    """Ten days of 2,000 meters: 960,000 messages."""
    return table(GridSource(2000, duration="10d", format="wide", dirt=False)).to_pandas()


# -- reproducible ----------------------------------------------------------------------------------


@any_split
def test_any_split_gives_the_same_records(meters, start, n, parts, form, seed):
    check_any_split(GridSource(meters, seed=seed, format=form), start, n, parts)


def test_seeds_differ_and_the_length_does_not_matter():
    first = table(GridSource(5, 100))
    assert table(GridSource(5), 0, 100).equals(first)
    assert not table(GridSource(5, seed=1), 0, 100).equals(first)


# -- forms -----------------------------------------------------------------------------------------


def test_formats_have_equal_values():
    n = 5000
    text, csv, rows, wide = (table(GridSource(70, n, format=f)) for f in ("senml", "csv", "observations", "wide"))
    assert text.schema == csv.schema == RAW
    assert rows.schema == OBSERVATIONS
    session = t.ParseSenML(schema="grid").session()
    parsed = pa.Table.from_batches([session.push_batch(b) for b in text.to_batches()])
    assert session.errors == []
    assert parsed.to_pylist() == rows.to_pylist()
    assert rows["value"].to_pylist() == wide["energyconsumed"].to_pylist()
    assert rows["sensor_id"].to_pylist() == wide["meterid"].to_pylist()
    for line, row in zip(csv["payload"].to_pylist(), wide.to_pylist(), strict=True):
        meter, time, value = line.decode().split(",")
        assert meter == row["meterid"]
        assert int(time) == round(row["event_time"].timestamp() * 1000)
        assert (None if value == "null" else float(value)) == row["energyconsumed"]
    assert sorted(set(wide["meterid"].to_pylist()), key=int) == [str(i) for i in range(1000, 1070)]


def test_message_has_the_wire_format():
    line = table(GridSource(1, 1))["payload"][0].as_py().decode()
    time, _, body = line.partition(",")
    message = json.loads(body)
    assert message["bt"] == int(time) == BASE_MS
    assert [(e["n"], e["u"]) for e in message["e"]] == [("meterid", "string"), ("energyconsumed", "kWh")]
    assert isinstance(message["e"][0]["sv"], str)
    assert isinstance(message["e"][1]["v"], str)


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("meters", "spread"), [(1, 600), (7, 1800), (6000, 600), (5000, 0.5)])
def test_each_meter_reports_once_per_half_hour_at_its_own_offset(meters, spread):
    source = GridSource(meters, 5 * meters, format="wide", burst=timedelta(seconds=spread))
    rows = table(source)
    times = rows["event_time"].cast("int64").to_numpy() // 1000 - BASE_MS
    assert (np.diff(times) >= 0).all()
    assert (times % HALF_HOUR < spread * 1000).all()
    frame = rows.to_pandas().assign(offset=times % HALF_HOUR, tick=times // HALF_HOUR)
    per_meter = frame.groupby("meterid")
    assert (per_meter["offset"].nunique() == 1).all()
    assert (per_meter["tick"].apply(list).apply(lambda ticks: ticks == [0, 1, 2, 3, 4])).all()
    for i in (0, meters - 1, meters, 5 * meters - 1):
        assert source.time_at({"message": i}) == (times[i] + BASE_MS) * 1000
        until = source.until({"message": 0}, int(times[i] + BASE_MS) * 1000)
        assert until["message"] == np.searchsorted(times, times[i], "right")
    assert source.until({"message": 0}, 0)["message"] == 0
    assert GridSource(meters, duration="1d", burst=timedelta(seconds=spread)).messages == 48 * meters


@pytest.mark.long
def test_rates_are_bursts_or_uniform():
    times = table(GridSource(6000, duration="12h", format="wide"))["event_time"].combine_chunks()
    per_second = rates.observed_rates(times)
    assert set(per_second) == {0.0, 10.0}
    curve = rates.grid(speed=1)
    second = np.arange(per_second.size)
    assert per_second.tolist() == [curve.rate(s + 0.5) for s in second]
    uniform = rates.observed_rates(
        table(GridSource(18_000, duration="2h24min", format="wide", burst="30min"))["event_time"].combine_chunks()
    )
    assert set(uniform) == {10.0}
    assert rates.grid(1000, 18_000, "30min").mean == 10_000


# -- model -----------------------------------------------------------------------------------------


def test_consumption_is_log_normal_and_mostly_valid(clean):
    x = np.log(clean["energyconsumed"])
    assert x.mean() == pytest.approx(2.10, abs=0.06)  # 2,000 meters: five standard errors are 0.07
    assert x.std() == pytest.approx(0.75, abs=0.03)
    low, high = GRID.bounds["energyconsumed"]
    assert clean["energyconsumed"].between(low, high).mean() == pytest.approx(0.95, abs=0.015)
    assert clean["energyconsumed"].between(0.05, 40).all()


@pytest.mark.long
def test_spread_between_meters_and_within_one(clean):
    x = clean.assign(log=np.log(clean["energyconsumed"]))
    half_hour = (clean["event_time"].dt.hour * 2 + clean["event_time"].dt.minute // 30 + 11) % 48  # local time
    base = x.groupby("meterid")["log"].mean()
    assert base.std() == pytest.approx(0.6, rel=0.06)
    course = x["log"].groupby(half_hour).transform("mean") - x["log"].mean()
    rest = x["log"] - x.groupby("meterid")["log"].transform("mean") - course
    assert rest.std() == pytest.approx(0.35, rel=0.08)  # less the part removed by the mean of ten days
    one = [rest[rows].to_numpy() for rows in list(clean.groupby("meterid").indices.values())[:300]]
    assert np.mean([(r[1:] * r[:-1]).mean() / (r * r).mean() for r in one]) == pytest.approx(0.9, abs=0.02)


def test_day_has_two_peaks(clean):
    local = (clean["event_time"] + np.timedelta64(330, "m")).dt.hour
    course = np.log(clean["energyconsumed"]).groupby(local).mean()
    assert course.idxmax() in (18, 19)
    assert course[5:12].idxmax() in (7, 8)
    assert course[13] < course[8] - 0.2
    assert course[3] < course[13]
    assert course.max() - course.min() == pytest.approx(0.9, abs=0.15)


def test_nulls_and_faults():
    values = table(GridSource(2000, 480_000, format="wide")).to_pandas()["energyconsumed"]
    # 480,000 draws: five standard errors of 1 % are 0.07 %, of 0.25 % 0.04 %
    assert values.isna().mean() == pytest.approx(0.01, abs=0.0008)
    assert (values == 0).mean() == pytest.approx(0.0025, abs=0.0004)
    assert (values > 40).mean() == pytest.approx(0.0025, abs=0.0004)


def test_dirt_can_be_disabled(clean):
    assert clean.notna().all().all()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"meters": 0}, "meters must be a whole number >= 1, got 0"),
        ({"burst": "0s"}, "burst must be > 0"),
        ({"burst": "1801s"}, "burst must be at most half an hour"),
        ({"burst": 600}, "burst must be a timedelta or a text"),
        ({"duration": timedelta(-1)}, "duration must be > 0"),
        ({"format": "json"}, "format must be one of"),
    ],
)
def test_misuse_is_refused(parameters, text):
    with pytest.raises(ConfigError, match=text):
        grid(**parameters)
