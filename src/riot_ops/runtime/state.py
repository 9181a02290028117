"""Keyed state as a structure of arrays: slots, growth, snapshots, time to live.

A task declares the state of one key as named fields; :class:`KeyedState` owns an array per field with a row per key.
Snapshots name the task, its version and its parameters; the snapshot of another task is refused. A *delta* snapshot
holds only the keys touched since the last snapshot, so its size follows the work done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import (
    END,
    NEVER,
    StepClock,
    Ticks,
    aging_cell,
    common_resolution,
    to_microseconds,
    whole_periods_us,
)
from riot_ops.core.errors import StateError
from riot_ops.core.operator import KeyedOperator, TimerOutput, operator_clocks
from riot_ops.core.order import TIMER_ORDINALS
from riot_ops.core.parameters import as_names, as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.special_operators import AligningOperator, PeriodicOperator, PooledOperator
from riot_ops.kernels.arrays.arrow import concat_batches, numpy_values
from riot_ops.kernels.arrays.dictionaries import decode_dictionaries
from riot_ops.kernels.arrays.exact import with_type
from riot_ops.kernels.arrays.hashing import hash_columns, hash_keys, hash_rows
from riot_ops.kernels.arrays.index import KeyIndex, first_rows, key_numbers, mark_slots
from riot_ops.kernels.arrays.lazy_rows import SMALL, AnyRows, Rows, materialize, take_columns
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.runtime.batches import ARRIVAL, concatenate, conform_to, in_order, sort_rows, with_ordinals
from riot_ops.runtime.operator_calls import check_batch, inexact_fields, reject_inexact
from riot_ops.runtime.snapshot import (
    check_identity,
    decode_field,
    encode_field,
    encode_snapshot,
    state_identity,
    unpack_snapshot,
)
from riot_ops.runtime.timer_output import no_ticks, timer_records, with_leading_fields
from riot_ops.runtime.watermarks import Watermark

__all__ = ["KeyedState"]

#: Id of the type of dictionary columns.
DICTIONARY = pa.dictionary(pa.int32(), pa.string()).id
#: What a task may return.
MADE = (pa.RecordBatch, Rows)


class KeyedState:
    """The state of one task over the keys of a stream, or of one bucket of it."""

    def __init__(
        self,
        task: KeyedOperator,
        key_fields: tuple[str, ...] | None = None,
        clock: StepClock | None = None,
        schema: pa.Schema | None = None,
        order: tuple[str, ...] = ARRIVAL,
    ) -> None:
        self.task = task
        own = task.clock()
        self._period, self._lateness = (
            (to_microseconds(own.period), to_microseconds(own.allowed_lateness)) if own is not None else (0, 0)
        )
        #: The task, if it is of a special kind.
        self._periodic = task if isinstance(task, PeriodicOperator) else None
        self._pooled = task if isinstance(task, PooledOperator) else None
        self._aligning = task if isinstance(task, AligningOperator) else None
        #: Whether the task has its own loop over rows and ticks.
        self._moves = own is not None and self._periodic is None
        if clock is None and (found := operator_clocks(task)):  # outside a dataflow: the times of its own records
            ahead = None if own is None or own.max_ahead is None else to_microseconds(own.max_ahead)
            first = own is not None and own.from_first
            grain = common_resolution(found)
            aging = aging_cell(grain, [as_timedelta(task.ttl)]) if own is None and task.ttl is not None else 0
            clock = StepClock((), grain, 0, ahead, first, whole_periods_us(found), self._lateness, aging)
        self._clock = clock
        #: The declared schema of the output. A session sets it for each batch, as its fields have the types of their
        #: values: a field of nulls may take another type later.
        self.schema = schema
        self._inferred = schema is None
        self._order = order
        self._lazy = _accepts_lazy_rows(type(task))
        self.key_fields = as_names(task.by) if key_fields is None else key_fields
        self.fields = dict(task.state_fields())
        self._retention = 0 if task.key_retention is None else to_microseconds(task.key_retention)
        self._names: list[str] = []  # fields of the output before the state was restored
        self._last: Any = None  # the schema of the last output, or the output itself if it is lazy
        self._bound: pa.Schema | None = None  # the schema of the last input, with what follows from it
        self._coded: set[str] = set()  # key fields that arrive dictionary-encoded
        self._inexact: tuple[str, ...] = ()  # fields that may have numbers that the task would round
        self._identities: dict[str, bytes] = {}  # by kind of snapshot, as JSON
        self._reset()

    def _reset(self, like: dict[str, Any] | None = None) -> None:
        self.index = KeyIndex(self._retention)
        self.time = None if self._clock is None else Watermark(self._clock)
        self.arrays: dict[str, Any] = {n: f.empty(0, (like or {}).get(n)) for n, f in self.fields.items()}
        self._keys: list[pa.RecordBatch] = []
        self._order_hashes = np.empty(0, np.uint64)  # of the first slots: what orders the timer output of keys
        self._capacity = 0
        self._touched: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._saved = 0  # slots whose keys are in an earlier snapshot
        self._live = 0  # number of live keys at the last check
        self._renumbered = False  # whether slots were renumbered since the last snapshot

    def update(self, batch: AnyRows, errors: RejectedRecords) -> list[pa.RecordBatch]:
        """Run the task over a batch whose rows are in order; returns its output, as a batch if there is any."""
        rows = batch if isinstance(batch, Rows) else Rows(batch)
        rows.all_rows.ordered = True
        made = self.process([rows], errors)
        return [] if made is None else [materialize(made)]

    def process(self, batches: Sequence[Any], errors: RejectedRecords, watermarks: Sequence[Any] = ()) -> Any:
        """Run the task over batches while stream time passes; returns output and timer output together, in order.

        ``watermarks`` move stream time; for a task outside a dataflow its own records do. The output is a batch, lazy
        rows or None.
        """
        rows: Any = None
        if batches:
            if self._aligning is not None and len(batches) > 1 and self._order == ARRIVAL:
                made = self.merge_aligned([materialize(b) for b in batches])
                if made is not None:
                    return self._joined(made, None)
            rows = batches[0]
            if len(batches) > 1 or not rows.ordered:
                rows = in_order(batches, self._order)
            if self._bound is None or not self._bound.equals(rows.schema):
                self._bind(rows.schema)
            if self._inexact:
                rows = reject_inexact(rows, self._inexact, errors)
            lazy = self._lazy and isinstance(rows, Rows) and (rows.is_batch or rows.num_rows <= SMALL)
            given = rows if lazy else materialize(rows)
            admitted = self.task.validate_rows(given, errors)
            if admitted is not given:
                if not isinstance(admitted, Rows):
                    admitted = Rows(check_batch(self.task, "validate_rows", admitted))
                rows = admitted
        ticks = None
        if self.time is not None:
            ticks = self.time.ticks(materialize(rows), [materialize(one) for one in watermarks], self._order[0])
        made, due = self._process_rows(rows, ticks, errors)
        if self.index.ttl and self.index.size > 2 * self._live + 1024:  # the slots have doubled since the last check
            self._drop_expired(self._sure)
        return self._joined(made, due)

    def _bind(self, schema: pa.Schema) -> None:
        """Note what depends on the schema of the input."""
        self._bound = schema
        self._coded = {name for name in self.key_fields if schema.field(name).type.id == DICTIONARY}
        self._inexact = inexact_fields(self.task, schema)

    def _joined(self, made: Any, due: pa.RecordBatch | None) -> Any:
        """Return output and timer output in order."""
        if made is not None:
            self._last = made if isinstance(made, Rows) else made.schema
            if self._period and (due is not None or not self._inferred):
                made = with_ordinals(materialize(made), self._timer_ordinals())
        if due is None or not due.num_rows:
            return made
        due = self._conform(due)
        if made is None or not made.num_rows:
            return sort_rows(due, self._order)
        return sort_rows(concatenate([materialize(made), due]), self._order)

    @property
    def _output_names(self) -> list[str]:
        return self._names if self._last is None else list(self._last.names)

    def _timer_ordinals(self) -> list[str]:
        """Return the ordinals of timer output that all output has."""
        return [name for name in TIMER_ORDINALS if self.schema is not None and name in self.schema.names]

    def _conform(self, due: pa.RecordBatch) -> pa.RecordBatch:
        """Return output that no record caused, with the fields and types of the output for records."""
        schema = self.schema
        if schema is None:  # in a session, no record has come since the state was restored
            due = with_leading_fields(due, self._output_names)
            return pa.RecordBatch.from_arrays([with_type(c, None) for c in due.columns], names=due.schema.names)
        if self._inferred:
            types = {f.name: f.type for f in due.schema}
            return conform_to(
                due,
                pa.schema([f.with_type(types.get(f.name, f.type)) if pa.types.is_null(f.type) else f for f in schema]),
            )
        if self._last is not None:
            schema = materialize(self._last).schema if isinstance(self._last, Rows) else self._last
            if self._period:
                schema = with_ordinals(pa.RecordBatch.from_pylist([], schema), self._timer_ordinals()).schema
        return conform_to(due, schema)

    def _process_rows(
        self, batch: AnyRows | None, ticks: Ticks | None, errors: RejectedRecords
    ) -> tuple[Any, pa.RecordBatch | None]:
        if self._pooled is not None:
            return None if batch is None else self._update_pool(materialize(batch), errors), None
        if ticks is not None and ticks.reversals:
            return self._process_parts(batch, ticks, errors)
        if ticks is None or not self._period:
            return None if batch is None else self._update(batch, ticks, errors), None
        if self._periodic is not None:
            return self._process_in_turn(self._periodic, materialize(batch), ticks, errors)
        slots = np.empty(0, np.int64) if batch is None else self._slots(batch, ticks)
        made, due = self.task.advance(materialize(batch), slots, self.arrays, ticks, errors)
        if due is None or not due.slots.size:
            return made, None
        self._touched[due.slots] = True
        return made, self._due(due, ticks)

    def _process_parts(
        self, batch: AnyRows | None, ticks: Ticks, errors: RejectedRecords
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
        """Process the rows between the moves of stream time to an earlier time, with what such a move demands."""
        whole, rows = materialize(batch), 0 if batch is None else batch.num_rows
        moments = ticks.moments
        turns = (np.flatnonzero(moments[1:] < moments[:-1])).tolist()
        edges = [(0, ticks.start), *((m + 1, int(ticks.times[m])) for m in turns)]
        made: list[pa.RecordBatch] = []
        due: list[pa.RecordBatch] = []
        for part, (a, start) in enumerate(edges):
            if part:
                due += self._turn_back(int(moments[a - 1]), start, *ticks.reversals[part - 1], ticks)
            b = edges[part + 1][0] - 1 if part + 1 < len(edges) else ticks.rows.size
            top = int(ticks.rows[a - 1]) if part else 0
            end = int(ticks.rows[b]) if part + 1 < len(edges) else rows
            here = replace(
                ticks, start=start, rows=ticks.rows[a:b] - top, times=ticks.times[a:b], seq=ticks.seq[a:b], reversals=()
            )
            found = self._process_rows(None if whole is None else whole.slice(top, end - top), here, errors)
            made += [materialize(found[0])] if found[0] is not None else []
            due += [found[1]] if found[1] is not None else []
        return concat_batches(made) if made else None, concat_batches(due) if due else None

    def _turn_back(self, before: int, time: int, seq: int, sure: int, ticks: Ticks) -> list[pa.RecordBatch]:
        """Prepare for an earlier stream time; returns the timer output of a task that handles ticks itself.

        Such a task emits the records that it holds, as at the end of a stream, and starts again. Of other tasks, keys
        that were too old for sure are dropped, and the others count as seen by now.
        """
        if self._moves:
            end = Ticks(NEVER, np.zeros(1, np.int64), np.array([END]), np.array([seq]), 1, ticks.lag, ticks.origin)
            errors = RejectedRecords(self.task.name())
            _, due = self.task.advance(None, np.empty(0, np.int64), self.arrays, replace(end, start=before), errors)
            out = [] if due is None or not due.slots.size else [self._due(due, end)]
            self._compact(np.empty(0, np.int64))
            return out
        if self.index.ttl:
            if sure > time:
                self._drop_expired(sure)
            self._touched[: self.index.size] |= self.index.last_seen > time
            np.minimum(self.index.last_seen, time, out=self.index.last_seen)
        return []

    def advance(self, time: int) -> pa.RecordBatch | None:
        """Advance stream time without a record, to a time in microseconds; returns the timer output."""
        if self.time is None or (moved := self.time.advance(time)) is None:
            return None
        return self._joined(None, self._process_rows(None, moved, RejectedRecords(self.task.name()))[1])

    def _process_in_turn(
        self, task: PeriodicOperator, batch: pa.RecordBatch | None, ticks: Ticks, errors: RejectedRecords
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
        """Process rows and ticks alternately."""
        at, now, begin = 0, ticks.start, self._lateness + ticks.origin
        made: list[pa.RecordBatch] = []
        due: list[pa.RecordBatch] = []
        for row, time, seq in zip(ticks.rows.tolist(), ticks.times.tolist(), ticks.seq.tolist(), strict=True):
            passed = (time - begin) // self._period
            before = passed if now == NEVER else (now - begin) // self._period
            if batch is not None and (passed > before or now == NEVER):
                made.append(self._update(batch.slice(at, row - at), no_ticks(now, ticks), errors))
                at = row
            now = time
            if passed > before and self.index.size:
                self._drop_expired(now)
                moment = Ticks(time, np.zeros(1, np.int64), np.array([time]), np.array([seq]), 1, ticks.lag)
                reached = passed * self._period + ticks.origin
                found = task.tick(self.keys(), self._trimmed(), reached, passed - before)
                self._touched[: self.index.size] = True
                if found is not None and found.slots.size:
                    times = np.full(found.slots.size, reached) if found.times is None else found.times
                    due.append(self._due(TimerOutput(found.slots, found.rows, times), moment))
        if batch is not None:
            made.append(self._update(batch.slice(at), no_ticks(now, ticks), errors))
        return concat_batches(made) if made else None, concat_batches(due) if due else None

    def _due(self, due: TimerOutput, ticks: Ticks) -> pa.RecordBatch:
        assert self.time is not None
        return timer_records(due, ticks, self._lateness, self.time.seq, self.keys(), self._key_order(), self._coded)

    def _key_order(self) -> npt.NDArray[np.uint64]:
        """Return the hash of each slot's key that orders timer output: the same in every process, without a secret."""
        known, size = self._order_hashes.size, self.index.size
        if known < size:
            keys = self.keys().slice(known)
            self._order_hashes = np.concatenate([self._order_hashes, hash_columns(keys.columns, size - known)[0]])
        return self._order_hashes

    def _update(self, batch: AnyRows, ticks: Ticks | None, errors: RejectedRecords) -> Any:
        lazy = self._lazy and isinstance(batch, Rows) and (batch.is_batch or batch.num_rows <= SMALL)
        made = self.task.update(batch if lazy else materialize(batch), self._slots(batch, ticks), self.arrays, errors)
        return made if isinstance(made, MADE) else check_batch(self.task, "update", made)

    def _slots(self, batch: AnyRows, ticks: Ticks | None) -> npt.NDArray[np.int64]:
        """Return the slots of a batch's keys, after making room for new ones."""
        before, rows = self.index.size, slice(None)
        seen: list[npt.NDArray[np.int64]] = []  # stream time at each record, from which its key's time to live counts
        if self.index.ttl and ticks is not None:
            seen = [ticks.at_rows(batch.num_rows)]
            if self.task.ttl is not None:  # to the microsecond; a time too far ahead is clipped to stream time
                times, present = microseconds(batch.column("event_time"))
                exact = np.clip(times, seen[0], seen[0] + (ticks.resolution - 1))
                seen = [np.where(present, exact, seen[0])]
        if len(self._coded) == len(self.key_fields):
            slots, rows = self.index.resolve_coded([*map(batch.column, self.key_fields)], batch.num_rows, *seen)
        else:
            slots = self.index.resolve(*hash_rows(batch, self.key_fields), *seen)
        if self.index.size > before:
            self._add_keys(batch, slots, before)
        mark_slots(slots[rows], self._touched)
        return slots

    def merge_aligned(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Run a pooled task that holds nothing over one batch of each input; None if it cannot."""
        if self._aligning is None or self._pool() is not None:
            return None
        if (made := self._aligning.merge_aligned(batches, self.arrays)) is not None:
            self._touched[0], self._last = True, made.schema
        return made

    def _pool(self) -> Any:
        """Return the rows that a pooled task holds; its state is slot 0."""
        if self.index.size == 0:
            self.index.resolve(np.zeros(1, np.uint64), np.zeros(1, np.uint64))
            self._reserve(1)
        return self.arrays["held"][0]

    def _update_pool(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        """Run a pooled task over the held rows followed by the new ones."""
        pool = batch if (held := self._pool()) is None else concat_batches([held, batch])
        self._touched[0] = True
        slots = key_numbers([pool.column(name) for name in self.key_fields], pool.num_rows)
        return check_batch(self.task, "update", self.task.update(pool, slots, self.arrays, errors))

    def flush(self, errors: RejectedRecords | None = None) -> pa.RecordBatch | None:
        """Return the task's output at the end of a bounded stream; ``errors`` collects rejected records.

        Fields of earlier output that the task does not fill are null.
        """
        out = self._final_output(errors) if self.index.size else None
        return None if out is None else self._conform(out)

    def _final_output(self, errors: RejectedRecords | None) -> pa.RecordBatch | None:
        errors = RejectedRecords(self.task.name()) if errors is None else errors
        if self._pooled is not None:
            if (held := self.arrays["held"][0]) is None:
                return None
            slots = key_numbers([held.column(name) for name in self.key_fields], held.num_rows)
            return self._pooled.flush_held(held, slots, self.arrays, errors)
        self._drop_expired(self._sure)
        if self._moves and self.time is not None:  # everything that waits for a time is due
            end = Ticks(self._now, np.zeros(1, np.int64), np.array([END]), np.array([0]), 1, 0, self.time.origin)
            _, due = self.task.advance(None, np.empty(0, np.int64), self.arrays, end, errors)
            return None if due is None else self._due(due, no_ticks(self._now, self._clock))
        return self.task.flush(self.keys(), self._trimmed())

    def merge(self, other: KeyedState) -> None:
        """Merge the state of an equal task over another part of the stream.

        Raises :class:`StateError` if the tasks differ or states of this task cannot be merged. Most states
        depend on the order of the records, or (with a time to live) on their arrival times.
        """
        check_identity(state_identity(other.task, "full"), state_identity(self.task, "full"), " to merge")
        empty = {name: field.empty(0) for name, field in self.fields.items()}
        if self.task.ttl or self.task.merge_states(empty, empty) is None:
            raise StateError(f"two states of {self.task.name()} cannot be merged into one")
        before = self.index.size
        slots = self.index.resolve(*other.index.hashes)
        if self.index.size > before:
            self._add_keys(other.keys(), slots, before)
        merged = self.task.merge_states({n: a[slots] for n, a in self.arrays.items()}, other._trimmed())
        assert merged is not None
        for name, array in merged.items():
            self.arrays[name][slots] = array
        self._touched[slots] = True

    def keys(self) -> pa.RecordBatch:
        """Return the key fields of each slot."""
        if not self._keys:
            return pa.RecordBatch.from_pydict({})
        if len(self._keys) > 1:
            # a session may add a key field without a type before it has seen a value of it
            self._keys = [concat_batches(self._keys)]
        return self._keys[0]

    @property
    def size(self) -> int:
        """Number of slots."""
        return self.index.size

    @property
    def nbytes(self) -> int:
        """Bytes of arrays, index and keys, without Python objects."""
        arrays = sum(a.nbytes for a in self.arrays.values() if isinstance(a, np.ndarray))
        return int(arrays) + self.index.nbytes + self._touched.nbytes + sum(int(k.nbytes) for k in self._keys)

    def _add_keys(self, batch: AnyRows, slots: npt.NDArray[np.int64], before: int) -> None:
        self._reserve(self.index.size)
        if self.key_fields:
            rows = np.empty(self.index.size - before, np.int64)
            first_rows(slots, before, rows)
            self._keys.append(decode_dictionaries(take_columns(batch, rows, self.key_fields)))
            if len(self._keys) > 256:
                self.keys()

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

    @property
    def _sure(self) -> int:
        """The time by which keys are dropped: stream time, but for a task without a clock, which may take it back."""
        if self.time is None or self.time.clock.aging == 0 or self.time.clock.max_ahead is not None:
            return self._now
        return NEVER if self.time.sure == NEVER else self.time.sure - self.time.clock.lag

    def _drop_expired(self, now: int) -> None:
        """Drop the keys whose time to live has passed."""
        if now == NEVER:
            return
        live = self.index.live(now)
        if live.size < self.index.size:
            self._compact(live)
        self._live = live.size

    def _trimmed(self) -> dict[str, Any]:
        return {name: array[: self.index.size] for name, array in self.arrays.items()}

    def _compact(self, live: npt.NDArray[np.int64]) -> None:
        """Keep only the live slots, renumbered."""
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
        """Return the state as bytes: all of it, or what changed since the last snapshot."""
        (data,) = self.pieces(kind)
        return data

    def pieces(self, kind: Literal["full", "delta"] = "full", max_bytes: int | None = None) -> Iterator[bytes]:
        """Yield the same in pieces of about ``max_bytes``, to be restored in order; all after the first are deltas."""
        if self._renumbered:
            kind = "full"
        if kind == "full":
            self._drop_expired(self._sure)
            self._renumbered = False
            slots = np.arange(self.index.size)
            new = 0
        else:
            slots = np.flatnonzero(self._touched[: self.index.size])
            new = self._saved
        keys = self.keys()
        # objects count by an estimate
        a_key = sum(64 if isinstance(array, list) else array.strides[0] for array in self.arrays.values())
        a_key += 8 + keys.nbytes // max(1, keys.num_rows)
        each = max(1, slots.size if max_bytes is None else max_bytes // a_key)
        for start in range(0, max(1, slots.size), each):
            part = slots[start : start + each]
            yield self._piece(kind, part, new)
            new = max(new, int(part[-1]) + 1 if part.size else 0)
            kind = "delta"
        self._touched[: self.index.size] = False
        self._saved = self.index.size

    def _piece(self, kind: str, slots: npt.NDArray[np.int64], new: int) -> bytes:
        names, keys = self._output_names, self.keys()
        time = [] if self.time is None else self.time.snapshot()
        rows = {"slot": pa.array(slots.astype(np.int32))}
        if self.index.ttl:
            rows["last"] = pa.array(self.index.last_seen[slots])
        for name, field in self.fields.items():
            rows[f"state.{name}"] = encode_field(field, self.arrays[name], slots)
        if kind not in self._identities:
            self._identities[kind] = json.dumps(state_identity(self.task, kind)).encode()
        return encode_snapshot(self._identities[kind], names, time, rows, keys, new)

    def restore(self, data: bytes, where: str = "") -> None:
        """Load a full snapshot, or the delta that follows the loaded state.

        Raises :class:`StateError` if the snapshot belongs to another task, version or parameters.
        """
        identity, names, time, new, rows, keys = unpack_snapshot(data, where)
        check_identity(identity, state_identity(self.task, str(identity.get("kind"))), where)
        if identity["kind"] == "full":
            self._reset()
        self._names, self._last = names, None
        slots = numpy_values(rows.column("slot")).astype(np.int64)
        size = int(slots.max()) + 1 if slots.size else 0
        self._reserve(max(size, self.index.size))
        last = numpy_values(rows.column("last")) if self.index.ttl else np.empty(0, np.int64)
        self.index.assign(slots, *self._restored_hashes(slots, new, keys), last)
        if self.time is not None and time:
            self.time.restore(time)
        for name, field in self.fields.items():
            self.arrays[name] = decode_field(field, rows.column(f"state.{name}"), self.arrays[name], slots)
        if keys.num_rows:
            held = sum(k.num_rows for k in self._keys)
            self._keys = [self.keys().slice(0, new)] if held > new else self._keys
            self._keys.append(keys.replace_schema_metadata(None))
            self._order_hashes = self._order_hashes[:new]
        self._saved = self.index.size

    def _restored_hashes(
        self, slots: npt.NDArray[np.int64], new: int, keys: pa.RecordBatch
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Return the hashes of the keys of slots in a snapshot, whose keys from slot ``new`` on it holds."""
        h1, h2 = np.zeros(slots.size, np.uint64), np.zeros(slots.size, np.uint64)
        added = slots >= new
        if keys.num_rows:
            for part, found in zip((h1, h2), hash_keys(keys.columns, keys.num_rows), strict=True):
                part[added] = found[slots[added] - new]
        if not added.all():
            for part, found in zip((h1, h2), self.index.hashes, strict=True):
                part[~added] = found[slots[~added]]
        return h1, h2


def _accepts_lazy_rows(task: type[KeyedOperator]) -> bool:
    """Whether a task accepts lazy rows; what a subclass overrides gets batches unless it says so."""

    def place(name: str) -> int:
        return next(i for i, cls in enumerate(task.__mro__) if name in vars(cls))

    return task.accepts_lazy_rows and place("accepts_lazy_rows") <= min(place("update"), place("validate_rows"))
