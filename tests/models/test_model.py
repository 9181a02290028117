"""What all models have in common: fields, limits, the JSON form, immutability."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from riot_ops import ModelError
from riot_ops.models import LinearModel, TreeModel, model_from_bytes
from tests.models.samples import linear, stump


def test_maximum_number_of_inputs_and_classes():
    many = tuple(map(str, range(10_000)))
    shares = ((0.0,) * 9999 + (1.0,),)
    leaf = {"left": (-1,), "right": (-1,), "feature": (0,), "threshold": (0.0,)}
    assert linear(inputs=many, coefficients=(1.0,) * 10_000).predict(np.ones((1, 10_000))) == 10_000.5
    assert stump(**leaf, classes=many, value=shares).predict([[0.0]]) == 9999
    with pytest.raises(ModelError, match="inputs must be 1 to 10000 different names, got 10001"):
        linear(inputs=(*many, "x"), coefficients=(1.0,) * 10_001)
    with pytest.raises(ModelError, match="classes must be 1 to 10000 different labels, got 10001"):
        stump(**leaf, classes=(*many, "x"), value=((0.0, *shares[0]),))


def test_empty_models_are_refused():
    with pytest.raises(ModelError, match="inputs must be 1 to 10000"):
        linear(inputs=(), coefficients=())
    with pytest.raises(ModelError, match="a tree has 1 to 1000000 nodes, got 0"):
        stump(left=(), right=(), feature=(), threshold=(), value=())
    with pytest.raises(ModelError, match="classes must be 1 to 10000"):
        stump(classes=(), value=((), (), ()))


def test_fields_are_keyword_only_and_immutable():
    with pytest.raises(TypeError, match="positional"):
        LinearModel(("x",), "y", intercept=0.5, coefficients=(1.0,))
    for model in (linear(), stump()):
        with pytest.raises(AttributeError, match="immutable"):
            model.target = "z"


def test_no_rows_give_no_predictions():
    assert linear().predict(np.empty((0, 2))).shape == (0,)
    assert stump().predict(np.empty((0, 1))).shape == (0,)


@pytest.mark.parametrize(
    "wrong", [LinearRegression(), DecisionTreeRegressor(), DecisionTreeClassifier(), "model", None]
)
def test_unfitted_estimators_are_refused(wrong):
    for kind in (LinearModel, TreeModel):
        with pytest.raises(ModelError, match="is not a fitted"):
            kind.from_sklearn(wrong, ["x"], "y")


def test_json_form_is_as_documented():
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
        "missing": [],
    }


def test_oversized_json_is_refused(monkeypatch):
    monkeypatch.setattr("riot_ops.models.model.MAX_BYTES", 100)
    with pytest.raises(ModelError, match="more than the allowed 100"):
        model_from_bytes(stump().to_bytes())


def test_model_of_another_kind_is_refused():
    with pytest.raises(ModelError, match="of kind MLR, expected DTC"):
        TreeModel.from_bytes(linear().to_bytes())


def test_cached_values_do_not_affect_equality():
    with pytest.raises(AttributeError):
        linear().intercept = 1.0
    model = stump()
    model.predict([[1.0]])
    assert model == stump(), "a model that was used equals one that was not"
