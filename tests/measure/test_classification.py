"""Measures of a classifier, against scikit-learn."""

import math

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.measure.classification import judged

CLASSES = ("a", "b", "c", "d")


@pytest.mark.parametrize("seed", range(5))
def test_measures_equal_those_of_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    truth, found = rng.integers(0, 3, 50), rng.integers(0, 4, 50)  # no record is of class d
    result = judged(truth, found, CLASSES)
    assert result.confusion.tolist() == metrics.confusion_matrix(truth, found, labels=range(4)).tolist()
    assert result.accuracy == pytest.approx(metrics.accuracy_score(truth, found))
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(truth, found, labels=range(4), zero_division=0.0)
    for got, wanted in ((result.precision, precision), (result.recall, recall), (result.f1, f1)):
        assert list(got) == list(CLASSES)
        assert list(got.values()) == pytest.approx(wanted.tolist())


def test_measures_without_records():
    result = judged([], [], ("no", "yes"))
    assert math.isnan(result.accuracy)
    assert result.precision == result.recall == result.f1 == {"no": 0.0, "yes": 0.0}


@pytest.mark.parametrize(
    ("truth", "found", "text"),
    [([0, 1], [0], "as long as"), ([[0]], [[0]], "as long as"), ([2], [0], "truth must"), ([0], [-1], "found must"),
     ([0], [0.5], "found must")],
)  # fmt: skip
def test_invalid_indexes_are_refused(truth, found, text):
    with pytest.raises(ConfigError, match=text):
        judged(truth, found, ("no", "yes"))
