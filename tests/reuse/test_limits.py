"""Limits of slow sinks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.reuse import Limits


@pytest.mark.parametrize("name", ["grace", "patience"])
@pytest.mark.parametrize("value", ["0s", timedelta(seconds=-1), 1, 1.0, True, "1", None])
def test_times_are_durations_above_0(name, value):
    with pytest.raises(ConfigError, match=f"{name}( must be|: '1' is not a duration)"):
        Limits(**{name: value})
    limits = Limits(**{name: "1min"})
    assert getattr(limits, f"{name}_seconds") == 60


@pytest.mark.parametrize("name", ["max_queue_bytes", "max_lag_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1"])
def test_limits_are_positive_and_finite(name, value):
    with pytest.raises(ConfigError, match=f"{name} must be .*, got '?{value}"):
        Limits(**{name: value})
    assert getattr(Limits(**{name: 1}), name) == 1
