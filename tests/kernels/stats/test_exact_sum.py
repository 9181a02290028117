"""Exact sums, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.kernels.stats.exact_sum import DIGITS, add_exactly, round_sum

finite = st.floats(allow_nan=False, allow_infinity=False)
near = st.sampled_from(
    [1.0, -1.0, 2.0**53, 2.0**-53, -(2.0**-53), 5e-324, -5e-324, 2.0**-1022, 1e16, -1e16, 0.1, 1e-300]
)


def total(values):
    digits, room = np.zeros(DIGITS, np.int64), np.empty(DIGITS, np.int64)
    for value in values:
        add_exactly(digits, value)
    return digits, round_sum(digits, room)


@given(st.lists(st.one_of(finite, near, st.floats(-1e3, 1e3)), max_size=30), st.randoms())
def test_sum_equals_fractions_in_any_order(values, random):
    digits, found = total(values)
    exact = sum(map(Fraction, values), Fraction(0))
    assert sum(int(d) << (32 * k) for k, d in enumerate(digits)) == exact * 2**1074
    try:
        wanted = float(exact)
    except OverflowError:
        assert math.isnan(found)
    else:
        assert found == wanted
        assert not any(map(math.isinf, values))
    random.shuffle(values)
    assert (total(values)[0] == digits).all()


def test_ties_round_to_even():
    one = 2.0**53
    assert total([one, 1.0])[1] == one
    assert total([one, 1.0, 2.0**-600])[1] == one + 2
    assert total([one + 2, 1.0])[1] == one + 4
    assert total([-one, -1.0, -(2.0**-1074)])[1] == -one - 2
    assert total([np.finfo(float).max, 2.0**969])[1] == np.finfo(float).max
    assert math.isnan(total([np.finfo(float).max, 2.0**970])[1])
    assert total([1.0, -1.0])[1] == 0.0
    assert total([])[1] == 0.0
