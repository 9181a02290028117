"""Linear regressions, against scikit-learn, and their JSON form."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge

from riot_ops import ModelError
from riot_ops.models import LinearModel, model_from_bytes
from tests.models.samples import linear

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("kind", [LinearRegression, Ridge])
def test_linear_models_equal_scikit_learn(kind):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    fitted = kind().fit(x, y)
    model = LinearModel.from_sklearn(fitted, "abc", "y", rows=50, end_ms=7)
    np.testing.assert_allclose(model.predict(x), fitted.predict(x), rtol=1e-12)
    assert (model.rows, model.end_ms, model.made_by.split()[0]) == (50, 7, "scikit-learn")


def test_overflowing_prediction_is_missing():
    assert np.isnan(linear().predict([[1e308, -1e308], [5e307, 5e307]])).tolist() == [True, False]


def test_regressions_with_another_number_of_inputs_are_refused():
    x = np.random.default_rng(0).normal(size=(400, 4))
    fitted = LinearRegression().fit(x, x[:, 0])
    with pytest.raises(ModelError, match="4 coefficients"):
        LinearModel.from_sklearn(fitted, "abc", "y")
    several = LinearRegression().fit(x[:, :1], x[:, :2])  # two targets of one input
    with pytest.raises(ModelError, match="2 coefficients and 2 intercepts, expected 2 and 1"):
        LinearModel.from_sklearn(several, "ab", "y")
    with pytest.raises(ModelError, match="rows of 2 inputs"):
        linear().predict([[1.0]])


@given(FINITE, st.lists(FINITE, min_size=1, max_size=5), st.dictionaries(st.text(max_size=5), FINITE, max_size=3))
def test_json_round_trip(intercept, coefficients, metrics):
    inputs = tuple(f"ü{i}" for i in range(len(coefficients)))
    model = linear(inputs=inputs, coefficients=tuple(coefficients), intercept=intercept, metrics=metrics, rows=3)
    assert LinearModel.from_bytes(model.to_bytes()) == model
    assert model_from_bytes(model.to_json()) == model
    assert json.loads(model.to_json())["kind"] == "MLR"
