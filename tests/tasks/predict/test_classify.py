"""Classification against scikit-learn, and by hand."""

import math

import numpy as np
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier

from riot_ops import ConfigError
from riot_ops.models import TreeModel
from riot_ops.tasks import Classify

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def grown():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3)).round(1)
    labels = np.array(["BAD", "GOOD", "VERYGOOD"])[rng.integers(0, 3, 600)]
    return DecisionTreeClassifier(random_state=0, min_samples_leaf=5).fit(x, labels), x


def test_equals_scikit_learn(grown):
    tree, x = grown
    model = TreeModel.from_sklearn(tree, NAMES, "quality").to_json()
    batch = pa.RecordBatch.from_pydict(dict(zip(NAMES, x.T, strict=True)))
    task = Classify(inputs=NAMES, model=model, probability=True, probabilities=True)
    out = task.session().push_batch(batch)
    assert out.column("class").to_pylist() == tree.predict(x).tolist()
    assert [tree.classes_[i] for i in out.column("class_index").to_pylist()] == tree.predict(x).tolist()
    np.testing.assert_array_equal(np.stack(out.column("class_probabilities").to_pylist()), tree.predict_proba(x))
    np.testing.assert_array_equal(np.asarray(out.column("class_probability")), tree.predict_proba(x).max(axis=1))


def test_indexes_of_configured_classes(grown):
    x = grown[1] + np.linspace(0, 0.01, 600)[:, None]  # no two rows alike: leaves of one class
    tree = DecisionTreeClassifier(random_state=0).fit(x, grown[0].predict(grown[1]))
    order = ("VERYGOOD", "GOOD", "unseen", "BAD")
    model = TreeModel.from_sklearn(tree, NAMES, "quality", classes=order).to_json()
    session = Classify(inputs=NAMES, model=model, classes=order, output="q").session()
    for row in x[:20]:
        out = session.push(dict(zip(NAMES, row, strict=True)))[0]
        assert out["q"] == tree.predict([row])[0] == order[out["q_index"]]


def test_missing_and_infinite_inputs():
    model = TreeModel(
        inputs=("x", "idle"),
        target="t",
        classes=("low", "high"),
        left=(1, -1, -1),
        right=(2, -1, -1),
        feature=(0, 0, 0),
        threshold=(1.0, 0.0, 0.0),
        value=((0.5, 0.5), (1.0, 0.0), (0.0, 1.0)),
    )
    session = Classify(inputs=("x", "idle"), model=model.to_json()).session()
    got = [session.push({"x": x, "idle": None})[0]["class"] for x in (1.0, 1.5, None, math.nan)]
    assert got == ["low", "high", None, None]
    assert session.push({"x": 1.0, "idle": math.inf}) == [] and session.errors[0]["reason"] == "not_finite"


def test_duplicate_class_is_refused():
    with pytest.raises(ConfigError, match="a class twice"):
        Classify(inputs=("x",), model="m", classes=("a", "a"))
