"""Keyed state as a structure of arrays: slots, growth, snapshots, time to live.

A task declares the state of one key as named fields; :class:`KeyedState` owns an array per field
with one row per key. Snapshots are Arrow IPC streams whose metadata name the task, its version
and its parameters; a snapshot of anything else is refused. A *delta* snapshot holds only the keys
touched since the one before, so that its size follows the work done and not the number of keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import StateError
from riot_ops.core.operator import KeyedOperator, Operator, StateField, as_batch
from riot_ops.kernels.arrow import joined
from riot_ops.kernels.hashing import HashMemo, hash_columns
from riot_ops.kernels.index import KeyIndex
from riot_ops.kernels.timestamps import microseconds
from riot_ops.runtime.snapshot import META, NAMES, from_ipc, pack_snapshot, to_ipc, unpack_snapshot

__all__ = ["KeyedState", "key_numbers"]

SNAPSHOT_FORMAT = "1"


class KeyedState:
    """The state of one task over the keys of a stream (or of one bucket of it)."""

    def __init__(
        self, task: KeyedOperator, key_fields: tuple[str, ...] | None = None, memo: HashMemo | None = None
    ) -> None:
        self.task = task
        self._memo = memo
        self.key_fields = task.by if key_fields is None else key_fields
        self.fields = dict(task.state_fields())
        self._names: list[str] = []  # fields of the output
        self._reset()

    def _reset(self) -> None:
        ttl = self.task.ttl
        self.index = KeyIndex(int(ttl.total_seconds() * 1e6) if ttl else 0)
        self.arrays: dict[str, Any] = {name: field.empty(0) for name, field in self.fields.items()}
        self._keys: list[pa.RecordBatch] = []
        self._capacity = 0
        self._touched: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._saved = 0  # slots that an earlier snapshot holds the keys of
        self._now = np.iinfo(np.int64).min

    # -- running -----------------------------------------------------------------------------------

    def update(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        """Run the task over a batch whose rows are in order."""
        admitted = as_batch(self.task, "admit", self.task.admit(batch, dead))
        out = as_batch(self.task, "update", self._update(admitted, dead))
        self._names = out.schema.names
        return out

    def _update(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        if self.task.pooled:
            return self._update_pool(batch, dead)
        if batch.num_rows == 0 and not self.key_fields:
            return self.task.update(batch, np.empty(0, np.int64), self.arrays, dead)
        columns = [batch.column(name) for name in self.key_fields]
        h1, h2 = (self._memo or HashMemo()).hash_columns(columns, batch.num_rows)
        before = self.index.size
        if self.index.ttl:
            times, _ = microseconds(batch.column("event_time"))
            self._now = max(self._now, int(times.max())) if times.size else self._now
            slots = self.index.resolve(h1, h2, times)
        else:
            slots = self.index.resolve(h1, h2)
        if self.index.size > before:
            self._add_keys(batch, slots, before)
        self._touched[slots] = True
        return self.task.update(batch, slots, self.arrays, dead)

    def _update_pool(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        """Run a pooled task: its state is slot 0, and the rows held come before the new ones."""
        if self.index.size == 0:
            self.index.resolve(np.zeros(1, np.uint64), np.zeros(1, np.uint64))
            self._reserve(1)
        self._touched[0] = True
        held = self.arrays["held"][0]
        pool = batch if held is None else joined([held, batch])
        slots = key_numbers([pool.column(name) for name in self.key_fields], pool.num_rows)
        return self.task.update(pool, slots, self.arrays, dead)

    def flush(self, dead: DeadLetters | None = None) -> pa.RecordBatch | None:
        """What the task has left to say at the end of a bounded stream; ``dead`` collects what it rejects.

        Fields of earlier output that the task does not fill are null.
        """
        out = self._left(dead) if self.index.size else None
        return None if out is None else _with_fields(out, self._names)

    def _left(self, dead: DeadLetters | None) -> pa.RecordBatch | None:
        dead = DeadLetters(self.task.name()) if dead is None else dead
        if self.task.pooled:
            held = self.arrays["held"][0]
            if held is None:
                return None
            slots = key_numbers([held.column(name) for name in self.key_fields], held.num_rows)
            return self.task.end(held, slots, self.arrays, dead)
        live = self.index.live(self._now)
        if live.size < self.index.size:
            self._compact(live)
        return self.task.flush(self.keys(), self._trimmed())

    def merge(self, other: KeyedState) -> None:
        """Add the state that an equal task has over another part of the stream.

        Raises :class:`StateError` where the tasks differ, or states of this task cannot be merged:
        most depend on the order of the records, or (with a time to live) on when they came.
        """
        self._check_identity(other._identity("full"), " to merge")
        empty = {name: field.empty(0) for name, field in self.fields.items()}
        if self.task.ttl or self.task.merge(empty, empty) is None:
            raise StateError(f"two states of {self.task.name()} cannot be merged into one")
        before = self.index.size
        slots = self.index.resolve(*other.index.hashes)
        if self.index.size > before:
            self._add_keys(other.keys(), slots, before)
        merged = self.task.merge({n: a[slots] for n, a in self.arrays.items()}, other._trimmed())
        assert merged is not None
        for name, array in merged.items():
            self.arrays[name][slots] = array
        self._touched[slots] = True

    def keys(self) -> pa.RecordBatch:
        """The key fields of each slot."""
        if not self._keys:
            return pa.RecordBatch.from_pydict({})
        if len(self._keys) > 1:
            # a key field without any value may come without a type (from a session) before it comes with one
            table = pa.concat_tables(map(_as_table, self._keys), promote_options="default")
            self._keys = [pa.concat_batches(table.to_batches())]
        return self._keys[0]

    @property
    def size(self) -> int:
        """Number of slots."""
        return self.index.size

    @property
    def nbytes(self) -> int:
        """Bytes of arrays, index and keys (objects not counted)."""
        arrays = sum(a.nbytes for a in self.arrays.values() if isinstance(a, np.ndarray))
        return int(arrays) + self.index.nbytes + self._touched.nbytes + sum(int(k.nbytes) for k in self._keys)

    def _add_keys(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], before: int) -> None:
        added = self.index.size - before
        if self.key_fields:
            new = np.flatnonzero(slots >= before)
            _, first = np.unique(slots[new], return_index=True)
            self._keys.append(batch.select(list(self.key_fields)).take(pa.array(new[first])))
            if len(self._keys) > 256:
                self.keys()
        self._reserve(before + added)

    def _reserve(self, size: int) -> None:
        if size <= self._capacity:
            return
        room = max(size, 2 * self._capacity, 16 if self.key_fields else 1)
        for name, field in self.fields.items():
            fresh = field.empty(room - self._capacity)
            old = self.arrays[name]
            if self._capacity:
                fresh = old + fresh if field.is_object else np.concatenate([old, fresh])
            self.arrays[name] = fresh
        self._touched = np.concatenate([self._touched, np.zeros(room - self._capacity, np.bool_)])
        self._capacity = room

    def _trimmed(self) -> dict[str, Any]:
        return {name: array[: self.index.size] for name, array in self.arrays.items()}

    def _compact(self, live: npt.NDArray[np.int64]) -> None:
        """Keep only some slots, renumbered."""
        h1, h2 = self.index.hashes
        last, keys, old, now = self.index.last_seen, self.keys(), self.arrays, self._now
        self._reset()
        self._reserve(live.size)
        slots = np.arange(live.size)
        self.index.assign(slots, h1[live], h2[live], last[live] if last.size else last)
        for name, field in self.fields.items():
            if field.is_object:
                self.arrays[name][: live.size] = [old[name][s] for s in live]
            else:
                self.arrays[name][: live.size] = old[name][live]
        if self.key_fields:
            self._keys = [keys.take(pa.array(live))]
        self._now = now

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self, kind: Literal["full", "delta"] = "full") -> bytes:
        """The state as bytes: all of it, or what changed since the last snapshot."""
        if kind == "full":
            live = self.index.live(self._now)
            if live.size < self.index.size:
                self._compact(live)
            slots = np.arange(self.index.size)
            new = 0
        else:
            slots = np.flatnonzero(self._touched[: self.index.size])
            new = self._saved
        h1, h2 = self.index.hashes
        columns: dict[str, pa.Array] = {
            "slot": pa.array(slots.astype(np.int32)),
            "h1": pa.array(h1[slots]),
            "h2": pa.array(h2[slots]),
        }
        if self.index.ttl:
            columns["last"] = pa.array(self.index.last_seen[slots])
        for name, field in self.fields.items():
            columns[f"state.{name}"] = _encode(field, self.arrays[name], slots)
        keys = _tail(self.keys(), new) if self._keys else pa.RecordBatch.from_pydict({})
        self._touched[: self.index.size] = False
        self._saved = self.index.size
        rows = pa.RecordBatch.from_pydict(columns)
        rows = rows.replace_schema_metadata({META: json.dumps(self._identity(kind)).encode()})
        keys = keys.replace_schema_metadata({NAMES: json.dumps(self._names).encode()})
        return pack_snapshot(new, to_ipc(rows), to_ipc(keys))

    def restore(self, data: bytes, where: str = "") -> None:
        """Load a full snapshot, or the delta that follows what is loaded.

        Raises :class:`StateError` where the snapshot belongs to another task, version or parameters.
        """
        identity, names, new, rows, keys = unpack_snapshot(data, where)
        self._check_identity(identity, where)
        if identity["kind"] == "full":
            self._reset()
        self._names = names
        slots = rows.column("slot").to_numpy().astype(np.int64)
        size = int(slots.max()) + 1 if slots.size else 0
        self._reserve(max(size, self.index.size))
        last = rows.column("last").to_numpy() if self.index.ttl else np.empty(0, np.int64)
        self.index.assign(slots, rows.column("h1").to_numpy(), rows.column("h2").to_numpy(), last)
        if last.size:
            self._now = max(self._now, int(last.max()))
        for name, field in self.fields.items():
            _decode(field, rows.column(f"state.{name}"), self.arrays[name], slots)
        if keys.num_rows:
            held = sum(k.num_rows for k in self._keys)
            if held > new:
                self._keys = [self.keys().slice(0, new)]
            self._keys.append(keys.replace_schema_metadata(None))
        self._saved = self.index.size

    def _identity(self, kind: str) -> dict[str, Any]:
        return {
            "format": SNAPSHOT_FORMAT,
            "kind": kind,
            **task_identity(self.task),
            "fields": {n: [f.dtype, f.shape] for n, f in self.fields.items()},
        }

    def _check_identity(self, found: Mapping[str, Any], where: str) -> None:
        wanted = self._identity(str(found.get("kind")))
        if dict(found) == wanted:
            return
        for part in ("format", "task", "version"):
            if found.get(part) != wanted[part]:
                raise StateError(
                    f"the state{where} was written by {part} {found.get(part)!r}, "
                    f"this is {part} {wanted[part]!r}; start with a new checkpoint"
                )
        then, now = found.get("parameters", {}), wanted["parameters"]
        changed = [
            f"{n} was {then.get(n)!r} and is {now.get(n)!r}" for n in sorted({*then, *now}) if then.get(n) != now.get(n)
        ]
        raise StateError(
            f"the state{where} of {wanted['task']} was written with other parameters "
            f"({'; '.join(changed) or 'another state layout'}); use the old ones or start with a "
            "new checkpoint"
        )


def task_identity(task: Operator) -> dict[str, Any]:
    """What must agree for state to be the task's own."""
    try:
        parameters = task.to_dict()
    except ValueError:  # a task over a function that is not JSON: its name has to do
        parameters = {k: reference(v) if callable(v) else v for k, v in vars(task).items()}
        parameters = json.loads(json.dumps(parameters, default=reference))
    parameters.pop("task", None)
    return {"task": task.name(), "version": task.version, "parameters": parameters}


def reference(value: Any) -> str:
    """A text for what JSON cannot hold, the same in every process."""
    text = repr(value)
    if " at 0x" not in text and not callable(value):
        return text
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def key_numbers(columns: list[pa.Array], n: int) -> npt.NDArray[np.int64]:
    """A number from 0 on for each distinct key of n rows, in order of appearance.

    >>> key_numbers([pa.array([7, 9, 7])], 3).tolist()
    [0, 1, 0]
    """
    return KeyIndex().resolve(*hash_columns(columns, n))


def _with_fields(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """The batch with these fields first, null where it lacks them."""
    have = batch.schema.names
    if have[: len(names)] == names:
        return batch
    nothing = pa.nulls(batch.num_rows)
    order = list(dict.fromkeys([*names, *have]))
    return pa.RecordBatch.from_arrays([batch.column(n) if n in have else nothing for n in order], names=order)


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _encode(field: StateField, array: Any, slots: npt.NDArray[np.int64]) -> pa.Array:
    if field.dtype == "json":
        encode = msgspec.json.encode
        return pa.array([encode(array[s]) for s in slots], pa.binary())
    if field.dtype == "rows":
        return pa.array([None if array[s] is None else to_ipc(array[s]) for s in slots], pa.binary())
    values = array[: len(slots)] if slots.size and slots[-1] == len(slots) - 1 else array[slots]
    flat = pa.array(np.ascontiguousarray(values).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, field.shape) if field.shape else flat


def _decode(field: StateField, column: pa.Array, array: Any, slots: npt.NDArray[np.int64]) -> None:
    if field.dtype == "json":
        for s, data in zip(slots, column.to_pylist(), strict=True):
            array[s] = msgspec.json.decode(data)
    elif field.dtype == "rows":
        for s, data in zip(slots, column.to_pylist(), strict=True):
            array[s] = None if data is None else from_ipc(data)
    elif field.shape:
        array[slots] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(slots), field.shape)
    else:
        array[slots] = column.to_numpy(zero_copy_only=False)


def _tail(batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
    """The rows from start on; of an empty slice Arrow would write all text offsets."""
    if start < batch.num_rows:
        return batch.slice(start)
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in batch.schema], schema=batch.schema)
