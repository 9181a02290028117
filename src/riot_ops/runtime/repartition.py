"""Repartitioning of state: from the snapshots of a step over some buckets to those over others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import StateError
from riot_ops.core.special_operators import PooledOperator
from riot_ops.graph.lowering import Step
from riot_ops.kernels.arrays.arrow import concat_batches
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.runtime.snapshot import decode_field, encode_field, encode_rows, unpack_snapshot
from riot_ops.runtime.state import KeyedState

__all__ = ["repartition_state"]

#: State field of a pooled task with the rows that it holds.
HELD = "held"


def repartition_state(step: Step, parts: Sequence[bytes], fields: Sequence[str], n: int) -> list[bytes]:
    """Repartition the state of a keyed step to n buckets, from full snapshots over any number of buckets.

    Parameters
    ----------
    step : Step
        With the operator that wrote the snapshots.
    parts : sequence of bytes
        Snapshots without a common key.
    fields : sequence of str
        The fields of the step's key that decide the bucket of a record; none for one bucket.
    n : int
        Number of buckets.

    Returns
    -------
    list of bytes
        A full snapshot for each bucket. Stream time is the maximum of all parts. The rows of a task that holds those of
        all keys together go to the buckets of their keys.

    Raises
    ------
    StateError
        If the state is not organized by key, and so cannot be split or joined.
    """
    states = [_empty(step) for _ in range(n)]
    found = [unpack_snapshot(part, f" of step {step.id!r}") for part in parts]
    pooled = isinstance(states[0].task, PooledOperator)
    if pooled:
        for state, piece in zip(states, _pools(step, [rows for *_, rows, _ in found], fields, n), strict=True):
            identity, names, time, _, _, keys = found[0]
            state.restore(encode_rows(_as_kind(identity, "full"), names, time, piece, keys, 0))
    for identity, names, time, _, rows, keys in () if pooled else found:
        if not rows.num_rows:
            continue
        if n > 1 and fields and keys.num_rows != rows.num_rows:
            raise StateError(f"the state of step {step.id!r} is not by key and cannot be split")
        buckets = _bucket_of_rows(keys, rows.num_rows, fields, n)
        for bucket, state in enumerate(states):
            chosen = np.flatnonzero(buckets == bucket)
            if chosen.size:
                if state.size and not state.key_fields:
                    raise StateError(f"the state of step {step.id!r} is not by key and cannot be joined")
                state.restore(_piece(identity, names, time, rows, keys, chosen, state.size))
    latest = max((time for _, _, time, *_ in found if time), default=None)
    for state in states:
        if state.time is not None and latest:
            state.time.restore(latest)
    return [state.snapshot() for state in states]


def _bucket_of_rows(keys: pa.RecordBatch, rows: int, fields: Sequence[str], n: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each key."""
    if n == 1 or not fields:
        return np.zeros(rows, np.int64)
    h1, _ = hash_columns([keys.column(name) for name in fields], rows)
    return ((h1 >> np.uint64(32)) % np.uint64(n)).astype(np.int64)


def _pools(step: Step, parts: Sequence[pa.RecordBatch], fields: Sequence[str], n: int) -> list[pa.RecordBatch]:
    """Split the state of a task that holds rows of all keys together: each row goes to the bucket of its key."""
    nonempty = [rows for rows in parts if rows.num_rows]
    if not nonempty:
        return [parts[0]] * n
    field, one = _empty(step).fields[HELD], np.zeros(1, np.int64)
    column = nonempty[0].schema.get_field_index(f"state.{HELD}")
    rests = [rows.remove_column(column) for rows in nonempty]
    if any(rest.to_pylist() != rests[0].to_pylist() for rest in rests):
        raise StateError(f"the state of step {step.id!r} is not by key and cannot be joined")
    pools = [decode_field(field, rows.column(column), field.empty(1), one)[0] for rows in nonempty]
    held = [pool for pool in pools if pool is not None]
    if not held:
        return [nonempty[0]] * n
    pool = concat_batches(held)
    buckets = _bucket_of_rows(pool, pool.num_rows, fields, n)
    found = []
    for bucket in range(n):
        own = field.empty(1)
        chosen = np.flatnonzero(buckets == bucket)
        own[0] = pool.take(pa.array(chosen)) if chosen.size else None
        found.append(nonempty[0].set_column(column, nonempty[0].schema.field(column), encode_field(field, own, one)))
    return found


def _empty(step: Step) -> KeyedState:
    return KeyedState(step.operator, step.key, step.clock)  # type: ignore[arg-type]


def _piece(
    identity: dict[str, Any],
    names: list[str],
    time: list[int],
    rows: pa.RecordBatch,
    keys: pa.RecordBatch,
    chosen: npt.NDArray[np.int64],
    begin: int,
) -> bytes:
    """Return a snapshot of some slots, renumbered from ``begin``."""
    picked = rows.take(pa.array(chosen))
    slots = pa.array(np.arange(begin, begin + chosen.size, dtype=np.int32))
    slot_column = picked.schema.get_field_index("slot")
    state = picked.set_column(slot_column, picked.schema.field(slot_column), slots)
    keys = keys.take(pa.array(chosen)) if keys.num_rows else keys
    return encode_rows(_as_kind(identity, "delta" if begin else "full"), names, time, state, keys, begin)


def _as_kind(identity: dict[str, Any], kind: str) -> bytes:
    return json.dumps({**identity, "kind": kind}).encode()
