"""Training, against scikit-learn, exact arithmetic, and published results of the sample data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from riot_ops import ModelError
from riot_ops.models import fit_linear, fit_network, fit_tree
from riot_ops.testing.checks import uncompiled
from tests.reference.linear_regression import least_squares, predict
from tests.samples import MADE, expected


def drawn(seed, n=200, k=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k)) * 10.0 ** rng.integers(-6, 7, k) + 10.0 ** rng.integers(-3, 5, k)
    return x, x @ (rng.normal(size=k) / x.std(axis=0)) + rng.normal(size=n)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_least_squares_equals_scikit_learn(seed):
    x, y = drawn(seed)
    x = StandardScaler().fit_transform(x) * 3 + 1  # with very different scales, scikit-learn drops inputs
    model, theirs = fit_linear(x, y, "abc", "y"), LinearRegression().fit(x, y)
    np.testing.assert_allclose(model.coefficients, theirs.coef_, rtol=1e-7)
    np.testing.assert_allclose(model.predict(x), theirs.predict(x), rtol=1e-7, atol=1e-9)
    assert model.metrics["r2"] == pytest.approx(theirs.score(x, y))
    assert model.metrics["rmse"] == pytest.approx(math.sqrt(np.mean((y - theirs.predict(x)) ** 2)))


@pytest.mark.parametrize("alpha", [1e-8, 0.5, 300.0])
def test_ridge_equals_scikit_learn_on_scaled_inputs(alpha):
    x, y = drawn(9)
    scaler = StandardScaler().fit(x)
    # fit_linear scales the target as well, which makes no difference
    theirs = Ridge(alpha=alpha, solver="svd").fit(scaler.transform(x), y)
    model = fit_linear(x, y, "abc", "y", alpha=alpha)
    np.testing.assert_allclose(model.predict(x), theirs.predict(scaler.transform(x)), rtol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_least_squares_equals_exact_arithmetic_for_inputs_of_any_size(seed):
    x, y = drawn(seed, n=30)
    model = fit_linear(x, y, "abc", "y", alpha=0.0)
    wanted = least_squares(x.tolist(), y.tolist())
    assert [model.intercept, *model.coefficients] == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(model.predict(x), [predict(wanted, row) for row in x.tolist()], rtol=1e-8, atol=1e-8)


def test_interpreted_and_compiled_training_agree():
    x, y = drawn(3)
    wanted = fit_linear(x, y, "abc", "y")
    with uncompiled():
        assert fit_linear(x, y, "abc", "y") == wanted


def test_dependent_inputs_need_a_ridge():
    x = np.column_stack([np.arange(9.0), 2 * np.arange(9.0), np.full(9, 7.5)])
    y = 3 * np.arange(9.0) + 1
    model = fit_linear(x, y, "abc", "y")
    np.testing.assert_allclose(model.predict(x), y, atol=1e-6)
    assert model.coefficients[2] == 0.0, "a constant input has no weight"
    with pytest.raises(ModelError, match="depend on each other"):
        fit_linear(x, y, "abc", "y", alpha=0.0)


@pytest.mark.parametrize("size", [1e-300, 1e150, 1e300])
def test_huge_and_tiny_numbers_do_not_overflow(size):
    model = fit_linear(np.array([[1.0], [2.0], [4.0]]) * size, [1.0, 3.0, 7.0], "x", "y")
    assert model.predict(np.array([[3.0]]) * size)[0] == pytest.approx(5.0, rel=1e-6)
    steep = fit_linear([[1.0], [2.0], [4.0]], np.array([1.0, 3.0, 7.0]) * size, "x", "y")
    assert steep.predict([[3.0]])[0] == pytest.approx(5.0 * size, rel=1e-6)


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0], "2 rows are too few"),
        ([[1.0, 2.0]] * 3, [5.0] * 3, "constant: 5.0"),
        (np.empty((0, 2)), [], "0 rows"),
        ([[1.0, 2.0], [1.0, math.nan], [2.0, 0.0]], [1.0, 2.0, 3.0], "the rows must be finite"),
        ([[1.0, 2.0], [1.0, 0.5], [2.0, 0.0]], [1.0, 2.0, math.inf], "the rows must be finite"),
        ([[1e-308, 0.0], [2e-308, 1.0], [4e-308, 0.5]], [1e300, 3e300, -7e300], "finite"),
        ([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0], "do not fit"),
    ],
)
def test_untrainable_regressions_are_refused(x, y, text):
    with pytest.raises(ModelError, match=text):
        fit_linear(x, y, "ab", "y")


@given(
    st.lists(
        st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 3),
        min_size=0,
        max_size=12,
    )
)
def test_any_rows_give_a_finite_model_or_a_model_error(rows):
    x, y = np.array([r[:2] for r in rows]).reshape(-1, 2), np.array([r[2] for r in rows])
    try:
        model = fit_linear(x, y, "ab", "y")
    except ModelError:
        return
    assert np.isfinite([model.intercept, *model.coefficients, *model.metrics.values()]).all()


@pytest.mark.parametrize(
    "options", [{}, {"criterion": "gini"}, {"max_depth": 2}, {"ccp_alpha": 0.01, "min_samples_leaf": 7}]
)
def test_trees_equal_scikit_learn(options):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 3))
    labels = np.array(["low", "ü", "high"])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0.5)]
    model = fit_tree(x, list(labels), "abc", "level", seed=3, **options)
    theirs = DecisionTreeClassifier(
        criterion=options.get("criterion", "entropy"),
        max_depth=options.get("max_depth"),
        min_samples_leaf=options.get("min_samples_leaf", 2),
        ccp_alpha=options.get("ccp_alpha", 0.0),
        random_state=3,
    ).fit(x, labels)
    np.testing.assert_array_equal(model.leaves(x), theirs.apply(x))
    assert [model.classes[i] for i in model.predict(x)] == theirs.predict(x).tolist()
    assert model.metrics["accuracy"] == theirs.score(x, labels)
    assert model == fit_tree(x, list(labels), "abc", "level", seed=3, **options)


def test_untrainable_trees_are_refused():
    with pytest.raises(ModelError, match="constant: 'a'"):
        fit_tree([[1.0], [2.0]], ["a", "a"], "x", "y")
    with pytest.raises(ModelError, match="0 rows"):
        fit_tree(np.empty((0, 1)), [], "x", "y")
    with pytest.raises(ModelError, match="single precision"):
        fit_tree([[1.0], [1e39]], ["a", "b"], "x", "y")


# -- the sample data -------------------------------------------------------------------------------


def test_regression_of_fares_in_the_taxi_training_file(sample_data):
    rows = np.loadtxt(sample_data / "riotbench" / "taxi-train-mlr.csv", delimiter=",")
    assert rows.shape == (expected(sample_data, made=400, papers=5090), 3)
    model = fit_linear(rows[:, :2], rows[:, 2], ["trip_time_in_secs", "trip_distance"], "fare_amount")
    found = [model.intercept, *model.coefficients]
    if sample_data == MADE:
        assert found == pytest.approx([float(b) for b in least_squares(rows[:, :2].tolist(), rows[:, 2].tolist())])
        return
    assert found == pytest.approx([2.573, 0.004983, 2.1379], rel=1e-4)
    assert model.metrics["rmse"] == pytest.approx(3.83, abs=0.005)
    assert model.metrics["median_absolute_error"] == pytest.approx(0.49, abs=0.005)


def test_tree_of_classes_in_the_taxi_training_file(sample_data):
    lines = (sample_data / "riotbench" / "taxi-train-dtc.csv").read_text().split()
    cells = [line.split(",") for line in lines]
    x, labels = np.array([c[:3] for c in cells], np.float64), [c[3] for c in cells]
    order = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")
    model = fit_tree(x, labels, ["trip_time_in_secs", "trip_distance", "fare_amount"], "class", classes=order)
    assert model.classes == order
    assert model.metrics["accuracy"] > 0.999  # the classes are ranges of the fare


# -- attribute selection ---------------------------------------------------------------------------


def naive_m5(x, y):
    """``{index: coefficient}`` of the inputs that the M5 method keeps, by least squares over the rows."""

    def fitted(chosen):
        table = np.column_stack([np.ones(len(y)), x[:, chosen]])
        b, *_ = np.linalg.lstsq(table, y, rcond=None)
        standardised = np.abs(b[1:]) * x[:, chosen].std(axis=0) / y.std()
        return dict(zip(chosen, b[1:], strict=True)), standardised, float(np.sum((y - table @ b) ** 2))

    chosen = list(range(x.shape[1]))
    b, size, sse = fitted(chosen)
    while chosen and size.max() > 1.5:
        chosen.pop(int(size.argmax()))
        b, size, sse = fitted(chosen)
    first, freedom, best = sse, len(y) - len(chosen) - 1, len(y) - len(chosen) - 1 + 2 * (len(chosen) + 1)
    while chosen:
        fewer = chosen[: int(size.argmin())] + chosen[int(size.argmin()) + 1 :]
        now = fitted(fewer)
        if now[2] / first * freedom + 2 * (len(fewer) + 1) >= best:
            break
        best, chosen, (b, size, _) = now[2] / first * freedom + 2 * (len(fewer) + 1), fewer, now
    return b


@pytest.mark.parametrize("seed", range(12))
def test_m5_keeps_the_inputs_of_a_search_over_the_rows(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 5)) * [1, 10, 0.1, 1, 1] + [0, 100, 0, 5, 0]
    x[:, 4] = x[:, 0] + rng.normal(size=60) * (0.01 if seed % 2 else 1.0)  # collinear in every other one
    y = 2 * x[:, 0] - 0.05 * x[:, 1] + rng.normal(size=60) * (1 + seed)
    names = [f"x{i}" for i in range(5)]
    model = fit_linear(x, y, names, "y", selection="m5")
    kept = naive_m5(x, y)
    assert {i for i, b in enumerate(model.coefficients) if b != 0.0} == set(kept)
    np.testing.assert_allclose([model.coefficients[i] for i in kept], list(kept.values()), rtol=1e-6)
    table = np.column_stack([np.ones(60), x[:, list(kept)]])
    error = y - table @ np.linalg.lstsq(table, y, rcond=None)[0]
    assert model.metrics["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-6)
    assert model.inputs == tuple(names), "records still have all inputs"
    full = fit_linear(x, y, names, "y")
    assert all(b != 0.0 for b in full.coefficients)
    assert full.metrics["rmse"] <= model.metrics["rmse"] * (1 + 1e-9)


@pytest.mark.parametrize(("second", "size", "kept"), [(-1.5, 2.17, {1}), (0.4, 0.85, {0, 1})])
def test_m5_removes_inputs_with_large_coefficients(second, size, kept):
    """Two inputs with a correlation of 0.9; ``size`` is the larger coefficient, in deviations."""
    rng = np.random.default_rng(2)
    a = rng.normal(size=5000)
    x = np.column_stack([a, 0.9 * a + np.sqrt(1 - 0.81) * rng.normal(size=5000)])
    y = 2 * x[:, 0] + second * x[:, 1] + 0.01 * rng.normal(size=5000)
    assert 2 / y.std() == pytest.approx(size, rel=0.03)
    model = fit_linear(x, y, "ab", "y", selection="m5")
    assert {i for i, b in enumerate(model.coefficients) if b != 0.0} == kept


def test_m5_removes_noise():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 3))
    noise = rng.normal(size=200)
    noise -= (
        np.column_stack([np.ones(200), x]) @ np.linalg.lstsq(np.column_stack([np.ones(200), x]), noise, rcond=None)[0]
    )
    model = fit_linear(x, 2 * x[:, 0] + 1 + noise, ["a", "b", "c"], "y", selection="m5")
    assert model.coefficients[1:] == (0.0, 0.0), "the noise is independent of the inputs"
    assert (model.intercept, model.coefficients[0]) == pytest.approx((1.0, 2.0), rel=1e-6)
    exact = fit_linear(x, 2 * x[:, 0] + 1, ["a", "b", "c"], "y", selection="m5")
    assert exact.predict(x) == pytest.approx(2 * x[:, 0] + 1, abs=1e-6)


def test_m5_can_remove_every_input():
    rows = np.array([[x, z] for x in (-1.0, 1.0) for z in (-1.0, 1.0)] * 5)
    y = np.array([1.0, -1.0, -1.0, 1.0] * 5) + 7  # their product is uncorrelated with either
    model = fit_linear(rows, y, "ab", "y", selection="m5")
    assert model.coefficients == (0.0, 0.0)
    assert model.intercept == pytest.approx(7)


# -- networks --------------------------------------------------------------------------------------


def rings(n=600, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) * (1.0, 100.0)
    far = np.hypot(x[:, 0], x[:, 1] / 100)
    return x, np.array(["near", "middle", "far"])[np.digitize(far, (0.8, 1.5))].tolist()


@pytest.mark.filterwarnings("ignore")
def test_network_training_equals_scikit_learn():
    x, labels = rings()
    model = fit_network(
        x, labels, ("a", "b"), "c", hidden_layer_sizes=(8, 4), max_iter=30, activation="tanh", alpha=0.01, seed=3
    )
    net = MLPClassifier((8, 4), activation="tanh", alpha=0.01, max_iter=30, early_stopping=True, random_state=3)
    theirs = make_pipeline(StandardScaler(), net).fit(x, labels)
    np.testing.assert_allclose(model.probabilities(x), theirs.predict_proba(x), rtol=0, atol=1e-9)
    assert model.metrics["accuracy"] == pytest.approx(theirs.score(x, labels))
    assert (model.metrics["epochs"], model.metrics["loss"]) == (net.n_iter_, net.loss_)
    assert (model.rows, model.classes, model.sizes) == (600, ("far", "middle", "near"), (2, 8, 4, 3))


@pytest.mark.parametrize(
    "options", [{"hidden_layer_sizes": (3,)}, {"activation": "logistic"}, {"alpha": 5.0}, {"max_iter": 2}, {"validation_fraction": 0.4},
                {"seed": 1}, {"classes": ("near", "far", "middle")}]
)  # fmt: skip
def test_every_option_of_network_training_matters(options):
    x, labels = rings(200)
    plain = fit_network(x, labels, ("a", "b"), "c", max_iter=5)
    assert fit_network(x, labels, ("a", "b"), "c", **{"max_iter": 5} | options) != plain
    assert fit_network(x, labels, ("a", "b"), "c", max_iter=5) == plain


def test_network_learns():
    x, labels = rings()
    model = fit_network(x, labels, ("a", "b"), "c", validation_fraction=0.0)
    other, wanted = rings(seed=1)
    assert np.mean([model.classes[i] == w for i, w in zip(model.predict(other), wanted, strict=True)]) > 0.9
    assert fit_network(x, labels, ("a", "b"), "c", validation_fraction=0.0, end_ms=9).end_ms == 9


@pytest.mark.parametrize(
    ("x", "labels", "message"),
    [
        ([[1.0], [2.0]], ["a", "a"], "constant: 'a'"),
        (np.empty((0, 1)), [], "0 rows"),
        ([[1.0], [math.nan]], ["a", "b"], "finite"),
        ([[1.0, 2.0], [1.0, 3.0]], ["a", "b"], "do not fit"),
        ([[1.0], [2.0]], ["a", "b"], "no network can be trained on these 2 rows"),
        ([[1e308], [-1e308]] * 20, ["a", "b"] * 20, "no network"),
    ],
)
def test_untrainable_networks_are_refused(x, labels, message):
    with pytest.raises(ModelError, match=message):
        fit_network(x, labels, ("x",), "y")
