"""Training of decision trees, against scikit-learn and by hand."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier

from riot_ops import ConfigError
from riot_ops.models import TreeModel
from riot_ops.tasks import TrainDecisionTree
from tests.tasks.predict.training_records import records


def test_trees_equal_scikit_learn():
    rows = [{**r, "target": "high" if r["x"] + r["y"] > 4 else "low"} for r in records(40, seed=3)]
    task = TrainDecisionTree(inputs=("x", "y"), size=20, classes=("low", "ü", "high"), seed=7)
    out = task.session().push_many(rows)
    assert [r["kind"] for r in out] == ["DTC", "DTC"]
    for i, row in enumerate(out):
        part = rows[20 * i : 20 * i + 20]
        x = np.array([(r["x"], r["y"]) for r in part])
        theirs = DecisionTreeClassifier(criterion="entropy", min_samples_leaf=2, random_state=7)
        theirs.fit(x, [r["target"] for r in part])
        model = TreeModel.from_bytes(row["content"])
        assert [model.classes[c] for c in model.predict(x)] == theirs.predict(x).tolist()
        np.testing.assert_array_equal(model.leaves(x), theirs.apply(x))


@pytest.mark.parametrize(
    ("options", "leaves"),
    [
        ({"min_samples_leaf": 1}, 4),  # low · high · low · high
        ({}, 2),  # the single records in the middle cannot be leaves
        ({"min_samples_leaf": 3}, 1),
        ({"min_samples_leaf": 1, "ccp_alpha": 10.0}, 1),
        ({"min_samples_leaf": 1, "max_depth": 1}, 2),
    ],
)
def test_options_of_trees_by_hand(options, leaves):
    levels = ["low", "low", "high", "low", "high"]
    rows = [{"event_time": i, "x": float(i), "target": level} for i, level in enumerate(levels)]
    (row,) = TrainDecisionTree(inputs=("x",), size=5, **options).session().push_many(rows)
    assert json.loads(row["metrics"])["leaves"] == leaves
    assert np.unique(TreeModel.from_bytes(row["content"]).leaves(np.arange(5.0)[:, None])).size == leaves


def test_numeric_classes_become_text():
    rows = [{"event_time": 5, "x": float(i), "target": float(i > 3)} for i in range(8)]
    out = TrainDecisionTree(inputs=("x",), size=8).session().push_many(rows)
    assert TreeModel.from_bytes(out[0]["content"]).classes == ("0", "1")


def test_unknown_classes_are_rejected_one_by_one():
    session = TrainDecisionTree(inputs=("x",), size=2, classes=("a", "b")).session()
    rows = [{"event_time": i, "x": float(i), "target": label} for i, label in enumerate(["a", "c", None, "b"])]
    assert len(session.push_many(rows)) == 1
    assert [e["reason"] for e in session.errors] == ["unknown_class", "missing_value"]
    sets = TrainDecisionTree(inputs=("x",), size=None, classes=("a", "b")).session()
    sets.push({"event_time": 1, "x": [1.0, 2.0], "target": ["a", "c"]})
    assert [e["reason"] for e in sets.errors] == ["untrainable"]


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"classes": ("a", "a")}, {"criterion": "log"}, {"max_depth": 0}])
def test_wrong_parameters_of_trees_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        TrainDecisionTree(inputs=("x",), **wrong)


def test_labels_of_single_records_are_scalars():
    schema = pa.schema({"event_time": pa.int64(), "x": pa.float64(), "target": pa.list_(pa.string())}.items())
    with pytest.raises(ConfigError, match=r"a value in the field 'target', got list<.*>; size=None takes lists"):
        TrainDecisionTree(inputs=("x",), size=9).output_schema(schema)
