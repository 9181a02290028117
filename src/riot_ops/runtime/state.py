"""Keyed state as a structure of arrays: slots, growth, snapshots, time to live.

A task declares the state of one key as named fields; :class:`KeyedState` owns an array per field with a row per key.
Snapshots name the task, its version and its parameters, and one of anything else is refused. A *delta* snapshot holds
only the keys touched since the one before: its size follows the work done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import END, NEVER, StepClock, Ticks, common_resolution, in_us, whole_period
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import StateError
from riot_ops.core.operator import Due, KeyedOperator, clocks
from riot_ops.core.results import as_batch
from riot_ops.graph.marks import StreamTime, marks_of
from riot_ops.kernels.arrays.arrow import joined
from riot_ops.kernels.arrays.codes import decoded
from riot_ops.kernels.arrays.derived import Derived
from riot_ops.kernels.arrays.hashing import HashMemo
from riot_ops.kernels.arrays.index import KeyIndex, first_rows, key_numbers, mark
from riot_ops.kernels.arrays.selection import Draft, Rows, names_of, picked, whole
from riot_ops.runtime.due import due_records, seen_at, still, with_fields
from riot_ops.runtime.snapshot import (
    check_identity,
    decode_field,
    encode_field,
    snapshot_of,
    state_identity,
    unpack_snapshot,
)

__all__ = ["KeyedState"]


class KeyedState:
    """The state of one task over the keys of a stream (or of one bucket of it)."""

    def __init__(
        self,
        task: KeyedOperator,
        key_fields: tuple[str, ...] | None = None,
        memo: HashMemo | None = None,
        clock: StepClock | None = None,
    ) -> None:
        self.task = task
        own = task.clock()
        self._period, self._delay = (in_us(own.period), in_us(own.allowed_lateness)) if own is not None else (0, 0)
        #: Whether the task has a loop of its own over rows and ticks.
        self._moves = own is not None and type(task).advance is not KeyedOperator.advance
        if clock is None and (found := clocks(task)):  # by itself it goes by the times that it sees
            ahead = None if own is None or own.max_ahead is None else in_us(own.max_ahead)
            first = own is not None and own.from_first
            clock = StepClock((), common_resolution(found), 0, ahead, first, whole_period(found))
        self._clock = clock
        self._memo = memo
        self.key_fields = task.by if key_fields is None else key_fields
        self.fields = dict(task.state_fields())
        self._names: list[str] = []  # fields of the output
        self._coded: set[str] = set()  # key fields that come as numbers
        self._who: dict[str, bytes] = {}  # by kind of snapshot, whose it is
        self._reset()

    def _reset(self, like: dict[str, Any] | None = None) -> None:
        live = self.task.keys_live
        self.index = KeyIndex(0 if live is None else in_us(live))
        self.time = None if self._clock is None else StreamTime(self._clock)
        self.arrays: dict[str, Any] = {n: f.empty(0, (like or {}).get(n)) for n, f in self.fields.items()}
        self._keys: list[pa.RecordBatch] = []
        self._capacity = 0
        self._touched: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._saved = 0  # slots that an earlier snapshot holds the keys of
        self._kept = 0  # keys that were alive when it was last looked
        self._renumbered = False  # whether slots have other numbers than in the last snapshot

    def update(self, batch: pa.RecordBatch, dead: DeadLetters) -> list[pa.RecordBatch]:
        """Run the task by itself over a batch whose rows are in order: what comes of these, and what is due."""
        return [out for out in self.process(batch, dead) if out is not None]

    def process(
        self, batch: Rows | None, dead: DeadLetters, marks: Sequence[pa.RecordBatch] = (), first: str = "seq"
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
        """Run the task over a batch whose rows are in order, and tell it of the time that passes.

        ``marks`` tell where it may; where the task has nobody who tells, its own records do. ``first`` is the field by
        which both are in order. Returns what came of the rows, and what was due.
        """
        if batch is not None:
            admitted = self.task.validate_rows(given := batch if self.task.selects else whole(batch), dead)
            batch = batch if admitted is given else as_batch(self.task, "admit", admitted)
        ticks = None if self.time is None else self._ticks(whole(batch), marks, first)
        made, due = self._processed(batch, ticks, dead)
        if made is not None:
            self._names = names_of(made)
        self._forget()
        return made, due

    def _ticks(self, batch: pa.RecordBatch | None, marks: Sequence[pa.RecordBatch], first: str) -> Ticks:
        assert self.time is not None
        clock = self.time.clock
        # in the order of event times, stream time passes all of them, not the largest so far alone
        if batch is not None and (not clock.streams or first != "seq"):
            marks = [*marks, marks_of(batch, clock.resolution, clock.max_ahead is not None, clock.lag)]
        return self.time.ticks(batch, marks, first)

    def _processed(
        self, batch: Rows | None, ticks: Ticks | None, dead: DeadLetters
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
        if self.task.pooled:
            return None if batch is None else self._update_pool(whole(batch), dead), None
        if ticks is None or not self._period:
            return None if batch is None else self._update(batch, ticks, dead), None
        if not self._moves:
            return self._in_turn(whole(batch), ticks, dead)
        slots = np.empty(0, np.int64) if batch is None else self._slots(batch, ticks)
        made, due = self.task.advance(whole(batch), slots, self.arrays, ticks, dead)
        if due is None or not due.slots.size:
            return made, None
        self._touched[due.slots] = True
        return made, self._due(due, ticks)

    def advance(self, time: int) -> pa.RecordBatch | None:
        """Let stream time pass, in microseconds, without a record; returns what is due then."""
        if self.time is None or (moved := self.time.advance(time)) is None:
            return None
        return self._processed(None, moved, DeadLetters(self.task.name()))[1]

    def _in_turn(
        self, batch: pa.RecordBatch | None, ticks: Ticks, dead: DeadLetters
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
        """Rows and ticks one after the other."""
        at, now, begin = 0, ticks.start, self._delay + ticks.origin
        made: list[pa.RecordBatch] = []
        due: list[pa.RecordBatch] = []
        for row, time, seq in zip(ticks.rows.tolist(), ticks.times.tolist(), ticks.seq.tolist(), strict=True):
            passed = (time - begin) // self._period
            before = passed if now == NEVER else (now - begin) // self._period
            if batch is not None and (passed > before or now == NEVER):
                made.append(self._update(batch.slice(at, row - at), still(now, ticks), dead))
                at = row
            now = time
            if passed > before and self.index.size:
                self._drop_dead(now)
                moment = Ticks(time, np.zeros(1, np.int64), np.array([time]), np.array([seq]), 1, ticks.lag)
                reached = passed * self._period + ticks.origin
                found = self.task.tick(self.keys(), self._trimmed(), reached, passed - before)
                self._touched[: self.index.size] = True
                if found is not None and found.slots.size:
                    times = np.full(found.slots.size, reached) if found.times is None else found.times
                    due.append(self._due(Due(found.slots, found.rows, times), moment))
        if batch is not None:
            made.append(self._update(batch.slice(at), still(now, ticks), dead))
        return joined(made) if made else None, joined(due) if due else None

    def _due(self, due: Due, ticks: Ticks) -> pa.RecordBatch:
        assert self.time is not None
        return due_records(due, ticks, self._delay, self.time.seq, self.keys(), self.index.hashes[0], self._coded)

    def _update(self, batch: Rows, ticks: Ticks | None, dead: DeadLetters) -> pa.RecordBatch:
        given: Any = batch if self.task.selects else whole(batch)
        made = self.task.update(given, self._slots(batch, ticks), self.arrays, dead)
        return made if isinstance(made, Draft) else as_batch(self.task, "update", made)

    def _slots(self, batch: Rows, ticks: Ticks | None) -> npt.NDArray[np.int64]:
        """The slots of a batch's keys, with room in the arrays for them."""
        before, rows = self.index.size, slice(None)
        kinds = [batch.schema.field(name).type for name in self.key_fields]
        seen = [seen_at(batch, ticks, self.task.ttl is not None)] if self.index.ttl and ticks is not None else []
        self._coded = {name for name, kind in zip(self.key_fields, kinds, strict=True) if pa.types.is_dictionary(kind)}
        if len(self._coded) == len(kinds):
            slots, rows = self.index.resolve_coded([*map(batch.column, self.key_fields)], batch.num_rows, *seen)
        else:
            slots = self.index.resolve(*(self._memo or HashMemo()).of(batch, self.key_fields), *seen)
        if self.index.size > before:
            self._add_keys(batch, slots, before)
        mark(slots[rows], self._touched)
        return slots

    def derived(self, rows: Derived, dead: DeadLetters) -> pa.RecordBatch | Derived | None:
        """What the task makes of records in order of which several come of one; None if it cannot."""
        slots = np.zeros(1, np.int64)
        if not self.task.pooled and self.time is None and self.key_fields == (rows.word,):
            slots = self._slots(pa.RecordBatch.from_arrays([rows.keys()], names=[rows.word]), None)
        elif not self.task.pooled or self._pool() is not None:
            return None
        if (made := self.task.update_derived(rows, slots, self.arrays, dead)) is not None:
            self._touched[slots], self._names = True, made.schema.names
        return made

    def merge_aligned(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
        """What a pooled task that holds nothing makes of a batch of each of its inputs; None if it cannot."""
        if not self.task.pooled or self._pool() is not None:
            return None
        if (made := self.task.merge_aligned(batches, self.arrays)) is not None:
            self._touched[0], self._names = True, made.schema.names
        return made

    def _pool(self) -> Any:
        """The rows that a pooled task holds: its state is slot 0."""
        if self.index.size == 0:
            self.index.resolve(np.zeros(1, np.uint64), np.zeros(1, np.uint64))
            self._reserve(1)
        return self.arrays["held"][0]

    def _update_pool(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        """Run a pooled task: the rows held come before the new ones."""
        pool = batch if (held := self._pool()) is None else joined([held, batch])
        self._touched[0] = True
        slots = key_numbers([pool.column(name) for name in self.key_fields], pool.num_rows)
        return as_batch(self.task, "update", self.task.update(pool, slots, self.arrays, dead))

    def flush(self, dead: DeadLetters | None = None) -> pa.RecordBatch | None:
        """What the task has left to say at the end of a bounded stream; ``dead`` collects what it rejects.

        Fields of earlier output that the task does not fill are null.
        """
        out = self._left(dead) if self.index.size else None
        return None if out is None else with_fields(out, self._names)

    def _left(self, dead: DeadLetters | None) -> pa.RecordBatch | None:
        dead = DeadLetters(self.task.name()) if dead is None else dead
        if self.task.pooled:
            if (held := self.arrays["held"][0]) is None:
                return None
            slots = key_numbers([held.column(name) for name in self.key_fields], held.num_rows)
            return self.task.end(held, slots, self.arrays, dead)
        self._drop_dead(self._now)
        if self._moves and self.time is not None:  # time has come for all that waits for it
            end = Ticks(self._now, np.zeros(1, np.int64), np.array([END]), np.array([0]), 1, 0, self.time.origin)
            _, due = self.task.advance(None, np.empty(0, np.int64), self.arrays, end, dead)
            return None if due is None else self._due(due, still(self._now, self._clock))
        return self.task.flush(self.keys(), self._trimmed())

    def merge(self, other: KeyedState) -> None:
        """Add the state that an equal task has over another part of the stream.

        Raises :class:`StateError` where the tasks differ, or states of this task cannot be merged:
        most depend on the order of the records, or (with a time to live) on when they came.
        """
        check_identity(state_identity(other.task, "full"), state_identity(self.task, "full"), " to merge")
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
            self._keys = [joined(self._keys)]
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

    def _add_keys(self, batch: Rows, slots: npt.NDArray[np.int64], before: int) -> None:
        if self.key_fields:
            rows = np.empty(self.index.size - before, np.int64)
            first_rows(slots, before, rows)
            self._keys.append(decoded(picked(batch, rows, self.key_fields)))
            if len(self._keys) > 256:
                self.keys()
        self._reserve(self.index.size)

    def _reserve(self, size: int) -> None:
        if size <= self._capacity:
            return
        room = max(size, 2 * self._capacity, 16 if self.key_fields else 1)
        for name, field in self.fields.items():
            fresh = field.empty(room, self.arrays[name])
            fresh[: self._capacity] = self.arrays[name]
            self.arrays[name] = fresh
        self._touched = np.concatenate([self._touched, np.zeros(room - self._capacity, np.bool_)])
        self._capacity = room

    @property
    def _now(self) -> int:
        """Stream time as the task sees it."""
        if self.time is None or self.time.now == NEVER:
            return NEVER
        return self.time.now - self.time.clock.lag

    def _drop_dead(self, now: int) -> None:
        """Drop the state of keys that have not been seen for too long at a stream time."""
        live = self.index.live(now)
        if live.size < self.index.size:
            self._compact(live)
        self._kept = live.size

    def _forget(self) -> None:
        """Drop dead keys now and then: as many slots are looked at as have been added since."""
        if self.index.ttl and self.index.size > 2 * self._kept + 1024:
            self._drop_dead(self._now)

    def _trimmed(self) -> dict[str, Any]:
        return {name: array[: self.index.size] for name, array in self.arrays.items()}

    def _compact(self, live: npt.NDArray[np.int64]) -> None:
        """Keep only some slots, renumbered."""
        h1, h2 = self.index.hashes
        last, keys, old, time = self.index.last_seen, self.keys(), self.arrays, self.time
        self._reset(old)
        self._reserve(live.size)
        self.index.assign(np.arange(live.size), h1[live], h2[live], last[live] if last.size else last)
        for name, field in self.fields.items():
            self.arrays[name][: live.size] = [old[name][s] for s in live] if field.is_object else old[name][live]
        if self.key_fields:
            self._keys = [keys.take(pa.array(live))]
        self.time, self._renumbered = time, True

    def snapshot(self, kind: Literal["full", "delta"] = "full") -> bytes:
        """The state as bytes: all of it, or what changed since the last snapshot."""
        (data,) = self.pieces(kind)
        return data

    def pieces(self, kind: Literal["full", "delta"] = "full", most: int | None = None) -> Iterator[bytes]:
        """The same in pieces of about so many bytes, to be restored in order: what follows the first is a delta."""
        if self._renumbered:
            kind = "full"
        if kind == "full":
            self._drop_dead(self._now)
            self._renumbered = False
            slots = np.arange(self.index.size)
            new = 0
        else:
            slots = np.flatnonzero(self._touched[: self.index.size])
            new = self._saved
        keys = self.keys()
        a_key = sum(field.bytes_of(self.arrays[name]) for name, field in self.fields.items())
        a_key += 24 + keys.nbytes // max(1, keys.num_rows)
        each = max(1, slots.size if most is None else most // a_key)
        for start in range(0, max(1, slots.size), each):
            part = slots[start : start + each]
            yield self._piece(kind, part, new)
            new = max(new, int(part[-1]) + 1 if part.size else 0)
            kind = "delta"
        self._touched[: self.index.size] = False
        self._saved = self.index.size

    def _piece(self, kind: str, slots: npt.NDArray[np.int64], new: int) -> bytes:
        h1, h2 = self.index.hashes
        rows = {"slot": pa.array(slots.astype(np.int32)), "h1": pa.array(h1[slots]), "h2": pa.array(h2[slots])}
        if self.index.ttl:
            rows["last"] = pa.array(self.index.last_seen[slots])
        for name, field in self.fields.items():
            rows[f"state.{name}"] = encode_field(field, self.arrays[name], slots)
        time = [] if self.time is None else self.time.saved()
        if kind not in self._who:
            self._who[kind] = json.dumps(state_identity(self.task, kind)).encode()
        return snapshot_of(self._who[kind], self._names, time, rows, self.keys(), new)

    def restore(self, data: bytes, where: str = "") -> None:
        """Load a full snapshot, or the delta that follows what is loaded.

        Raises :class:`StateError` where the snapshot belongs to another task, version or parameters.
        """
        identity, names, time, new, rows, keys = unpack_snapshot(data, where)
        check_identity(identity, state_identity(self.task, str(identity.get("kind"))), where)
        if identity["kind"] == "full":
            self._reset()
        self._names = names
        slots = rows.column("slot").to_numpy().astype(np.int64)
        size = int(slots.max()) + 1 if slots.size else 0
        self._reserve(max(size, self.index.size))
        last = rows.column("last").to_numpy() if self.index.ttl else np.empty(0, np.int64)
        self.index.assign(slots, rows.column("h1").to_numpy(), rows.column("h2").to_numpy(), last)
        if self.time is not None and time:
            self.time.restore(time)
        for name, field in self.fields.items():
            self.arrays[name] = decode_field(field, rows.column(f"state.{name}"), self.arrays[name], slots)
        if keys.num_rows:
            held = sum(k.num_rows for k in self._keys)
            self._keys = [self.keys().slice(0, new)] if held > new else self._keys
            self._keys.append(keys.replace_schema_metadata(None))
        self._saved = self.index.size
