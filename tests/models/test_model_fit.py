"""Training against scikit-learn, an exact reference, and the figures of the sample data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from riot_ops import ModelError
from riot_ops.models import fit_linear, fit_tree
from riot_ops.testing.checks import uncompiled
from tests.reference.linear_regression import least_squares, predict


def drawn(seed, n=200, k=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k)) * 10.0 ** rng.integers(-6, 7, k) + 10.0 ** rng.integers(-3, 5, k)
    return x, x @ (rng.normal(size=k) / x.std(axis=0)) + rng.normal(size=n)


@pytest.mark.parametrize("seed", range(5))
def test_least_squares_as_scikit_learn_finds_it(seed):
    x, y = drawn(seed)
    x = StandardScaler().fit_transform(x) * 3 + 1  # where sizes differ much, theirs drops inputs
    model, theirs = fit_linear(x, y, "abc", "y"), LinearRegression().fit(x, y)
    np.testing.assert_allclose(model.coefficients, theirs.coef_, rtol=1e-7)
    np.testing.assert_allclose(model.predict(x), theirs.predict(x), rtol=1e-7, atol=1e-9)
    assert model.metrics["r2"] == pytest.approx(theirs.score(x, y))
    assert model.metrics["rmse"] == pytest.approx(math.sqrt(np.mean((y - theirs.predict(x)) ** 2)))


@pytest.mark.parametrize("ridge", [1e-8, 0.5, 300.0])
def test_ridge_as_scikit_learn_finds_it_on_scaled_inputs(ridge):
    x, y = drawn(9)
    scaler = StandardScaler().fit(x)
    # here the target is scaled as well, which changes nothing
    theirs = Ridge(alpha=ridge, solver="svd").fit(scaler.transform(x), y)
    model = fit_linear(x, y, "abc", "y", ridge=ridge)
    np.testing.assert_allclose(model.predict(x), theirs.predict(scaler.transform(x)), rtol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_least_squares_as_exact_arithmetic_finds_it_for_inputs_of_any_size(seed):
    x, y = drawn(seed, n=30)
    model = fit_linear(x, y, "abc", "y", ridge=0.0)
    wanted = least_squares(x.tolist(), y.tolist())
    assert [model.intercept, *model.coefficients] == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(model.predict(x), [predict(wanted, row) for row in x.tolist()], rtol=1e-8, atol=1e-8)


def test_interpreted_and_compiled_training_agree():
    x, y = drawn(3)
    wanted = fit_linear(x, y, "abc", "y")
    with uncompiled():
        assert fit_linear(x, y, "abc", "y") == wanted


def test_inputs_that_depend_on_each_other():
    x = np.column_stack([np.arange(9.0), 2 * np.arange(9.0), np.full(9, 7.5)])
    y = 3 * np.arange(9.0) + 1
    model = fit_linear(x, y, "abc", "y")
    np.testing.assert_allclose(model.predict(x), y, atol=1e-6)
    assert model.coefficients[2] == 0.0, "a constant input has no weight"
    with pytest.raises(ModelError, match="depend on each other"):
        fit_linear(x, y, "abc", "y", ridge=0.0)


@pytest.mark.parametrize("size", [1e-300, 1e150, 1e300])
def test_huge_and_tiny_numbers(size):
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
def test_untrainable_regressions(x, y, text):
    with pytest.raises(ModelError, match=text):
        fit_linear(x, y, "ab", "y")


@given(
    st.lists(
        st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 3),
        min_size=0,
        max_size=12,
    )
)
def test_any_numbers_give_a_finite_model_or_a_model_error(rows):
    x, y = np.array([r[:2] for r in rows]).reshape(-1, 2), np.array([r[2] for r in rows])
    try:
        model = fit_linear(x, y, "ab", "y")
    except ModelError:
        return
    assert np.isfinite([model.intercept, *model.coefficients, *model.metrics.values()]).all()


@pytest.mark.parametrize("options", [{}, {"criterion": "gini"}, {"max_depth": 2}, {"pruning": 0.01, "min_leaf": 7}])
def test_trees_as_scikit_learn_grows_them(options):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 3))
    labels = np.array(["low", "ü", "high"])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0.5)]
    model = fit_tree(x, list(labels), "abc", "level", seed=3, **options)
    theirs = DecisionTreeClassifier(
        criterion=options.get("criterion", "entropy"),
        max_depth=options.get("max_depth"),
        min_samples_leaf=options.get("min_leaf", 2),
        ccp_alpha=options.get("pruning", 0.0),
        random_state=3,
    ).fit(x, labels)
    np.testing.assert_array_equal(model.leaves(x), theirs.apply(x))
    assert [model.classes[i] for i in model.predict(x)] == theirs.predict(x).tolist()
    assert model.metrics["accuracy"] == theirs.score(x, labels)
    assert model == fit_tree(x, list(labels), "abc", "level", seed=3, **options)


def test_untrainable_trees():
    with pytest.raises(ModelError, match="constant: 'a'"):
        fit_tree([[1.0], [2.0]], ["a", "a"], "x", "y")
    with pytest.raises(ModelError, match="0 rows"):
        fit_tree(np.empty((0, 1)), [], "x", "y")
    with pytest.raises(ModelError, match="single precision"):
        fit_tree([[1.0], [1e39]], ["a", "b"], "x", "y")


# -- the sample data -------------------------------------------------------------------------------


def test_fares_of_the_taxi_training_file(shared_data):
    rows = np.loadtxt(shared_data / "riotbench" / "taxi-train-mlr.csv", delimiter=",")
    assert rows.shape == (5090, 3)
    model = fit_linear(rows[:, :2], rows[:, 2], ["trip_time_in_secs", "trip_distance"], "fare_amount")
    assert [model.intercept, *model.coefficients] == pytest.approx([2.573, 0.004983, 2.1379], rel=1e-4)
    assert model.metrics["rmse"] == pytest.approx(3.83, abs=0.005)
    assert model.metrics["median_absolute_error"] == pytest.approx(0.49, abs=0.005)


def test_classes_of_the_taxi_training_file(shared_data):
    lines = (shared_data / "riotbench" / "taxi-train-dtc.csv").read_text().split()
    cells = [line.split(",") for line in lines]
    x, labels = np.array([c[:3] for c in cells], np.float64), [c[3] for c in cells]
    order = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")
    model = fit_tree(x, labels, ["trip_time_in_secs", "trip_distance", "fare_amount"], "class", classes=order)
    assert model.classes == order
    assert model.metrics["accuracy"] > 0.999  # the classes are ranges of the fare


# -- attribute selection ---------------------------------------------------------------------------


def naive_m5(x, y):
    """``{place: coefficient}`` of the inputs that the M5 method keeps, by least squares over the raw rows."""

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
def test_m5_keeps_the_inputs_that_a_search_over_the_rows_keeps(seed):
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
    assert model.inputs == tuple(names), "a record still has all of them"
    full = fit_linear(x, y, names, "y")
    assert all(b != 0.0 for b in full.coefficients)
    assert full.metrics["rmse"] <= model.metrics["rmse"] * (1 + 1e-9)


@pytest.mark.parametrize(("second", "size", "kept"), [(-1.5, 2.17, {1}), (0.4, 0.85, {0, 1})])
def test_m5_takes_a_large_coefficient_for_collinearity(second, size, kept):
    """Two inputs with a correlation of 0.9; ``size`` is the larger coefficient, in deviations."""
    rng = np.random.default_rng(2)
    a = rng.normal(size=5000)
    x = np.column_stack([a, 0.9 * a + np.sqrt(1 - 0.81) * rng.normal(size=5000)])
    y = 2 * x[:, 0] + second * x[:, 1] + 0.01 * rng.normal(size=5000)
    assert 2 / y.std() == pytest.approx(size, rel=0.03)
    model = fit_linear(x, y, "ab", "y", selection="m5")
    assert {i for i, b in enumerate(model.coefficients) if b != 0.0} == kept


def test_m5_leaves_out_what_adds_nothing():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 3))
    noise = rng.normal(size=200)
    noise -= (
        np.column_stack([np.ones(200), x]) @ np.linalg.lstsq(np.column_stack([np.ones(200), x]), noise, rcond=None)[0]
    )
    model = fit_linear(x, 2 * x[:, 0] + 1 + noise, ["a", "b", "c"], "y", selection="m5")
    assert model.coefficients[1:] == (0.0, 0.0), "the noise has nothing to do with any of them"
    assert (model.intercept, model.coefficients[0]) == pytest.approx((1.0, 2.0), rel=1e-6)
    exact = fit_linear(x, 2 * x[:, 0] + 1, ["a", "b", "c"], "y", selection="m5")
    assert exact.predict(x) == pytest.approx(2 * x[:, 0] + 1, abs=1e-6)


def test_m5_may_leave_out_every_input():
    rows = np.array([[x, z] for x in (-1.0, 1.0) for z in (-1.0, 1.0)] * 5)
    y = np.array([1.0, -1.0, -1.0, 1.0] * 5) + 7  # their product: it has nothing of either
    model = fit_linear(rows, y, "ab", "y", selection="m5")
    assert model.coefficients == (0.0, 0.0)
    assert model.intercept == pytest.approx(7)
