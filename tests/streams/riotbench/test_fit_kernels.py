"""The activities of FIT."""

import numpy as np
import pytest

from riot_ops.streams.riotbench.fit_kernels import activity_of


def test_activities_are_uniform_and_last_a_minute_on_average():
    ticks = range(0, 50 * 60 * 4000, 25)  # 4,000 minutes, every half second
    found = np.array([activity_of(np.uint64(3), tick) for tick in ticks])
    shares = np.bincount(found, minlength=13) / found.size
    assert shares == pytest.approx([1 / 13] * 13, abs=0.02)
    changes = np.count_nonzero(np.diff(found))
    assert 4000 / changes == pytest.approx(1, rel=0.08)
