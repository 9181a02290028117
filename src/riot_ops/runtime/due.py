"""What a task gives because time has come, as records: with keys, time and order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import StepClock, Ticks
from riot_ops.core.operator import Due
from riot_ops.core.order import TICK_PLACES, place_of
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.ordering import are_sorted, by_number_within, edges_of, order_within, places_within
from riot_ops.kernels.rows import taken
from riot_ops.kernels.selection import Rows
from riot_ops.kernels.timestamps import microseconds

__all__ = ["due_records", "seen_at", "still", "with_fields"]

NOTHING = np.empty(0, np.int64)


def due_records(
    due: Due, ticks: Ticks, delay: int, last: int, keys: pa.RecordBatch, hashes: npt.NDArray[np.uint64]
) -> pa.RecordBatch:
    """The records, in order; see :mod:`riot_ops.core.order`.

    Parameters
    ----------
    delay : int
        That of the task's clock, in microseconds.
    last : int
        The message that they have where time does not move, at the end of a stream.
    keys, hashes
        Key fields and hash by slot.
    """
    assert due.times is not None
    n = due.slots.size
    reached = due.times + delay
    if ticks.seq.size:
        runs = edges_of(reached)  # many are due at one time
        moves = np.minimum(np.searchsorted(ticks.times, reached[runs[:-1]]), ticks.seq.size - 1)
        seq = np.repeat(ticks.seq[moves], np.diff(runs))
    else:
        seq = np.full(n, last)
    by_key = hashes.view(np.int64)
    order = np.arange(n) if are_sorted([seq, reached], n) else np.lexsort((reached, seq))
    order = _by_key(edges_of(seq[order], reached[order]), order, due.slots, by_key)
    slots, reached = due.slots[order], reached[order]
    edges = edges_of(slots, reached)
    ranks = places_within(edges)
    columns = {"seq": pa.array(seq[order])}
    columns |= dict(zip(TICK_PLACES, map(pa.array, (place_of(reached + ticks.lag), by_key[slots], ranks)), strict=True))
    columns["event_time"] = pa.array(due.times[order] - 1).cast(TIMESTAMP)
    if keys.num_columns:
        columns |= _taken(keys, slots)
    return pa.RecordBatch.from_pydict(columns | _taken(due.rows, order))


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


def _taken(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
    return {name: taken(column, rows) for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def seen_at(batch: Rows, ticks: Ticks, exact: bool) -> npt.NDArray[np.int64]:
    """Stream time at each record, by which its key lives; ``exact``: to the microsecond."""
    seen: npt.NDArray[np.int64] = ticks.at_rows(batch.num_rows)
    if not exact:
        return seen
    times, present = microseconds(batch.column("event_time"))  # one that is too far ahead says nothing
    return np.where(present, np.clip(times, seen, seen + (ticks.resolution - 1)), seen)
