"""Limits of slow sinks."""

from __future__ import annotations

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.reuse import Limits


@pytest.mark.parametrize("name", ["grace_s", "patience_s", "queue_bytes", "max_lag_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1"])
def test_limits_are_positive_and_finite(name, value):
    with pytest.raises(ConfigError, match=f"{name} must be .*, got '?{value}"):
        Limits(**{name: value})
    assert getattr(Limits(**{name: 1}), name) == 1
