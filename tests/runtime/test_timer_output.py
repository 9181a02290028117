"""Timer output, compared with sorting its records one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from riot_ops.core.clock import Ticks
from riot_ops.core.operator import TimerOutput
from riot_ops.core.order import TIMER_ORDINALS
from riot_ops.runtime.timer_output import timer_records


@pytest.mark.parametrize("rows", [0, 1, 30, 700, 5000])
@pytest.mark.parametrize("keys", [1, 40, 600])
def test_records_are_sorted_by_message_time_and_key_hash(rows, keys):
    """Covers few rows of many keys, many rows of few keys, equal hashes, and several rows of a key at one time."""
    rng = np.random.default_rng(rows * keys)
    hashes = rng.integers(0, 2**64, keys, dtype=np.uint64)
    hashes[: keys // 8] = hashes[keys // 8 : keys // 8 * 2]
    slots = rng.integers(0, keys, rows)
    times = np.sort(rng.integers(1, 9, rows)) * 10
    if rows == 700:  # tasks may emit unsorted times
        rng.shuffle(times)
    moves = Ticks(0, np.array([0, 3]), np.array([50, 90]), np.array([7, 11]), 1, 0)
    due = TimerOutput(slots, pa.record_batch({"place": pa.array(np.arange(rows))}), times)
    made = timer_records(due, moves, 5, 0, pa.record_batch({"key": pa.array(np.arange(keys))}), hashes)
    signed = hashes.view(np.int64)
    seq = [7 if time + 5 <= 50 else 11 for time in times]
    wanted = sorted(range(rows), key=lambda i: (seq[i], times[i], signed[slots[i]], i))
    assert made["place"].to_pylist() == wanted
    assert made["seq"].to_pylist() == [seq[i] for i in wanted]
    assert made["key"].to_pylist() == [slots[i] for i in wanted]
    assert made[TIMER_ORDINALS[1]].to_pylist() == [signed[slots[i]] for i in wanted]
    numbered = timer_records(
        due, moves, 5, 0, pa.record_batch({"key": pa.array([*map(str, range(keys))])}), hashes, {"key"}
    )
    assert pa.types.is_dictionary(numbered["key"].type)
    assert numbered["key"].to_pylist() == [str(slots[i]) for i in wanted]
    if keys == 40:  # rows of a key at one time are numbered
        last = [(times[i], slots[i]) for i in wanted]
        assert made[TIMER_ORDINALS[2]].to_pylist() == [
            next(n for n in range(k + 1) if n == k or last[k - n - 1] != last[k]) for k in range(rows)
        ]
