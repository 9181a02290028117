"""Distances from the centre of an event time, against NumPy; and the batches of a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import CenterDistance

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(-9, 9), st.integers(0, 9)), max_size=30),
    st.integers(1, 9),
    st.booleans(),
)
def test_distances_equal_numpy(rows, batch_size, by_key):
    by = ("key",) if by_key else ()
    task = CenterDistance(fields=("x", "y"), scales=(2, 0.5), bias=3.0, by=by, output="far", time="at")
    flow = ro.Dataflow("far")
    kinds = {"event_time": "timestamp[us, tz=UTC]", "key": "string", "x": "double", "y": "double"}
    flow.sink("out", flow.source("in", schema=kinds).to(task, id="far"))
    records = [{"event_time": NOON + timedelta(seconds=s), "key": k, "x": x, "y": y} for s, k, x, y in rows]
    result = flow.run(records or pa.table({n: [] for n in kinds}), batch_size=batch_size)
    newest, batches, late = {}, {}, []
    for i, (s, k, x, y) in enumerate(rows):
        key = k if by_key else ""
        if s < newest.get(key, 0):
            late.append((i, "late"))
        else:
            newest[key] = s
            batches.setdefault((key, s), []).append((i, x / 2, y / 0.5))
    wanted = {}
    for batch in batches.values():
        points = np.array([p[1:] for p in batch])
        wanted |= dict(
            zip([p[0] for p in batch], 3 + np.linalg.norm(points - points.mean(axis=0), axis=1), strict=True)
        )
    got = {row["seq"]: row for row in result["far"].to_pylist()}
    assert {i: row["far"] for i, row in got.items()} == pytest.approx(wanted)
    assert all(row["at"] == row["event_time"] == records[i]["event_time"] for i, row in got.items())
    assert sorted((e["seq"], e["reason"]) for e in result.errors.to_pylist()) == late


def test_batch_is_emitted_when_its_time_is_over():
    session = CenterDistance(fields=("x",)).session()
    out = [session.push({"event_time": NOON + timedelta(seconds=s), "x": x}) for s, x in ((0, 1.0), (0, 3.0), (1, 8.0))]
    assert [[row["score"] for row in rows] for rows in out] == [[], [], [1.0, 1.0]]
    assert [row["score"] for row in session.flush()] == [0.0]
    kept = CenterDistance(fields=("x",), partial=False).session()
    assert kept.push({"event_time": NOON, "x": 1.0}) + kept.flush() == []


def test_records_without_time_or_scope_are_errors():
    session = CenterDistance(fields=("x", "y")).session()
    session.push({"event_time": NOON, "x": 5, "y": 5})
    for time, x, y in ((None, 1, 1), (NOON, None, 1), (NOON, 1, float("inf")), (NOON, None, float("inf"))):
        session.push({"event_time": time, "x": x, "y": y})
    assert [e["reason"] for e in session.errors] == ["no_event_time", "missing", "not_finite", "missing"]
    assert [(row["x"], row["y"], row["score"]) for row in session.flush()] == [(5, 5, 0.0)]


def test_misuse_is_refused():
    for wrong, message in (
        ({"fields": ()}, "at least one field"), ({"fields": ("x", "x")}, "none twice"),
        ({"scales": (1.0, 2.0)}, "scales must be 1 numbers > 0"), ({"scales": (0.0,)}, "scales must be"),
        ({"time": "score"}, "must be different fields"), ({"ttl": "1h"}, "does not support ttl"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            CenterDistance(**{"fields": ("x",), **wrong})
    with pytest.raises(ConfigError, match="needs a timestamp"):
        CenterDistance(fields=("x",)).output_schema(pa.schema({"event_time": pa.int64(), "x": pa.float64()}))
