"""The means of the sensors of CITY."""

import numpy as np
import pytest

from riot_ops.streams.riotbench.city_kernels import sensor_means


def test_means_of_sensors_have_the_moments_of_their_place():
    # at 3 to 9: temperature and humidity with their deviations, then logarithms of light, dust and air quality
    places = np.array([[0, 0, 0, 10.0, 4.0, 60.0, 10.0, 7.0, 1.0, 3.0]] * 2)
    places[1, 3] = 30.0
    means = np.zeros((20_000, 5))
    sensor_means(np.uint64(9), places, np.array([0, 1]), np.array([0.5, 0.2, 0.3]), np.zeros(5), means)
    # the deviation between sensors is what the one within a sensor (2.3 °C and 7.7 %) leaves of the whole
    spreads = [(4.0**2 - 2.3**2) ** 0.5, (10.0**2 - 7.7**2) ** 0.5, 0.5, 0.2, 0.3]
    for place, level in ((0, 10.0), (1, 30.0)):
        own = means[place::2]
        assert own.mean(axis=0) == pytest.approx([level, 60.0, 7.0, 1.0, 3.0], abs=0.35)
        assert own.std(axis=0) == pytest.approx(spreads, rel=0.05)
