"""The engine: runs the steps of a graph over record batches and holds their state, for both runners."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.clock import FIRST_HEARTBEAT
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.operator import FilterOperator, KeyedOperator, StatelessOperator
from riot_ops.core.order import TIMER_ORDINALS, ordinals
from riot_ops.core.output_checks import checked_mask
from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, INSTANCE_FIELD, Route, Step
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.ingest.renumber import Renumber
from riot_ops.ingest.step import IngestStep
from riot_ops.ingest.watermarks import WatermarkGenerator
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.derived import DerivedRecords
from riot_ops.kernels.arrays.hashing import HashMemo
from riot_ops.kernels.arrays.selection import SMALL, LazyBatch, Rows, Selection, materialize, materialize_all, select
from riot_ops.runtime.batches import ARRIVAL, concatenate, conform_to, is_sorted, merge_sorted, sort_rows, with_ordinals
from riot_ops.runtime.inexact_numbers import apply_stateless, reject_inexact
from riot_ops.runtime.state import KeyedState

__all__ = ["Batches", "Engine"]

Batches = dict[str, list[pa.RecordBatch]]
#: Kinds of steps that process the batches of a stream one by one.
BATCHWISE = ("stateless", "filter", "plumbing", "numbers")


class Engine:
    """The steps of a dataflow, or of a part of it, with their state.

    Parameters
    ----------
    steps : sequence of Step
        In order, each after those whose output it reads.
    outputs : collection of str
        Streams to return from :meth:`process`.
    entries : mapping of stream to steps, optional
        The steps that read a stream from outside; by default all that name it.
    order : tuple of str
        Fields that order the records of a keyed step within one call of :meth:`process`.
    memo : HashMemo, optional
        Known key hashes of the next inputs; cleared after each call of :meth:`process`.
    batches_only : bool, default True
        Whether to return record batches only; else another engine reads the output and may accept
        :class:`DerivedRecords`.
    """

    #: For measurements: called after each run of a step of any engine in this process with the engine, the step, its
    #: input, its output and the seconds taken. The output is materialized within this time.
    on_step: ClassVar[Callable[[Engine, Step, Sequence[pa.RecordBatch], list[pa.RecordBatch], float], None] | None]
    on_step = None

    def __init__(
        self,
        steps: Sequence[Step],
        outputs: Collection[str],
        entries: Mapping[str, set[str]] | None = None,
        order: tuple[str, ...] = ARRIVAL,
        memo: HashMemo | None = None,
        batches_only: bool = True,
    ) -> None:
        self.steps: list[Step] = []
        self.outputs = outputs
        #: Steps that are skipped: they read nothing and emit nothing.
        self.disabled: set[str] = set()
        #: Steps that raised, and are disabled since; None if an exception of a step ends :meth:`process`.
        self.failures: dict[str, Exception] | None = None
        #: Called with the step and its exception, before that ends :meth:`process`.
        self.on_failure: Callable[[str, Exception], None] | None = None
        self.entries = entries
        self.order = order
        self._batches_only = batches_only
        self._memo = HashMemo() if memo is None else memo
        self.states: dict[str, KeyedState] = {}
        self._dead: dict[str, DeadLetters] = {}
        self._kinds: dict[str, str] = {}
        self._schemas: dict[str, pa.Schema] = {}
        #: Numbers of the heartbeats that follow, which order those before one message.
        self.heartbeat_numbers: Iterator[int] = itertools.count(FIRST_HEARTBEAT)
        self._counts: dict[str, tuple[int, int]] = {}
        #: Selections over small batches, shared by the steps that read them.
        self._seen: dict[int, Selection] = {}
        #: Output of steps that has not been materialized yet.
        self._lazy_batches: list[tuple[str, LazyBatch]] = []
        self.extend(steps)

    def extend(self, steps: Sequence[Step]) -> None:
        """Add steps, each after those whose output it reads."""
        for step in steps:
            if isinstance(step.operator, KeyedOperator):
                self.states[step.id] = KeyedState(step.operator, step.key, self._memo, step.clock)
            self._dead[step.id] = DeadLetters(step.name)
            self._kinds[step.id] = _kind(step.operator)
        self.steps += steps

    def has(self, id: str) -> bool:
        """Whether there is a step of that id."""
        return id in self._kinds

    def drop(self, ids: Collection[str]) -> None:
        """Remove steps and their state; no remaining step may read their output."""
        self.steps = [step for step in self.steps if step.id not in ids]
        for id in ids:
            self.states.pop(id, None)
            self._dead.pop(id, None)
            self._kinds.pop(id, None)
            self._schemas.pop(id, None)

    def process(self, inputs: Mapping[str, list[pa.RecordBatch]], *, flush: bool | Collection[str] = False) -> Batches:
        """Push batches through the steps; returns the non-empty batches of each output stream.

        ``flush`` ends the streams of all steps, or of those named: they emit the records that they hold.
        """
        made: dict[str, list[Any]] = {}
        ending = flush if isinstance(flush, Collection) else self.states if flush else ()
        for step in self.steps:
            if step.id in self.disabled:
                if isinstance(step.operator, IngestStep):
                    inputs = {**inputs, step.id: []}
                continue
            if isinstance(step.operator, IngestStep):  # its output replaces the records of the source
                batches, passed = inputs.get(step.id, []), list[Any]()
                try:
                    passed = self._run(step, batches)
                    made[step.id + HEARTBEAT_SUFFIX] = step.operator.heartbeats(batches, self.heartbeat_numbers)
                except Exception as error:
                    self._handle_failure(step, error)
                inputs = {**inputs, step.id: passed}
                continue
            reads = [[b for b in self._reads(step, stream, inputs, made) if b.num_rows] for stream in step.inputs]
            streams = step.clock.streams if step.clock is not None else ()
            watermarks = [b for stream in streams for b in self._reads(step, stream, inputs, made)]
            if self._kinds[step.id] == "watermarks":  # of the records of its first input, and of heartbeats
                reads, watermarks = reads[:1], [b for part in reads[1:] for b in part]
            batches = [b for part in reads for b in part]
            flushed = step.id in ending and step.id in self.states
            if not batches and not watermarks and not flushed:
                made[step.id] = []
                continue
            time = self.states[step.id].time if flushed else None
            if time is not None:
                time.ending = True
            try:
                if len(batches) > len(reads) and self._kinds[step.id] in BATCHWISE:
                    out = [b for part in reads for b in _concatenate_output(self._run(step, part))]
                else:
                    out = self._run(step, batches, watermarks)
                if flushed:
                    out += self._flush_step(step)
                if time is not None:
                    time.reset_end()
            except Exception as error:
                self._handle_failure(step, error)
                continue
            made[step.id] = [b for b in out if b.num_rows]
        materialize_all(draft for _, draft in self._lazy_batches)
        self._schemas |= {id: draft.materialize().schema for id, draft in self._lazy_batches if draft.num_rows}
        results: Batches = {}
        for stream in self.outputs:
            found = made.get(stream, []) if stream in made else [b for b in inputs.get(stream, []) if b.num_rows]
            if found:
                results[stream] = [
                    b if isinstance(b, DerivedRecords) and not self._batches_only else materialize(b) for b in found
                ]
        errors = [b for dead in self._dead.values() for b in dead.take()]
        if errors:
            results[ERRORS_STREAM] = errors
        self._memo.clear()
        self._seen.clear()
        self._lazy_batches.clear()
        return results

    def _reads(
        self, step: Step, stream: str, inputs: Mapping[str, list[pa.RecordBatch]], made: Mapping[str, list[Any]]
    ) -> list[Any]:
        own = made.get(stream, [])
        if stream not in inputs or (self.entries is not None and step.id not in self.entries.get(stream, ())):
            return own
        return [*inputs[stream], *own]

    def _handle_failure(self, step: Step, error: Exception) -> None:
        """Disable a step that raised, or raise again where failures end :meth:`process`."""
        error.add_note(f"in the step {step.id!r} ({type(step.operator).__name__})")
        if self.on_failure is not None:
            self.on_failure(step.id, error)
        if self.failures is None:
            raise error
        self.failures[step.id] = error
        self.disabled.add(step.id)
        self._dead[step.id].take()

    def _run(self, step: Step, batches: Sequence[Rows], watermarks: Sequence[pa.RecordBatch] = ()) -> list[Any]:
        if Engine.on_step is None:
            return self._run_step(step, batches, watermarks)
        begun = perf_counter()
        out = [materialize(b) for b in self._run_step(step, batches, watermarks)]
        seconds = perf_counter() - begun
        Engine.on_step(self, step, [materialize(b) for b in batches], out, seconds)
        return out

    def _run_step(self, step: Step, batches: Sequence[Rows], watermarks: Sequence[pa.RecordBatch]) -> list[Any]:
        if not batches and not watermarks:
            return []
        operator: Any = step.operator
        kind = self._kinds[step.id]
        if kind not in ("filter", "keyed") or step.numbered:
            batches = [materialize(b) for b in batches]
        if kind == "watermarks":
            return [operator.merge(batches, watermarks)] if watermarks else [operator.apply(b) for b in batches]
        dead = self._dead[step.id]
        if step.numbered:
            batches = [with_ordinals(b, step.numbered) for b in batches]
        before = dead.count
        results: list[Any]
        if kind == "numbers":
            results = [operator.apply(b, dead) for b in batches]
            self._count(step, 0, dead.count - before)
            return results
        if kind == "plumbing":
            results = [operator.apply(b, dead) for b in batches]
        elif kind == "filter":
            results = [self._filter(operator, b, dead) for b in batches]
        elif kind == "stateless":
            results = [out for b in batches for out in operator.derived(b, dead) or apply_stateless(operator, b, dead)]
        else:
            state = self.states[step.id]
            due = None
            made = None
            if len(batches) > 1:
                batches = [materialize(b) for b in batches]
                made = state.merge_aligned(batches) if self.order == ARRIVAL else None
            elif self.order == ARRIVAL and batches and isinstance(rows := batches[0], DerivedRecords):
                made = state.process_derived(rows, dead) if rows.is_ascending() else None
            if made is None:
                batch = self._in_order(batches) if batches else None
                made, due = state.process(batch, dead, watermarks, self.order[0])
            if made is not None and operator.clock() is not None and step.schema is not None:
                made = with_ordinals(materialize(made), [name for name in TIMER_ORDINALS if name in step.schema.names])
            if isinstance(made, LazyBatch):
                self._lazy_batches.append((step.id, made))
            elif made is not None:
                self._schemas[step.id] = made.schema
            results = [] if made is None else [made]
            if due is not None and due.num_rows:
                full = [materialize(b) for b in results if b.num_rows]
                due = self._conform(step, due)
                results = [sort_rows(concatenate([*full, due]), self.order)] if full or self.order != ARRIVAL else [due]
        taken = sum(b.num_rows for b in batches)
        self._count(step, taken, _rejected_count(operator, taken, results, dead.count - before))
        return [_without_instance(operator, out) for out in results]

    def _in_order(self, batches: Sequence[Any]) -> Rows:
        if len(batches) > 1:
            return merge_sorted(batches, self.order)
        batch = self._as_selection(batches[0])
        if not isinstance(batch, Selection):
            return sort_rows(batch, self.order)
        every = batch.all_rows
        if every.ordered is None:
            every.ordered = is_sorted(every.batch, self.order)
        return batch if every.ordered else sort_rows(materialize(batch), self.order)

    def _as_selection(self, batch: Rows | LazyBatch) -> Rows:
        """Return a small batch as the selection that all its readers share, any other one materialized."""
        if isinstance(batch, Selection):
            return batch
        batch = materialize(batch)
        if batch.num_rows > SMALL:
            return batch
        found = self._seen.get(id(batch))
        if found is None:
            found = self._seen[id(batch)] = Selection(batch)
        return found

    def _filter(self, operator: FilterOperator, rows: Rows | LazyBatch, dead: DeadLetters) -> Rows:
        batch = reject_inexact(operator, self._as_selection(rows), dead)
        passes = checked_mask(operator, batch if operator.accepts_selection else materialize(batch), dead)
        return operator.apply(materialize(batch), dead) if passes is None else select(batch, passes)

    def _flush_step(self, step: Step) -> list[pa.RecordBatch]:
        begun = perf_counter()
        dead = self._dead[step.id]
        before = dead.count
        out = self.states[step.id].flush(dead)
        self._count(step, 0, dead.count - before)
        emitted: list[Any] = []
        if out is not None and out.num_rows:
            emitted = [_without_instance(step.operator, self._conform(step, out))]
        if Engine.on_step is not None:
            Engine.on_step(self, step, [], emitted, perf_counter() - begun)
        return emitted

    def _conform(self, step: Step, out: pa.RecordBatch) -> pa.RecordBatch:
        schema = self._schemas.get(step.id, step.schema)  # perhaps no record has arrived since a restart
        assert schema is not None
        return conform_to(out, schema)

    def _count(self, step: Step, taken: int, rejected: int) -> None:
        if taken or rejected:
            name = step.name
            t, r = self._counts.get(name, (0, 0))
            self._counts[name] = t + taken, r + rejected

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the records that each step has read and rejected since the last call, by the step's name."""
        counts, self._counts = self._counts, {}
        return counts

    def row_counts(self) -> tuple[int, int]:
        """Return the records read at the sources and by the busiest step, since :meth:`counts` was last called."""
        intakes = {step.name for step in self.steps if isinstance(step.operator, IngestStep)}
        taken = {name: n for name, (n, _) in self._counts.items()}
        return sum(n for name, n in taken.items() if name in intakes), max(taken.values(), default=0)

    def snapshot(self, kind: Any = "full") -> dict[str, bytes]:
        """Return the state of each keyed step."""
        return {name: state.snapshot(kind) for name, state in self.states.items()}

    def pieces(self, kind: Any, max_bytes: int) -> Iterator[dict[str, bytes]]:
        """Yield the state in at least one piece of about ``max_bytes`` bytes each; they are restored in order."""
        held: dict[str, bytes] = {}
        size = 0
        for name, state in self.states.items():
            for data in state.pieces(kind, max_bytes):
                if name in held or (held and size + len(data) > max_bytes):
                    yield held
                    held, size = {}, 0
                held[name] = data
                size += len(data)
        yield held

    def restore(self, data: Mapping[str, bytes]) -> None:
        """Load a snapshot; raises :class:`StateError` if it belongs to another task."""
        for name, state in self.states.items():
            if name in data:
                state.restore(data[name], f" of step {name!r}")

    @property
    def nbytes(self) -> int:
        """Bytes of state."""
        return sum(s.nbytes for s in self.states.values())


def _kind(operator: Any) -> str:
    """Classify an operator once: ``isinstance`` is slow for classes with abstract methods."""
    if isinstance(operator, WatermarkGenerator):
        return "watermarks"
    if isinstance(operator, Renumber):
        return "numbers"
    if isinstance(operator, (Route, IngestStep)):
        return "plumbing"
    if isinstance(operator, FilterOperator):
        return "filter"
    return "stateless" if isinstance(operator, StatelessOperator) else "keyed"


def _concatenate_output(made: list[Any]) -> list[Any]:
    """Concatenate the results of a step for consecutive batches.

    So long lines are read in place from several batches, without a copy, but their parsed records form one batch.
    """
    made = [b for b in made if b.num_rows]
    if len(made) < 2 or any(b.schema != made[0].schema for b in made):
        return made
    return [pa.concat_batches([materialize(b) for b in made])]


def _rejected_count(operator: Any, taken: int, results: list[pa.RecordBatch], letters: int) -> int:
    """Return the number of records rejected completely, without any rows."""
    if not letters or isinstance(operator, (Route, IngestStep)) or not operator.expands():
        return letters
    accepted = 0
    for out in map(materialize, results):  # the rows of one record are adjacent
        if out.num_rows and "seq" in out.schema.names:
            seq = int_column(out.column("seq"))
            parents = [seq, *(int_column(out.column(name)) for name in ordinals(out.schema.names)[:-1])]
            accepted += 1 + int(np.count_nonzero(np.any([np.diff(one) != 0 for one in parents], axis=0)))
    return max(0, min(letters, taken - accepted))


def _without_instance(operator: Any, batch: Rows) -> Rows:
    plain = isinstance(batch, pa.RecordBatch)  # whose ``schema.names`` is a new list at each access
    has = batch.schema.get_field_index(INSTANCE_FIELD) >= 0 if plain else INSTANCE_FIELD in batch.names
    if not has or isinstance(operator, Route):
        return batch
    return materialize(batch).drop_columns([INSTANCE_FIELD])
