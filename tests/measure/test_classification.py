"""Measures of a classifier, against scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.measure.classification import evaluate


@given(st.integers(2, 4).flatmap(lambda k: st.tuples(st.just(k), st.lists(st.tuples(*[st.integers(0, k - 1)] * 2)))))
def test_measures_equal_those_of_scikit_learn(case):
    metrics = pytest.importorskip("sklearn.metrics")
    k, pairs = case
    truth, found = ([pair[i] for pair in pairs] for i in (0, 1))
    report = evaluate(truth, found, [f"c{i}" for i in range(k)])
    if not pairs:
        assert math.isnan(report.accuracy) and set(report.f1.values()) == {0.0} and report.confusion.shape == (k, k)
        return
    labels = list(range(k))
    np.testing.assert_array_equal(report.confusion, metrics.confusion_matrix(truth, found, labels=labels))
    wanted = metrics.precision_recall_fscore_support(truth, found, labels=labels, zero_division=0)
    for got, expected in zip((report.precision, report.recall, report.f1), wanted, strict=False):
        assert list(got) == [f"c{i}" for i in labels]
        assert list(got.values()) == pytest.approx(expected.tolist())
    assert report.accuracy == pytest.approx(metrics.accuracy_score(truth, found))


def test_measures_without_records():
    report = evaluate([], [], ("no", "yes"))
    assert math.isnan(report.accuracy)
    assert report.precision == report.recall == report.f1 == {"no": 0.0, "yes": 0.0}


@pytest.mark.parametrize(
    ("truth", "found", "text"),
    [
        ([0], [0, 1], "as long as each other"),
        ([[0]], [[0]], "as long as each other"),
        ([0, 2], [0, 1], "truth must be indexes of the 2 classes no, yes"),
        ([0.5], [1], "truth must be indexes"),
        ([0, 1], [-1, 1], "found must be indexes"),
        ([0], [0.5], "found must be indexes"),
    ],
)
def test_invalid_indexes_are_refused(truth, found, text):
    with pytest.raises(ConfigError, match=text):
        evaluate(truth, found, ("no", "yes"))
