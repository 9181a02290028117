"""Dataflows: a fluent builder over a small graph of sources, tasks and sinks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riot_ops.errors import ConfigError, did_you_mean
from riot_ops.graph import ERRORS_STREAM, FORWARD, Distribution, Edge, Node, Router
from riot_ops.intake import declared
from riot_ops.schema import ERRORS, MOST_DERIVATIONS, RAW, arrow_type
from riot_ops.task import Task

if TYPE_CHECKING:
    from riot_ops.plan import Plan
    from riot_ops.runtime.local import Result
    from riot_ops.runtime.spark.query import Query

__all__ = ["Dataflow", "Stream", "merge"]


@dataclass(frozen=True)
class Stream:
    """The output of a node (or several), to be sent on.

    ``stream >> task`` appends a task; :meth:`to` also names it.
    """

    flow: Dataflow
    nodes: tuple[str, ...]
    distribution: Distribution = FORWARD

    @property
    def id(self) -> str:
        return self.nodes[0]

    def to(self, task: Task, id: str | None = None) -> Stream:
        """Append a task; its id names it in results, errors, metrics and pictures."""
        return self.flow.add(task, self, id=id)

    def __rshift__(self, task: Task) -> Stream:
        return self.to(task)

    def __or__(self, other: Stream) -> Stream:
        return merge(self, other)

    def shuffle(self, parallelism: int | None = None) -> Stream:
        """Round robin over instances by message number (one instance unless said otherwise)."""
        return self._spread(Distribution("shuffle", parallelism=parallelism))

    def hash(self, *fields: str, parallelism: int | None = None) -> Stream:
        """Instances by the hash of fields."""
        return self._spread(Distribution("hash", fields, parallelism))

    def broadcast(self, parallelism: int) -> Stream:
        """Every record to every instance."""
        return self._spread(Distribution("broadcast", parallelism=parallelism))

    def one(self) -> Stream:
        """All records to one instance."""
        return self._spread(Distribution("one"))

    def route(self, router: Router, parallelism: int) -> Stream:
        """Instances by a function from a batch to instance numbers."""
        return self._spread(Distribution("custom", parallelism=parallelism, router=router))

    def _spread(self, distribution: Distribution) -> Stream:
        return Stream(self.flow, self.nodes, distribution)


def merge(*streams: Stream) -> Stream:
    """Several streams as one; their schemas must agree."""
    if not streams:
        raise ConfigError("merge needs at least one stream")
    if len({id(s.flow) for s in streams}) > 1:
        raise ConfigError(
            "merge needs streams of one dataflow, got " + ", ".join(sorted({s.flow.name for s in streams}))
        )
    if len({s.distribution for s in streams}) > 1:
        raise ConfigError("merge needs streams with one distribution: set it after merging")
    return Stream(streams[0].flow, tuple(dict.fromkeys(n for s in streams for n in s.nodes)), streams[0].distribution)


class Dataflow:
    """A DAG of tasks with named streams, run in process or on Spark.

    Building does not run, running does not change it.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops import tasks as t
    >>> flow = ro.Dataflow("smooth")
    >>> obs = flow.source("readings", schema={"device": "string", "value": "double"})
    >>> _ = flow.sink("out", obs.to(t.KalmanFilter(by=("device",)), id="kalman"))
    >>> result = flow.run(source=[{"device": "a", "value": 10.0}, {"device": "a", "value": 12.0}])
    >>> [round(v, 3) for v in result["kalman"]["value"].to_pylist()]
    [9.895, 11.116]
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a dataflow needs a name, got {name!r}")
        self.name = name
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []

    # -- building ----------------------------------------------------------------------------------

    def source(self, name: str = "source", schema: pa.Schema | Mapping[str, Any] | None = None) -> Stream:
        """Declare a source; its data are bound when the dataflow runs.

        Parameters
        ----------
        schema : pyarrow.Schema or mapping of name to type
            Fields of the records; by default messages of text (``seq``, ``event_time``, ``payload``).
            ``seq`` (never null) and ``sub`` are int64, ``event_time`` is a timestamp in microseconds, in UTC. What a
            source delivers as another type is cast where nothing is lost, see :mod:`riot_ops.intake`.
        """
        if schema is None:
            fields = RAW
        elif isinstance(schema, pa.Schema):
            fields = schema
        else:
            fields = pa.schema([(n, arrow_type(k) if isinstance(k, str) else k) for n, k in schema.items()])
        if "seq" not in fields.names:
            fields = fields.insert(0, pa.field("seq", pa.int64(), nullable=False))
        fields = declared(fields, f"source {name!r}")
        seq = fields.get_field_index("seq")
        fields = fields.set(seq, fields.field(seq).with_nullable(False))
        return self._place(Node(name, "source", schema=fields))

    def add(self, task: Task, *inputs: Stream, id: str | None = None) -> Stream:
        """Append a task behind one or more streams."""
        if not isinstance(task, Task):
            raise ConfigError(f"expected a task, got {task!r}; wrap a function by riot_ops.map, flat_map or filter")
        name = id or self._free(task.name())
        placed = self._place(Node(name, "task", task))
        for stream in inputs:
            if stream.flow is not self:
                raise ConfigError(f"{name}: the stream {stream.id!r} belongs to the dataflow {stream.flow.name!r}")
            for node in stream.nodes:
                self.edges.append(Edge(node, name, stream.distribution))
        return placed

    def connect(self, source: str, target: str, distribution: Distribution = FORWARD) -> None:
        """Add an edge between nodes by id."""
        self.edges.append(Edge(source, target, distribution))

    def sink(self, name: str, *streams: Stream) -> Dataflow:
        """End streams in a sink, which keeps them apart by their ids."""
        self._place(Node(name, "sink"))
        for stream in streams:
            for node in stream.nodes:
                self.edges.append(Edge(node, name))
        return self

    def _place(self, node: Node) -> Stream:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", node.id):
            raise ConfigError(f"id {node.id!r}: only letters, digits, '_', '-' and '.' (it names files and metrics)")
        if node.id in self.nodes or node.id == ERRORS_STREAM:
            raise ConfigError(
                f"duplicate name {node.id!r} in the dataflow {self.name!r}"
                + (" (the stream of rejected records)" if node.id == ERRORS_STREAM else "")
            )
        self.nodes[node.id] = node
        return Stream(self, (node.id,))

    def _free(self, name: str) -> str:
        number = 2
        free = name
        while free in self.nodes:
            free, number = f"{name}_{number}", number + 1
        return free

    # -- reading -----------------------------------------------------------------------------------

    def inputs(self, node: str) -> list[Edge]:
        """The edges into a node, in the order they were made."""
        return [e for e in self.edges if e.target == node]

    def outputs(self, node: str) -> list[Edge]:
        """The edges out of a node."""
        return [e for e in self.edges if e.source == node]

    def kind(self, kind: str) -> list[Node]:
        """The nodes of a kind: source, task or sink."""
        return [n for n in self.nodes.values() if n.kind == kind]

    def stream(self, node: str) -> Stream:
        """The output of a node by id."""
        if node not in self.nodes:
            raise ConfigError(f"the dataflow {self.name!r} has no node {node!r}{did_you_mean(node, self.nodes)}")
        return Stream(self, (node,))

    def order(self) -> list[Node]:
        """The nodes so that each comes after its inputs; raises on a cycle."""
        placed: dict[str, Node] = {}
        waiting = dict(self.nodes)
        while waiting:
            ready = [
                n
                for n in waiting.values()
                if all(e.source in placed or e.source not in self.nodes for e in self.inputs(n.id))
            ]
            if not ready:
                raise ConfigError(f"the dataflow {self.name!r} has a cycle through {', '.join(waiting)}")
            for node in ready:
                placed[node.id] = waiting.pop(node.id)
        return list(placed.values())

    def schemas(self) -> dict[str, pa.Schema]:
        """The schema of each stream, by node id; raises if the dataflow is not valid."""
        self.validate()
        return self._schemas([])

    def _schemas(self, problems: list[str]) -> dict[str, pa.Schema]:
        found: dict[str, pa.Schema] = {ERRORS_STREAM: ERRORS}
        derivations: dict[str, int] = {}
        for node in self.order():
            if node.kind == "source":
                assert node.schema is not None
                found[node.id] = node.schema
            elif node.kind == "task":
                given = [found[e.source] for e in self.inputs(node.id) if e.source in found]
                if not given:
                    continue
                schema = given[0]
                for other, edge in zip(given[1:], self.inputs(node.id)[1:], strict=False):
                    difference = _difference(schema, other)
                    if difference:
                        problems.append(f"{node.id}: its inputs do not agree: {difference} (from {edge.source!r})")
                for edge in self.inputs(node.id):
                    for name in edge.distribution.fields:
                        if name not in schema.names:
                            problems.append(
                                f"{node.id}: hash field {name!r} is not in its input; fields are "
                                f"{', '.join(schema.names)}{did_you_mean(name, schema.names)}"
                            )
                assert node.task is not None
                copied = any(e.distribution.kind == "broadcast" for e in self.inputs(node.id))
                before = max(derivations.get(e.source, 0) for e in self.inputs(node.id))
                derivations[node.id] = before + copied + node.task.derives()
                if before <= MOST_DERIVATIONS < derivations[node.id]:
                    problems.append(
                        f"{node.id}: more than {MOST_DERIVATIONS} times in a row several records are made of one "
                        "(by a parse, a flat map, a window of time, a broadcast): their numbers do not fit 64 bits"
                    )
                if "sub" not in schema.names and (copied or any("sub" in one.names for one in given)):
                    schema = schema.append(pa.field("sub", pa.int64()))  # tells copies apart; 0 where there is none
                try:
                    found[node.id] = node.task.output_schema(schema)
                except ConfigError as error:
                    problems.append(f"{node.id}: {error}")
        return found

    def validate(self) -> None:
        """Raise :class:`ConfigError` with *all* that is wrong; return if nothing is."""
        problems: list[str] = []
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in self.nodes:
                    problems.append(
                        f"edge {edge.source} -> {edge.target}: no node {end!r}{did_you_mean(end, self.nodes)}"
                    )
        pairs = [(e.source, e.target) for e in self.edges]
        problems += [f"edge {a} -> {b} stands twice" for a, b in sorted({p for p in pairs if pairs.count(p) > 1})]
        for node in self.nodes.values():
            ins, outs = self.inputs(node.id), self.outputs(node.id)
            if node.kind == "source" and ins:
                problems.append(f"{node.id}: a source has no inputs")
            if node.kind == "sink" and outs:
                problems.append(f"{node.id}: a sink has no outputs")
            if node.kind != "source" and not ins:
                problems.append(f"{node.id}: not connected: it has no input")
            if node.kind != "sink" and not outs:
                problems.append(f"{node.id}: not connected: its output goes nowhere; send it to a sink")
            if node.kind == "task" and not _agree([e.distribution for e in ins]):
                problems.append(
                    f"{node.id}: its input edges have different distributions; merge them first, or spread each "
                    "over the same number of instances"
                )
        if not self.kind("source"):
            problems.append("there is no source")
        try:
            self._schemas(problems)
        except ConfigError as error:
            problems.append(str(error))
        if problems:
            raise ConfigError(f"the dataflow {self.name!r} is not valid:\n  - " + "\n  - ".join(problems))

    # -- running -----------------------------------------------------------------------------------

    def plan(self, **options: Any) -> Plan:
        """The stages in which Spark runs it; see :func:`riot_ops.plan.plan`."""
        from riot_ops.plan import plan

        return plan(self, **options)

    def explain(self, **options: Any) -> None:
        """Print the plan."""
        print(self.plan(**options))

    def run(self, source: Any = None, **options: Any) -> Result:
        """Run in process; see :func:`riot_ops.runtime.local.run`."""
        from riot_ops.runtime.local import run

        return run(self, source, **options)

    def start(self, spark: Any, source: Any = None, **options: Any) -> Query:
        """Start on Spark Structured Streaming; see :func:`riot_ops.runtime.spark.start`."""
        from riot_ops.runtime.spark.runner import start

        return start(self, spark, source, **options)

    # -- descriptor --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The dataflow as JSON-able data."""
        from riot_ops.descriptor import describe

        return describe(self)

    def to_json(self, indent: int | None = 2) -> str:
        """The dataflow as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes, functions: Mapping[str, Callable[..., Any]] | None = None) -> Dataflow:
        """The dataflow that :meth:`to_json` wrote.

        Parameters
        ----------
        functions : mapping of name to function
            The functions of ``ro.map`` and friends by the name in the descriptor. Nothing is
            imported because a descriptor says so.
        """
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"not a JSON dataflow: {error}") from None
        return cls.from_dict(data, functions)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None) -> Dataflow:
        """The dataflow that :meth:`to_dict` described; ``functions`` as in :meth:`from_json`."""
        from riot_ops.descriptor import load

        return load(data, functions or {})

    # -- pictures ----------------------------------------------------------------------------------

    def diagram(self) -> str:
        """The graph in Mermaid's notation."""
        from riot_ops.diagram import mermaid

        return mermaid(self)

    def svg(self) -> str:
        """The graph as an SVG picture."""
        from riot_ops.diagram import svg

        return svg(self)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        tasks = len(self.kind("task"))
        return f"<Dataflow {self.name!r}: {tasks} tasks, {len(self.edges)} edges>"


def _agree(spreads: list[Distribution]) -> bool:
    """Whether edges into one task can be told apart by nothing, or by the same instances."""
    if len({(d.kind, d.fields, d.parallelism) for d in spreads}) <= 1:
        return True
    named = all(d.kind in ("shuffle", "hash", "broadcast", "custom") and d.parallelism for d in spreads)
    return named and len({d.parallelism for d in spreads}) == 1


def _difference(a: pa.Schema, b: pa.Schema) -> str:
    for name in dict.fromkeys([*a.names, *b.names]):
        if name == "sub":  # which need not be there
            continue
        if name not in a.names or name not in b.names:
            return f"only one has the field {name!r}"
        if a.field(name).type != b.field(name).type:
            return f"the field {name!r} is {a.field(name).type} and {b.field(name).type}"
    return ""
