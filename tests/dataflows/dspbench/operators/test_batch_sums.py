"""Batch sums, against dicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import BatchSums

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from(["x", None]), st.integers(-5, 5)), max_size=30
)


@given(ROWS, st.booleans())
def test_sums_equal_dicts(rows, by_key):
    rows = sorted(rows, key=lambda row: row[1])
    task = BatchSums(
        by=("key",) if by_key else (), groups=("kind",) if by_key else ("kind", "key"), value="v", time="at"
    )
    session = task.session()
    out = session.push_many(
        {"seq": i, "event_time": NOON + timedelta(seconds=s), "key": key, "kind": kind, "v": v, "more": 1}
        for i, (key, s, kind, v) in enumerate(rows)
    )
    wanted = {}
    for i, (key, s, kind, v) in enumerate(rows):
        total, _ = wanted.get((key, s, kind), (0, i))
        wanted[key, s, kind] = total + v, i
    found = {}
    for row in out + session.flush():
        assert row["at"] == row["event_time"]
        assert row["more"] is None
        found[row["key"], (row["event_time"] - NOON) // timedelta(seconds=1), row["kind"]] = row["v"], row["seq"]
    assert found == wanted


def test_end_may_drop_the_last_batch():
    rows = [{"event_time": NOON, "value": 1.0}]
    for partial in (True, False):
        session = BatchSums(partial=partial).session()
        assert session.push_many(rows) == []
        assert len(session.flush()) == partial


def test_overflowing_sum_is_null():
    session = BatchSums().session()
    session.push_many({"event_time": NOON, "value": 1.7e308} for _ in range(2))
    assert [row["value"] for row in session.flush()] == [None]


def test_misuse_is_refused():
    for wrong in ({"groups": ("value",)}, {"by": ("value",)}, {"time": "value"}, {"time": "a", "by": ("a",)}):
        with pytest.raises(ConfigError, match="must"):
            BatchSums(**wrong)
