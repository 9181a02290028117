"""State as a table, compared with state computed by hand."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.clock import NEVER
from riot_ops.core.errors import StateError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.runtime.state import KeyedState
from riot_ops.runtime.state_table import live_rows, state_table


def counted():
    def count(seen, row):
        return (seen or 0) + 1, row

    return ro.keyed(count, by="device", ttl="10s")


PLAIN = t.Variance(by=("device",))
records = st.lists(st.tuples(st.sampled_from("abcü"), st.integers(0, 60)), max_size=12)


@pytest.mark.parametrize("task", [PLAIN, PLAIN.replace(ttl="10s"), counted()], ids=["plain", "ttl", "function"])
@given(batches=st.lists(st.tuples(records, st.booleans()), min_size=1, max_size=6))
def test_table_of_base_and_deltas(task, batches):
    """A key is alive while its last record is within the time to live of the newest record."""
    state, snapshots, last, counts, now = KeyedState(task), [], {}, {}, -1
    for i, (rows, full) in enumerate(batches):
        # in order of time, so that the time to live is exact
        rows = [(d, now + 1 + s) for d, s in sorted(rows, key=lambda r: r[1])]
        for device, second in rows:
            now = max(now, second)
            alive = device in last and (task.ttl is None or second - last[device] <= 10)
            counts[device] = counts[device] + 1 if alive else 1
            last[device] = second
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(len(rows)), pa.int64()),
                "event_time": pa.array([s * 1_000_000 for _, s in rows], pa.int64()).cast(TIMESTAMP),
                "device": pa.array([d for d, _ in rows], pa.string()),
                "value": pa.array([float(s) for _, s in rows]),
            }
        )
        state.update(batch, RejectedRecords("it"))
        snapshots.append(state.snapshot("full" if full or i == 0 else "delta"))
    found = state_table(snapshots)
    field = "k of all.value" if task is not None and "k of all.value" in found.column_names else "state"
    got = {r["device"]: int(r[field]) for r in found.select(["device", field]).to_pylist()} if len(found) else {}
    assert len(got) == len(found), "each key once"
    assert got == {d: n for d, n in counts.items() if task.ttl is None or now - last[d] <= 10}


def test_block_sums_are_decoded_to_totals():
    rows = [{"device": d, "value": v, "seq": i} for i, (d, v) in enumerate([("a", 1.5), ("b", -2.0), ("a", 2.0)])]
    for options in ({"window": 5}, {"window": 5, "mode": "sliding"}):
        session = t.MovingAverage(by="device", **options).session()
        session.push_many(rows)
        assert state_table([session.snapshot()]).select(["device", "total", "n"]).to_pylist() == [
            {"device": "a", "total": 3.5, "n": 2},
            {"device": "b", "total": -2.0, "n": 1},
        ]


def test_unknown_task_has_its_declared_fields():
    session = t.MovingAverage(by="device", window=5).session()
    session.push({"device": "a", "value": 1.0})
    unknown = type("Other", (t.MovingAverage,), {"code": ""})
    other = unknown(by=("device",), window=5).session()
    other.push({"device": "a", "value": 1.0})
    assert "rest" in state_table([other.snapshot()]).column_names
    assert "rest" not in state_table([session.snapshot()]).column_names


def test_other_bytes_are_refused():
    with pytest.raises(StateError, match=r"the state of it is damaged or not riot_ops state"):
        state_table([b"none"], " of it")
    with pytest.raises(StateError, match="there is no snapshot"):
        state_table([])


@pytest.mark.parametrize(("ttl_us", "alive"), [(None, [1, 2, 3]), (10, [1, 2, 3]), (9, [2, 3]), (4, [3])])
def test_keys_live_until_ttl_after_newest(ttl_us, alive):
    # slot 0 is written twice, and the later row counts
    table = pa.table({"slot": [0, 0, 1, 2], "last": [99, 90, 95, 100], "row": [1, 1, 2, 3]})
    keys = pa.table({"k": ["a", "b", "c"]})
    ttl = None if ttl_us is None else timedelta(microseconds=ttl_us)
    assert np.asarray(table["row"])[live_rows(table, keys, ttl, NEVER)].tolist() == alive


def test_returned_key_has_one_row():
    table, keys = pa.table({"slot": [0, 1, 2], "last": [10, 20, 30]}), pa.table({"k": ["a", "b", "a"]})
    assert live_rows(table, keys, timedelta(microseconds=100), NEVER).tolist() == [1, 2]
    assert live_rows(table, keys, timedelta(microseconds=100), 120).tolist() == [1, 2]
    assert live_rows(table, keys, timedelta(microseconds=100), 121).tolist() == [2]
    assert live_rows(table, keys, None, 131).tolist() == [1, 2]
