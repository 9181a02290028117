"""State of a task that holds rows of all keys together."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from riot_ops.core.errors import StateError
from riot_ops.core.operator import StateField
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.runtime.state import KeyedState
from riot_ops.task import PooledTask


@dataclass(frozen=True, kw_only=True)
class Pairs(PooledTask):
    """Emits rows in pairs of one key, and rejects the rest at the end."""

    def state_fields(self):
        return {"held": StateField("rows", initial=None), "batches": StateField("int64")}

    def update(self, batch, slots, state, rejects):
        order = np.argsort(slots, kind="stable")
        place = np.arange(order.size) - np.searchsorted(slots[order], slots[order])
        lengths = np.bincount(slots, minlength=1)[slots[order]] if slots.size else slots
        paired = place < lengths // 2 * 2
        rest = np.sort(order[~paired])
        state["held"][0] = batch.take(pa.array(rest)) if rest.size else None
        state["batches"][0] += 1
        return batch.take(pa.array(order[paired]))

    def flush_held(self, held, slots, state, rejects):
        rejects.reject(held, np.arange(slots.size), "alone", "no other row")


def rows(*keys):
    return pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.int64()), "value": [0.0] * len(keys)})


def test_held_rows_come_again_and_keys_are_not_kept():
    state, rejects = KeyedState(Pairs(by=("key",))), RejectedRecords("pairs")
    assert state.update(rows(7, 8, 7), rejects)[0]["key"].to_pylist() == [7, 7]
    assert state.update(rows(), rejects)[0].num_rows == 0
    assert state.update(rows(9, 8), rejects)[0]["key"].to_pylist() == [8, 8]
    assert state.size == 1
    assert state.flush(rejects) is None
    assert [(e["reason"], e["raw"]) for b in rejects.take() for e in b.to_pylist()] == [
        ("alone", '{"key": 9, "value": 0.0}')
    ]


@pytest.mark.long
def test_state_does_not_grow_with_the_keys_seen():
    state, rejects = KeyedState(Pairs(by=("key",))), RejectedRecords("pairs")
    sizes = []
    for start in range(0, 1_000_000, 100_000):
        state.update(rows(*np.repeat(np.arange(start, start + 100_000), 2).tolist(), -1 - start), rejects)
        sizes.append((state.nbytes, len(state.snapshot())))
    assert max(n for n, _ in sizes) < 10_000
    assert max(n for _, n in sizes) < 5_000


@pytest.mark.parametrize("kind", ["full", "delta"])
def test_snapshots_hold_rows(kind):
    task = Pairs(by=("key",))
    state, rejects = KeyedState(task), RejectedRecords("pairs")
    state.update(rows(1), rejects)
    first = state.snapshot()
    state.update(rows(2, 1), rejects)
    second = state.snapshot(kind)
    again = KeyedState(task)
    again.restore(first)
    again.restore(second)
    assert again.arrays["held"][0]["key"].to_pylist() == [2]
    assert again.arrays["batches"][0] == 2
    assert again.update(rows(2), rejects)[0]["key"].to_pylist() == [2, 2]
    with pytest.raises(StateError):
        KeyedState(Pairs(by=("value",))).restore(first)
