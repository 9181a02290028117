"""Predictions by stored models, against scikit-learn message by message."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.timing import median_seconds
from riot_ops import tasks as t
from riot_ops.models import LinearModel, TreeModel
from riot_ops.tasks.predict.prediction_task import PredictionTask

__all__ = ["measures", "train_models"]

INPUTS = ("temperature", "humidity", "light", "dust")
LABELS = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")
TRAINING, BATCH = 3000, 65_536


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite."""
    require_extra("this benchmark", "ml", "sklearn")
    from riot_bench.baselines.python.models import predict_batch, predict_each

    repetitions, one_by_one = (3, 200) if quick else (15, 3000)
    batch = readings(BATCH, seed=1)
    rows = np.column_stack([batch.column(name) for name in INPUTS]).tolist()
    with pinned_to_one_core():
        for code, (task, estimator) in train_models().items():
            session = task.session(ordered=False)  # it gets the same records again
            ours = BATCH / median_seconds(lambda: session.push_batch(batch), repetitions)  # noqa: B023
            single = one_by_one / median_seconds(lambda: predict_each(estimator, rows[:one_by_one]), 3)  # noqa: B023
            whole = BATCH / median_seconds(lambda: predict_batch(estimator, rows), max(3, repetitions // 3))  # noqa: B023
            yield Measure(f"models/{code}/task", ours, "rows/s", f"push_batch of {BATCH:,} rows, one core")
            yield Measure(f"models/{code}/one-at-a-time", single, "rows/s", "scikit-learn, predict([row]) per message")
            yield Measure(f"models/{code}/all-at-once", whole, "rows/s", "scikit-learn, predict of all rows as a list")
            yield Measure(f"models/{code}/vs-one-at-a-time", ours / single, "ratio", "scikit-learn per message", 100)
            yield Measure(f"models/{code}/vs-all-at-once", ours / whole, "ratio", "scikit-learn, all rows in a call", 1)


def readings(n: int, seed: int) -> pa.RecordBatch:
    """Generate wide CITY records with a class."""
    rng = np.random.default_rng(seed)
    columns = {name: np.round(rng.normal(30, 10, n), 2) for name in INPUTS}
    air = np.round(20 + columns["dust"] / 4 + columns["humidity"] / 10 + rng.normal(0, 3, n), 2)
    label = pa.array(LABELS).take(pa.array(np.digitize(air, np.quantile(air, (0.25, 0.5, 0.75)))))
    return pa.RecordBatch.from_pydict({"seq": np.arange(n), **columns, "airquality_raw": air, "class": label})


def train_models() -> dict[str, tuple[PredictionTask, object]]:
    """Return the task and the scikit-learn estimator of its model, by code."""
    from sklearn.linear_model import LinearRegression
    from sklearn.tree import DecisionTreeClassifier

    training = readings(TRAINING, seed=0)
    x = np.column_stack([training.column(name) for name in INPUTS])
    line = LinearRegression().fit(x, np.asarray(training.column("airquality_raw")))
    tree = DecisionTreeClassifier(random_state=0, min_samples_leaf=2).fit(x, training.column("class").to_pylist())
    return {
        "MLR": (
            t.PredictLinearRegression(
                inputs=INPUTS, model=LinearModel.from_sklearn(line, INPUTS, "airquality_raw").to_json()
            ),
            line,
        ),
        "DTC": (
            t.Classify(
                inputs=INPUTS, model=TreeModel.from_sklearn(tree, INPUTS, "class").to_json(), output="predicted"
            ),
            tree,
        ),
    }
