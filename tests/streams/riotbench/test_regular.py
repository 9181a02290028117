"""Streams whose sensors report once per period: the order and the times of their messages."""

import numpy as np
import pytest

from riot_ops import streams
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
