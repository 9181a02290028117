"""Running a sample of records through a dataflow, step by step, to see what each step makes of it."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_ops.core.backoff import MAX_SECONDS
from riot_ops.core.checks import check_count, duration_seconds
from riot_ops.core.clock import NEVER
from riot_ops.core.display import cell_text
from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.operator import NUMBER_REQUIREMENTS, FilterOperator, KeyedOperator, operator_clocks
from riot_ops.core.parameters import Duration
from riot_ops.core.python_values import infer_type
from riot_ops.core.schema import ERRORS, ERRORS_STREAM, TIMESTAMP
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.graph.lowering import lower
from riot_ops.graph.merges import Merges, numbered_as
from riot_ops.graph.nodes import Node, source_node
from riot_ops.ingest.files import read
from riot_ops.ingest.tables import as_table, is_frame
from riot_ops.runtime.binding import bind_sources
from riot_ops.runtime.engine import Engine
from riot_ops.runtime.state import KeyedState
from riot_ops.runtime.trace import Origin, StepTrace, Trace, failure_text
from riot_ops.task import Task

__all__ = ["show"]

Inputs = dict[str, list[pa.RecordBatch]]
#: By source, the function that returns the message of a number of a stream.
Origins = Callable[[int], Origin]


def show(flow: Graph | Task, source: Any = None, *, max_rows: int = 20, timeout: Duration = "10s") -> Trace:
    """Run the first records of a source through a dataflow, and show what each step makes of each.

    It runs in process, with new state. Sinks get nothing and no checkpoint is written, but tasks that write to a store
    or a broker do so. Print the result, or end a cell with it: it has the records that each step read, emitted and
    rejected, and why a step emitted none; then, record by record, what each step made of it: the fields that it
    changed, ``filtered out``, ``held``, or the reason for which it was rejected.

    Parameters
    ----------
    flow : Dataflow or Task
        A dataflow, whose steps need not end in sinks; or a single task.
    source : source, table, frame, list or iterator of dicts, path, or mapping of source name to one of these
        What ``flow.run`` takes, and Spark DataFrames that are no streams. A source is not told that its records were
        read; an iterator is used up.
    max_rows : int, >= 1, default 20
        Records to take of each source.
    timeout : timedelta or text, default "10s"
        How long to wait for that many from sources that are still open.

    Returns
    -------
    Trace
        A mapping of the id of a step to its :class:`~riot_ops.runtime.trace.StepTrace`; ``record(seq)`` has one record.

    Raises
    ------
    ConfigError
        If the dataflow is not valid, or a source does not fit it. What a step raises is shown, not raised.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("greenhouse")
    >>> readings = flow.source("readings", {"bed": "string", "moisture": "double"})
    >>> dry = readings.filter("moisture < 20", id="dry")
    >>> _ = dry.key_by("bed").apply(ro.tasks.MovingAverage(value="moisture", window=2), id="avg").to("out")
    >>> ro.show(flow, [{"bed": "a", "moisture": m} for m in (40.5, 18.0, "n/a", 17.0)])
    dataflow greenhouse, records: 4 of readings
    <BLANKLINE>
    step                                                         read  out  rejected
    readings  source                                                4    3         1
    dry       Filter(condition='moisture < 20')                     3    2         0
    avg       MovingAverage(by='bed', value='moisture', window…     2    1         0
    <BLANKLINE>
      readings: rejected: wrong_type 1
      dry: filtered out 1
    <BLANKLINE>
    readings 0
      readings  bed=a  moisture=40.5
      dry       - filtered out
    <BLANKLINE>
    readings 1
      readings  bed=a  moisture=18.0
      dry       passes unchanged
      avg       - no output, kept in state
    <BLANKLINE>
    readings 2
      readings  REJECTED wrong_type: moisture = 'n/a' (str) is not of type double
    <BLANKLINE>
    readings 3
      readings  bed=a  moisture=17.0
      dry       passes unchanged
      avg       moisture=17.5  count=2
    """
    check_count(max_rows=max_rows)
    seconds = duration_seconds("timeout", timeout, zero=True)
    if isinstance(flow, Task):
        flow, source = _flow_of(flow, _from_spark(source, max_rows), max_rows)
    elif isinstance(flow, Graph):
        flow = _ending(flow)
        if isinstance(source, Mapping):
            source = {name: _from_spark(one, max_rows) for name, one in source.items()}
        else:
            source = _from_spark(source, max_rows)
    else:
        hint = "; a stream has its dataflow as .flow" if hasattr(flow, "flow") else ""
        raise ConfigError(f"show takes a dataflow or a task, got {value_text(flow)}{hint}")
    inputs, ended = _read_sample(bind_sources(flow, source), max_rows, seconds)
    return _SampleRun(flow, inputs).trace(ended)


# -- what is run -----------------------------------------------------------------------------------


def _from_spark(source: Any, max_rows: int) -> Any:
    """Return the first rows of a Spark DataFrame, and any other source as it is."""
    if not hasattr(source, "sparkSession"):
        return source
    if source.isStreaming:
        raise ConfigError("show takes a DataFrame that is no stream; read a batch DataFrame from the same place")
    return source.limit(max_rows).toArrow()


def _flow_of(task: Task, source: Any, max_rows: int) -> tuple[Graph, Any]:
    """Return a dataflow of a single task over a source of the fields that the records have, and the records."""
    if source is None:
        raise ConfigError("show needs the records that the task gets, as its second argument")
    if isinstance(source, str | Path):
        source = read(source)
    elif isinstance(source, Iterator) and not hasattr(source, "__arrow_c_stream__"):
        source = list(itertools.islice(source, max_rows))
    if isinstance(source, Source):
        schema = source.schema
    elif isinstance(source, list | tuple) and all(isinstance(record, Mapping) for record in source):
        schema = _schema_of(source, task)
    elif not is_frame(source) and hasattr(source, "__arrow_c_stream__"):
        source = pa.RecordBatchReader.from_stream(source)
        schema = source.schema
    else:
        schema = as_table(source).schema
    own = {"seq": pa.int64(), "event_time": TIMESTAMP}
    flow = Graph(task.name())
    flow.add_node(source_node("records", pa.schema([(f.name, own.get(f.name, f.type)) for f in schema])))
    flow.add_node(Node(flow.free_id(task.name()), "task", task))
    flow.connect("records", [*flow.nodes][-1])
    return _ending(flow), source


def _schema_of(records: Sequence[Mapping[str, Any]], task: Task) -> pa.Schema:
    """Return the fields of dicts; where the task needs a number, other values are cells to be rejected."""
    requires = task.requires()
    fields: dict[str, pa.DataType] = {}
    for name in dict.fromkeys(str(key) for record in records for key in record):
        values = [record.get(name) for record in records]
        texts = requires.get(name) in NUMBER_REQUIREMENTS and any(isinstance(value, str) for value in values)
        fields[name] = pa.float64() if texts else infer_type(values)
    return pa.schema(fields)


def _ending(flow: Graph) -> Graph:
    """Return the dataflow, with a sink for the streams that end in none."""
    read_by = {edge.source for edge in flow.edges}
    open_ends = [node.id for node in flow.nodes.values() if node.kind != "sink" and node.id not in read_by]
    if not open_ends:
        return flow
    whole = Graph(flow.name, merging=flow.merging, ordinals=flow.ordinals)
    whole.nodes, whole.edges = dict(flow.nodes), list(flow.edges)
    sink = whole.free_id("shown")
    whole.add_node(Node(sink, "sink"))
    for id in open_ends:
        whole.connect(id, sink)
    return whole


# -- the sample ------------------------------------------------------------------------------------


def _read_sample(sources: Mapping[str, Source], max_rows: int, seconds: float) -> tuple[Inputs, bool]:
    """Return the first batches of each source, and whether these are all records."""
    until = time.monotonic() + seconds
    inputs: Inputs = {}
    ended = True
    try:
        for name, source in sources.items():
            inputs[name], whole = _read_first(source, max_rows, until)
            ended = ended and whole
    finally:
        for source in sources.values():
            source.close()
    return inputs, ended


def _read_first(source: Source, max_rows: int, until: float) -> tuple[list[pa.RecordBatch], bool]:
    woken = threading.Event()
    offset, found, rows = source.initial(), list[pa.RecordBatch](), 0
    while rows < max_rows:
        woken.clear()
        end = source.latest(offset, max_rows - rows)
        if end == offset:
            left = until - time.monotonic()
            if source.finished(offset):
                return found, True
            if left <= 0:
                return found, False
            pause = source.wait_time(offset, woken.set)
            woken.wait(min(left, max(pause, 0.001) if pause is not None else MAX_SECONDS))
            continue
        for batch in (batch for split in source.splits(offset, end, 1) for batch in source.read(split)):
            left = max_rows - rows
            if batch.num_rows > left:
                return [*found, *([batch.slice(0, left)] if left else [])], False
            found.append(batch)
            rows += batch.num_rows
        offset = end
    return found, source.finished(offset)


# -- running it ------------------------------------------------------------------------------------


class _SampleRun:
    """One run of a sample: what the steps made of it, and at its end."""

    def __init__(self, flow: Graph, inputs: Inputs) -> None:
        self._flow = flow
        self._inputs = inputs
        self._schemas = flow.schemas()
        self._nodes = [node for node in flow.topological_order() if node.kind != "sink"]
        self._engine = Engine(lower(flow), {node.id for node in self._nodes})
        self._engine.failures = {}
        self._made = self._engine.process(inputs)
        self._times = {id: _stream_time(state) for id, state in self._engine.states.items()}
        self._keys = {id: state.index.size for id, state in self._engine.states.items()}
        self._at_end = self._engine.process({}, flush=True)
        self._counts = self._engine.counts(reset=False)
        self._origins = _origins(flow)

    def trace(self, ended: bool) -> Trace:
        """Return what each step made of the sample."""
        found = [*self._made.get(ERRORS_STREAM, []), *self._at_end.get(ERRORS_STREAM, [])]
        errors = pa.Table.from_batches(found, found[0].schema if found else ERRORS)
        steps_of_errors = [numbered_as(step) for step in errors.column("task").to_pylist()]
        steps: dict[str, StepTrace] = {}
        for node in self._nodes:
            places = [place for place, step in enumerate(steps_of_errors) if step == node.id]
            steps[node.id] = self._step(node, errors.take(pa.array(places, pa.int64())), steps)
        return Trace(flow=self._flow, steps=steps, origins=self._messages(), ended=ended)

    def _step(self, node: Node, errors: pa.Table, before: Mapping[str, StepTrace]) -> StepTrace:
        made, at_end = (_table(found.get(node.id, []), self._schemas[node.id]) for found in (self._made, self._at_end))
        records = pa.concat_tables([made, at_end], promote_options="permissive")
        read, rejected = self._counts.get(node.id, (0, 0))
        inputs = tuple(dict.fromkeys(edge.source for edge in self._flow.inputs(node.id)))
        failure = (self._engine.failures or {}).get(node.id)
        step = StepTrace(
            id=node.id,
            inputs=inputs,
            operator=node.task,
            read=read,
            written=records.num_rows,
            rejected=rejected,
            at_end=at_end.num_rows,
            records=records,
            errors=errors,
            failure=failure,
            note="",
            emitted_from=self._by_origin(node.id, made),
            rejected_from=self._by_origin(node.id, errors),
        )
        return replace(step, note="; ".join(self._notes(step, [id for id in inputs if not before[id].written])))

    def _by_origin(self, node: str, table: pa.Table) -> dict[Origin, list[int]]:
        found: dict[Origin, list[int]] = {}
        if "seq" in table.column_names:
            for place, seq in enumerate(table.column("seq").to_pylist()):
                if seq is not None:
                    found.setdefault(self._origins[node](seq), []).append(place)
        return found

    def _messages(self) -> list[Origin]:
        """Return the messages of the sample in the order in which they are processed."""
        found = {
            Origin(name, seq): None
            for name, batches in self._inputs.items()
            for batch in batches
            if batch.num_rows
            for seq in batch.column("seq").to_pylist()
            if isinstance(seq, int)
        }
        places = {name: place for place, name in enumerate(self._inputs)}
        if self._flow.merging == "sequence":
            return sorted(found, key=lambda origin: (places[origin.source], origin.seq))
        return sorted(found, key=lambda origin: (origin.seq, places[origin.source]))

    def _notes(self, step: StepTrace, silent: list[str]) -> Iterator[str]:
        """Yield what a step dropped or held back, and why it emitted nothing."""
        if step.failure is not None:
            yield f"failed: {failure_text(step.failure)}"
            return
        if not step.read:
            yield "got no records" + (f": {', '.join(silent)} gave none" if silent else "")
            return
        reasons: dict[str, int] = {}
        for reason in step.errors.column("reason").to_pylist():
            reasons[reason] = reasons.get(reason, 0) + 1
        if reasons:
            yield "rejected: " + ", ".join(f"{reason} {n:,}" for reason, n in reasons.items())
        operator = step.operator
        filters = isinstance(operator, FilterOperator) or getattr(operator, "category", "") == "Filter"
        left = step.read - step.rejected - step.written
        if filters and left > 0 and not step.at_end:
            yield f"filtered out {left:,}"
        elif not step.written and left > 0:
            state = isinstance(operator, KeyedOperator)
            yield (
                f"no output: all is kept in the state of {_count(self._keys.get(step.id, 0), 'key')}"
                if state
                else ("no output for any record")
            )
        if step.at_end:
            at = self._times.get(step.id)
            joins = getattr(operator, "pattern", "") == "Join"
            timed = operator is not None and not joins and bool(operator_clocks(operator))
            yield f"{step.at_end:,} only at the end of the sample" + (
                f": until then stream time had come to {at}, and their windows were open" if timed and at else ""
            )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _table(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="permissive") if tables else schema.empty_table()


def _stream_time(state: KeyedState) -> str | None:
    """Return the stream time of a step, as text; None before the first event time."""
    if state.time is None or state.time.now == NEVER:
        return None
    step = timedelta(microseconds=state.time.clock.resolution)
    at = cell_text(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=state.time.now))
    return f"{at} (in steps of {step})" if step > timedelta(microseconds=1) else at


def _origins(flow: Graph) -> dict[str, Origins]:
    """Return, by stream, the function that returns the message of a number; see :mod:`riot_ops.graph.merges`."""
    names = [node.id for node in flow.nodes_of_kind("source")]
    merges, numbering = Merges(flow), flow.numbering()
    found: dict[str, Origins] = {}
    for node in flow.nodes.values():
        sources = [names[rank] for rank in merges.sources[node.id]]
        if flow.merging == "arrival":
            found[node.id] = functools.partial(_arrived, sources)
        else:
            found[node.id] = functools.partial(_numbered, {name: numbering[name] for name in sources})
    return found


def _arrived(sources: Sequence[str], seq: int) -> Origin:
    number, place = divmod(seq, len(sources))
    return Origin(sources[place], number)


def _numbered(sources: Mapping[str, tuple[int, int]], seq: int) -> Origin:
    for name, (shift, step) in sources.items():
        if (seq - shift) % step == 0:
            return Origin(name, (seq - shift) // step)
    raise AssertionError(f"seq {seq} is of none of {[*sources]}")
