"""Dataflows: a fluent builder for a graph of sources, tasks and sinks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.graph.descriptor import describe, load
from riot_ops.graph.diagram import mermaid, svg
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import FORWARD, Distribution, Edge, Node, Router, source_node
from riot_ops.graph.plan import Plan, plan
from riot_ops.runtime.local import Result, run
from riot_ops.task import Task

if TYPE_CHECKING:
    from riot_ops.measure.metrics import Summary
    from riot_ops.measure.probe import Probe
    from riot_ops.spark.frames import Frames
    from riot_ops.spark.query import Query

__all__ = ["Dataflow", "Stream", "merge"]


@dataclass(frozen=True)
class Stream:
    """The output of one node or several, the input of further tasks and sinks.

    ``stream >> task`` appends a task; :meth:`to` can also name it.
    """

    flow: Dataflow
    nodes: tuple[str, ...]
    distribution: Distribution = FORWARD

    @property
    def id(self) -> str:
        return self.nodes[0]

    def to(self, task: Task, id: str | None = None) -> Stream:
        """Append a task; results, errors, metrics and diagrams show it by its id."""
        return self.flow.add(task, self, id=id)

    def __rshift__(self, task: Task) -> Stream:
        return self.to(task)

    def __or__(self, other: Stream) -> Stream:
        return merge(self, other)

    def shuffle(self, parallelism: int | None = None) -> Stream:
        """Distribute messages round robin over instances, by message number; by default one instance."""
        return self._with_distribution(Distribution("shuffle", parallelism=parallelism))

    def partition_by(self, *fields: str, parallelism: int | None = None) -> Stream:
        """Distribute records over instances by the hash of fields."""
        return self._with_distribution(Distribution("hash", fields, parallelism))

    def broadcast(self, parallelism: int) -> Stream:
        """Send every record to every instance."""
        return self._with_distribution(Distribution("broadcast", parallelism=parallelism))

    def to_single(self) -> Stream:
        """Send all records to one instance."""
        return self._with_distribution(Distribution("one"))

    def partition_custom(self, router: Router, parallelism: int) -> Stream:
        """Distribute records by a function that maps a batch to instance numbers."""
        return self._with_distribution(Distribution("custom", parallelism=parallelism, router=router))

    def _with_distribution(self, distribution: Distribution) -> Stream:
        return Stream(self.flow, self.nodes, distribution)


def merge(*streams: Stream) -> Stream:
    """Merge streams of the same schema into one."""
    if not streams:
        raise ConfigError("merge needs at least one stream")
    if len({id(s.flow) for s in streams}) > 1:
        raise ConfigError(
            "merge needs streams of one dataflow, got " + ", ".join(sorted({s.flow.name for s in streams}))
        )
    if len({s.distribution for s in streams}) > 1:
        raise ConfigError("merge needs streams with one distribution: set it after merging")
    return Stream(streams[0].flow, tuple(dict.fromkeys(n for s in streams for n in s.nodes)), streams[0].distribution)


class Dataflow(Graph):
    """A DAG of tasks with named streams, which runs in process or on Spark.

    Building it runs nothing, and running does not change it.

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

    # -- building ----------------------------------------------------------------------------------

    def source(self, name: str = "source", schema: pa.Schema | Mapping[str, Any] | None = None) -> Stream:
        """Declare a source; the run binds its data.

        Parameters
        ----------
        schema : pyarrow.Schema or mapping of name to type
            Fields of the records, with types of Arrow, its names for them, such as ``"int64"`` or
            ``"decimal128(5, 2)"``, or types of Python; by default messages of text (``seq``, ``event_time``,
            ``payload``).
            ``seq`` (never null) and ``ordinal`` are int64, ``event_time`` is a timestamp in microseconds, in UTC.
            Values of another type are cast if nothing is lost, see :mod:`riot_ops.ingest.step`.
        """
        return self._add_node(source_node(name, schema))

    def add(self, task: Task, *inputs: Stream, id: str | None = None) -> Stream:
        """Append a task to one or more streams."""
        if not isinstance(task, Task):
            raise ConfigError(f"expected a task, got {task!r}; wrap a function by riot_ops.map, flat_map or filter")
        name = id or self._free_id(task.name())
        output = self._add_node(Node(name, "task", task))
        for stream in inputs:
            if stream.flow is not self:
                raise ConfigError(f"{name}: the stream {stream.id!r} belongs to the dataflow {stream.flow.name!r}")
            for node in stream.nodes:
                self.edges.append(Edge(node, name, stream.distribution))
        return output

    def sink(self, name: str, *streams: Stream) -> Dataflow:
        """End streams in a sink, which distinguishes them by their ids."""
        self.add_node(Node(name, "sink"))
        for stream in streams:
            for node in stream.nodes:
                self.edges.append(Edge(node, name))
        return self

    def stream(self, node: str) -> Stream:
        """Return the output of a node by its id."""
        if node not in self.nodes:
            raise ConfigError(f"the dataflow {self.name!r} has no node {node!r}{did_you_mean(node, self.nodes)}")
        return Stream(self, (node,))

    def _add_node(self, node: Node) -> Stream:
        self.add_node(node)
        return Stream(self, (node.id,))

    def _free_id(self, name: str) -> str:
        number = 2
        free = name
        while free in self.nodes:
            free, number = f"{name}_{number}", number + 1
        return free

    # -- running -----------------------------------------------------------------------------------

    def plan(self, fuse: Literal["exact", "coarse"] = "exact") -> Plan:
        """Return the stages in which Spark runs it; see :func:`riot_ops.graph.plan.plan`."""
        return plan(self, fuse)

    def explain(self, fuse: Literal["exact", "coarse"] = "exact") -> None:
        """Print the plan."""
        print(self.plan(fuse))

    def run(
        self,
        source: Any = None,
        *,
        sinks: Any = None,
        out: str | Path | None = None,
        batch_size: int | None = None,
        buffering: Buffering | str | None = None,
        epoch_rows: int = 4_000_000,
        epoch_s: float = 10.0,
        cores: int | None = None,
        order: str = "arrival",
        checkpoint: str | Path | None = None,
        overwrite: bool = False,
        progress: Callable[[Summary], None] | None = None,
        probe: Probe | None = None,
    ) -> Result:
        """Run in process; see :func:`riot_ops.runtime.local.run` for the options."""
        return run(
            self, source, sinks=sinks, out=out, batch_size=batch_size, buffering=buffering, epoch_rows=epoch_rows,
            epoch_s=epoch_s, cores=cores, order=order, checkpoint=checkpoint, overwrite=overwrite, progress=progress,
            probe=probe,
        )  # fmt: skip

    def start(
        self,
        spark: Any,
        source: Any = None,
        *,
        sinks: Any = None,
        out: str | Path | None = None,
        checkpoint: str | Path | None = None,
        trigger: str | None = None,
        max_records: int | None = None,
        target_s: float | None = None,
        min_records: int | None = None,
        partitions: int | None = None,
        order: Literal["auto", "arrival", "event_time"] = "auto",
        fuse: str = "auto",
        buffering: Buffering | str | None = None,
        overwrite: bool = False,
        probe: Probe | None = None,
    ) -> Query:
        """Start on Spark Structured Streaming; see :func:`riot_ops.spark.start` for the options."""
        from riot_ops.spark.runner import start

        return start(
            self, spark, source, sinks=sinks, out=out, checkpoint=checkpoint, trigger=trigger, max_records=max_records,
            target_s=target_s, min_records=min_records, partitions=partitions, order=order, fuse=fuse,
            buffering=buffering, overwrite=overwrite, probe=probe,
        )  # fmt: skip

    def transform(
        self,
        df: Any,
        *,
        errors: Literal["column", "drop"] = "column",
        order: Literal["auto", "arrival", "event_time"] = "auto",
        partitions: int | None = None,
        fuse: Literal["auto", "exact", "coarse"] = "auto",
        buffering: Buffering | str | None = None,
        streaming: bool | None = None,
    ) -> Any:
        """Apply a dataflow with one source and one output stream to a batch or streaming Spark ``DataFrame``.

        See :func:`riot_ops.spark.frames.transform_flow` for the options.
        """
        from riot_ops.spark.frames import transform_flow

        return transform_flow(
            self, df, errors=errors, order=order, partitions=partitions, fuse=fuse, buffering=buffering,
            streaming=streaming,
        )  # fmt: skip

    def frames(
        self,
        source: Any,
        *,
        order: Literal["auto", "arrival", "event_time"] = "auto",
        partitions: int | None = None,
        fuse: Literal["auto", "exact", "coarse"] = "auto",
        buffering: Buffering | str | None = None,
        streaming: bool | None = None,
    ) -> Frames:
        """Compute all its streams over a Spark ``DataFrame``, or one ``DataFrame`` for each source.

        See :func:`riot_ops.spark.frames.frames` for the options.
        """
        from riot_ops.spark.frames import frames

        return frames(
            self, source, order=order, partitions=partitions, fuse=fuse, buffering=buffering, streaming=streaming
        )

    # -- descriptor --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Convert the dataflow to JSON-able data."""
        return describe(self)

    def to_json(self, indent: int | None = 2) -> str:
        """Convert the dataflow to JSON text."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes, functions: Mapping[str, Callable[..., Any]] | None = None) -> Dataflow:
        """Create the dataflow that :meth:`to_json` wrote.

        Parameters
        ----------
        functions : mapping of name to function
            The functions of ``ro.map`` and the like, by their names in the descriptor. A descriptor never causes an
            import.
        """
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"not a JSON dataflow: {error}") from None
        return cls.from_dict(data, functions)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None) -> Dataflow:
        """Create the dataflow that :meth:`to_dict` described; ``functions`` as in :meth:`from_json`."""
        return load(data, functions or {}, cls, Task.from_dict)

    # -- diagrams ----------------------------------------------------------------------------------

    def diagram(self) -> str:
        """Draw the graph in Mermaid's notation."""
        return mermaid(self)

    def svg(self) -> str:
        """Draw the graph as an SVG image."""
        return svg(self)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        tasks = len(self.nodes_of_kind("task"))
        return f"<Dataflow {self.name!r}: {tasks} tasks, {len(self.edges)} edges>"
