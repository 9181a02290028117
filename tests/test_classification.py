"""How right a classifier is, against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from riot_ops.core.errors import ConfigError
from riot_ops.measure.classification import judged


@given(st.integers(2, 4).flatmap(lambda k: st.tuples(st.just(k), st.lists(st.tuples(*[st.integers(0, k - 1)] * 2)))))
def test_figures_are_those_of_scikit_learn(case):
    k, pairs = case
    truth, found = ([pair[i] for pair in pairs] for i in (0, 1))
    one = judged(truth, found, [f"c{i}" for i in range(k)])
    if not pairs:
        assert math.isnan(one.accuracy) and set(one.f1.values()) == {0.0} and one.confusion.shape == (k, k)
        return
    labels = list(range(k))
    np.testing.assert_array_equal(one.confusion, confusion_matrix(truth, found, labels=labels))
    wanted = precision_recall_fscore_support(truth, found, labels=labels, zero_division=0)
    for mine, theirs in zip((one.precision, one.recall, one.f1), wanted, strict=False):
        assert list(mine.values()) == pytest.approx(theirs.tolist())
    assert one.accuracy == pytest.approx(np.mean(np.array(truth) == np.array(found)))


@pytest.mark.parametrize(
    ("truth", "found", "message"),
    [
        ([0], [0, 1], "as long as each other"),
        ([0, 2], [0, 1], "truth must be indexes of the 2 classes a, b"),
        ([0, 1], [-1, 1], "found must be indexes"),
        ([0.5], [1], "truth must be indexes"),
    ],
)
def test_misuse(truth, found, message):
    with pytest.raises(ConfigError, match=message):
        judged(truth, found, ("a", "b"))
