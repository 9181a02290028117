"""Ratios, against Python's division."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

numbers = st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1e-300]) | st.floats(-1e300, 1e300)


@given(st.lists(st.tuples(numbers, numbers), max_size=12))
def test_ratios_equal_python(pairs):
    session = t.Ratio(numerator="a", denominator="b", output="r").session()
    made, errors = [row["r"] for a, b in pairs for row in session.push({"a": a, "b": b})], session.errors
    wanted, reasons = [], []
    for a, b in pairs:
        if a is None or b is None or math.isnan(a) or math.isnan(b):
            wanted.append(None)
        elif a == 0:
            wanted.append(0.0)
        elif b == 0:
            reasons.append("zero_denominator")
        elif math.isfinite(a / b):
            wanted.append(a / b)
        else:
            reasons.append("not_finite")
    assert made == wanted
    assert [e["reason"] for e in errors] == reasons


def test_division_by_zero():
    session = t.Ratio(numerator="a", denominator="b", output="r", undefined=-1.0).session()
    pairs = [(2.0, 0.0), (0.0, 0.0), (None, 0.0), (3.0, 2.0)]
    assert [session.push({"a": a, "b": b})[0]["r"] for a, b in pairs] == [-1.0, 0.0, None, 1.5]
    assert session.errors == []


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match="undefined = inf: must be finite"):
        t.Ratio(numerator="a", denominator="b", output="r", undefined=math.inf)
    with pytest.raises(ConfigError, match="output"):
        t.Ratio(numerator="a", denominator="b", output="seq")
    with pytest.raises(ConfigError, match="'b'"):
        t.Ratio(numerator="a", denominator="b", output="r").output_schema(pa.schema({"a": pa.float64()}))
