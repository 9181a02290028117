"""State that moves: the snapshots of a step over some buckets, as those over others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import StateError
from riot_ops.graph.lowering import Step
from riot_ops.kernels.hashing import hash_columns
from riot_ops.runtime.snapshot import META, NAMES, TIME, pack_snapshot, to_ipc, unpack_snapshot
from riot_ops.runtime.state import KeyedState

__all__ = ["repartitioned"]


def repartitioned(step: Step, parts: Sequence[bytes], fields: Sequence[str], n: int) -> list[bytes]:
    """The state of a keyed step in n buckets, of full snapshots of it in any number of others.

    Parameters
    ----------
    step : Step
        With the operator that wrote them.
    parts : sequence of bytes
        No two of them have a key in common.
    fields : sequence of str
        Fields of the step's key, by which records go to the buckets; none for one bucket.
    n : int
        Number of buckets.

    Returns
    -------
    list of bytes
        A full snapshot for each bucket. Stream time is that of the part that is furthest.

    Raises
    ------
    StateError
        Where the state does not lie by keys, so that it cannot be parted, or put together.
    """
    news = [_empty(step) for _ in range(n)]
    times = []
    for part in parts:
        identity, names, time, _, rows, keys = unpack_snapshot(part, f" of step {step.id!r}")
        times.append(time)
        if not rows.num_rows:
            continue
        if n == 1 or not fields:
            places = np.zeros(rows.num_rows, np.int64)
        elif keys.num_rows != rows.num_rows or news[0].task.pooled:
            raise StateError(f"the state of step {step.id!r} is not by keys, and cannot be parted")
        else:
            h1, _ = hash_columns([keys.column(name) for name in fields], keys.num_rows)
            places = ((h1 >> np.uint64(32)) % np.uint64(n)).astype(np.int64)
        for place, state in enumerate(news):
            chosen = np.flatnonzero(places == place)
            if chosen.size:
                if state.size and (state.task.pooled or not state.key_fields):
                    raise StateError(f"the state of step {step.id!r} is not by keys, and cannot be put together")
                state.restore(_piece(identity, names, time, rows, keys, chosen, state.size))
    latest = max((time for time in times if time), default=None)
    for state in news:
        if state.time is not None and latest:
            state.time.restore(latest)
    return [state.snapshot() for state in news]


def _empty(step: Step) -> KeyedState:
    return KeyedState(step.operator, step.key, None, step.clock)  # type: ignore[arg-type]


def _piece(
    identity: dict[str, Any],
    names: list[str],
    time: list[int],
    rows: pa.RecordBatch,
    keys: pa.RecordBatch,
    chosen: npt.NDArray[np.int64],
    begin: int,
) -> bytes:
    """Some slots of a snapshot, as the ones from a number on."""
    picked = rows.take(pa.array(chosen))
    slots = pa.array(np.arange(begin, begin + chosen.size, dtype=np.int32))
    place = picked.schema.get_field_index("slot")
    state = picked.set_column(place, picked.schema.field(place), slots)
    state = state.replace_schema_metadata(
        {META: json.dumps({**identity, "kind": "delta" if begin else "full"}).encode()}
    )
    added = keys.take(pa.array(chosen)) if keys.num_rows else keys
    notes = {NAMES: json.dumps(names).encode(), TIME: json.dumps(time).encode()}
    return pack_snapshot(begin, to_ipc(state), to_ipc(added.replace_schema_metadata(notes)))
