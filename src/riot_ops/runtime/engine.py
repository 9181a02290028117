"""Runs the steps of a graph over record batches and holds their state; used by both runners."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.operator import FilterOperator, KeyedOperator, StatelessOperator
from riot_ops.core.order import TICK_PLACES, ordinals
from riot_ops.core.results import applied, passing
from riot_ops.graph.lowering import BEATS, INSTANCE, Route, Step
from riot_ops.graph.marks import Marks
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.ingest.step import Intake
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.derived import Derived
from riot_ops.kernels.arrays.hashing import HashMemo
from riot_ops.kernels.arrays.selection import SMALL, Draft, Rows, Selection, finish, kept, whole
from riot_ops.runtime.batches import ARRIVAL, as_others, in_order, is_in_order, merged, merged_in_order, numbered
from riot_ops.runtime.state import KeyedState

__all__ = ["Batches", "Engine"]

Batches = dict[str, list[pa.RecordBatch]]
#: Kinds of steps that take the batches of a stream one by one.
BATCHWISE = ("stateless", "filter", "plumbing")


class Engine:
    """A part of a dataflow, running.

    Parameters
    ----------
    steps : sequence of Step
        Steps in order, each after those whose output it reads.
    outputs : collection of str
        Streams to return from :meth:`process`.
    entries : mapping of stream to steps, optional
        Which steps read a stream that comes from outside; by default all that name it.
    order : tuple of str
        Fields that order the records of a keyed step within what is processed at once.
    memo : HashMemo, optional
        Key hashes that are known of what comes next; it is emptied behind each call of :meth:`process`.
    whole : bool, default True
        Whether all that comes out is a batch; else another engine reads it, and may do with a :class:`Derived`.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        outputs: Collection[str],
        entries: Mapping[str, set[str]] | None = None,
        order: tuple[str, ...] = ARRIVAL,
        memo: HashMemo | None = None,
        whole: bool = True,
    ) -> None:
        self.steps: list[Step] = []
        self.outputs = outputs
        #: Steps that are passed over: they see nothing and give nothing.
        self.resting: set[str] = set()
        #: Steps that raised and are passed over since; None where one that raises ends :meth:`process`.
        self.broken: dict[str, Exception] | None = None
        #: Told which step raised, before that ends :meth:`process`.
        self.failing: Callable[[str, Exception], None] | None = None
        self.entries = entries
        self.order = order
        self._whole = whole
        self._memo = HashMemo() if memo is None else memo
        self.states: dict[str, KeyedState] = {}
        self._dead: dict[str, DeadLetters] = {}
        self._kinds: dict[str, str] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        #: Small batches with what is found out about them, for all steps that read one.
        self._seen: dict[int, Selection] = {}
        #: What steps have put out that is still to be made.
        self._drafts: list[tuple[str, Draft]] = []
        self.extend(steps)

    def extend(self, steps: Sequence[Step]) -> None:
        """Have more steps from now on, each after those whose output it reads."""
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
        """Have these steps no more, nor their state; none that stays reads them."""
        self.steps = [step for step in self.steps if step.id not in ids]
        for id in ids:
            self.states.pop(id, None)
            self._dead.pop(id, None)
            self._kinds.pop(id, None)
            self._schemas.pop(id, None)

    def process(self, inputs: Mapping[str, list[pa.RecordBatch]], *, flush: bool | Collection[str] = False) -> Batches:
        """Push batches through the steps; returns the batches of each output stream, none empty.

        With ``flush`` all steps, or those that are named, give what they hold, as their stream has ended.
        """
        made: dict[str, list[Any]] = {}
        ending = flush if isinstance(flush, Collection) else self.states if flush else ()
        for step in self.steps:
            if step.id in self.resting:
                if isinstance(step.operator, Intake):
                    inputs = {**inputs, step.id: []}
                continue
            if isinstance(step.operator, Intake):  # what it lets through takes the place of what came in
                given, passed = inputs.get(step.id, []), list[Any]()
                try:
                    passed = self._run(step, given)
                    made[step.id + BEATS] = step.operator.heartbeats(given)
                except Exception as error:
                    self._broke(step, error)
                inputs = {**inputs, step.id: passed}
                continue
            reads = [[b for b in self._reads(step, stream, inputs, made) if b.num_rows] for stream in step.inputs]
            batches = [b for given in reads for b in given]
            told = step.clock.streams if step.clock is not None else ()
            marks = [b for stream in told for b in self._reads(step, stream, inputs, made)]
            flushed = step.id in ending and step.id in self.states
            if not batches and not marks and not flushed:
                made[step.id] = []
                continue
            time = self.states[step.id].time if flushed else None
            if time is not None:
                time.ending = True
            try:
                if len(batches) > len(reads) and self._kinds[step.id] in BATCHWISE:
                    out = [b for given in reads for b in _together(self._run(step, given))]
                else:
                    out = self._run(step, batches, marks)
                if flushed:
                    out += self._flushed(step)
                if time is not None:
                    time.ended()
            except Exception as error:
                self._broke(step, error)
                continue
            made[step.id] = [b for b in out if b.num_rows]
        finish(draft for _, draft in self._drafts)
        self._schemas |= {id: draft.whole().schema for id, draft in self._drafts if draft.num_rows}
        results: Batches = {}
        for stream in self.outputs:
            found = made.get(stream, []) if stream in made else [b for b in inputs.get(stream, []) if b.num_rows]
            if found:
                results[stream] = [b if isinstance(b, Derived) and not self._whole else whole(b) for b in found]
        errors = [b for dead in self._dead.values() for b in dead.take()]
        if errors:
            results[ERRORS_STREAM] = errors
        self._memo.clear()
        self._seen.clear()
        self._drafts.clear()
        return results

    def _reads(
        self, step: Step, stream: str, inputs: Mapping[str, list[pa.RecordBatch]], made: Mapping[str, list[Any]]
    ) -> list[Any]:
        own = made.get(stream, [])
        if stream not in inputs or (self.entries is not None and step.id not in self.entries.get(stream, ())):
            return own
        return [*inputs[stream], *own]

    def _broke(self, step: Step, error: Exception) -> None:
        """A step has raised: pass it over from now on, where that does not end everything."""
        error.add_note(f"in the step {step.id!r} ({type(step.operator).__name__})")
        if self.failing is not None:
            self.failing(step.id, error)
        if self.broken is None:
            raise error
        self.broken[step.id] = error
        self.resting.add(step.id)
        self._dead[step.id].take()

    def _run(self, step: Step, batches: Sequence[Rows], marks: Sequence[pa.RecordBatch] = ()) -> list[Any]:
        if not batches and not marks:
            return []
        operator: Any = step.operator
        kind = self._kinds[step.id]
        if kind not in ("filter", "keyed") or step.numbered:
            batches = [whole(b) for b in batches]
        if kind == "marks":
            return [operator.apply(b) for b in batches]
        dead = self._dead[step.id]
        if step.numbered:
            batches = [numbered(b, step.numbered) for b in batches]
        before = dead.count
        results: list[Any]
        if kind == "plumbing":
            results = [operator.apply(b, dead) for b in batches]
        elif kind == "filter":
            results = [self._filtered(operator, b, dead) for b in batches]
        elif kind == "stateless":
            results = [out for b in batches for out in operator.derived(b, dead) or applied(operator, b, dead)]
        else:
            state = self.states[step.id]
            due = None
            made = None
            if len(batches) > 1:
                batches = [whole(b) for b in batches]
                made = state.merge_aligned(batches) if self.order == ARRIVAL else None
            elif batches and isinstance(batches[0], Derived) and self.order == ARRIVAL and batches[0].rises():
                made = state.derived(batches[0], dead)
            if made is None:
                batch = self._in_order(batches) if batches else None
                made, due = state.process(batch, dead, marks, self.order[0])
            if made is not None and operator.clock() is not None and step.schema is not None:
                made = numbered(whole(made), [name for name in TICK_PLACES if name in step.schema.names])
            if isinstance(made, Draft):
                self._drafts.append((step.id, made))
            elif made is not None:
                self._schemas[step.id] = made.schema
            results = [] if made is None else [made]
            if due is not None and due.num_rows:
                full = [whole(b) for b in results if b.num_rows]
                due = self._as_others(step, due)
                results = [in_order(merged([*full, due]), self.order)] if full or self.order != ARRIVAL else [due]
        taken = sum(b.num_rows for b in batches)
        self._count(step, taken, _rejected(operator, taken, results, dead.count - before))
        return [_without_instance(operator, out) for out in results]

    def _in_order(self, batches: Sequence[Any]) -> Rows:
        if len(batches) > 1:
            return merged_in_order(batches, self.order)
        batch = self._known(batches[0])
        if not isinstance(batch, Selection):
            return in_order(batch, self.order)
        every = batch.every
        if every.ordered is None:
            every.ordered = is_in_order(every.batch, self.order)
        return batch if every.ordered else in_order(whole(batch), self.order)

    def _known(self, batch: Rows | Draft) -> Rows:
        """A batch, where it is small with what is known of it."""
        if isinstance(batch, Selection):
            return batch
        batch = whole(batch)
        if batch.num_rows > SMALL:
            return batch
        found = self._seen.get(id(batch))
        if found is None:
            found = self._seen[id(batch)] = Selection(batch)
        return found

    def _filtered(self, operator: FilterOperator, given: Rows | Draft, dead: DeadLetters) -> Rows:
        batch = self._known(given)
        passes = passing(operator, batch if operator.selects else whole(batch), dead)
        return operator.apply(whole(batch), dead) if passes is None else kept(batch, passes)

    def _flushed(self, step: Step) -> list[pa.RecordBatch]:
        dead = self._dead[step.id]
        before = dead.count
        out = self.states[step.id].flush(dead)
        self._count(step, 0, dead.count - before)
        if out is None or not out.num_rows:
            return []
        return [_without_instance(step.operator, self._as_others(step, out))]

    def _as_others(self, step: Step, out: pa.RecordBatch) -> pa.RecordBatch:
        schema = self._schemas.get(step.id, step.schema)  # no record may have come since a restart
        assert schema is not None
        return as_others(out, schema)

    def _count(self, step: Step, taken: int, rejected: int) -> None:
        if taken or rejected:
            t, r = self._counts.get(step.name, (0, 0))
            self._counts[step.name] = t + taken, r + rejected

    def counts(self) -> dict[str, tuple[int, int]]:
        """Records that each step took and rejected since this was asked last, by the step's name."""
        counts, self._counts = self._counts, {}
        return counts

    def taken(self) -> tuple[int, int]:
        """Records that came in, and that the step with the most took, as :meth:`counts` would tell."""
        intakes = {step.name for step in self.steps if isinstance(step.operator, Intake)}
        taken = {name: n for name, (n, _) in self._counts.items()}
        return sum(n for name, n in taken.items() if name in intakes), max(taken.values(), default=0)

    def snapshot(self, kind: Any = "full") -> dict[str, bytes]:
        """The state of each keyed step."""
        return {name: state.snapshot(kind) for name, state in self.states.items()}

    def pieces(self, kind: Any, most: int) -> Iterator[dict[str, bytes]]:
        """The same in pieces of about so many bytes, at least one, to be restored in order."""
        held: dict[str, bytes] = {}
        size = 0
        for name, state in self.states.items():
            for data in state.pieces(kind, most):
                if name in held or (held and size + len(data) > most):
                    yield held
                    held, size = {}, 0
                held[name] = data
                size += len(data)
        yield held

    def restore(self, data: Mapping[str, bytes]) -> None:
        """Load a snapshot; :class:`StateError` where it belongs to something else."""
        for name, state in self.states.items():
            if name in data:
                state.restore(data[name], f" of step {name!r}")

    @property
    def nbytes(self) -> int:
        """Bytes of state held."""
        return sum(s.nbytes for s in self.states.values())


def _kind(operator: Any) -> str:
    """What is done with a step, told once: of classes with abstract methods it takes long."""
    if isinstance(operator, Marks):
        return "marks"
    if isinstance(operator, (Route, Intake)):
        return "plumbing"
    if isinstance(operator, FilterOperator):
        return "filter"
    return "stateless" if isinstance(operator, StatelessOperator) else "keyed"


def _together(made: list[Any]) -> list[Any]:
    """What a step made of batches that follow one another, as one.

    So long lines, which are read piece by piece where they lie, are not copied, but what is read from them is together.
    """
    made = [b for b in made if b.num_rows]
    if len(made) < 2 or any(b.schema != made[0].schema for b in made):
        return made
    return [pa.concat_batches([whole(b) for b in made])]


def _rejected(operator: Any, taken: int, results: list[pa.RecordBatch], letters: int) -> int:
    """How many records of those taken were rejected: one of which only parts were is not among them."""
    if not letters or isinstance(operator, (Route, Intake)) or not operator.expands():
        return letters
    accepted = 0
    for out in map(whole, results):  # the rows that come of one record follow one another
        if out.num_rows and "seq" in out.schema.names:
            seq = int_column(out.column("seq"))
            parents = [seq, *(int_column(out.column(name)) for name in ordinals(out.schema.names)[:-1])]
            accepted += 1 + int(np.count_nonzero(np.any([np.diff(one) != 0 for one in parents], axis=0)))
    return max(0, min(letters, taken - accepted))


def _without_instance(operator: Any, batch: Rows) -> Rows:
    plain = isinstance(batch, pa.RecordBatch)  # which makes its names anew each time
    has = batch.schema.get_field_index(INSTANCE) >= 0 if plain else INSTANCE in batch.names
    if not has or isinstance(operator, Route):
        return batch
    return whole(batch).drop_columns([INSTANCE])
