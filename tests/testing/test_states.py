"""Kept states of tasks, for later releases to load."""

import pytest

from riot_ops import tasks as t
from riot_ops.testing import check_kept_state, keep_state


@pytest.mark.parametrize("kind", [t.KalmanFilter, t.MovingAverage, t.RunningTotals])
def test_kept_state_continues_with_the_same_output(kind):
    for case in kind.cases():
        check_kept_state(keep_state(case))
