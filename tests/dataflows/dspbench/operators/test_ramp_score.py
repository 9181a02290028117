"""Ramp scores by hand."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "row", "wanted"),
    [
        ({}, {"value": 0.25}, 0.25),
        ({}, {"value": -3.0}, 0.0),
        ({}, {"value": 3.0}, 1.0),
        ({"low": 2, "high": 10}, {"value": 4.0}, 0.25),
        ({"low": 2, "high": 10, "falling": True}, {"value": 4.0}, 0.75),
        ({"over": "a", "high": 10}, {"value": 6.0, "a": 2.0}, 0.3),
        ({"over": ("a", "b"), "high": 10}, {"value": 6.0, "a": 2.0, "b": 3.0}, 0.1),
        ({"over": ("a", "b"), "undefined": 0.5}, {"value": 6.0, "a": 2.0, "b": 0.0}, 0.5),
        ({"over": "a", "undefined": 0.5}, {"value": 0.0, "a": 0.0}, 0.5),
        ({"over": "a"}, {"value": 1.0, "a": None}, None),
        ({"value": "x", "output": "x"}, {"x": float("nan")}, None),
        ({"value": "x", "output": "x"}, {"x": 0.5}, 0.5),
    ],
)
def test_scores_follow_the_ramp(options, row, wanted):
    out = t.RampScore(**options).session().push(row)[0][options.get("output", "score")]
    assert out == (None if wanted is None else pytest.approx(wanted))


def test_invalid_ramp_is_refused():
    for wrong, text in (
        ({"low": 1.0}, "low must be below high, .* got 1.0 and 1.0"),
        ({"low": -1e308, "high": 1e308}, "their difference finite, got -1e[+]308 and 1e[+]308"),
        ({"undefined": 2.0}, "undefined .* got 2.0"),
        ({"undefined": -0.1}, "undefined .* got -0.1"),
        ({"high": math.inf}, "high"),
    ):
        with pytest.raises(ConfigError, match=text):
            t.RampScore(**wrong)
    for fields in ({"x": pa.float64()}, {"x": pa.float64(), "a": pa.string()}):
        with pytest.raises(ConfigError, match="'a'"):
            t.RampScore(value="x", over="a").output_schema(pa.schema(fields))
