"""Kernels of streams whose sensors report once per period, against plain Python."""

import numpy as np

from riot_ops.streams.riotbench.regular_kernels import NULL, numbered_ids, regular_slots, unscaled


def test_slots_take_sensors_in_their_order_in_each_period():
    order, offsets = np.array([2, 0, 1]), np.array([5, 7, 9])
    sensor, tick, time = (np.zeros(7, np.int64) for _ in range(3))
    regular_slots(4, 1000, 100, order, offsets, sensor, tick, time)
    assert sensor.tolist() == [order[i % 3] for i in range(4, 11)]
    assert tick.tolist() == [i // 3 for i in range(4, 11)]
    assert time.tolist() == [1000 + i // 3 * 100 + offsets[i % 3] for i in range(4, 11)]


def test_ids_are_prefix_and_number_repeated():
    out, ends = np.zeros(64, np.uint8), np.zeros(7, np.int64)
    end = int(numbered_ids(np.frombuffer(b"s", np.uint8), np.array([7, 12, 100]), 2, out, ends))
    assert out[:end].tobytes() == b"s7s7s12s12s100s100"
    assert ends.tolist() == [0, 2, 4, 7, 10, 14, 18]


def test_missing_values_are_nan():
    out = np.zeros((2, 2))
    unscaled(np.array([[15, 20], [NULL, -5]]), np.array([1, 0]), np.array([10.0, 100.0]), out)
    np.testing.assert_array_equal(out, [[0.2, 1.5], [-0.05, np.nan]])
