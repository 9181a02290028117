"""The TAXI generator: reproducible anywhere, with the marginals and identities of the sample."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import OBSERVATIONS, RAW, TAXI
from riot_ops.streams import taxi
from riot_ops.streams.riotbench.taxi import BASE_MS, TaxiSource, taxi_ids
from tests.search import depth
from tests.streams.records import check_any_split, micros, table


@pytest.fixture(scope="module")
def trips():
    """A week of 1,000 taxis."""
    return table(TaxiSource(1000, 78_700, format="wide")).to_pandas()


@pytest.fixture(scope="module")
def clean():
    return table(TaxiSource(1000, 78_700, format="wide", dirt=False)).to_pandas()


@pytest.mark.long
@settings(max_examples=depth(20), deadline=None)
@given(
    st.integers(1, 30_000),
    st.integers(0, 10**7),
    st.integers(1, 50),
    st.integers(1, 6),
    st.sampled_from(["senml", "csv", "observations", "wide"]),
    st.integers(0, 3),
)
def test_any_split_gives_the_same_records(taxis, start, n, parts, form, seed):
    check_any_split(TaxiSource(taxis, seed=seed, format=form), start, n, parts)


def test_text_equals_the_observations():
    n = 1000
    text = table(TaxiSource(200), 0, n)
    rows = table(TaxiSource(200, format="observations"), 0, n)
    wide = table(TaxiSource(200, format="wide"), 0, n).to_pylist()
    assert text.schema == RAW
    assert rows.schema == OBSERVATIONS
    rows = rows.to_pylist()
    for i, record in enumerate(text.to_pylist()):
        ms, _, body = record["payload"].partition(b",")
        message = json.loads(body)
        assert int(ms) == message["bt"] == record["event_time"].timestamp() * 1000
        fields = {e["n"]: (e["v"] if "v" in e else e["sv"]) for e in message["e"]}
        kinds = {e["n"]: "v" if "v" in e else "sv" for e in message["e"]}
        assert kinds == {c: k for c, k in zip(TAXI.columns, TAXI.kinds, strict=True) if c != "timestamp"}
        for sub, name in enumerate(TAXI.observed):
            value = float(fields[name]) if kinds[name] == "v" else None
            assert rows[10 * i + sub] == {
                "seq": i,
                "ordinal": sub,
                "event_time": record["event_time"],
                "sensor_id": fields["taxi_identifier"],
                "obs_type": name,
                "value": value,
            }
        for name, value in fields.items():
            assert wide[i][name] == (float(value) if kinds[name] == "v" else value)


def test_text_has_the_form_of_the_sample(sample_data):
    sample = (sample_data / "riotbench" / "TAXI_sample_data_senml.csv").read_text().splitlines()
    ours = [p.decode() for p in table(TaxiSource(), 0, 3000)["payload"].to_pylist()]
    keys = [[list(e) for e in json.loads(line.partition(",")[2])["e"]] for line in (sample[0], ours[0])]
    assert keys[0] == keys[1]
    assert np.mean([len(line) for line in ours]) == pytest.approx(np.mean([len(line) for line in sample]), abs=2)


@pytest.mark.long
def test_identities_of_taxis_and_drivers(trips, clean):
    parts = ("fare_amount", "surcharge", "mta_tax", "tip_amount", "tolls_amount")
    cents = sum(np.rint(100 * trips[p]) for p in parts)
    assert (cents == np.rint(100 * trips["total_amount"])).all()
    assert (trips["tip_amount"][trips["payment_type"] == "CSH"] == 0).all()
    assert (trips["trip_time_in_secs"] % 60 == 0).all()
    assert (2 * trips["fare_amount"] % 1 == 0).all()
    begin = clean["event_time"].dt.tz_localize(None) - np.array(clean["trip_time_in_secs"], "timedelta64[s]")
    assert (begin.dt.strftime("%Y-%m-%d %H:%M:%S") == clean["pickup_datetime"]).all()


def test_marginals_follow_the_table(trips):
    # 78,700 trips: statistical errors are below 1 %; the tolerances are for the model, which draws trips of all hours
    # where the sample holds one night
    time, distance = trips["trip_time_in_secs"], trips["trip_distance"]
    assert np.log(time[time > 0]).mean() == pytest.approx(6.33, abs=0.03)
    assert np.log(time[time > 0]).std() == pytest.approx(0.72, abs=0.03)
    assert np.log(distance[distance > 0]).mean() == pytest.approx(1.09, abs=0.03)
    assert np.log(distance[distance > 0]).std() == pytest.approx(0.97, abs=0.04)
    for name, mean, std in (
        ("trip_time_in_secs", 695.1, 465.6),
        ("trip_distance", 4.575, 4.587),
        ("fare_amount", 16.02, 13.58),
        ("tip_amount", 1.633, 2.666),
        ("tolls_amount", 0.382, 1.336),
        ("total_amount", 19.0, 15.95),
    ):
        assert trips[name].mean() == pytest.approx(mean, rel=0.15)
        assert trips[name].std() == pytest.approx(std, rel=0.22)
    assert trips["fare_amount"].min() == 2.5
    assert np.corrcoef(time, distance)[0, 1] == pytest.approx(0.88, abs=0.1)
    assert np.corrcoef(distance, trips["fare_amount"])[0, 1] > 0.85
    assert np.corrcoef(trips["fare_amount"], trips["tolls_amount"])[0, 1] == pytest.approx(0.43, abs=0.15)


def test_shares_follow_the_table(trips):
    # five standard errors of a share of 50 % at 78,700 are 0.8 %, of 2 % 0.22 %
    assert (trips["payment_type"] == "CRD").mean() == pytest.approx(0.489, abs=0.008)
    assert (trips["tip_amount"] == 0).mean() == pytest.approx(0.534, abs=0.008)
    assert (trips["tolls_amount"] == 0).mean() == pytest.approx(0.922, abs=0.006)
    assert (trips["fare_amount"] == 52).mean() == pytest.approx(0.045, abs=0.006)
    assert (trips["mta_tax"] == 0).mean() == pytest.approx(0.003, abs=0.001)
    zero_time, zero_distance = trips["trip_time_in_secs"] == 0, trips["trip_distance"] == 0
    assert zero_time.mean() == pytest.approx(0.012, abs=0.0018)
    assert zero_distance.mean() == pytest.approx(0.012, abs=0.0018)
    assert (zero_time | zero_distance).mean() == pytest.approx(0.015, abs=0.002)
    for end in ("pickup", "dropoff"):
        assert (trips[f"{end}_longitude"] == "0.000000").mean() == pytest.approx(0.02, abs=0.0022)
        assert (trips[f"{end}_latitude"] == "0.000000").mean() == pytest.approx(0.0185, abs=0.0022)
    card = trips[trips["payment_type"] == "CRD"]
    assert (card["tip_amount"] / card["fare_amount"]).median() == pytest.approx(0.205, abs=0.015)
    night = trips[trips["event_time"].dt.hour.isin([20, 21, 22, 23, 0, 1, 2, 3, 4, 5])]
    assert (night["surcharge"] == 0).mean() == pytest.approx(0.05, abs=0.012)  # the flat fares
    longitude, latitude = (trips[c].astype(float) for c in ("pickup_longitude", "pickup_latitude"))
    assert longitude[longitude < 0].median() == pytest.approx(-73.982, abs=0.01)
    assert latitude[latitude > 0].median() == pytest.approx(40.746, abs=0.01)


def test_rate_has_the_daily_profile(trips):
    per_hour = np.bincount(trips["event_time"].dt.hour, minlength=24) / 7
    per_hour /= 3.6 * 1000 / 20_355  # messages per second of the whole fleet, at 1000 times the pace
    np.testing.assert_allclose(per_hour[2:5], 300, rtol=0.06)
    np.testing.assert_allclose(per_hour[7:18], 3200, rtol=0.04)
    assert per_hour.argmax() in (19, 20)
    assert per_hour.max() == pytest.approx(3650, rel=0.03)
    assert per_hour[0] > per_hour[1] > per_hour[2]
    assert per_hour[4] < per_hour[5] < per_hour[6]


@pytest.mark.parametrize("taxis", [1, 9, 60, 1000])
def test_trips_of_a_taxi_do_not_overlap(taxis):
    rows = table(TaxiSource(taxis, messages=30 * taxis, format="wide", dirt=False)).to_pandas()
    times = micros(rows["event_time"])
    assert (np.diff(times) >= 0).all()
    assert rows["taxi_identifier"].nunique() == taxis
    for group in rows.groupby("taxi_identifier").indices.values():
        assert len(group) == 30
        begin = times[group] - rows["trip_time_in_secs"].to_numpy()[group] * 1e6
        assert (begin[1:] >= times[group][:-1]).all()
    assert rows["hack_license"].nunique() in range(taxis, 2 * taxis + 1)


def test_positions_in_time():
    source = TaxiSource(500, 100_000)
    times = table(source)["event_time"].cast("int64").to_numpy()
    assert 0 <= times[0] // 1000 - BASE_MS < 60_000
    for i in (0, 5, 7016, 7017, 99_999):
        assert source.time_at({"message": i}) == times[i]
        assert source.until({"message": 0}, int(times[i]))["message"] == np.searchsorted(times, times[i], "right")
    assert source.until({"message": 0}, 0)["message"] == 0
    assert source.until({"message": 50}, 0)["message"] == 50
    assert source.until({"message": 0}, int(times[-1]), 10)["message"] == 10


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="taxis must be a whole number >= 1, got 0"):
        taxi(taxis=0)


def test_ids_are_two_words_in_hexadecimal():
    ids = np.array([[1, 2, 0xABCDEF, 2**64 - 1]], np.uint64)
    out = np.zeros(64, np.uint8)
    taxi_ids(ids, 2, 2, out)
    assert out.tobytes().decode() == 2 * f"{0xABCDEF:016X}{2**64 - 1:016X}"
