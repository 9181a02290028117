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
from riot_ops.kernels.arrays.arrow import joined
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.runtime.snapshot import (
    META,
    NAMES,
    TIME,
    decode_field,
    encode_field,
    pack_snapshot,
    to_ipc,
    unpack_snapshot,
)
from riot_ops.runtime.state import KeyedState

__all__ = ["repartitioned"]

#: The field of a pooled task's state that has the rows that it holds.
HELD = "held"


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
        A full snapshot for each bucket. Stream time is that of the part that is furthest. Of a task that holds rows of
        all keys together (``pooled``) each row goes where its key goes.

    Raises
    ------
    StateError
        Where the state does not lie by keys, so that it cannot be parted, or put together.
    """
    news = [_empty(step) for _ in range(n)]
    found = [unpack_snapshot(part, f" of step {step.id!r}") for part in parts]
    if news[0].task.pooled:
        for state, piece in zip(news, _pools(step, [rows for *_, rows, _ in found], fields, n), strict=True):
            identity, names, time, _, _, keys = found[0]
            state.restore(_packed(identity, names, time, piece, keys, 0))
    for identity, names, time, _, rows, keys in found if not news[0].task.pooled else ():
        if not rows.num_rows:
            continue
        if n > 1 and fields and keys.num_rows != rows.num_rows:
            raise StateError(f"the state of step {step.id!r} is not by keys, and cannot be parted")
        places = _places(keys, rows.num_rows, fields, n)
        for place, state in enumerate(news):
            chosen = np.flatnonzero(places == place)
            if chosen.size:
                if state.size and not state.key_fields:
                    raise StateError(f"the state of step {step.id!r} is not by keys, and cannot be put together")
                state.restore(_piece(identity, names, time, rows, keys, chosen, state.size))
    latest = max((time for _, _, time, *_ in found if time), default=None)
    for state in news:
        if state.time is not None and latest:
            state.time.restore(latest)
    return [state.snapshot() for state in news]


def _places(keys: pa.RecordBatch, rows: int, fields: Sequence[str], n: int) -> npt.NDArray[np.int64]:
    """The bucket of each key."""
    if n == 1 or not fields:
        return np.zeros(rows, np.int64)
    h1, _ = hash_columns([keys.column(name) for name in fields], rows)
    return ((h1 >> np.uint64(32)) % np.uint64(n)).astype(np.int64)


def _pools(step: Step, parts: Sequence[pa.RecordBatch], fields: Sequence[str], n: int) -> list[pa.RecordBatch]:
    """The state of a task that holds rows of all keys together: each row goes where its key goes."""
    there = [rows for rows in parts if rows.num_rows]
    if not there:
        return [parts[0]] * n
    field, one = _empty(step).fields[HELD], np.zeros(1, np.int64)
    column = there[0].schema.get_field_index(f"state.{HELD}")
    rests = [rows.remove_column(column) for rows in there]
    if any(rest.to_pylist() != rests[0].to_pylist() for rest in rests):
        raise StateError(f"the state of step {step.id!r} is not by keys, and cannot be put together")
    pools = [decode_field(field, rows.column(column), field.empty(1), one)[0] for rows in there]
    held = [pool for pool in pools if pool is not None]
    if not held:
        return [there[0]] * n
    pool = joined(held)
    places = _places(pool, pool.num_rows, fields, n)
    found = []
    for place in range(n):
        own = field.empty(1)
        chosen = np.flatnonzero(places == place)
        own[0] = pool.take(pa.array(chosen)) if chosen.size else None
        found.append(there[0].set_column(column, there[0].schema.field(column), encode_field(field, own, one)))
    return found


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
    return _packed(identity, names, time, state, keys.take(pa.array(chosen)) if keys.num_rows else keys, begin)


def _packed(
    identity: dict[str, Any], names: list[str], time: list[int], rows: pa.RecordBatch, keys: pa.RecordBatch, begin: int
) -> bytes:
    """A snapshot of these rows and keys."""
    state = rows.replace_schema_metadata(
        {META: json.dumps({**identity, "kind": "delta" if begin else "full"}).encode()}
    )
    notes = {NAMES: json.dumps(names).encode(), TIME: json.dumps(time).encode()}
    return pack_snapshot(begin, to_ipc(state), to_ipc(keys.replace_schema_metadata(notes)))
