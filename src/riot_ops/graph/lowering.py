"""The graph that runs: sources get an intake, distributions on edges become steps of their own.

An :class:`~riot_ops.ingest.step.Intake` has the id of its source, and stands in place of what the source delivers.

An edge that spreads records over instances turns into a :class:`Route` in front of its task, which
adds the instance of each record as a column. The instance then is part of the task's key, so that
both runners treat instances alike, and no runner knows about distributions.

Where a task goes by stream time, :class:`~riot_ops.graph.marks.Marks` stand where the event times of the records that
come to it were given last: behind the source, or a task without state that writes ``event_time``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import MARKS, StepClock, common_resolution, in_us, whole_period
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import KeyedOperator, Operator, clocks
from riot_ops.core.order import next_ordinal
from riot_ops.graph.graph import Graph
from riot_ops.graph.marks import Marks
from riot_ops.graph.nodes import Distribution, Edge, Node, edge_ordinals
from riot_ops.ingest.step import Intake
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.hashing import hash_columns

__all__ = ["AT_TIME", "BEATS", "INSTANCE", "Route", "Step", "lower"]

#: Ends the names of streams of marks; no node can have such a name.
AT_TIME = "@time"
#: Ends the names of streams of heartbeats: a source has one beside its records.
BEATS = "@beats"
#: Column with the instance of a record between a Route and its task.
INSTANCE = "_instance"


@dataclass(frozen=True)
class Route:
    """Adds the instance of each record, duplicating records for a broadcast."""

    id: str
    distribution: Distribution
    #: How many sources number messages together, see :class:`~riot_ops.ingest.step.Intake`.
    sources: int = 1

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        spread = self.distribution
        p = spread.parallelism or 1
        n = batch.num_rows
        if spread.kind == "broadcast":
            rows = np.repeat(np.arange(n), p)
            copies = np.tile(np.arange(p), n)
            batch = batch.take(pa.array(rows))
            batch = batch.append_column(next_ordinal(batch.schema.names), pa.array(copies))
            return batch.append_column(INSTANCE, pa.array(copies, pa.int64()))
        return self._routed(batch, self._instances(batch, p), p, dead)

    def _instances(self, batch: pa.RecordBatch, p: int) -> npt.NDArray[np.int64]:
        spread = self.distribution
        if spread.kind == "hash":
            h1, _ = hash_columns([batch.column(f) for f in spread.fields], batch.num_rows)
            return (h1 % np.uint64(p)).astype(np.int64)
        if spread.kind == "custom":
            assert spread.router is not None
            return np.asarray(spread.router(batch))
        return int_column(batch.column("seq")) // self.sources % p

    def _routed(
        self, batch: pa.RecordBatch, instances: npt.NDArray[np.int64], p: int, dead: DeadLetters
    ) -> pa.RecordBatch:
        if instances.shape != (batch.num_rows,) or instances.dtype.kind not in "iu":
            dead.reject(
                batch,
                np.ones(batch.num_rows, np.bool_),
                "bad_instance",
                f"the router of {self.id} must return {batch.num_rows} integers, "
                f"got {instances.dtype} of shape {instances.shape}",
            )
            instances = np.full(batch.num_rows, -1)
        else:
            wrong = (instances < 0) | (instances >= p)
            dead.reject(batch, wrong, "bad_instance", f"the router of {self.id} must return 0 to {p - 1}")
        known = (instances >= 0) & (instances < p)
        batch = batch.append_column(INSTANCE, pa.array(instances.astype(np.int64)))
        return batch if known.all() else batch.filter(pa.array(known))


@dataclass(frozen=True)
class Step:
    """One box of the running graph: an intake, marks, a task or a route, and the streams that it reads."""

    id: str
    operator: Operator | Route | Intake | Marks
    inputs: tuple[str, ...]
    #: Fields of the key of its state.
    key: tuple[str, ...] = ()
    #: Fields that decide where it runs; None for a step that runs anywhere.
    partition: tuple[str, ...] | None = None
    #: Most instances that it may run in.
    parallelism: int | None = None
    #: Places of records (``ordinal`` …) that those of another input have, and some may come without.
    numbered: tuple[str, ...] = ()
    #: The stream time that it goes by.
    clock: StepClock | None = None
    #: What it is called where its id is a planner's own.
    label: str = ""
    #: The schema of its output; None for a route.
    schema: pa.Schema | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """What it is called in the errors stream."""
        return self.label or self.id

    @property
    def keyed(self) -> bool:
        return isinstance(self.operator, KeyedOperator)


def lower(flow: Graph) -> list[Step]:
    """The steps of a dataflow, each after its inputs."""
    schemas = flow.schemas()
    numbering = flow.numbering()
    counts = _counts(flow, numbering)
    timing = _Timing(flow, schemas)
    steps: list[Step] = []
    for node in flow.order():
        if node.kind == "source":
            schema = schemas[node.id]
            steps.append(Step(node.id, Intake(schema, *numbering[node.id]), (node.id,), schema=schema))
        if node.task is None:
            continue
        edges = flow.inputs(node.id)
        spread = edges[0].distribution
        plain = node.task.without_state() if isinstance(node.task, KeyedOperator) else None
        known = node.task if plain is None else plain
        key = known.by if isinstance(known, KeyedOperator) else ()
        partition: tuple[str, ...] | None = key if isinstance(known, KeyedOperator) else None
        inputs = tuple(e.source for e in edges)
        if any(_needs_route(e.distribution, key, known) for e in edges):
            inputs = tuple(_route(steps, e, counts[e.source]) for e in edges)
            if partition is not None:
                key, partition = (*key, INSTANCE), (INSTANCE,)
        elif spread.kind == "hash" and partition is not None and set(spread.fields) <= set(key):
            partition = spread.fields  # other fields would spread the records of a key
        elif spread.kind == "one" and partition is not None:
            partition = ()
        places = [edge_ordinals(e, schemas[e.source]) for e in edges]
        numbered = max(places, key=len) if len({len(one) for one in places}) > 1 else ()
        task, clock = timing.placed(node) if plain is None else (plain, None)
        for stream in clock.streams if clock is not None else ():
            if all(step.id != stream for step in steps):
                steps.append(timing.marks(stream))
        steps.append(
            Step(node.id, task, inputs, key, partition, spread.parallelism, numbered, clock, schema=schemas[node.id])
        )
    return steps


def _counts(flow: Graph, numbering: dict[str, tuple[int, int]]) -> dict[str, int]:
    """By node, how many sources number the messages of its stream together."""
    counts: dict[str, int] = {}
    for node in flow.order():
        above = [edge.source for edge in flow.inputs(node.id)]
        counts[node.id] = counts[above[0]] if above else numbering[node.id][1]
    return counts


class _Timing:
    """Which stream time each task goes by, and where it is told."""

    def __init__(self, flow: Graph, schemas: dict[str, pa.Schema]) -> None:
        self._flow = flow
        self._schemas = schemas
        found = [clock for node in flow.kind("task") for clock in (clocks(node.task) if node.task is not None else ())]
        self._resolution = common_resolution(found) if found else 0
        self._guarded = any(clock.max_ahead is not None for clock in found)
        #: By node: the sources above it; where the event times of its records were given; by how much it is late, how
        #: far ahead one may be.
        self._sources: dict[str, tuple[str, ...]] = {}
        self._places: dict[str, tuple[str, ...]] = {}
        self._lag: dict[str, int] = {}
        self._ahead: dict[str, int | None] = {}
        self._keyed: dict[str, bool] = {}  # whether it is a keyed task, or behind one
        if self._resolution:
            for node in flow.order():
                self._look(node)

    def placed(self, node: Node) -> tuple[Operator, StepClock | None]:
        """A task where it stands, and the stream time that it goes by there."""
        assert node.task is not None
        if not clocks(node.task):
            return node.task, None
        above = [edge.source for edge in self._flow.inputs(node.id)]
        places = dict.fromkeys(place for source in above for place in self._places[source])
        for place in places:
            kind = self._schemas[place].field("event_time").type if "event_time" in self._schemas[place].names else None
            if kind is None or not (pa.types.is_timestamp(kind) or pa.types.is_null(kind)):
                raise ConfigError(
                    f"{node.id}: {node.task.name()} goes by stream time, but the stream {place!r} above it has no "
                    f"timestamps in a field 'event_time'; its fields are {', '.join(self._schemas[place].names)}"
                )
        lags = {self._lag[source] for source in above}
        own = clocks(node.task)
        clock = StepClock(
            tuple(map(_marks_name, places)),
            self._resolution,
            max(lags),
            self._ahead[node.id],
            any(clock.from_first for clock in own),
            whole_period(own),
        )
        if len(lags) > 1 and isinstance(node.task, KeyedOperator):
            task = node.task.with_lateness(timedelta(microseconds=clock.lag))
            if task is not node.task:
                return task, replace(clock, lag=0)
        return node.task, clock

    def marks(self, stream: str) -> Step:
        """The step that tells of a stream, and of the heartbeats of the sources above it."""
        place = stream.removesuffix(AT_TIME)
        beats = (source + BEATS for source in self._sources[place])
        return Step(stream, Marks(self._resolution, self._guarded), (place, *beats), schema=MARKS)

    def _look(self, node: Node) -> None:
        above = [edge.source for edge in self._flow.inputs(node.id)]
        sources = tuple(dict.fromkeys(one for source in above for one in self._sources[source]))
        self._sources[node.id] = sources or (node.id,)
        places = tuple(dict.fromkeys(place for source in above for place in self._places[source]))
        keyed = isinstance(node.task, KeyedOperator) or any(self._keyed[source] for source in above)
        lag = max((self._lag[source] for source in above), default=0)
        ahead = [self._ahead[source] for source in above]
        if node.kind == "source":
            places = (node.id,)
        elif node.task is not None and clocks(node.task):
            own = clocks(node.task)
            lag += max(in_us(clock.allowed_lateness) for clock in own)
            ahead += [in_us(clock.max_ahead) for clock in own if clock.max_ahead is not None]
        elif node.task is not None and not keyed:  # behind a keyed task it is the time of what came to that
            written = node.task.writes()
            if "event_time" in self._schemas[node.id].names and (written is None or "event_time" in written):
                places = (node.id,)
        self._places[node.id], self._lag[node.id], self._keyed[node.id] = places, lag, keyed
        self._ahead[node.id] = min((one for one in ahead if one is not None), default=None)


def _marks_name(stream: str) -> str:
    return stream + AT_TIME


def _needs_route(spread: Distribution, key: tuple[str, ...], task: Operator) -> bool:
    """Whether the instance makes a difference to the result."""
    if spread.kind == "broadcast":
        return True
    if not isinstance(task, KeyedOperator) or (spread.parallelism or 1) == 1:
        return False
    if spread.kind == "hash":
        return not set(spread.fields) <= set(key)
    return spread.kind in ("shuffle", "custom")


def _route(steps: list[Step], edge: Edge, sources: int) -> str:
    name = f"{edge.source}->{edge.target}"
    steps.append(Step(name, Route(name, edge.distribution, sources), (edge.source,)))
    return name
