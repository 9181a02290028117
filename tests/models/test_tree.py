"""Decision trees, against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from riot_ops import ModelError
from riot_ops.models import TreeModel
from riot_ops.testing.checks import uncompiled
from tests.models.samples import stump


def grown(seed=0, n=400, k=4, classes=3, **options):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(n, k)) * 10.0 ** rng.integers(-3, 6, k), 2)
    y = rng.integers(0, classes, n)
    return DecisionTreeClassifier(random_state=seed, **options).fit(x, y), x


@pytest.mark.parametrize(
    "options", [{}, {"max_depth": 3}, {"max_leaf_nodes": 9}, {"criterion": "entropy", "min_samples_leaf": 20}]
)
@pytest.mark.parametrize("seed", range(4))
def test_trees_equal_scikit_learn(seed, options):
    tree, x = grown(seed, **options)
    names = [f"f{i}" for i in range(x.shape[1])]
    model = TreeModel.from_bytes(TreeModel.from_sklearn(tree, names, "class").to_bytes())
    rng = np.random.default_rng(seed)
    inner = tree.tree_.feature >= 0
    near = rng.choice(x, 2000)  # on, just below and just above a threshold
    for row, node in zip(near, rng.choice(np.flatnonzero(inner), 2000), strict=True):
        threshold = tree.tree_.threshold[node]
        row[tree.tree_.feature[node]] = rng.choice(
            [threshold, np.nextafter(threshold, -np.inf), np.nextafter(threshold, np.inf), np.float32(threshold)]
        )
    for rows in (x, near, rng.normal(size=(3000, x.shape[1])) * 1e6):
        np.testing.assert_array_equal(model.leaves(rows), tree.apply(rows))
        np.testing.assert_array_equal(model.predict(rows), tree.predict(rows))
        np.testing.assert_array_equal(model.shares(model.leaves(rows)), tree.predict_proba(rows))


def test_interpreted_and_compiled_trees_agree():
    tree, x = grown()
    rows = np.vstack([x, [[1e300, -1e300, 0.0, 1e-300], [math.nan] * 4]])
    for missing in ("null", "route"):
        model = TreeModel.from_sklearn(tree, "abcd", "class", missing=missing)
        wanted = model.leaves(rows)
        with uncompiled():
            np.testing.assert_array_equal(model.leaves(rows), wanted)
        assert (wanted[-1] == -1) == (missing == "null")


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_missing_inputs_go_where_scikit_learn_sends_them(seed, share):
    """Also in trees that saw no missing input, where NaN follows the larger child."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(400, 4)), rng.integers(0, 3, 400)
    holes = rng.random((2000, 4)) < 0.4
    x[holes[:400] & (rng.random((400, 4)) < share)] = np.nan
    tree = DecisionTreeClassifier(random_state=seed, max_depth=7).fit(x, y)
    rows = np.where(holes, np.nan, rng.normal(size=(2000, 4)))
    model = TreeModel.from_bytes(TreeModel.from_sklearn(tree, "abcd", "class").to_bytes())
    np.testing.assert_array_equal(model.leaves(rows), tree.apply(rows))
    np.testing.assert_array_equal(model.predict(rows), tree.predict(rows))
    without = TreeModel.from_sklearn(tree, "abcd", "class", missing="null")
    known = ~np.isnan(rows).any(axis=1)
    np.testing.assert_array_equal(without.predict(rows[known]), tree.predict(rows[known]))
    assert (without.predict(rows[np.isnan(rows).all(axis=1)]) == -1).all() and without.missing == ()


def test_missing_inputs_lead_to_children_only():
    assert stump(missing=(2, -1, -1)).predict([[math.nan], [0.0]]).tolist() == [1, 0]
    for wrong in ((0, -1, -1), (2, 2, -1), (-2, -1, -1)):
        with pytest.raises(ModelError, match="a missing input leads to a node that is not a child"):
            stump(missing=wrong)
    with pytest.raises(ModelError, match="3 nodes but 1 entries in missing"):
        stump(missing=(1,))
    with pytest.raises(ModelError, match="missing must be 'route' or 'null', got 'left'"):
        TreeModel.from_sklearn(grown()[0], "abcd", "class", missing="left")


def test_class_indexes_follow_the_given_labels():
    tree, x = grown()
    own = TreeModel.from_sklearn(tree, "abcd", "class")
    assert own.classes == ("0", "1", "2")
    turned = TreeModel.from_sklearn(tree, "abcd", "class", classes=["2", "unseen", "1", "0"])
    assert [own.classes[i] for i in own.predict(x)] == [turned.classes[i] for i in turned.predict(x)]
    with pytest.raises(ModelError, match="classes that are not given"):
        TreeModel.from_sklearn(tree, "abcd", "class", classes=["0", "1"])


def test_leaves_have_no_feature_and_threshold():
    """A leaf tests no input: its feature and threshold are 0, unlike those of scikit-learn."""
    tree, _ = grown(max_depth=3)
    model = TreeModel.from_sklearn(tree, "abcd", "class")
    leaves = [i for i, child in enumerate(model.left) if child < 0]
    assert len(leaves) == tree.get_n_leaves()
    assert {(model.right[i], model.feature[i], model.threshold[i]) for i in leaves} == {(-1, 0, 0.0)}


def test_missing_input_matters_only_if_it_decides():
    model = stump(inputs=("x", "idle"))
    assert model.predict([[0.5, math.nan], [math.nan, 0.0]]).tolist() == [0, -1]


def test_shares_of_leaves_and_of_no_leaf():
    shares = stump().shares(np.array([0, 1, 2, -1]))
    np.testing.assert_array_equal(shares, [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [np.nan, np.nan]])


def test_trees_with_another_number_of_inputs_are_refused():
    tree, _ = grown()
    with pytest.raises(ModelError, match="4 inputs"):
        TreeModel.from_sklearn(tree, "abc", "class")
