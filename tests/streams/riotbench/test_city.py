"""The CITY generator: reproducible anywhere, and with the marginals that were measured on the sample."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import CITY, OBSERVATIONS, RAW
from riot_ops.streams import city
from riot_ops.streams.loss_model import BLOCK
from riot_ops.streams.riotbench.city import BASE_MS, CitySource, sensor_means
from tests.search import depth
from tests.streams.records import check_any_split, micros, table

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def clean():
    """Two days of 180 sensors without dirt: whole days, so that daily cycles average out."""
    return table(CitySource(180, duration="2d", format="wide", dirt=False)).to_pandas()


@pytest.fixture(scope="module")
def dirty():
    return table(CitySource(180, duration="2d", format="wide")).to_pandas()


# -- reproducible ----------------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=depth(25), deadline=None)
@given(
    st.integers(1, 3000),
    st.integers(0, 10**7),
    st.integers(1, 60),
    st.integers(1, 6),
    st.sampled_from(["senml", "csv", "observations", "wide"]),
    st.integers(0, 3),
)
def test_any_split_gives_the_same_records(sensors, start, n, parts, form, seed):
    source = CitySource(sensors, seed=seed, format=form)
    check_any_split(source, start, n, parts)


def test_seeds_differ_and_the_length_does_not_matter():
    first = table(CitySource(50, messages=100))
    assert table(CitySource(50), 0, 100).equals(first)
    assert not table(CitySource(50, seed=1), 0, 100).equals(first)


# -- forms -----------------------------------------------------------------------------------------


def test_text_equals_the_observations():
    n = 3000
    text = table(CitySource(120), 0, n)
    rows = table(CitySource(120, format="observations"), 0, n)
    wide = table(CitySource(120, format="wide"), 0, n).to_pylist()
    assert text.schema == RAW
    assert rows.schema == OBSERVATIONS
    rows = rows.to_pylist()
    nulls = 0
    for i, record in enumerate(text.to_pylist()):
        ms, _, body = record["payload"].partition(b",")
        message = json.loads(body)
        assert list(message) == ["e", "bt"]
        assert int(ms) == message["bt"] == record["event_time"].timestamp() * 1000
        fields = {e["n"]: e.get("v", e.get("sv")) for e in message["e"]}
        assert tuple(fields) == tuple(c for c in CITY.columns if c != "timestamp")
        assert [e["u"] for e in message["e"]] == [
            u for c, u in zip(CITY.columns, CITY.units, strict=True) if c != "timestamp"
        ]
        assert "sv" in message["e"][0]
        assert all(isinstance(e["v"], str) for e in message["e"][1:])
        for sub, name in enumerate(CITY.observed):
            value = None if fields[name] == "null" else float(fields[name])
            nulls += value is None
            assert rows[5 * i + sub] == {
                "seq": i,
                "ordinal": sub,
                "event_time": record["event_time"],
                "sensor_id": fields["source"],
                "obs_type": name,
                "value": value,
            }
            assert wide[i][name] == value
        assert wide[i]["longitude"] == float(fields["longitude"])
        assert wide[i]["latitude"] == float(fields["latitude"])
    assert nulls > 0


def test_text_has_the_form_of_the_sample(sample_data):
    def pattern(line):
        message = json.loads(line.partition(",")[2])
        return [(*((k, v) for k, v in e.items() if k in "nu"), "sv" in e, list(e)) for e in message["e"]]

    sample = (sample_data / "riotbench" / "SYS_sample_data_senml.csv").read_text().splitlines()
    ours = [p.decode() for p in table(CitySource(1000), 0, 5000)["payload"].to_pylist()]
    assert pattern(ours[0]) == pattern(sample[0])
    lengths = [len(line) for line in ours]
    # the sample has 380.8; ids of two digits more or fewer and the trimming of zeros move it by some bytes
    assert np.mean(lengths) == pytest.approx(np.mean([len(line) for line in sample]), abs=4)


# -- time and losses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sensors", "drop"), [(1, 0.29), (7, 0.29), (1000, 0.29), (30_000, 0.29), (20, 0.0), (20, 0.8)]
)
def test_times_rise_and_positions_are_found(sensors, drop):
    source = CitySource(sensors, drop=drop, format="wide")
    times = table(source, 0, 25_000)["event_time"].cast("int64").to_numpy() // 1000 - BASE_MS
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()
    expected = 25_000 / (1 - drop) * 10_000 / sensors
    # the rate is within 15 % of its mean, and exact at the end of a block
    assert times[-1] == pytest.approx(expected, rel=0.17 * min(1, drop / 0.29), abs=BLOCK * 10_000 / sensors + 10_000)
    for i in (0, 1, 777, 24_999):
        assert source.time_at({"message": i}) == (times[i] + BASE_MS) * 1000
        assert source.until({"message": 0}, int(times[i] + BASE_MS) * 1000)["message"] == np.searchsorted(
            times, times[i], "right"
        )


def test_days_cover_their_days():
    source = CitySource(90, duration="7d")
    assert source.messages == pytest.approx(90 * 7 * 8640 * 0.71, rel=1e-3)  # 3.87 M
    last = source.time_at({"message": source.messages - 1}) // 1000
    assert BASE_MS + 7 * DAY_MS - 10_000 < last < BASE_MS + 7 * DAY_MS
    assert source.time_at({"message": source.messages}) is None
    assert source.finished({"message": source.messages})
    assert CitySource(90).time_at({"message": source.messages}) // 1000 >= BASE_MS + 7 * DAY_MS


@pytest.mark.long
def test_half_of_the_losses_come_in_runs(dirty):
    tick = (micros(dirty["event_time"]) // 1000 - BASE_MS) // 10_000
    gaps = []
    for _, rows in dirty.groupby("source").indices.items():
        assert (np.diff(tick[rows]) > 0).all()  # never twice in a period
        gaps.append(np.diff(tick[rows]) - 1)
    gap = np.concatenate(gaps)
    gap = gap[gap > 0]
    # single losses (17 % of the remaining slots) hardly ever make 8 in a row; outages have a mean of 60
    long = gap[gap >= 8]
    assert long.sum() / gap.sum() == pytest.approx(0.5, abs=0.06)
    assert np.mean(long - 7) == pytest.approx(60, rel=0.12)  # memoryless: the part beyond 7 has the same mean
    assert np.std(long) == pytest.approx(60, rel=0.15)  # geometric: deviation equals mean


@pytest.mark.long
def test_sensor_reports_at_its_own_offset(dirty):
    offset = micros(dirty["event_time"]) // 1000 % 10_000
    per_sensor = {s: set(offset[rows]) for s, rows in dirty.groupby("source").indices.items()}
    assert len(per_sensor) == 180
    assert all(len(o) == 1 for o in per_sensor.values())
    assert all(len(s) in (26, 27) for s in per_sensor)


# -- marginals -------------------------------------------------------------------------------------


@pytest.mark.long
def test_temperature_and_humidity_follow_the_table(clean):
    # the sample is one instant of 84 sensors and these are days of 180: the means of so few places move by a degree
    # or two, and the daily cycle (deviation 2.8) adds to the deviation at an instant
    assert clean["temperature"].mean() == pytest.approx(20.62, abs=2.5)
    assert clean["temperature"].std() == pytest.approx(10.57, rel=0.12)
    assert clean["humidity"].mean() == pytest.approx(49.24, abs=4)
    assert clean["humidity"].std() == pytest.approx(15.69, rel=0.12)
    assert clean["humidity"].between(5, 99.9).all()


@pytest.mark.long
def test_skewed_fields_are_log_normal(clean):
    # 30 % more or less in a log-mean of few sensors is 0.1: between-sensor deviations of 0.4-0.9 over sqrt(180)
    light = np.log(clean["light"][clean["light"] > 0])
    assert light.mean() == pytest.approx(5.81, abs=0.2)
    assert light.std() == pytest.approx(1.50, rel=0.08)
    assert (clean["light"] == 0).mean() == pytest.approx(0.526, abs=0.04)
    dust = np.log(clean["dust"])
    assert dust.mean() == pytest.approx(6.62, abs=0.15)
    assert dust.std() == pytest.approx(1.02, rel=0.08)
    air = np.log(clean["airquality_raw"])
    assert air.mean() == pytest.approx(3.19, abs=0.1)
    assert air.std() == pytest.approx(0.48, rel=0.1)


@pytest.mark.long
def test_variance_within_a_sensor(clean):
    hour = clean["event_time"].dt.hour
    # at a given hour of the day, for the daily cycle is no noise; two days of noise with a correlation time of
    # three hours leave little of the slow part of the temperature within (day, sensor, hour): compare per hour
    groups = clean.groupby([clean["source"], hour])
    within = groups[["temperature", "humidity"]].var().mean() ** 0.5
    assert 0.5 < within["temperature"] < 2.3
    assert 2.0 < within["humidity"] < 8.5
    per_sensor = clean.groupby("source")
    assert 1 - per_sensor["temperature"].var().mean() / clean["temperature"].var() == pytest.approx(0.95, abs=0.07)
    assert 1 - per_sensor["humidity"].var().mean() / clean["humidity"].var() == pytest.approx(0.76, abs=0.13)
    log = clean.assign(dust=np.log(clean["dust"]), air=np.log(clean["airquality_raw"]))
    assert log.groupby("source")["dust"].var().mean() ** 0.5 == pytest.approx(0.73, rel=0.05)
    assert log.groupby("source")["air"].var().mean() ** 0.5 == pytest.approx(0.23, rel=0.08)


@pytest.mark.long
def test_noise_is_correlated_over_a_minute(clean):
    for name, phi in (("dust", 0.9), ("airquality_raw", 0.95)):
        found = []
        tick = (micros(clean["event_time"]) // 1000 - BASE_MS) // 10_000
        values = np.log(clean[name].to_numpy())
        for rows in list(clean.groupby("source").indices.values())[:60]:
            series = np.full(2 * 8640, np.nan)
            series[tick[rows]] = values[rows] - values[rows].mean()
            pairs = series[6:] * series[:-6]
            found.append(np.nanmean(pairs) / np.nanvar(series))
        # whole numbers add a little white noise to air quality, at about 24 one of deviation 0.3
        assert np.mean(found) == pytest.approx(phi, abs=0.02)


def test_daily_cycle_follows_local_time(clean):
    singapore = clean[np.abs(clean["longitude"] - 103.82) < 1]
    local = (singapore["event_time"].dt.hour + 8) % 24
    by_hour = singapore.groupby(local)[["light", "temperature"]].mean()
    assert (by_hour["light"][[0, 3, 5, 18, 22]] == 0).all()
    assert by_hour["light"].idxmax() in range(9, 15)
    assert by_hour["temperature"].idxmax() in range(13, 18)


def test_places_have_their_climates(clean):
    place = {"Rio": (-43.2, 33.0), "Geneva": (6.15, 8.1), "Boston": (-71.1, 2.0), "Singapore": (103.82, 28.4)}
    for lon, mean in place.values():
        here = clean[np.abs(clean["longitude"] - lon) < 1]
        assert here["temperature"].mean() == pytest.approx(mean, abs=2.5)  # 24 sensors: offsets of up to 4.4


# -- dirt ------------------------------------------------------------------------------------------


def test_nulls_and_outliers(dirty):
    far = {
        "temperature": (-30, 49.95),
        "humidity": (0, 100),
        "light": (0, 9800),
        "dust": (-1, 10428),
        "airquality_raw": (0, 999),
    }
    for name in CITY.observed:
        # 12-bit draws: 41 / 4096 = 1.001 %; five standard errors at 2 M values are 0.04 %
        assert dirty[name].isna().mean() == pytest.approx(0.01, abs=0.0005)
        out = ~dirty[name].between(*far[name]) & dirty[name].notna()
        assert out.mean() == pytest.approx(0.01, abs=0.0006)
        low, high = CITY.bounds[name]
        assert (~dirty[name][out].between(low, high)).all()


def test_faults_of_dust_and_air_quality(dirty):
    # stuck for five minutes at a time: 180 * 576 draws, so that five standard errors are 0.2 %
    assert (dirty["dust"] == 0.62).mean() == pytest.approx(0.019, abs=0.003)
    assert (dirty["dust"] == -1).mean() == pytest.approx(0.001, abs=0.0002)
    spikes = dirty["airquality_raw"].between(100.5, 970)
    assert spikes.mean() == pytest.approx(0.021, abs=0.004)  # 2 %, and the log-normal's tail


@pytest.mark.long
def test_coordinates_are_swapped_for_some_sensors(dirty):
    where = []
    for dirt in (True, False):
        rows = table(CitySource(9000, format="wide", drop=0, dirt=dirt), 0, 9000).to_pandas()  # one of each sensor
        where.append(rows.set_index("source")[["longitude", "latitude"]])
    reported, true = where[0].align(where[1])
    swapped = (reported["longitude"] == true["latitude"]) & (reported["latitude"] == true["longitude"])
    assert swapped.mean() == pytest.approx(0.094, abs=0.001)
    wrong = (reported["longitude"] == -true["longitude"]) & (reported["latitude"] == true["latitude"])
    assert wrong.mean() == pytest.approx(0.017, abs=0.001)
    assert (swapped | wrong | (reported == true).all(axis=1)).all()
    fixed = dirty.groupby("source")[["longitude", "latitude"]].nunique()
    assert (fixed == 1).all().all()


def test_dirt_can_be_disabled(clean):
    assert clean[list(CITY.observed)].notna().all().all()
    assert np.abs(clean["latitude"]).max() < 60
    assert clean["dust"].min() > 0.62


# -- misuse ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"sensors": 0}, "sensors must be a whole number >= 1, got 0"),
        ({"drop": 1.0}, "drop must be"),
        ({"drop": -0.1}, "drop must be"),
        ({"format": "senmml"}, "format must be one of .*did you mean"),
        ({"messages": -1}, "messages must be"),
        ({"duration": "0s"}, "duration must be > 0"),
        ({"duration": 7}, "duration must be a timedelta or a text"),
        ({"duration": "1d", "messages": 5}, "together"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_misuse_is_refused(parameters, text):
    with pytest.raises(ConfigError, match=text):
        city(**parameters)


def test_endless_and_empty_streams():
    endless = city()
    assert not endless.finished({"message": 10**12})
    assert endless.latest({"message": 0})["message"] > 0
    assert endless.latest({"message": 5}, 7) == {"message": 12}
    empty = city(messages=0)
    assert empty.finished(empty.initial())
    assert empty.latest(empty.initial()) == empty.initial()
    assert empty.splits(empty.initial(), empty.initial(), 2) == []
    assert next(city().read({"start": 10**10, "end": 10**10 + 3})).num_rows == 3  # far into the stream


def test_means_of_sensors_have_the_moments_of_their_place():
    # at 3 to 9: temperature and humidity with their deviations, then logarithms of light, dust and air quality
    places = np.array([[0, 0, 0, 10.0, 4.0, 60.0, 10.0, 7.0, 1.0, 3.0]] * 2)
    places[1, 3] = 30.0
    means = np.zeros((20_000, 5))
    sensor_means(np.uint64(9), places, np.array([0, 1]), np.array([0.5, 0.2, 0.3]), np.zeros(5), means)
    # the variance between sensors is the total less that within a sensor (deviations of 2.3 °C and 7.7 %)
    spreads = [(4.0**2 - 2.3**2) ** 0.5, (10.0**2 - 7.7**2) ** 0.5, 0.5, 0.2, 0.3]
    for place, level in ((0, 10.0), (1, 30.0)):
        own = means[place::2]
        assert own.mean(axis=0) == pytest.approx([level, 60.0, 7.0, 1.0, 3.0], abs=0.35)
        assert own.std(axis=0) == pytest.approx(spreads, rel=0.05)
