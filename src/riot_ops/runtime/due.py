"""What a task gives because time has come, as records: with keys, time and order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import StepClock, Ticks
from riot_ops.core.operator import Due
from riot_ops.core.order import TICK_PLACES, place_of
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import readonly, words
from riot_ops.kernels.arrays.codes import taken_coded
from riot_ops.kernels.arrays.ordering import are_sorted, by_number_within, edges_of, order_within
from riot_ops.kernels.arrays.rows import taken
from riot_ops.kernels.arrays.selection import Rows
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.timestamps import microseconds

__all__ = ["due_records", "seen_at", "still", "with_fields"]

NOTHING = np.empty(0, np.int64)


def due_records(
    due: Due,
    ticks: Ticks,
    allowed_lateness: int,
    last: int,
    keys: pa.RecordBatch,
    hashes: npt.NDArray[np.uint64],
    coded: Collection[str] = (),
) -> pa.RecordBatch:
    """The records, in order; see :mod:`riot_ops.core.order`.

    Parameters
    ----------
    allowed_lateness : int
        That of the task's clock, in microseconds.
    last : int
        The message that they have where time does not move, at the end of a stream.
    keys, hashes
        Key fields and hash by slot.
    coded
        Key fields that are put out as numbers into the list of their values.
    """
    assert due.times is not None
    n = due.slots.size
    rising = are_sorted([due.times], n)
    order = np.arange(n) if rising else np.argsort(due.times, kind="stable")
    by_key = readonly(hashes.view(np.int64))
    order = _by_key(edges_of(due.times if rising else due.times[order]), order, due.slots, by_key)
    slots, seq, places, keyed, ranks, times = (np.empty(n, np.int64) for _ in range(6))
    _placed(
        readonly(order), readonly(due.slots), readonly(due.times), by_key, allowed_lateness, ticks.lag, readonly(ticks.times),
        readonly(ticks.seq), last, slots, seq, places, keyed, ranks, times,
    )  # fmt: skip
    columns = {"seq": words(seq)}
    columns |= dict(zip(TICK_PLACES, map(words, (place_of(places), keyed, ranks)), strict=True))
    columns["event_time"] = words(times, TIMESTAMP)
    columns |= {name: (taken_coded if name in coded else taken)(keys.column(name), slots) for name in keys.schema.names}
    columns |= {name: taken(due.rows.column(name), order) for name in due.rows.schema.names}
    return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])


@kernel
def _placed(
    order: Any, slots: Any, due: Any, hashes: Any, allowed_lateness: Any, lag: Any, moments: Any, messages: Any, last: Any,
    slot: Any, seq: Any, place: Any, key: Any, rank: Any, time: Any,
) -> None:  # fmt: skip
    """Key, message and places of what is due, in the order of times and keys.

    The message is the first that moves time as far as that, or else the last that moves it, where there is one.
    """
    m = 0
    n = 0
    for i in range(order.size):
        row = np.uint64(order[i])
        s, t = slots[row], due[row]
        while m + 1 < moments.size and moments[np.uint64(m)] < t + allowed_lateness:
            m += 1
        n = n + 1 if i > 0 and slot[i - 1] == s and time[i - 1] == t - 1 else 0
        slot[i] = s
        seq[i] = messages[np.uint64(m)] if moments.size > 0 else last
        place[i] = t + allowed_lateness + lag
        key[i] = hashes[np.uint64(s)]
        rank[i] = n
        time[i] = t - 1


def still(now: int, of: Ticks | StepClock | None) -> Ticks:
    """Stream time that does not move."""
    return Ticks(now, NOTHING, NOTHING, NOTHING, *((1, 0) if of is None else (of.resolution, of.lag)))


def with_fields(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """The batch with these fields first, null where it lacks them."""
    have = batch.schema.names
    if have[: len(names)] == names:
        return batch
    nothing = pa.nulls(batch.num_rows)
    order = list(dict.fromkeys([*names, *have]))
    return pa.RecordBatch.from_arrays([batch.column(n) if n in have else nothing for n in order], names=order)


def _by_key(
    edges: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """The order with the rows of each run sorted by the hash of their key; those of one key stay in order."""
    if slots.size < hashes.size:
        return order_within(edges, order, hashes[slots], np.zeros(slots.size, np.int64))
    rising = np.argsort(hashes)  # where most keys have something, these are sorted once for all runs
    ranks = np.empty(hashes.size, np.int64)
    ranks[rising] = np.cumsum(np.diff(hashes[rising], prepend=hashes[rising[:1]]) != 0)
    return by_number_within(edges, order, ranks[slots], hashes.size)


def seen_at(batch: Rows, ticks: Ticks, exact: bool) -> npt.NDArray[np.int64]:
    """Stream time at each record, by which its key lives; ``exact``: to the microsecond."""
    seen: npt.NDArray[np.int64] = ticks.at_rows(batch.num_rows)
    if not exact:
        return seen
    times, present = microseconds(batch.column("event_time"))  # one that is too far ahead says nothing
    return np.where(present, np.clip(times, seen, seen + (ticks.resolution - 1)), seen)
