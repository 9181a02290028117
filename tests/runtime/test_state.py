"""Keyed state with fields that grow: snapshots of any width, and keys that expire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from riot_ops import tasks as t
from riot_ops.core.operator import StateField
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.dataflows.dspbench.operators import RunningMedian
from riot_ops.runtime.state import KeyedState

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_width_doubles_until_it_fits():
    field = StateField("int32", 4, initial=7, growable=True)
    array = field.empty(2)
    array[:] = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert field.widen(array, 4) is array
    grown = field.widen(array, 9)
    assert grown.tolist() == [[1, 2, 3, 4] + [7] * 12, [5, 6, 7, 8] + [7] * 12]
    assert grown.dtype == np.dtype("int32")
    assert field.empty(3, grown).shape == (3, 16)
    assert StateField("float64", 2).empty(3, grown).shape == (3, 2)


def rows(n, keys, start=0):
    """Return values that are added to keys in turn, most of them to the first."""
    return [
        {"event_time": NOON + timedelta(seconds=start + i), "key": k, "value": float((7 * i + k) % 31), "action": 1}
        for i in range(n) for k in range(keys) if k == 0 or i % (k + 1) == 0
    ]  # fmt: skip


def update(state, records):
    """Process records, and return the task's output."""
    batch = pa.RecordBatch.from_pylist(records)
    return [row for out in state.update(batch, RejectedRecords("median")) for row in out.to_pylist()]


@pytest.mark.parametrize("kind", ["full", "delta"])
def test_snapshots_restore_growing_fields(kind):
    whole, here, there = (KeyedState(RunningMedian(by=("key",))) for _ in range(3))
    update(whole, rows(5, 2) + rows(60, 3))
    update(here, rows(5, 2))
    there.restore(here.snapshot("full"))
    update(here, rows(60, 3))
    there.restore(here.snapshot(kind))
    last = [{"event_time": NOON, "key": k, "value": v, "action": 1} for k in range(3) for v in (0.0, 30.0, 1.0)]
    assert update(there, last) == update(whole, last) == update(here, last)


def test_expired_keys_leave_the_others_unchanged():
    state, other = KeyedState(RunningMedian(by=("key",), ttl="1h")), KeyedState(RunningMedian(by=("key",)))
    update(state, [{"event_time": NOON, "key": 9, "value": 1.0, "action": 1}, *rows(50, 2)])
    update(other, rows(50, 2))
    again = rows(1, 2, start=1_800)
    assert update(state, again) == update(other, again)
    late = rows(30, 2, start=3_900)  # key 9 is dropped with the snapshot
    assert update(state, late) == update(other, late)
    assert state.size == 3
    state.snapshot()
    assert state.size == 2
    late = rows(30, 2, start=4_000)
    assert update(state, late) == update(other, late)


class Rounded(t.KalmanFilter):
    """A user's task, which knows batches only."""

    def update(self, batch, slots, state, rejects):
        made = super().update(batch, slots, state, rejects)
        return made.set_column(made.schema.get_field_index("value"), "value", pa.compute.round(made["value"]))


class Read(Rounded):
    accepts_lazy_rows = True


def test_overridden_method_gets_a_batch_unless_its_class_accepts_lazy_rows():
    batch = pa.record_batch({"key": ["a", "b"], "value": [3.0, 5.0]})
    (found,) = KeyedState(Rounded(by="key")).update(batch, RejectedRecords("rounded"))
    assert found["value"].to_pylist() == [3.0, 5.0]
    with pytest.raises((TypeError, AttributeError), match="Rows"):
        KeyedState(Read(by="key")).update(batch, RejectedRecords("read"))
