"""Decayed scores, against dicts."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import DecayedScores

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3)), min_size=1, max_size=4), max_size=6
)


def records(batches):
    return [
        {"seq": 10 * k + i, "event_time": NOON + timedelta(seconds=k), "id": name, "score": score}
        for k, batch in enumerate(batches) for i, (name, score) in enumerate(batch)
    ]  # fmt: skip


@given(BATCHES, st.sampled_from([0.1, 0.9]), st.sampled_from([None, 1.0, 4.0]))
def test_sums_equal_dicts(batches, decay, threshold):
    session = DecayedScores(decay=decay, threshold=threshold).session()
    rows = session.push_many(records(batches)) + session.flush()
    limit = 0.5 / (1 - math.exp(-decay)) if threshold is None else threshold
    totals, last, wanted, clear = {}, {}, [], False
    for k, batch in enumerate(batches):
        if clear:
            totals, clear = dict.fromkeys(totals, 0.0), False
        for name, score in batch:
            totals[name] = totals.get(name, 0.0) * math.exp(-decay) + score
            last[name] = score
            clear = clear or totals[name] > limit
        number = 10 * k + len(batch) - 1
        wanted += [(number, i, name, last[name], totals[name]) for i, name in enumerate(totals)]
    assert [(r["seq"], r["ordinal"], r["id"], r["score"]) for r in rows] == [row[:4] for row in wanted]
    assert [r["decayed"] for r in rows] == pytest.approx([row[4] for row in wanted])


def test_names_of_fields_and_the_end():
    rows = [{"event_time": NOON, "machine": 7, "x": 2.0}]
    session = DecayedScores(item="machine", value="x", output="sum", time="at").session()
    assert session.push_many(rows) == []
    assert session.flush() == [{"event_time": NOON, "machine": 7, "x": 2.0, "sum": 2.0, "ordinal": 0, "at": NOON}]
    lost = DecayedScores(item="machine", value="x", partial=False).session()
    assert lost.push_many(rows) + lost.flush() == []


def test_misuse_is_refused():
    for wrong, message in (
        ({"decay": 0}, "decay"), ({"threshold": -1}, "threshold"), ({"by": ("a",)}, "by must be empty"),
        ({"output": "score"}, "must be different fields"), ({"time": "id"}, "must be different fields"),
        ({"ttl": "1h"}, "does not support ttl"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            DecayedScores(**wrong)
