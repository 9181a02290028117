"""Streams whose sensors report once per period: the order and the times of their messages."""

import numpy as np
import pytest

from riot_ops import streams
from riot_ops.streams.riotbench.regular import NULL, numbered_ids, regular_slots, unscaled
from tests.streams.records import micros, table


@pytest.mark.parametrize(("build", "period_s"), [(streams.fit, 0.02), (streams.grid, 1800)])
def test_sensors_report_in_the_same_order_at_the_same_offsets_in_each_period(build, period_s):
    rows = table(build(9, messages=45, format="wide"))
    ids = np.array(rows.column(2).to_pylist()).reshape(5, 9)
    times = micros(rows["event_time"].to_pandas()).reshape(5, 9)
    assert len(set(ids[0])) == 9
    assert (ids == ids[0]).all()
    assert (np.diff(times, axis=0) == round(period_s * 1e6)).all()
    assert (np.diff(times[0]) >= 0).all() and times[0, -1] - times[0, 0] < period_s * 1e6


def test_slots_take_sensors_in_their_order_in_each_period():
    order, offsets = np.array([2, 0, 1]), np.array([5, 7, 9])
    sensor, tick, time = (np.zeros(7, np.int64) for _ in range(3))
    regular_slots(4, 1000, 100, order, offsets, sensor, tick, time)
    assert sensor.tolist() == [order[i % 3] for i in range(4, 11)]
    assert tick.tolist() == [i // 3 for i in range(4, 11)]
    assert time.tolist() == [1000 + i // 3 * 100 + offsets[i % 3] for i in range(4, 11)]


def test_ids_are_prefix_and_number_repeated():
    out, ends = np.zeros(64, np.uint8), np.zeros(7, np.int64)
    names, edges = np.frombuffer(b"st", np.uint8), np.array([0, 1, 2])
    end = int(numbered_ids(names, edges, np.array([0, 1, 0]), np.array([7, 12, 100]), 2, out, ends))
    assert out[:end].tobytes() == b"s7s7t12t12s100s100"
    assert ends.tolist() == [0, 2, 4, 7, 10, 14, 18]


def test_missing_values_are_nan():
    out = np.zeros((2, 2))
    unscaled(np.array([[15, 20], [NULL, -5]]), np.array([1, 0]), np.array([10.0, 100.0]), out)
    np.testing.assert_array_equal(out, [[0.2, 1.5], [-0.05, np.nan]])
