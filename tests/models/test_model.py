"""Models against scikit-learn, their JSON form, and what is not one."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from riot_ops import ConfigError, ModelError
from riot_ops.models import LinearModel, TreeModel, model_from_bytes
from riot_ops.testing.checks import uncompiled

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def grown(seed=0, n=400, k=4, classes=3, **options):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(n, k)) * 10.0 ** rng.integers(-3, 6, k), 2)
    y = rng.integers(0, classes, n)
    return DecisionTreeClassifier(random_state=seed, **options).fit(x, y), x


def linear(**changes):
    return LinearModel(**{"inputs": ("x", "ü"), "target": "y", "intercept": 0.5, "coefficients": (2.0, -1.0)} | changes)


def stump(**changes):
    fields = {
        "inputs": ("x",),
        "target": "y",
        "classes": ("a", "ü"),
        "left": (1, -1, -1),
        "right": (2, -1, -1),
        "feature": (0, 0, 0),
        "threshold": (0.5, 0.0, 0.0),
        "value": ((0.5, 0.5), (1.0, 0.0), (0.0, 1.0)),
    }
    return TreeModel(**fields | changes)


# -- predictions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"max_depth": 3}, {"max_leaf_nodes": 9}, {"criterion": "entropy", "min_samples_leaf": 20}]
)
@pytest.mark.parametrize("seed", range(4))
def test_trees_give_what_scikit_learn_gives(seed, options):
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
    model = TreeModel.from_sklearn(tree, "abcd", "class")
    rows = np.vstack([x, [[1e300, -1e300, 0.0, 1e-300], [math.nan] * 4]])
    wanted = model.leaves(rows)
    with uncompiled():
        np.testing.assert_array_equal(model.leaves(rows), wanted)
    assert wanted[-1] == -1


def test_class_indexes_follow_the_labels_given():
    tree, x = grown()
    own = TreeModel.from_sklearn(tree, "abcd", "class")
    assert own.classes == ("0", "1", "2")
    turned = TreeModel.from_sklearn(tree, "abcd", "class", classes=["2", "unseen", "1", "0"])
    assert [own.classes[i] for i in own.predict(x)] == [turned.classes[i] for i in turned.predict(x)]
    with pytest.raises(ModelError, match="classes that are not given"):
        TreeModel.from_sklearn(tree, "abcd", "class", classes=["0", "1"])


def test_the_form_of_leaves():
    """A leaf tests nothing: its feature and threshold are 0, whatever the library that grew it has there."""
    tree, _ = grown(max_depth=3)
    model = TreeModel.from_sklearn(tree, "abcd", "class")
    leaves = [i for i, child in enumerate(model.left) if child < 0]
    assert len(leaves) == tree.get_n_leaves()
    assert {(model.right[i], model.feature[i], model.threshold[i]) for i in leaves} == {(-1, 0, 0.0)}


def test_a_missing_input_matters_only_where_it_decides():
    model = stump(inputs=("x", "idle"))
    assert model.predict([[0.5, math.nan], [math.nan, 0.0]]).tolist() == [0, -1]


def test_shares_of_leaves_and_of_none():
    shares = stump().shares(np.array([0, 1, 2, -1]))
    np.testing.assert_array_equal(shares, [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [np.nan, np.nan]])


def test_the_most_names():
    many = tuple(map(str, range(10_000)))
    shares = ((0.0,) * 9999 + (1.0,),)
    leaf = {"left": (-1,), "right": (-1,), "feature": (0,), "threshold": (0.0,)}
    assert linear(inputs=many, coefficients=(1.0,) * 10_000).predict(np.ones((1, 10_000))) == 10_000.5
    assert stump(**leaf, classes=many, value=shares).predict([[0.0]]) == 9999
    with pytest.raises(ModelError, match="inputs must be 1 to 10000 different names, got 10001"):
        linear(inputs=(*many, "x"), coefficients=(1.0,) * 10_001)
    with pytest.raises(ModelError, match="classes must be 1 to 10000 different labels, got 10001"):
        stump(**leaf, classes=(*many, "x"), value=((0.0, *shares[0]),))


def test_models_of_nothing():
    with pytest.raises(ModelError, match="inputs must be 1 to 10000"):
        linear(inputs=(), coefficients=())
    with pytest.raises(ModelError, match="a tree has 1 to 1000000 nodes, got 0"):
        stump(left=(), right=(), feature=(), threshold=(), value=())
    with pytest.raises(ModelError, match="classes must be 1 to 10000"):
        stump(classes=(), value=((), (), ()))


def test_a_model_is_made_by_names_and_stays_as_it_is():
    with pytest.raises(TypeError, match="positional"):
        LinearModel(("x",), "y", intercept=0.5, coefficients=(1.0,))
    for model in (linear(), stump()):
        with pytest.raises(AttributeError, match="immutable"):
            model.target = "z"


@pytest.mark.parametrize("kind", [LinearRegression, Ridge])
def test_linear_models_give_what_scikit_learn_gives(kind):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    fitted = kind().fit(x, y)
    model = LinearModel.from_sklearn(fitted, "abc", "y", rows=50, end_ms=7)
    np.testing.assert_allclose(model.predict(x), fitted.predict(x), rtol=1e-12)
    assert (model.rows, model.end_ms, model.made_by.split()[0]) == (50, 7, "scikit-learn")


def test_no_rows_give_no_predictions():
    assert linear().predict(np.empty((0, 2))).shape == (0,)
    assert stump().predict(np.empty((0, 1))).shape == (0,)


def test_a_prediction_beyond_float64_is_missing():
    assert np.isnan(linear().predict([[1e308, -1e308], [5e307, 5e307]])).tolist() == [True, False]


@pytest.mark.parametrize(
    "wrong", [LinearRegression(), DecisionTreeRegressor(), DecisionTreeClassifier(), "model", None]
)
def test_what_is_not_fitted_is_refused(wrong):
    for kind in (LinearModel, TreeModel):
        with pytest.raises(ModelError, match="is not a fitted"):
            kind.from_sklearn(wrong, ["x"], "y")


def test_models_with_another_number_of_inputs_are_refused():
    tree, x = grown()
    with pytest.raises(ModelError, match="4 inputs"):
        TreeModel.from_sklearn(tree, "abc", "class")
    fitted = LinearRegression().fit(x, x[:, 0])
    with pytest.raises(ModelError, match="4 coefficients"):
        LinearModel.from_sklearn(fitted, "abc", "y")
    several = LinearRegression().fit(x[:, :1], x[:, :2])  # two targets of one input
    with pytest.raises(ModelError, match="2 coefficients and 2 intercepts, expected 2 and 1"):
        LinearModel.from_sklearn(several, "ab", "y")
    with pytest.raises(ModelError, match="rows of 2 inputs"):
        linear().predict([[1.0]])


# -- the JSON form ---------------------------------------------------------------------------------


@given(FINITE, st.lists(FINITE, min_size=1, max_size=5), st.dictionaries(st.text(max_size=5), FINITE, max_size=3))
def test_linear_models_come_back_from_json(intercept, coefficients, metrics):
    inputs = tuple(f"ü{i}" for i in range(len(coefficients)))
    model = linear(inputs=inputs, coefficients=tuple(coefficients), intercept=intercept, metrics=metrics, rows=3)
    assert LinearModel.from_bytes(model.to_bytes()) == model
    assert model_from_bytes(model.to_json()) == model
    assert json.loads(model.to_json())["kind"] == "MLR"


def test_the_json_form_is_documented_text():
    assert json.loads(stump(rows=2, start_ms=1, end_ms=5, metrics={"accuracy": 1.0}, made_by="me 1").to_json()) == {
        "kind": "DTC",
        "format": "riot_ops.model/1",
        "inputs": ["x"],
        "target": "y",
        "start_ms": 1,
        "end_ms": 5,
        "rows": 2,
        "metrics": {"accuracy": 1.0},
        "made_by": "me 1",
        "classes": ["a", "ü"],
        "left": [1, -1, -1],
        "right": [2, -1, -1],
        "feature": [0, 0, 0],
        "threshold": [0.5, 0.0, 0.0],
        "value": [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]],
    }


def broken():
    """Texts that are no model, each with a part of what is said about it."""
    linear_, tree = json.loads(linear().to_json()), json.loads(stump().to_json())
    yield b"", "damaged"
    yield b"\x80\x04\x95 pickle", "damaged"
    yield linear().to_bytes()[:-9], "damaged"
    yield b"[" * 100_000, "damaged"
    yield b"\xff\xfe", "damaged"
    yield b'"text"', "damaged"
    yield b"null", "damaged"
    changes = [
        (linear_, {"kind": "SVM"}, "SVM"),
        (linear_, {"kind": None}, "kind"),
        (linear_, {"format": "riot_ops.model/2"}, "riot_ops.model/2"),
        (linear_, {"more": 1}, "more"),
        (linear_, {"inputs": []}, "inputs"),
        (linear_, {"inputs": ["x", "x"]}, "different names"),
        (linear_, {"inputs": ["x", "y"]}, "among the inputs"),
        (linear_, {"coefficients": [1.0]}, "1 coefficients for 2 inputs"),
        (linear_, {"coefficients": [1.0, None]}, "null"),
        (linear_, {"coefficients": [1.0, "2"]}, "str"),
        (linear_, {"intercept": 10**400}, "range"),
        (linear_, {"rows": -1}, "rows = -1"),
        (linear_, {"start_ms": 9, "end_ms": 1}, "start_ms = 9"),
        (linear_, {"metrics": {"rmse": None}}, "metrics"),
        (tree, {"left": []}, "nodes"),
        (tree, {"left": [0, -1, -1]}, "children"),
        (tree, {"left": [1, 0, -1], "right": [2, 0, -1]}, "children"),
        (tree, {"right": [3, -1, -1]}, "children"),
        (tree, {"right": [-1, -1, -1]}, "children"),
        (tree, {"right": [2**70, -1, -1]}, "damaged"),
        (tree, {"feature": [1, 0, 0]}, "tests an input"),
        (tree, {"feature": [-2, 0, 0]}, "tests an input"),
        (tree, {"feature": [0, 0]}, "entries in feature"),
        (tree, {"threshold": [None, 0.0, 0.0]}, "null"),
        (tree, {"classes": []}, "classes"),
        (tree, {"classes": ["a", "a"]}, "classes"),
        (tree, {"classes": ["a"]}, "share"),
        (tree, {"value": [[0.5, 0.5], [2.0, -1.0], [0.0, 1.0]]}, ">= 0"),
        (tree, {"value": [[0.5, 0.5], [0.0, 0.0], [0.0, 1.0]]}, "sum to 1"),
        (tree, {"kind": "MLR"}, "damaged"),
    ]
    for base, change, text in changes:
        yield json.dumps(base | change).encode(), text
    for name in ("inputs", "target", "coefficients", "intercept"):
        yield json.dumps({k: v for k, v in linear_.items() if k != name}).encode(), name
    yield linear().to_bytes().replace(b"0.5", b"NaN"), "damaged"
    yield linear().to_bytes().replace(b"0.5", b"1e999"), "range"


@pytest.mark.parametrize(("data", "text"), list(broken()), ids=lambda v: str(v)[:60] if isinstance(v, str) else "")
def test_broken_models_are_refused_with_the_reason(data, text):
    with pytest.raises(ModelError, match=text) as caught:
        model_from_bytes(data, " m.model")
    assert "m.model" in str(caught.value)
    assert not isinstance(caught.value, ConfigError)


@given(st.data())
def test_any_damage_gives_a_model_or_a_model_error(data):
    text = bytearray(data.draw(st.sampled_from([linear().to_bytes(), stump().to_bytes()])))
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        model = model_from_bytes(bytes(text))
    except ModelError:
        return
    model.predict(np.zeros((2, len(model.inputs))))


def test_what_is_too_long_is_not_read(monkeypatch):
    monkeypatch.setattr("riot_ops.models.model.MAX_BYTES", 100)
    with pytest.raises(ModelError, match="allowed are 100"):
        model_from_bytes(stump().to_bytes())


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(ModelError, match="of kind MLR, expected DTC"):
        TreeModel.from_bytes(linear().to_bytes())


def test_models_are_immutable():
    with pytest.raises(AttributeError):
        linear().intercept = 1.0
    model = stump()
    model.predict([[1.0]])
    assert model == stump(), "what was used equals what was not"
