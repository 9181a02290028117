"""As-of joins against a dict."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

values = st.sampled_from([None, None, 1.0, 2.5, float("nan")])
records = st.lists(st.tuples(st.sampled_from(["a", "b", None]), values, values), max_size=30)


def joined(rows, how):
    known = {}
    for seq, (key, *cells) in enumerate(rows):
        cells = [None if value is None or math.isnan(value) else value for value in cells]
        if any(value is not None for value in cells):
            known[key] = cells
        elif key in known:
            yield seq, *known[key]
        elif how == "left":
            yield seq, None, None


@given(records, st.sampled_from(["inner", "left"]), st.integers(1, 9))
def test_records_get_the_latest_values_of_their_key(rows, how, size):
    session = t.AsOfJoin(by="key", fields=("bid", "ask"), how=how).session()
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(rows)), pa.int64()),
            "key": pa.array([row[0] for row in rows], pa.string()),
            "bid": pa.array([row[1] for row in rows], pa.float64()),
            "ask": pa.array([row[2] for row in rows], pa.float64()),
        }
    )
    out = [row for i in range(0, len(rows), size) for row in session.push_batch(batch.slice(i, size)).to_pylist()]
    assert [(row["seq"], row["bid"], row["ask"]) for row in out] == list(joined(rows, how))


def test_integers_are_joined_and_infinite_values_rejected():
    session = t.AsOfJoin(fields="level").session()
    assert session.push({"level": 3}) == []
    assert session.push({"level": float("inf")}) == []
    assert session.errors[0]["reason"] == "not_finite"
    assert session.push({"level": None}) == [{"level": 3.0}]


def test_wrong_parameters_are_refused():
    for wrong in ({"fields": ()}, {"fields": ("a", "a")}, {"fields": ("a",), "by": ("a",)}):
        with pytest.raises(ConfigError, match="fields"):
            t.AsOfJoin(**wrong)
