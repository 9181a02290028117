"""Batch outliers, against sorting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import BatchOutliers

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SCORES = st.lists(st.lists(st.sampled_from([1.0, 2.0, 2.5, 7.0, 30.0, -4.0]), min_size=1, max_size=12), max_size=5)


def records(batches, **more):
    return [
        {"event_time": NOON + timedelta(seconds=k), "i": i, "score": s, **more}
        for k, batch in enumerate(batches) for i, s in enumerate(batch)
    ]  # fmt: skip


def outcome(task, rows):
    session = task.session()
    return session.push_many(rows) + session.flush()


@given(SCORES, st.sampled_from([0.0, 2.9]), st.sampled_from([0.0, 3.1]))
def test_outliers_by_the_median(batches, spread, margin):
    rows = outcome(BatchOutliers(spread=spread, margin=margin, emit_all=True), records(batches))
    wanted = []
    for batch in batches:
        middle, low = sorted(batch)[len(batch) // 2], min(batch)
        wanted += [s > 2 * middle - low and s > low + spread and s > low + margin for s in batch]
    assert [row["is_outlier"] for row in rows] == wanted
    few = outcome(BatchOutliers(spread=spread, margin=margin, output="far"), records(batches))
    assert [(row["event_time"], row["i"], row["far"]) for row in few] == [
        (row["event_time"], row["i"], True) for row in rows if row["is_outlier"]
    ]


@given(SCORES, st.integers(1, 5))
def test_largest_scores_are_selected(batches, top):
    rows = outcome(BatchOutliers(method="top", k=top), records(batches))
    wanted = []
    for k, batch in enumerate(batches):
        best = sorted(range(len(batch)), key=lambda i: (-batch[i], i))[:top]
        wanted += [(NOON + timedelta(seconds=k), i) for i in sorted(best)]
    assert [(row["event_time"], row["i"]) for row in rows] == wanted


def test_many_scores_of_any_order():
    rng = np.random.default_rng(5)
    for scores in (
        np.arange(1001.0),
        np.arange(1001.0)[::-1],
        np.ones(1000),
        rng.normal(size=4001),
        np.arange(99) % 3.0,
    ):
        table = pa.table({"event_time": [NOON] * len(scores), "score": scores, "x": scores})
        session = BatchOutliers(method="top", k=7, latest="x").session()
        session.push_batch(table)
        assert sorted(row["score"] for row in session.flush()) == sorted(scores)[-7:]
        session = BatchOutliers(spread=0, margin=-1, emit_all=True).session()
        session.push_batch(table)
        least = 2 * sorted(scores)[len(scores) // 2] - min(scores)
        assert [row["is_outlier"] for row in session.flush()] == [bool(s > least and s > min(scores)) for s in scores]


def test_latest_reading_must_be_an_outlier_too():
    rows = [
        {**row, "now": now} for row, now in zip(records([[1.0, 1.0, 9.0, 9.5]]), (0.5, 0.5, 0.6, 0.61), strict=True)
    ]
    assert [row["i"] for row in outcome(BatchOutliers(latest="now"), rows)] == []
    rows = [{**row, "now": row["score"] / 10} for row in records([[1.0, 1.0, 1.0, 9.5]])]
    assert [row["i"] for row in outcome(BatchOutliers(latest="now", time="at"), rows)] == [3]
    assert outcome(BatchOutliers(latest="now", time="at"), rows)[0]["at"] == NOON
    assert outcome(BatchOutliers(latest="now", partial=False), rows) == []


def test_each_key_has_its_own_batches():
    rows = records([[1.0, 1.0, 9.0]], key="a") + records([[9.0, 9.0, 9.0]], key="b")
    assert [(row["key"], row["i"]) for row in outcome(BatchOutliers(by=("key",)), rows)] == [("a", 2)]


def test_defaults_are_those_of_the_unit_square():
    assert [len(outcome(BatchOutliers(), records([[1.0, 1.0, 1.0, s]]))) for s in (3.828, 3.829)] == [0, 1]


def test_misuse_is_refused():
    for wrong, message in (
        ({"k": 0}, "k = 0"), ({"method": "mean"}, "method"), ({"emit_all": "some"}, "emit_all"),
        ({"output": "x", "time": "x"}, "must be different fields"), ({"ttl": "1h"}, "does not support ttl"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            BatchOutliers(**wrong)
