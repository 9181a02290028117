"""The two ways to run dataflows on Spark: each as a query of its own, and together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from riot_bench.harness.measure import Measure
from riot_ops.core.sink import MemorySink, Sink
from riot_ops.core.source import Offset, Source, WrappedSource
from riot_ops.dataflow import Dataflow
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.manager import ReuseManager
from riot_ops.reuse.reports import Submitted
from riot_ops.testing import exact

__all__ = ["TRIGGER_S", "Apart", "Opened", "Side", "Together", "compared", "equal"]

#: Seconds from one micro-batch of a query to the next, on both sides, by default.
TRIGGER_S = 1.0
#: A query that has done so many is up: the first of one that others become is empty, and the next compiles its code.
FEW_BATCHES = 3

Opened = Callable[[str], Source]


class Side(Protocol):
    """A way to run dataflows."""

    #: Seconds from one micro-batch of a query to the next.
    trigger_s: float

    def submit(self, flow: Dataflow, sink: Sink) -> Submitted | None:
        """One comes; how, where that is told."""

    def remove(self, name: str) -> None:
        """One goes."""

    def poll(self) -> None:
        """Hand over what there is, where nobody else does."""

    def up(self) -> bool:
        """Whether all queries have done some micro-batches."""

    def queries(self) -> int:
        """How many there are."""

    def batches(self) -> int:
        """How many micro-batches those queries have done that are there."""

    def groups(self) -> int:
        """How many groups of dataflows hang together."""


class Apart:
    """Each dataflow is a query."""

    def __init__(self, spark: Any, place: Path, opened: Opened, trigger_s: float | None = None) -> None:
        self._spark, self._place, self._opened = spark, place, opened
        self.trigger_s = TRIGGER_S if trigger_s is None else trigger_s
        self._running: dict[str, Any] = {}

    def submit(self, flow: Dataflow, sink: Sink) -> None:
        sources = {node.id: self._opened(node.id) for node in flow.kind("source")}
        checkpoint = self._place / f"{len(list(self._place.glob('*')))}"
        self._running[flow.name] = flow.start(
            self._spark, sources, sinks=sink, checkpoint=checkpoint, trigger=f"{self.trigger_s:g} seconds"
        )

    def remove(self, name: str) -> None:
        self._running.pop(name).stop()

    def poll(self) -> None:
        for query in self._running.values():
            query.poll()

    def up(self) -> bool:
        return all(len(query.micro_batches) >= FEW_BATCHES for query in self._running.values())

    def queries(self) -> int:
        return len(self._running)

    groups = queries

    def batches(self) -> int:
        return sum(len(query.micro_batches) for query in self._running.values())

    def close(self) -> None:
        """Stop all."""
        for name in list(self._running):
            self.remove(name)


class Together:
    """A manager runs them."""

    def __init__(self, spark: Any, place: Path, opened: Opened, trigger_s: float | None = None, **options: Any) -> None:
        from riot_ops.reuse.spark.session import SparkBackend

        self._opened = opened
        self.trigger_s = TRIGGER_S if trigger_s is None else trigger_s
        self.backend = SparkBackend(spark, place, trigger=f"{self.trigger_s:g} seconds", **options)
        self.manager = ReuseManager(self.backend)

    def submit(self, flow: Dataflow, sink: Sink, name: str | None = None) -> Submitted:
        sources = {node.id: self._opened(node.id) for node in flow.kind("source")}
        return self.manager.submit(flow, sources, sink, name=name)

    def remove(self, name: str) -> None:
        self.manager.remove(name)

    def poll(self) -> None:
        pass

    def up(self) -> bool:
        return all(n >= FEW_BATCHES for n in self.backend.micro_batches().values())

    def queries(self) -> int:
        return len(self.backend.micro_batches())

    def groups(self) -> int:
        return int(self.manager.stats()["groups"])

    def batches(self) -> int:
        return sum(self.backend.micro_batches().values())

    def close(self) -> None:
        """Stop all."""
        self.manager.close()


class Gate(WrappedSource):
    """A source that gives nothing until a file is there: so all dataflows begin with its first message."""

    def __init__(self, source: Source, file: Path) -> None:
        super().__init__(source)
        self.file = file

    def description(self) -> dict[str, Any] | None:
        return self.source.description()

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        return self.source.latest(start, limit) if self.file.exists() else start

    def finished(self, offset: Offset) -> bool:
        return self.file.exists() and self.source.finished(offset)


def equal(
    name: str,
    spark: Any,
    place: Path,
    flows: Mapping[str, Dataflow],
    opened: Callable[..., Source],
    messages: int = 200,
) -> Measure:
    """Whether each gets together what it gets by itself, also where queries have become one."""
    gate = place / "gate"
    side = Together(spark, place / "equal", lambda stream: Gate(opened(stream, messages), gate))
    sinks = {}
    for flow in flows.values():
        sinks[flow.name] = MemorySink()
        side.submit(flow, sinks[flow.name])
    gate.touch()
    side.manager.defragment()
    whole = side.backend.wait(120)
    side.close()
    return compared(name, flows, sinks, lambda stream: opened(stream, messages), " on Spark", whole)


def compared(
    name: str,
    flows: Mapping[str, Dataflow],
    sinks: Mapping[str, MemorySink],
    opened: Opened,
    where: str = "",
    whole: bool = True,
) -> Measure:
    """Whether each got what it gets by itself; ``whole`` is whether all had come."""
    same, rows = whole, 0
    for flow in flows.values():
        result = flow.run({node.id: opened(node.id) for node in flow.kind("source")})
        for stream in _ends(flow):
            wanted = Counter(map(exact, result[stream].to_pylist()))
            same &= wanted == Counter(map(exact, sinks[flow.name].table(stream).to_pylist()))
            rows += wanted.total()
    return Measure(name, int(same), "truth", f"{rows:,} records of {len(flows)} dataflows{where}", 1)


def _ends(flow: Dataflow) -> Iterator[str]:
    yield from {*(e.source for n in flow.kind("sink") for e in flow.inputs(n.id)), ERRORS_STREAM}
