"""State fields that grow: through more keys, snapshots of any width, and keys that are dropped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from riot_ops import tasks as t
from riot_ops.core.operator import StateField

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_widths_double_until_there_is_room():
    field = StateField("int32", 4, initial=7, grows=True)
    array = field.empty(2)
    array[:] = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert field.widened(array, 4) is array
    grown = field.widened(array, 9)
    assert grown.tolist() == [[1, 2, 3, 4] + [7] * 12, [5, 6, 7, 8] + [7] * 12]
    assert (grown.dtype, field.bytes_of(grown)) == (np.dtype("int32"), 64)
    assert field.empty(3, grown).shape == (3, 16)
    assert StateField("float64").bytes_of(np.empty(3)) == 8
    assert StateField("float64", 2).empty(3, grown).shape == (3, 2)


def rows(n, keys, start=0):
    """Values that are added to keys in turn, the first of them most often."""
    return [
        {"event_time": NOON + timedelta(seconds=start + i), "key": k, "value": float((7 * i + k) % 31), "action": 1}
        for i in range(n) for k in range(keys) if k == 0 or i % (k + 1) == 0
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["full", "delta"])
def test_snapshots_hold_what_is_used(kind):
    whole = t.RunningMedian(by=("key",)).session()
    here, there = (t.RunningMedian(by=("key",)).session() for _ in range(2))
    whole.push_many(rows(5, 2) + rows(60, 3))
    here.push_many(rows(5, 2))
    there._state.restore(here._state.snapshot("full"))
    here.push_many(rows(60, 3))
    there._state.restore(here._state.snapshot(kind))
    last = [{"key": k, "value": v, "action": 1} for k in range(3) for v in (0.0, 30.0, 1.0)]
    assert there.push_many(last) == whole.push_many(last) == here.push_many(last)


def test_keys_that_are_dropped_leave_the_others_as_they_were():
    task, kept = t.RunningMedian(by=("key",), ttl="1h"), t.RunningMedian(by=("key",))
    session, other = task.session(), kept.session()
    session.push_many([{"event_time": NOON, "key": 9, "value": 1.0, "action": 1}, *rows(50, 2)])
    other.push_many(rows(50, 2))
    again = rows(1, 2, start=1_800)
    assert session.push_many(again) == other.push_many(again)
    late = rows(30, 2, start=3_900)  # the key 9 is dropped with the snapshot
    assert session.push_many(late) == other.push_many(late)
    size = session._state.size
    session.snapshot()
    assert (size, session._state.size) == (3, 2)
    late = rows(30, 2, start=4_000)
    assert session.push_many(late) == other.push_many(late)
