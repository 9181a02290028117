"""The distribution of message rates of the generated streams over their seven days, as specified.

The figures are those at a thousand times the native pace, so that a second represents 1,000 s of event time.
"""

import numpy as np
import pytest

from riot_ops.streams.riotbench.city import BASE_MS as CITY_MS
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.streams.riotbench.taxi import BASE_MS as TAXI_MS
from riot_ops.streams.riotbench.taxi import TaxiSource
from tests.streams.records import micros, table

STEPS = 604  # whole ones in a week


def weekly(source, base_ms):
    """Messages in each 1,000 s of a week, counted by their positions; some are counted by reading them as well."""
    ends = [base_ms * 1000 + i * 1_000_000_000 for i in range(STEPS + 1)]
    edges = [0, *(source.until({"message": 0}, at - 1)["message"] for at in ends[1:])]
    for i in (0, 11, 75, 317, 603):
        times = micros(table(source, max(0, edges[i] - 50), edges[i + 1] + 50)["event_time"].to_pandas())
        inside = (times >= ends[i]) & (times < ends[i + 1])
        assert inside.sum() == edges[i + 1] - edges[i]
    return np.diff(edges).astype(float)


@pytest.mark.parametrize("seed", [0, 5])
def test_city_is_a_narrow_normal_distribution_about_6400(seed):
    rates = weekly(CitySource(90, seed=seed, format="wide"), CITY_MS)
    assert rates.mean() == pytest.approx(6400, abs=40)
    assert rates.std() == pytest.approx(200, rel=0.08)
    assert rates.sum() * 604.8 / STEPS == pytest.approx(3.87e6, rel=0.01)
    # cut at [5500, 7000]; a block of 4,096 expected messages may lie across two seconds
    assert rates.min() > 5450
    assert rates.max() < 7100
    share, _ = np.histogram(rates, [0, 6000, 6200, 6400, 6600, 6800, 9999])
    # of a normal distribution; the values of a week are correlated, so that shares vary
    assert share / STEPS == pytest.approx([0.023, 0.136, 0.341, 0.341, 0.136, 0.023], abs=0.06)
    x = rates - rates.mean()
    assert (x[1:] * x[:-1]).mean() / x.var() == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize("seed", [0, 5])
def test_taxi_has_modes_at_300_and_3200(seed):
    rates = weekly(TaxiSource(seed=seed, format="wide"), TAXI_MS)
    assert rates.mean() == pytest.approx(2620, rel=0.02)
    assert rates.sum() * 604.8 / STEPS == pytest.approx(1.6e6, rel=0.02)
    # times are whole minutes: a second holds 16 or 17 of 16.7
    assert 200 < rates.min() < 300
    assert 3700 < rates.max() < 4000 * 17 / 16.6
    night, day = rates[rates < 1750], rates[rates >= 1750]
    assert night.size / STEPS == pytest.approx(5 / 24, abs=0.01)  # 01-06 h
    assert np.median(night) == pytest.approx(300, rel=0.08)
    assert np.median(day) == pytest.approx(3200, rel=0.03)
    counts, edges = np.histogram(rates, np.arange(0, 4400, 200))
    assert edges[counts.argmax()] in (3000, 3200)
    assert edges[counts[:10].argmax()] == 200
    steady = rates[(rates > 2900) & (rates < 3500)]
    assert steady.std() / steady.mean() == pytest.approx(0.05, abs=0.015)


def test_other_numbers_of_sensors_scale_the_rates():
    few = weekly(CitySource(9, format="wide"), CITY_MS)
    assert few.mean() == pytest.approx(640, abs=5)
    assert few.std() < 80  # losses are exact in blocks of 4,096, here 4.5 seconds; outages of single sensors remain
    many = weekly(TaxiSource(40_710, format="wide"), TAXI_MS)
    assert many.mean() == pytest.approx(5240, rel=0.02)


def test_rate_without_losses_is_even():
    assert set(weekly(CitySource(90, drop=0, format="wide"), CITY_MS)) == {9000}


def test_share_of_losses_is_the_given_one():
    rates = weekly(CitySource(90, drop=0.9, format="wide"), CITY_MS)
    assert rates.mean() == pytest.approx(900, abs=5)
    assert rates.std() > 40


def test_second_week_equals_the_first():
    for source, base in ((CitySource(90), CITY_MS), (TaxiSource(), TAXI_MS)):
        week = 604_800_000_000
        first, second = (source.until({"message": 0}, base * 1000 + n * week - 1)["message"] for n in (1, 2))
        assert second == pytest.approx(2 * first, rel=1e-3)
