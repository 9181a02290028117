"""Timer output: records that a task emits because stream time has passed, with keys, times and order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import StepClock, Ticks
from riot_ops.core.operator import TimerOutput
from riot_ops.core.order import TIMER_OFFSET, TIMER_ORDINALS
from riot_ops.core.schema import EARLIEST, LATEST, TIMESTAMP
from riot_ops.kernels.arrays.arrow import int64_column, readonly
from riot_ops.kernels.arrays.dictionaries import take_encoded
from riot_ops.kernels.arrays.ordering import are_sorted, order_by_number_within, run_edges, sort_runs
from riot_ops.kernels.arrays.rows import take
from riot_ops.kernels.jit import kernel

__all__ = ["no_ticks", "timer_records", "with_leading_fields"]

EMPTY = np.empty(0, np.int64)


def timer_records(
    due: TimerOutput,
    ticks: Ticks,
    allowed_lateness: int,
    last: int,
    keys: pa.RecordBatch,
    hashes: npt.NDArray[np.uint64],
    coded: Collection[str] = (),
) -> pa.RecordBatch:
    """Return timer output as records, in order; see :mod:`riot_ops.core.order`.

    Parameters
    ----------
    allowed_lateness : int
        Of the task's clock, in microseconds.
    last : int
        Message number of the records where time does not move, at the end of a stream.
    keys, hashes
        Key fields and hash by slot.
    coded
        Key fields that are emitted dictionary-encoded.
    """
    assert due.times is not None
    n = due.slots.size
    rising = are_sorted([due.times], n)
    order = np.arange(n) if rising else np.argsort(due.times, kind="stable")
    by_key = readonly(hashes.view(np.int64))
    order = _sort_by_key(run_edges(due.times if rising else due.times[order]), order, due.slots, by_key)
    slots, seq, ordinals, keyed, ranks, times = (np.empty(n, np.int64) for _ in range(6))
    _assign_places(
        readonly(order), readonly(due.slots), readonly(due.times), by_key, allowed_lateness, ticks.lag,
        readonly(ticks.times), readonly(ticks.seq), last, slots, seq, ordinals, keyed, ranks, times,
    )  # fmt: skip
    columns = {"seq": int64_column(seq)}
    columns |= dict(zip(TIMER_ORDINALS, map(int64_column, (ordinals - TIMER_OFFSET, keyed, ranks)), strict=True))
    columns["event_time"] = int64_column(times, TIMESTAMP)
    columns |= {name: (take_encoded if name in coded else take)(keys.column(name), slots) for name in keys.schema.names}
    columns |= {name: take(due.rows.column(name), order) for name in due.rows.schema.names}
    return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])


@kernel
def _assign_places(
    order: Any, slots: Any, due: Any, hashes: Any, allowed_lateness: Any, lag: Any, moments: Any, messages: Any,
    last: Any, slot: Any, seq: Any, ordinal: Any, key: Any, rank: Any, time: Any,
) -> None:  # fmt: skip
    """Fill in key, message and ordinals of timer output, sorted by time and key.

    The message is the first that moves time far enough, or else the last that moves it, if there is one.
    """
    m = 0
    n = 0
    for i in range(order.size):
        row = np.uint64(order[i])
        s, t = slots[row], due[row]
        while m + 1 < moments.size and moments[np.uint64(m)] < t + allowed_lateness:
            m += 1
        moment = t + allowed_lateness + lag
        n = n + 1 if i > 0 and slot[i - 1] == s and ordinal[i - 1] == moment else 0
        slot[i] = s
        seq[i] = messages[np.uint64(m)] if moments.size > 0 else last
        ordinal[i] = moment
        key[i] = hashes[np.uint64(s)]
        rank[i] = n
        time[i] = min(max(t - 1, EARLIEST), LATEST)  # the last tick of a stream may lie after its last record


def no_ticks(now: int, of: Ticks | StepClock | None) -> Ticks:
    """Return stream time that does not move."""
    return Ticks(now, EMPTY, EMPTY, EMPTY, *((1, 0) if of is None else (of.resolution, of.lag)))


def with_leading_fields(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Return the batch with these fields first, null where it lacks them."""
    have = batch.schema.names
    if have[: len(names)] == names:
        return batch
    nothing = pa.nulls(batch.num_rows)
    order = list(dict.fromkeys([*names, *have]))
    return pa.RecordBatch.from_arrays([batch.column(n) if n in have else nothing for n in order], names=order)


def _sort_by_key(
    edges: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Sort the rows of each run by the hash of their key, stably."""
    if slots.size < hashes.size:
        return sort_runs(edges, order, hashes[slots], np.zeros(slots.size, np.int64))
    rising = np.argsort(hashes)  # where most keys have output, sort them once for all runs
    ranks = np.empty(hashes.size, np.int64)
    ranks[rising] = np.cumsum(np.diff(hashes[rising], prepend=hashes[rising[:1]]) != 0)
    return order_by_number_within(edges, order, ranks[slots], hashes.size)
