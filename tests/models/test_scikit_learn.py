"""A converted estimator predicts what scikit-learn predicts, or is refused by name."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import cross_decomposition, linear_model, svm
from sklearn.base import is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.utils import all_estimators

from riot_ops import ModelError
from riot_ops.models import LinearModel, NetworkModel, TreeModel

RNG = np.random.default_rng(3)
X = RNG.normal(size=(80, 3)) * [1.0, 50.0, 0.01]
Y = np.exp(X @ [0.5, 0.01, 3.0]) + 0.1


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


FAMILIES = ("linear_model", "svm", "tree", "neural_network", "discriminant_analysis", "cross_decomposition")


def estimators():
    """One estimator of each class of the families whose parameters look like those of our models."""
    for name, estimator in all_estimators(type_filter=["regressor", "classifier"]):
        if estimator.__module__.split(".")[1] in FAMILIES and not name.startswith("MultiTask"):
            options = {"n_components": 1} if "n_components" in estimator().get_params() else {}
            labels = Y if is_regressor(estimator()) else Y > 1
            # the former need other data, the latter are searches over the same estimators
            if name not in ("CCA", "PLSCanonical", "QuadraticDiscriminantAnalysis") and not name.endswith("CV"):
                yield pytest.param(name, estimator(**options), labels, id=name)


@pytest.mark.parametrize(("name", "estimator", "labels"), list(estimators()))
def test_no_estimator_is_converted_wrongly(name, estimator, labels):
    fitted = estimator.fit(X, labels)
    rows = RNG.normal(size=(50, 3)) * [1.0, 50.0, 0.01]
    for kind in (LinearModel, TreeModel, NetworkModel):
        try:
            model = kind.from_sklearn(fitted, "abc", "y")
        except ModelError as error:
            assert name in str(error)
            continue
        ours = model.predict(rows)
        if kind is not LinearModel:
            ours = np.array(model.classes)[ours]
            np.testing.assert_array_equal(ours, fitted.predict(rows).astype(str))
        else:
            np.testing.assert_allclose(ours, fitted.predict(rows).ravel(), rtol=1e-11)


@pytest.mark.parametrize(
    "estimator",
    [
        linear_model.PoissonRegressor(),
        linear_model.GammaRegressor(),
        linear_model.TweedieRegressor(power=1.5, link="log"),
        TransformedTargetRegressor(linear_model.LinearRegression(), func=np.log, inverse_func=np.exp),
        linear_model.LogisticRegression(),
        linear_model.RidgeClassifier(),
        linear_model.SGDClassifier(),
        linear_model.Perceptron(),
        svm.LinearSVC(),
    ],
)
def test_regressions_with_a_link_and_classifiers_are_refused(estimator):
    labels = Y > 1 if hasattr(estimator, "decision_function") else Y
    with pytest.raises(ModelError, match=type(estimator).__name__):
        LinearModel.from_sklearn(estimator.fit(X, labels), "abc", "y")


@pytest.mark.parametrize(
    "estimator",
    [
        linear_model.LinearRegression(fit_intercept=False),
        linear_model.Lasso(0.01),
        linear_model.ElasticNet(0.01),
        linear_model.HuberRegressor(),
        linear_model.SGDRegressor(max_iter=5),
        linear_model.TweedieRegressor(power=0),  # the identity link
        linear_model.BayesianRidge(),
        svm.LinearSVR(),
    ],
)
def test_straight_lines_are_converted(estimator):
    fitted = estimator.fit(X, Y)
    model = LinearModel.from_sklearn(fitted, "abc", "y")
    np.testing.assert_allclose(model.predict(X), fitted.predict(X), rtol=1e-11)


def test_sparse_coefficients_are_converted():
    fitted = linear_model.SGDRegressor(penalty="l1", max_iter=5).fit(X, Y).sparsify()
    np.testing.assert_allclose(LinearModel.from_sklearn(fitted, "abc", "y").predict(X), fitted.predict(X), rtol=1e-11)


def test_partial_least_squares_is_never_converted_wrongly():
    fitted = cross_decomposition.PLSRegression(2).fit(X, Y)
    with pytest.raises(ModelError, match="PLSRegression cannot be converted: its predict gives"):
        LinearModel.from_sklearn(fitted, "abc", "y")


def test_estimator_whose_predict_fails_is_refused():
    class Broken(linear_model.LinearRegression):
        def predict(self, x):
            raise ValueError("no")

    with pytest.raises(ModelError, match="Broken cannot be converted: predict fails: no"):
        LinearModel.from_sklearn(Broken().fit(X, Y), "abc", "y")


@pytest.mark.parametrize(
    ("kind", "estimator"),
    [
        (LinearModel, linear_model.LinearRegression()),
        (TreeModel, DecisionTreeClassifier()),
        (TreeModel, ExtraTreeClassifier()),
        (NetworkModel, MLPClassifier((2,), max_iter=2)),
    ],
)
def test_inputs_in_another_order_than_the_fitted_names_are_refused(kind, estimator):
    fitted = estimator.fit(pd.DataFrame(X, columns=list("abc")), Y if kind is LinearModel else Y > 1)
    assert kind.from_sklearn(fitted, "abc", "y").inputs == ("a", "b", "c")
    assert kind.from_sklearn(fitted, ("u", "v", "w"), "y").inputs == ("u", "v", "w")
    with pytest.raises(ModelError, match=r"was fitted with the inputs a, b, c in this order, got b, a, c"):
        kind.from_sklearn(fitted, "bac", "y")
