"""The engine: runs the steps of a graph over record batches and holds their state, for both runners."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.clock import FIRST_HEARTBEAT
from riot_ops.core.operator import FilterOperator, KeyedOperator, Operator, StatelessOperator
from riot_ops.core.order import ordinals
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, INSTANCE_FIELD, Route, Step
from riot_ops.ingest.renumber import Renumber
from riot_ops.ingest.step import IngestStep
from riot_ops.ingest.watermarks import WatermarkGenerator
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.lazy_rows import SMALL, AnyRows, Rows, materialize, materialize_all, select
from riot_ops.runtime.batches import ARRIVAL, with_ordinals
from riot_ops.runtime.operator_calls import apply_stateless, checked_mask, inexact_fields, reject_inexact
from riot_ops.runtime.routing import add_instances
from riot_ops.runtime.state import KeyedState

__all__ = ["Batches", "Engine"]

Batches = dict[str, list[Any]]


@dataclass(slots=True)
class _RunningStep:
    """A step with what it needs in each call of :meth:`Engine.process`."""

    step: Step
    kind: str
    errors: RejectedRecords
    state: KeyedState | None
    #: The records that it has read and rejected, shared by the steps of one name.
    counts: list[int]
    #: Whether it reads one stream and no time.
    plain: bool
    #: Its count of errors at the last look.
    error_count: int = 0
    #: The time that it has taken, if that is measured.
    seconds: float = 0.0


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
    states : mapping of step to KeyedState, optional
        The states of another engine that this one shares; by default each keyed step has a new one.
    lazy : bool, default False
        Whether another engine reads the output, so that lazy rows are not copied.
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
        states: Mapping[str, KeyedState] | None = None,
        lazy: bool = False,
    ) -> None:
        self.outputs = outputs
        self._lazy = lazy
        #: Steps that are skipped: they read nothing and emit nothing.
        self.disabled: set[str] = set()
        #: Steps that raised, and are disabled since; None if an exception of a step ends :meth:`process`.
        self.failures: dict[str, Exception] | None = None
        #: Called with the step and its exception, before that ends :meth:`process`.
        self.on_failure: Callable[[str, Exception], None] | None = None
        self.entries = entries
        self._order = order
        self.states: dict[str, KeyedState] = {}
        self._running: dict[str, _RunningStep] = {}
        #: Numbers of the heartbeats that follow, which order those before one message.
        self.heartbeat_numbers: Iterator[int] = itertools.count(FIRST_HEARTBEAT)
        self._counts: dict[str, list[int]] = {}
        self._timing = False
        self.extend(steps, states)

    @property
    def steps(self) -> list[Step]:
        """The steps, in order."""
        return [running.step for running in self._running.values()]

    def extend(self, steps: Sequence[Step], states: Mapping[str, KeyedState] | None = None) -> None:
        """Add steps, each after those whose output it reads."""
        for step in steps:
            state = None if states is None else states.get(step.id)
            if state is None and isinstance(step.operator, KeyedOperator):
                state = KeyedState(step.operator, step.key, step.clock, step.schema, self._order)
            if state is not None:
                self.states[step.id] = state
            plain = len(step.inputs) == 1 and step.clock is None
            kind, counts = _kind(step.operator), self._counts.setdefault(step.name, [0, 0])
            self._running[step.id] = _RunningStep(step, kind, RejectedRecords(step.name), state, counts, plain)

    def has(self, id: str) -> bool:
        """Whether there is a step of that id."""
        return id in self._running

    def drop(self, ids: Collection[str]) -> None:
        """Remove steps and their state; no remaining step may read their output."""
        for id in ids:
            self.states.pop(id, None)
            self._running.pop(id, None)

    def process(
        self,
        inputs: Mapping[str, Sequence[Any]],
        *,
        flush: bool | Collection[str] = False,
    ) -> Batches:
        """Push batches through the steps; returns the non-empty batches of each output stream.

        ``flush`` ends the streams of all steps, or of those named: they emit the records that they hold.
        """
        given = {stream: _rows(batches) for stream, batches in inputs.items()}
        made: dict[str, list[Any]] = {}
        ending = flush if isinstance(flush, Collection) else self.states if flush else ()
        timing = self._timing
        begun = perf_counter() if timing else 0.0
        for id, running in self._running.items():
            if id in self.disabled:
                given |= {id: []} if running.kind == "ingest" else {}
                continue
            try:
                if running.kind == "ingest":  # its output replaces the records of the source
                    read, given[id] = given.get(id), []
                    given[id] = _rows(self._run(running, read)) if read else []
                    made[id + HEARTBEAT_SUFFIX] = self._heartbeats(running.step.operator, inputs.get(id, ()))
                else:
                    made[id] = _rows(self._run_step(running, given, made, ending))
            except Exception as error:
                self._handle_failure(running, error)
            if timing:
                running.seconds -= begun
                begun = perf_counter()
                running.seconds += begun
        results: Batches = {}
        for stream in self.outputs:
            if found := made[stream] if stream in made else given.get(stream):
                results[stream] = found
        if not self._lazy:
            if waiting := [b for found in results.values() for b in found if b.materialized is None]:
                materialize_all(waiting)
            results = {stream: [b.materialized or b.materialize() for b in found] for stream, found in results.items()}
        for running in self._running.values():
            if running.error_count != running.errors.count:
                running.error_count = running.errors.count
                results[ERRORS_STREAM] = results.get(ERRORS_STREAM, []) + running.errors.take()
        return results

    def _heartbeats(self, operator: Any, batches: Sequence[pa.RecordBatch]) -> list[Any]:
        empty = [b for b in batches if not b.num_rows]
        return _rows(operator.heartbeats(empty, self.heartbeat_numbers)) if empty else []

    def _reads(self, id: str, stream: str, given: Mapping[str, list[Any]], made: Mapping[str, list[Any]]) -> list[Any]:
        own = made.get(stream, [])
        if stream not in given or (self.entries is not None and id not in self.entries.get(stream, ())):
            return own
        return given[stream] + own if own else given[stream]

    def _handle_failure(self, running: _RunningStep, error: Exception) -> None:
        """Disable a step that raised, or raise again where failures end :meth:`process`."""
        step = running.step
        error.add_note(f"in the step {step.id!r} ({type(step.operator).__name__})")
        if self.on_failure is not None:
            self.on_failure(step.id, error)
        if self.failures is None:
            raise error
        self.failures[step.id] = error
        self.disabled.add(step.id)
        running.errors.take()

    def _run_step(
        self,
        running: _RunningStep,
        given: Mapping[str, list[Any]],
        made: Mapping[str, list[Any]],
        ending: Collection[str],
    ) -> list[Any]:
        """Run a step over what it reads, and end its streams if they are among those that end; returns its output."""
        step, state = running.step, running.state
        if running.plain and step.inputs[0] in made and step.inputs[0] not in given and not ending:
            batches = made[step.inputs[0]]
            if not batches:
                return []
            if len(batches) == 1 or state is not None:
                return self._run(running, batches)
        reads = [self._reads(step.id, stream, given, made) for stream in step.inputs]
        watermarks: list[Any] = []
        for stream in step.clock.streams if step.clock is not None else ():
            watermarks += self._reads(step.id, stream, given, made)
        if running.kind == "watermarks":  # of the records of its first input, and of heartbeats
            reads, watermarks = reads[:1], [b for part in reads[1:] for b in part]
        batches = reads[0] if len(reads) == 1 else [b for part in reads for b in part]
        ended = state if step.id in ending else None
        if ended is not None and ended.time is not None:
            ended.time.ending = True
        if len(batches) > len(reads) and state is None and running.kind != "watermarks":
            out = [b for part in reads if part for b in _concatenate_output(self._run(running, part))]
        else:
            out = self._run(running, batches, watermarks) if batches or watermarks else []
        if ended is not None:
            out += self._flush_step(running, ended)
            if ended.time is not None:
                ended.time.reset_end()
        return out

    def _run(self, running: _RunningStep, batches: Sequence[Any], watermarks: Sequence[Any] = ()) -> list[Any]:
        """Run a step over its input; returns its output."""
        if Engine.on_step is None:
            return self._output(running, batches, watermarks)
        begun = perf_counter()
        out = [materialize(b) for b in self._output(running, batches, watermarks)]
        seconds = perf_counter() - begun
        Engine.on_step(self, running.step, [materialize(b) for b in batches], out, seconds)
        return out

    def _output(self, running: _RunningStep, batches: Sequence[Any], watermarks: Sequence[Any]) -> list[Any]:
        step, kind, errors = running.step, running.kind, running.errors
        operator: Any = step.operator
        if kind == "watermarks":
            records = [b.materialize() for b in batches]
            if watermarks:
                return [operator.merge(records, [b.materialize() for b in watermarks])]
            return [operator.apply(b) for b in records]
        if step.numbered:
            batches = [Rows(with_ordinals(b.materialize(), step.numbered)) for b in batches]
        before, taken = errors.count, 0
        results: list[Any] = []
        if running.state is not None and (made := running.state.process(batches, errors, watermarks)) is not None:
            results.append(made)
        for b in batches:
            taken += b.num_rows
            if kind == "stateless":
                results += apply_stateless(operator, b.materialize(), errors)
            elif kind == "filter":
                results.append(self._filter(operator, b, errors))
            elif kind == "route":
                results.append(add_instances(operator, b.materialize(), errors))
            elif kind != "keyed":
                results.append(operator.apply(b.materialize(), errors))
        if kind != "numbers":
            running.counts[0] += taken
        if errors.count > before:
            taken = 0 if kind == "numbers" else taken
            running.counts[1] += _rejected_count(operator, taken, results, errors.count - before)
        if step.routed:
            return [_without_instance(out) for out in results]
        if taken > SMALL and len(batches) == 1:
            results = _rows(results)
            for out in results:
                out.inherit(batches[0])
        return results

    def _filter(self, operator: FilterOperator, rows: AnyRows, errors: RejectedRecords) -> AnyRows:
        rows = reject_inexact(rows, inexact_fields(operator, rows.schema), errors)
        small = operator.accepts_lazy_rows and rows.num_rows <= SMALL
        passes = checked_mask(operator, rows if small else materialize(rows), errors)
        return operator.apply(materialize(rows), errors) if passes is None else select(rows, passes)

    def _flush_step(self, running: _RunningStep, state: KeyedState) -> list[Any]:
        begun = perf_counter()
        step, errors = running.step, running.errors
        before = errors.count
        out = state.flush(errors)
        running.counts[1] += errors.count - before
        emitted = [out] if out is not None and out.num_rows else []
        if step.routed:
            emitted = [_without_instance(b) for b in emitted]
        if Engine.on_step is not None:
            Engine.on_step(self, step, [], emitted, perf_counter() - begun)
        return emitted

    def counts(self, *, reset: bool = True) -> dict[str, tuple[int, int]]:
        """Return the records that each step has read and rejected since the last reset, by the step's name."""
        found = {name: (taken, rejected) for name, (taken, rejected) in self._counts.items() if taken or rejected}
        for count in self._counts.values() if reset else ():
            count[:] = 0, 0
        return found

    def time_steps(self) -> None:
        """Measure from now on how long each step takes."""
        self._timing = True

    def step_seconds(self) -> dict[str, float]:
        """Return the seconds that each step has taken since :meth:`time_steps`, by its name.

        Steps that select rows leave their copies to the steps that need them.
        """
        found = dict[str, float]()
        for running in list(self._running.values()) if self._timing else ():
            found[running.step.name] = found.get(running.step.name, 0.0) + running.seconds
        return found

    def row_counts(self) -> tuple[int, int]:
        """Return the records read at the sources and by the busiest step, since :meth:`counts` was last reset."""
        taken = [count[0] for count in self._counts.values()]
        return sum([r.counts[0] for r in self._running.values() if r.kind == "ingest"]), max(taken, default=0)

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
    def keys(self) -> int:
        """The number of keys with state, of all steps."""
        return sum(state.index.size for state in self.states.values())

    @property
    def nbytes(self) -> int:
        """Bytes of state."""
        return sum(s.nbytes for s in self.states.values())


def _kind(operator: Any) -> str:
    """Classify an operator once: ``isinstance`` is slow for classes with abstract methods."""
    for kind, cls in (
        ("watermarks", WatermarkGenerator),
        ("numbers", Renumber),
        ("route", Route),
        ("ingest", IngestStep),
    ):
        if isinstance(operator, cls):
            return kind
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


def _rejected_count(operator: Any, taken: int, results: list[pa.RecordBatch], rejected: int) -> int:
    """Return the number of records rejected completely, without any rows."""
    if not isinstance(operator, Operator) or not operator.expands():
        return rejected
    accepted = 0
    for out in map(materialize, results):  # the rows of one record are adjacent
        if out.num_rows and "seq" in out.schema.names:
            seq = int_column(out.column("seq"))
            parents = [seq, *(int_column(out.column(name)) for name in ordinals(out.schema.names)[:-1])]
            accepted += 1 + int(np.count_nonzero(np.any([np.diff(one) != 0 for one in parents], axis=0)))
    return max(0, min(rejected, taken - accepted))


def _without_instance(out: Any) -> Any:
    batch = materialize(out)
    return batch.drop_columns([INSTANCE_FIELD]) if INSTANCE_FIELD in batch.schema.names else batch


def _rows(batches: Sequence[Any]) -> list[Any]:
    """Return the rows, where there are any; record batches with what will be known of them."""
    return [Rows(b) if isinstance(b, pa.RecordBatch) else b for b in batches if b.num_rows]
