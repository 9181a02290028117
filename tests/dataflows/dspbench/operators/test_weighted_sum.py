"""Weighted sums by hand."""

from __future__ import annotations

import math

import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError


def test_weighted_sums():
    total = t.WeightedSum(weights={"a": 2, "b": -0.5}, output="total").session()
    assert [total.push({"a": a, "b": b})[0]["total"] for a, b in ((1.0, 4.0), (None, 1.0), (1e308, -1e308))] == [
        0.0,
        None,
        None,
    ]
    for wrong in ({}, {"a": "x"}, {"a": True}, {"a": math.inf}, ["a"]):
        with pytest.raises(ConfigError, match="weights"):
            t.WeightedSum(weights=wrong)
