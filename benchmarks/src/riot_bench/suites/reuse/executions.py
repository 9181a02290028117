"""The two ways of running dataflows on Spark: as separate queries, and with shared steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from riot_bench.harness.measure import Measure
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.sink import MemorySink, Sink
from riot_ops.core.source import Offset, Source, WrappedSource
from riot_ops.dataflow import Dataflow
from riot_ops.reuse.manager import ReuseManager
from riot_ops.reuse.reports import Submitted
from riot_ops.testing import exact

__all__ = [
    "TRIGGER_S",
    "Execution",
    "SeparateQueries",
    "SharedQueries",
    "SourceFactory",
    "check_outputs",
    "compare_outputs",
]

#: Default seconds between two micro-batches of a query.
TRIGGER_S = 1.0
#: Micro-batches after which a query counts as started: the first of a merged query is empty, the second compiles.
START_BATCHES = 3

SourceFactory = Callable[[str], Source]


class Execution(Protocol):
    """A way of running dataflows."""

    #: Seconds between two micro-batches of a query.
    trigger_s: float

    def submit(self, flow: Dataflow, sink: Sink) -> Submitted | None:
        """Submit a dataflow; return the manager's report, if there is a manager."""

    def remove(self, name: str) -> None:
        """Remove a dataflow."""

    def poll(self) -> None:
        """Deliver available records, if no thread does."""

    def is_started(self) -> bool:
        """Return whether all queries have completed some micro-batches."""

    def query_count(self) -> int:
        """Return the number of queries."""

    def batch_count(self) -> int:
        """Return the number of completed micro-batches of the running queries."""

    def group_count(self) -> int:
        """Return the number of groups of connected dataflows."""


class SeparateQueries:
    """Runs each dataflow as a separate query."""

    def __init__(self, spark: Any, folder: Path, open_source: SourceFactory, trigger_s: float | None = None) -> None:
        self._spark, self._folder, self._open_source = spark, folder, open_source
        self.trigger_s = TRIGGER_S if trigger_s is None else trigger_s
        self._running: dict[str, Any] = {}

    def submit(self, flow: Dataflow, sink: Sink) -> None:
        sources = {node.id: self._open_source(node.id) for node in flow.nodes_of_kind("source")}
        checkpoint = self._folder / f"{len(list(self._folder.glob('*')))}"
        self._running[flow.name] = flow.start(
            self._spark, sources, sinks=sink, checkpoint=checkpoint, trigger=f"{self.trigger_s:g} seconds"
        )

    def remove(self, name: str) -> None:
        self._running.pop(name).stop()

    def poll(self) -> None:
        for query in self._running.values():
            query.poll()

    def is_started(self) -> bool:
        return all(len(query.micro_batches) >= START_BATCHES for query in self._running.values())

    def query_count(self) -> int:
        return len(self._running)

    group_count = query_count

    def batch_count(self) -> int:
        return sum(len(query.micro_batches) for query in self._running.values())

    def close(self) -> None:
        """Stop all."""
        for name in list(self._running):
            self.remove(name)


class SharedQueries:
    """Runs dataflows with shared steps through a manager."""

    def __init__(
        self, spark: Any, folder: Path, open_source: SourceFactory, trigger_s: float | None = None, **options: Any
    ) -> None:
        from riot_ops.reuse.spark.spark_backend import SparkBackend

        self._open_source = open_source
        self.trigger_s = TRIGGER_S if trigger_s is None else trigger_s
        self.backend = SparkBackend(spark, folder, trigger=f"{self.trigger_s:g} seconds", **options)
        self.manager = ReuseManager(self.backend)

    def submit(self, flow: Dataflow, sink: Sink, name: str | None = None) -> Submitted:
        sources = {node.id: self._open_source(node.id) for node in flow.nodes_of_kind("source")}
        return self.manager.submit(flow, sources, sink, name=name)

    def remove(self, name: str) -> None:
        self.manager.remove(name)

    def poll(self) -> None:
        pass

    def is_started(self) -> bool:
        return all(n >= START_BATCHES for n in self.backend.micro_batches().values())

    def query_count(self) -> int:
        return len(self.backend.micro_batches())

    def group_count(self) -> int:
        return int(self.manager.stats()["groups"])

    def batch_count(self) -> int:
        return sum(self.backend.micro_batches().values())

    def close(self) -> None:
        """Stop all."""
        self.manager.close()


class GatedSource(WrappedSource):
    """Source without records until a file exists, so that all dataflows begin with its first message."""

    def __init__(self, source: Source, file: Path) -> None:
        super().__init__(source)
        self.file = file

    def description(self) -> dict[str, Any] | None:
        return self.source.description()

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        return self.source.latest(start, limit) if self.file.exists() else start

    def finished(self, offset: Offset) -> bool:
        return self.file.exists() and self.source.finished(offset)


def check_outputs(
    name: str,
    spark: Any,
    folder: Path,
    flows: Mapping[str, Dataflow],
    open_source: Callable[..., Source],
    messages: int = 200,
) -> Measure:
    """Check that each dataflow has the same output shared and alone, also after queries were merged."""
    gate = folder / "gate"
    execution = SharedQueries(spark, folder / "equal", lambda stream: GatedSource(open_source(stream, messages), gate))
    sinks = {}
    for flow in flows.values():
        sinks[flow.name] = MemorySink()
        execution.submit(flow, sinks[flow.name])
    gate.touch()
    execution.manager.defragment()
    whole = execution.backend.wait("2min")
    execution.close()
    return compare_outputs(name, flows, sinks, lambda stream: open_source(stream, messages), " on Spark", whole)


def compare_outputs(
    name: str,
    flows: Mapping[str, Dataflow],
    sinks: Mapping[str, MemorySink],
    open_source: SourceFactory,
    where: str = "",
    whole: bool = True,
) -> Measure:
    """Compare each dataflow's received records with a run alone; ``whole`` is whether all records had arrived."""
    same, rows = whole, 0
    for flow in flows.values():
        result = flow.run({node.id: open_source(node.id) for node in flow.nodes_of_kind("source")})
        for stream in _output_streams(flow):
            wanted = Counter(map(exact, result[stream].to_pylist()))
            same &= wanted == Counter(map(exact, sinks[flow.name].table(stream).to_pylist()))
            rows += wanted.total()
    return Measure(name, int(same), "truth", f"{rows:,} records of {len(flows)} dataflows{where}", 1)


def _output_streams(flow: Dataflow) -> Iterator[str]:
    yield from {*(e.source for n in flow.nodes_of_kind("sink") for e in flow.inputs(n.id)), ERRORS_STREAM}
