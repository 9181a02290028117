"""Predictions with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("code", ["MLR", "DTC"])
def test_predictions_equal_scikit_learn(code: str) -> None:
    from riot_bench.baselines.python.models import predict_batch, predict_each
    from riot_bench.suites.models import INPUTS, readings, train_models

    task, estimator = train_models()[code]
    batch = readings(300, seed=9)
    ours = task.session().push_batch(batch).column(task.output)
    rows = np.column_stack([batch.column(name) for name in INPUTS]).tolist()
    theirs = predict_batch(estimator, rows)
    single = predict_each(estimator, rows[:20])
    if code == "MLR":  # sums are taken in another order, in their two ways as well
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        np.testing.assert_allclose(single, theirs[:20], rtol=1e-12)
    else:
        assert ours.to_pylist() == theirs.tolist()
        assert single == theirs[:20].tolist()
