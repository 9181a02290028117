"""Live estimators as tasks, against scikit-learn's own predictions."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, IsolationForest, RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import riot_ops as ro
from riot_ops.core.errors import ConfigError

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(60, 2))
Y = 3 * X[:, 0] - X[:, 1] + 0.1
BATCH = pa.RecordBatch.from_pydict({"seq": list(range(60)), "a": X[:, 0], "b": X[:, 1]})


def column(task, batch=BATCH, name="prediction"):
    session = task.session()
    out = session.push_batch(batch)
    assert session.errors == []
    assert out.schema == task.output_schema(batch.schema)
    return out.column(name).to_pylist()


def test_predictions_of_a_regression_fitted_with_arrays():
    line = LinearRegression().fit(X, Y)
    assert column(ro.predict(line, inputs=("a", "b"))) == pytest.approx(Y, abs=1e-9)
    # the order of inputs is that of the features
    assert column(ro.predict(line, inputs=("b", "a"), output="p"), name="p") == pytest.approx(line.predict(X[:, ::-1]))


def test_labels_keep_their_type():
    for labels, kind in ((np.array(["low", "high"]), pa.string()), (np.array([4, 9]), pa.int64())):
        forest = RandomForestClassifier(5, random_state=1).fit(X, labels[(Y > 0).astype(int)])
        task = ro.predict(forest, inputs=("a", "b"))
        assert task.output_schema(BATCH.schema).field("prediction").type == kind
        assert column(task) == forest.predict(X).tolist()
        assert (
            column(ro.predict(forest, ("a", "b"), response_method="predict_proba")) == forest.predict_proba(X).tolist()
        )


def test_probabilities_and_transforms_are_lists():
    outliers = IsolationForest(n_estimators=10, random_state=1).fit(X)
    assert column(ro.predict(outliers, ("a", "b"))) == outliers.predict(X).tolist()
    assert (
        column(ro.predict(outliers, ("a", "b"), response_method="score_samples")) == outliers.score_samples(X).tolist()
    )
    clusters = KMeans(3, n_init=1, random_state=1).fit(X)
    found = column(ro.predict(clusters, ("a", "b"), dtype="int64"))
    assert found == clusters.predict(X).tolist()
    assert all(isinstance(value, int) for value in found)
    scaler = StandardScaler().fit(X)
    assert column(ro.predict(scaler, ("a", "b"), response_method="transform")) == scaler.transform(X).tolist()


def test_pipeline_fitted_with_names_gets_a_data_frame():
    frame = pd.DataFrame({"kind": ["x", "y", "z"] * 20, "a": X[:, 0]})
    steps = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["kind"]), ("passthrough", ["a"]))
    model = make_pipeline(steps, LinearRegression()).fit(frame, Y)
    batch = pa.RecordBatch.from_pydict({"a": X[:, 0], "other": [0] * 60, "kind": frame["kind"].tolist()})
    assert column(ro.predict(model), batch) == model.predict(frame).tolist()
    assert column(ro.predict(model, inputs=("a", "kind")), batch) == model.predict(frame).tolist()  # any order
    with pytest.raises(ConfigError, match="was fitted with kind, a; inputs are a, b"):
        ro.predict(model, inputs=("a", "b"))
    encoder = OneHotEncoder().fit(frame[["kind"]])  # its output is a sparse matrix
    assert column(ro.predict(encoder, response_method="transform"), batch)[:2] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


@pytest.mark.long
def test_missing_inputs_give_null_and_infinite_ones_are_rejected():
    batch = pa.RecordBatch.from_pydict(
        {"seq": [0, 1, 2, 3], "a": [0.5, None, float("nan"), float("inf")], "b": pa.array([1, 2, 3, 4], pa.int32())}
    )
    line = LinearRegression().fit(X, Y)
    session = ro.predict(line, ("a", "b")).session()
    rows = session.push_batch(batch).to_pylist()
    assert [row["prediction"] for row in rows] == [pytest.approx(0.6), None, None]
    assert [(e["seq"], e["reason"]) for e in session.errors] == [(3, "not_finite")]
    assert session.push({"a": None, "b": 1})[0]["prediction"] is None
    trees = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2).fit(np.where(X > 1, np.nan, X), Y)
    passed = column(ro.predict(trees, ("a", "b"), on_missing="pass"), batch.slice(0, 3))
    assert passed == trees.predict([[0.5, 1], [np.nan, 2], [np.nan, 3]]).tolist()
    proba = RandomForestClassifier(5, random_state=1).fit(X, Y > 0)
    shares = column(ro.predict(proba, ("a", "b"), response_method="predict_proba"), batch.slice(0, 2))
    assert shares == [proba.predict_proba([[0.5, 1.0]])[0].tolist(), None]


def test_wrong_parameters_are_refused_at_construction():
    line = LinearRegression().fit(X, Y)
    for make, text in (
        (lambda: ro.predict(LinearRegression(), ("a",)), "is not fitted"),
        (lambda: ro.predict(LinearRegression, ("a",)), "pass a fitted estimator"),
        (lambda: ro.predict(line), "needs inputs"),
        (lambda: ro.predict(line, ("a", "a")), "distinct names"),
        (lambda: ro.predict(line, "a"), "was fitted with 2 features; inputs are a"),
        (lambda: ro.predict(line, ("a", "b"), response_method="predict_proba"), "no method 'predict_proba'"),
        (lambda: ro.predict(line, ("a", "b"), on_missing="drop"), "missing must be"),
        (lambda: ro.predict(line, ("a", "b"), dtype="flot"), "unknown type 'flot'"),
    ):
        with pytest.raises(ConfigError, match=text):
            make()
    task = ro.predict(line, ("a", "b"), label="fare")
    assert (task.label, ro.predict(line, ("a", "b")).label) == ("fare", "LinearRegression")
    with pytest.raises(ConfigError, match="reads the field 'b', which its input lacks"):
        task.output_schema(pa.schema({"a": pa.float64()}))
    with pytest.raises(ConfigError, match="needs a number in the field 'b'"):
        task.output_schema(pa.schema({"a": pa.float64(), "b": pa.string()}))


class Held:
    """A model of another library with an attribute that cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()

    def predict(self, x):
        return x.sum(axis=1)


def test_estimator_is_pickled_but_not_part_of_a_descriptor():
    line = LinearRegression().fit(X, Y)
    task = ro.predict(line, ("a", "b"))
    with pytest.raises(ConfigError, match="live estimator"):
        task.to_dict()
    assert column(pickle.loads(pickle.dumps(task))) == column(task)
    scaled = make_pipeline(FunctionTransformer(lambda x: 2 * x), line).fit(X, Y)
    sent = cloudpickle.loads(cloudpickle.dumps(ro.predict(scaled, ("a", "b"))))  # like Spark
    assert column(sent) == pytest.approx(Y, abs=1e-9)
    held = ro.predict(Held(), ("a", "b"))
    assert column(held) == X.sum(axis=1).tolist()
    with pytest.raises(ConfigError, match="Held cannot be pickled for Spark's workers"):
        pickle.dumps(held)
