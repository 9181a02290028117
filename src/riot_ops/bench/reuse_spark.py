"""What sharing saves on Spark: CPU time of driver, JVM and workers, each dataflow as a query, and together."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from riot_ops.bench.measure import Measure
from riot_ops.bench.sparks import folder, spark_session
from riot_ops.core.sink import CallbackSink, MemorySink
from riot_ops.core.source import Offset, Source, WrappedSource
from riot_ops.dataflow import Dataflow
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.manager import ReuseManager
from riot_ops.reuse.traces import Action
from riot_ops.streams.pace import Paced
from riot_ops.testing import exact

__all__ = ["measures"]

#: Messages per second of each source.
RATE = 10.0
TRIGGER = "0.5 seconds"

Open = Callable[[str], Source]


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


class Watched:
    """When each dataflow's sink got something."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def sink(self, name: str) -> CallbackSink:
        """A sink that notes it."""
        times = self.times.setdefault(name, [])
        return CallbackSink(lambda stream, batch: times.append(time.monotonic()))

    def longest(self, during: Sequence[tuple[float, float]]) -> float:
        """By how much the longest silence around some moments is longer than the longest at other times, in ms."""
        gaps = [(a, b) for times in self.times.values() for a, b in itertools.pairwise(times)]
        near = [b - a for a, b in gaps if any(a < end and begin < b for begin, end in during)]
        usual = [b - a for a, b in gaps if not any(a < end and begin < b for begin, end in during)]
        return 1e3 * max(0.0, max(near, default=0.0) - max(usual, default=0.0))


def measures(
    name: str, flows: Mapping[str, Dataflow], actions: Sequence[Action], each_s: float, opened: Callable[..., Source]
) -> Iterator[Measure]:
    """Both sides of a trace, one after the other, in one session.

    Parameters
    ----------
    name : str
        What the measures' names begin with.
    flows : mapping of str to Dataflow
    actions : sequence of Action
        Of these dataflows.
    each_s : float, seconds
        Time between two actions.
    opened : function
        ``opened(stream, messages=None)`` is a source.
    """
    with folder() as place, spark_session(2) as spark:
        yield _equal(f"{name.rpartition('/')[0]}/outputs-equal", spark, place, flows, opened)
        several = max(_alive(actions))

        def paced(stream: str) -> Source:
            return Paced(opened(stream), rate=RATE)

        apart = _apart(spark, place, flows, actions, each_s, paced)
        for form, words in (("", ""), ("-defragmented", ", queries made one where more than two ran")):
            watched, during, moves = Watched(), [], []
            spent = _spent()
            manager = _manager(spark, place / f"together{form}", 2 if form else None)
            for action in actions:
                begin = time.monotonic()
                if action.op == "submit":
                    flow = flows[action.name]
                    sources = {node.id: paced(node.id) for node in flow.kind("source")}
                    manager.submit(flow, sources, watched.sink(action.name))
                else:
                    manager.remove(action.name)
                during.append((begin, time.monotonic()))
                moves.append(during[-1][1] - begin)
                time.sleep(each_s)
            stats = manager.stats()
            manager.close()
            together = _spent() - spent
            against = (
                f"CPU seconds together ({together:.1f}) and each by itself ({apart:.1f}), {several} at once{words}"
            )
            yield Measure(
                f"{name}/cpu-reduction{form}", 1 - together / apart, "share", against + words, 0.51 if form else None
            )
            silent = "by how much longer than usual a sink is silent around an action"
            reach = 5000 if form else 0
            yield Measure(f"{name}/disruption-ms{form}", watched.longest(during), "ms", silent, reach, at_most=True)
            median = sorted(moves)[len(moves) // 2]
            yield Measure(f"{name}/action-ms{form}", 1e3 * median, "ms", "an action, until it has effect, p50")
            left = "queries left when all are gone"
            yield Measure(f"{name}/after-drain{form}", stats["queries"], "queries", left, 0, at_most=True)


def _alive(actions: Sequence[Action]) -> Iterator[int]:
    """How many dataflows there are after each action."""
    n = 0
    for action in actions:
        n += 1 if action.op == "submit" else -1
        yield n


def _manager(spark: Any, place: Path, max_queries: int | None = None) -> ReuseManager:
    from riot_ops.reuse.spark.session import SparkBackend

    return ReuseManager(SparkBackend(spark, place, trigger=TRIGGER, max_queries=max_queries))


def _apart(
    spark: Any, place: Path, flows: Mapping[str, Dataflow], actions: Sequence[Action], each_s: float, paced: Open
) -> float:
    """CPU seconds through a trace where each dataflow is a query of its own."""
    spent = _spent()
    running: dict[str, Any] = {}
    watched = Watched()
    for action in actions:
        if action.op == "submit":
            flow = flows[action.name]
            sources = {node.id: paced(node.id) for node in flow.kind("source")}
            sink, checkpoint = watched.sink(action.name), place / "apart" / action.name
            running[action.name] = flow.start(spark, sources, sinks=sink, checkpoint=checkpoint, trigger=TRIGGER)
        else:
            running.pop(action.name).stop()
        for query in running.values():
            query.poll()
        time.sleep(each_s)
    return _spent() - spent


def _spent() -> float:
    """CPU seconds so far of this process and all below it, also of those that have ended."""
    import psutil

    root = psutil.Process(os.getpid())
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            found = process.cpu_times()
        except psutil.Error:  # it has ended
            continue
        total += found.user + found.system + found.children_user + found.children_system
    return total


def _equal(
    name: str,
    spark: Any,
    place: Path,
    flows: Mapping[str, Dataflow],
    opened: Callable[..., Source],
    messages: int = 200,
) -> Measure:
    """Whether each gets together what it gets by itself, also where queries have become one."""
    gate, messages = place / "gate", 200
    manager = _manager(spark, place / "equal")
    sinks = {}
    for flow in flows.values():
        sinks[flow.name] = MemorySink()
        sources = {node.id: Gate(opened(node.id, messages), gate) for node in flow.kind("source")}
        manager.submit(flow, sources, sinks[flow.name])
    gate.touch()
    manager.defragment()
    whole = manager.backend.wait(120)  # type: ignore[attr-defined]
    manager.close()
    equal, rows = whole, 0
    for flow in flows.values():
        result = flow.run({node.id: opened(node.id, messages) for node in flow.kind("source")})
        for stream in {*(e.source for n in flow.kind("sink") for e in flow.inputs(n.id)), ERRORS_STREAM}:
            wanted = Counter(map(exact, result[stream].to_pylist()))
            equal &= wanted == Counter(map(exact, sinks[flow.name].table(stream).to_pylist()))
            rows += wanted.total()
    return Measure(name, int(equal), "truth", f"{rows:,} records of {len(flows)} dataflows on Spark", 1)
