"""Linear prediction against a naive reference and scikit-learn."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression

from riot_ops.models import LinearModel
from riot_ops.tasks import PredictLinearRegression
from tests.reference.linear_regression import predict

VALUES = st.one_of(st.none(), st.just(math.nan), st.floats(-1e6, 1e6))
NAMES = ("secs", "miles")


def task(**options):
    model = LinearModel(inputs=NAMES, target="fare", intercept=2.573, coefficients=(0.004983, 2.1379))
    return PredictLinearRegression(inputs=NAMES, model=model.to_json(), **options)


def test_hand_computed_values():
    session = task(output="fare").session()
    assert session.push({"secs": 1000.0, "miles": 10.0})[0]["fare"] == pytest.approx(2.573 + 4.983 + 21.379)
    assert session.push({"secs": 0, "miles": 0})[0]["fare"] == 2.573, "not cut to an integer"


@given(st.lists(st.tuples(VALUES, VALUES), max_size=40))
def test_equals_the_reference(rows):
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(NAMES, r, strict=True)) for r in rows], schema=pa.schema([(n, pa.float64()) for n in NAMES])
    )
    got = task().session().push_batch(batch).column("prediction").to_pylist()
    missing = [any(v is None or math.isnan(v) for v in row) for row in rows]
    assert [v is None for v in got] == missing
    wanted = [predict([2.573, 0.004983, 2.1379], row) for row, no in zip(rows, missing, strict=True) if not no]
    assert [v for v in got if v is not None] == pytest.approx(wanted, rel=1e-12, abs=1e-9)


def test_equals_scikit_learn_whatever_the_order_of_fields_and_their_types():
    rng = np.random.default_rng(0)
    x = rng.integers(-100, 100, (500, 3))
    fitted = LinearRegression().fit(x, x @ [1.0, -2.0, 0.5] + rng.normal(size=500))
    model = LinearModel.from_sklearn(fitted, ["a", "b", "c"], "y")
    batch = pa.RecordBatch.from_pydict({"c": pa.array(x[:, 2], pa.int32()), "b": x[:, 1] * 1.0, "a": x[:, 0]})
    session = PredictLinearRegression(inputs=("c", "a", "b"), model=model.to_json()).session()
    np.testing.assert_allclose(session.push_batch(batch).column("prediction"), fitted.predict(x), rtol=1e-12)


def test_infinite_input_is_an_error():
    session = task().session()
    assert session.push({"secs": math.inf, "miles": 1.0}) == []
    assert session.errors[0]["reason"] == "not_finite"
