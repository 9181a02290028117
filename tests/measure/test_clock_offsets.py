"""Bounds of clock differences, with hand-computed corrections."""

import numpy as np
import pytest

from riot_ops.measure.clock_offsets import ClockOffsets

NAN = float("nan")


@pytest.mark.parametrize(
    ("upper", "lower", "ahead"),
    [
        ([0.5, 0.1], [-0.2], 0.0),  # 0 is within the bounds
        ([5.0, 4.0], [2.0, 3.0], 3.0),  # fast by at least 3 s
        ([-2.0, -1.0], [-7.0], -2.0),  # slow by at least 2 s
        ([NAN, -1.0], [NAN], -1.0),
        ([], [], 0.0),
    ],
)
def test_correction_is_the_smallest_within_the_bounds(upper, lower, ahead):
    clocks = ClockOffsets()
    for bound in upper:
        clocks.at_most("host", np.array([bound]))
    for bound in lower:
        clocks.at_least("host", np.array([bound]))
    assert clocks.ahead("host") == ahead
    assert clocks.skew() == ({"host": ahead} if ahead else {})


def test_skew_names_only_machines_with_a_correction():
    clocks = ClockOffsets()
    clocks.at_least("fast", np.array([1.5]))
    clocks.at_most("right", np.array([0.5]))
    clocks.at_most("slow", np.array([-0.5]))
    assert clocks.skew() == {"fast": 1.5, "slow": -0.5}
    assert clocks.ahead("unknown") == 0
