"""Lowering: the graph of a dataflow as the steps that run.

Each source becomes an :class:`~riot_ops.ingest.step.IngestStep` with the id of the source, whose output replaces the
source's records.

An edge that spreads records over instances becomes a :class:`Route` before its task, which adds the instance of each
record as a column. The instance is then part of the task's key. So both runners treat instances alike, and neither
knows about distributions.

Where streams of several sources merge, a :class:`~riot_ops.ingest.renumber.Renumber` before the merge makes their
message numbers comparable. So what runs before a merge does not depend on it.

For tasks that use stream time, a :class:`~riot_ops.ingest.watermarks.WatermarkGenerator` follows the step that last
set the event times of their records: the source, or a stateless task that writes ``event_time``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pyarrow as pa

from riot_ops.core.clock import (
    AGREEING,
    WATERMARKS,
    StepClock,
    aging_cell,
    common_resolution,
    to_microseconds,
    whole_periods_us,
)
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import KeyedOperator, Operator, operator_clocks
from riot_ops.core.parameters import as_names
from riot_ops.graph.graph import Graph
from riot_ops.graph.merges import Merges
from riot_ops.graph.nodes import Distribution, Edge, Node, edge_ordinals
from riot_ops.ingest.renumber import Renumber
from riot_ops.ingest.step import IngestStep
from riot_ops.ingest.watermarks import WatermarkGenerator

__all__ = ["HEARTBEAT_SUFFIX", "INSTANCE_FIELD", "MERGED_SUFFIX", "WATERMARK_SUFFIX", "Route", "Step", "lower"]

#: Suffix of the names of watermark streams; no node can have such a name.
WATERMARK_SUFFIX = "@time"
#: Suffix of the names of streams with the numbers of the streams that they merge with.
MERGED_SUFFIX = "@merged"
#: Suffix of the names of heartbeat streams: each source has one beside its records.
HEARTBEAT_SUFFIX = "@beats"
#: As many votes as any run of records has.
EVERY_RECORD = 1 << 62
#: Column with the instance of a record, between a Route and its task.
INSTANCE_FIELD = "_instance"


@dataclass(frozen=True)
class Route:
    """The step that adds the instance of each record, and copies records for a broadcast."""

    id: str
    distribution: Distribution
    #: Number of sources by which the messages are numbered.
    sources: int = 1


@dataclass(frozen=True)
class Step:
    """One step of the running graph, with the streams that it reads."""

    id: str
    operator: Operator | Route | IngestStep | Renumber | WatermarkGenerator
    inputs: tuple[str, ...]
    #: Key fields of its state.
    key: tuple[str, ...] = ()
    #: Fields that decide in which bucket it runs; None for a step that may run anywhere.
    partition: tuple[str, ...] | None = None
    #: Maximum number of instances.
    parallelism: int | None = None
    #: Ordinals (``ordinal`` …) that the records of some inputs have and others lack.
    numbered: tuple[str, ...] = ()
    #: Its stream time, if it uses one.
    clock: StepClock | None = None
    #: Its name, where the id was made by a planner.
    label: str = ""
    #: Whether its input has the column of instances.
    routed: bool = field(default=False, compare=False, repr=False)
    #: The schema of its output; None for a route.
    schema: pa.Schema | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The step's name in the errors stream."""
        return self.label or self.id

    @property
    def keyed(self) -> bool:
        return isinstance(self.operator, KeyedOperator)


def lower(flow: Graph, ranks: Mapping[str, int] | None = None) -> list[Step]:
    """Return the steps of a dataflow, each after its inputs.

    ``ranks`` orders the sources, see :class:`~riot_ops.graph.merges.Merges`.
    """
    schemas = flow.schemas()
    numbering = flow.numbering()
    merges = Merges(flow, ranks)
    timing = _Timing(flow, schemas)
    found: dict[str, Step] = {}

    def add(step: Step) -> str:
        found.setdefault(step.id, step)
        return step.id

    def renumbered(stream: str, sources: tuple[int, ...], into: tuple[int, ...], suffix: str = MERGED_SUFFIX) -> str:
        """Return the name of a stream with the numbers of more sources."""
        step = merges.renumber(sources, into, rejects=suffix == MERGED_SUFFIX)
        if step is None:
            return stream
        name = f"{stream}@{'+'.join(map(str, into))}{suffix}"
        return add(Step(name, step, (stream,), label=stream if suffix == MERGED_SUFFIX else ""))

    def watermarks(origin: str, into: tuple[int, ...]) -> str:
        """Return the name of the stream of watermarks of another stream, with the numbers of more sources."""
        own = merges.sources[origin]
        beats = [
            renumbered(source + HEARTBEAT_SUFFIX, merges.sources[source], own, WATERMARK_SUFFIX)
            for source in timing.sources[origin]
        ]
        step = Step(origin + WATERMARK_SUFFIX, timing.watermark_generator(origin), (origin, *beats), schema=WATERMARKS)
        return renumbered(add(step), own, into, WATERMARK_SUFFIX)

    for node in flow.topological_order():
        if node.kind == "source":
            schema = schemas[node.id]
            add(Step(node.id, IngestStep(schema, *numbering[node.id]), (node.id,), schema=schema))
        if node.task is None:
            continue
        edges, own = merges.inputs(node.id), merges.sources[node.id]
        spread = edges[0].distribution
        plain = node.task.stateless_equivalent() if isinstance(node.task, KeyedOperator) else None
        known = node.task if plain is None else plain
        key = as_names(known.by) if isinstance(known, KeyedOperator) else ()
        partition: tuple[str, ...] | None = key if isinstance(known, KeyedOperator) else None
        inputs = tuple(renumbered(e.source, merges.sources[e.source], own) for e in edges)
        routed = any(_needs_route(e.distribution, key, known) for e in edges)
        if routed:
            inputs = tuple(
                add(_route(e, stream, merges.count(node.id))) for e, stream in zip(edges, inputs, strict=True)
            )
            if partition is not None:
                key, partition = (*key, INSTANCE_FIELD), (INSTANCE_FIELD,)
        elif spread.kind == "hash" and partition is not None and set(spread.fields) <= set(key):
            partition = spread.fields  # other fields would spread the records of a key
        elif spread.kind == "one" and partition is not None:
            partition = ()
        ordinals = [edge_ordinals(e, schemas[e.source]) for e in edges]
        numbered = max(ordinals, key=len) if len({len(one) for one in ordinals}) > 1 else ()
        task, clock = timing.timed(node) if plain is None else (plain, None)
        if clock is not None:
            streams = tuple(watermarks(origin, own) for origin in timing.origins_of(node))
            clock = replace(clock, streams=streams)
        step = Step(node.id, task, inputs, key, partition, spread.parallelism, numbered, clock)
        add(replace(step, routed=routed, schema=schemas[node.id]))
    return list(found.values())


class _Timing:
    """The stream time of each task, and the streams whose watermarks move it."""

    def __init__(self, flow: Graph, schemas: dict[str, pa.Schema]) -> None:
        self._flow = flow
        self._schemas = schemas
        found = [
            clock
            for node in flow.nodes_of_kind("task")
            for clock in (operator_clocks(node.task) if node.task is not None else ())
        ]
        self._resolution = common_resolution(found) if found else 0
        ttls = [ttl for node in flow.nodes_of_kind("task") if (ttl := getattr(node.task, "ttl", None)) is not None]
        self._aging = aging_cell(self._resolution, ttls) if ttls else 0
        guarded = any(clock.max_ahead is not None for clock in found)
        #: Cells of all watermarks, which divide those of all clocks.
        self._cell = self._resolution if guarded else self._aging
        #: Streams of watermarks that meet others, so that each record counts.
        self._meeting: set[str] = set()
        #: By node: its sources; the streams that set the event times of its records; its lag; how far ahead an event
        #: time may be.
        self.sources: dict[str, tuple[str, ...]] = {}
        self._origins: dict[str, tuple[str, ...]] = {}
        self._lag: dict[str, int] = {}
        self._ahead: dict[str, int | None] = {}
        self._keyed: dict[str, bool] = {}  # whether it is a keyed task, or downstream of one
        if self._resolution:
            for node in flow.topological_order():
                self._analyse(node)

    def timed(self, node: Node) -> tuple[Operator, StepClock | None]:
        """Return the task of a node, adapted to the lateness of its inputs, and its stream time."""
        assert node.task is not None
        if not operator_clocks(node.task):
            return node.task, None
        above = [edge.source for edge in self._flow.inputs(node.id)]
        for origin in self.origins_of(node):
            kind = (
                self._schemas[origin].field("event_time").type if "event_time" in self._schemas[origin].names else None
            )
            if kind is None or not (pa.types.is_timestamp(kind) or pa.types.is_null(kind)):
                raise ConfigError(
                    f"{node.id}: {node.task.name()} uses stream time, but its upstream {origin!r} has no "
                    f"timestamps in a field 'event_time'; its fields are {', '.join(self._schemas[origin].names)}"
                )
        lags = {self._lag[source] for source in above}
        own = operator_clocks(node.task)
        clock = StepClock(
            (),
            self._resolution,
            max(lags),
            self._ahead[node.id],
            any(clock.from_first for clock in own),
            whole_periods_us(own),
            max(self._lag.values()),
            self._aging if isinstance(node.task, KeyedOperator) and node.task.clock() is None else 0,
        )
        if len(lags) > 1 and isinstance(node.task, KeyedOperator):
            task = node.task.with_lateness(timedelta(microseconds=clock.lag))
            if task is not node.task:
                return task, replace(clock, lag=0)
        return node.task, clock

    def origins_of(self, node: Node) -> tuple[str, ...]:
        """Return the nodes that set the event times of the records that a node reads."""
        above = (edge.source for edge in self._flow.inputs(node.id))
        return tuple(dict.fromkeys(origin for source in above for origin in self._origins[source]))

    def watermark_generator(self, origin: str) -> WatermarkGenerator:
        """Return the operator that emits the watermarks of a stream and of its sources' heartbeats."""
        votes_per_run = 1 if not self._cell else EVERY_RECORD if origin in self._meeting else AGREEING
        return WatermarkGenerator(self._resolution, self._cell, votes_per_run)

    def _analyse(self, node: Node) -> None:
        above = [edge.source for edge in self._flow.inputs(node.id)]
        sources = tuple(dict.fromkeys(one for source in above for one in self.sources[source]))
        self.sources[node.id] = sources or (node.id,)
        origins = tuple(dict.fromkeys(origin for source in above for origin in self._origins[source]))
        keyed = isinstance(node.task, KeyedOperator) or any(self._keyed[source] for source in above)
        lag = max((self._lag[source] for source in above), default=0)
        ahead = [self._ahead[source] for source in above]
        if node.kind == "source":
            origins = (node.id,)
        elif node.task is not None and operator_clocks(node.task):
            own = operator_clocks(node.task)
            self._meeting.update(origins if len(origins) > 1 else ())
            lag += max(to_microseconds(clock.allowed_lateness) for clock in own)
            ahead += [to_microseconds(clock.max_ahead) for clock in own if clock.max_ahead is not None]
        elif node.task is not None and not keyed:  # after a keyed task, stream time is that of the task's input
            written = node.task.writes()
            if "event_time" in self._schemas[node.id].names and (written is None or "event_time" in written):
                origins = (node.id,)
                self._meeting.update(origins if len(sources) > 1 else ())
        self._origins[node.id], self._lag[node.id], self._keyed[node.id] = origins, lag, keyed
        self._ahead[node.id] = min((one for one in ahead if one is not None), default=None)


def _needs_route(spread: Distribution, key: tuple[str, ...], task: Operator) -> bool:
    """Whether the instance affects the result."""
    if spread.kind == "broadcast":
        return True
    if not isinstance(task, KeyedOperator) or (spread.parallelism or 1) == 1:
        return False
    if spread.kind == "hash":
        return not set(spread.fields) <= set(key)
    return spread.kind in ("shuffle", "custom")


def _route(edge: Edge, stream: str, sources: int) -> Step:
    name = f"{edge.source}->{edge.target}"
    return Step(name, Route(name, edge.distribution, sources), (stream,))
