"""Whether each dataflow got, from when it came until it went, what it gets by itself over the same messages."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from riot_bench.harness.measure import Measure
from riot_ops.core.sink import CallbackSink
from riot_ops.core.source import Offset, Source, WrappedSource
from riot_ops.dataflow import Dataflow
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.reuse import LocalBackend, ReuseManager
from riot_ops.reuse.reports import Submitted
from riot_ops.testing import exact

__all__ = ["Stay", "Stays", "alike"]

Records = Counter[tuple[str, object]]


@dataclass
class Stay:
    """One time that a dataflow is there.

    Attributes
    ----------
    begun : Submitted or None
        How it came; None where each dataflow runs by itself.
    messages : int or None
        How many its source gave meanwhile; None where that is not known: up to the last of which something came.
    times : list of float
        When its sink got something.
    got : list of (str, RecordBatch)
        What that was.
    """

    flow: Dataflow
    begun: Submitted | None = None
    messages: int | None = None
    times: list[float] = field(default_factory=list)
    got: list[tuple[str, pa.RecordBatch]] = field(default_factory=list)

    def sink(self) -> CallbackSink:
        """A sink that notes it."""
        return CallbackSink(self._take)

    def _take(self, stream: str, batch: pa.RecordBatch) -> None:
        self.times.append(time.monotonic())
        self.got.append((stream, batch))

    @property
    def first(self) -> int:
        """The first message that it saw."""
        return 0 if self.begun is None else max(self.begun.first.values(), default=0)

    @property
    def seen(self) -> int:
        """How many messages it saw."""
        if self.messages is not None:
            return self.messages
        numbers = (n for _, batch in self.got for n in int_column(batch.column("seq")).tolist())
        return max(numbers, default=self.first - 1) + 1 - self.first


class Stays(list[Stay]):
    """All of them through a trace."""

    def longest(self, during: Sequence[tuple[float, float]]) -> float:
        """By how much the longest silence around some moments is longer than the longest at other times, in ms.

        Between two stays of a dataflow nobody waits for it.
        """
        gaps = [gap for stay in self for gap in itertools.pairwise(stay.times)]
        near = [b - a for a, b in gaps if any(a < end and begin < b for begin, end in during)]
        usual = [b - a for a, b in gaps if not any(a < end and begin < b for begin, end in during)]
        return 1e3 * max(0.0, max(near, default=0.0) - max(usual, default=0.0))


class _From(WrappedSource):
    """A source of which the first messages have gone by."""

    def __init__(self, source: Source, first: int) -> None:
        super().__init__(source)
        self.first = first

    def initial(self) -> Offset:
        start = self.source.initial()
        return self.source.latest(start, self.first) if self.first else start


def alike(name: str, stays: Iterable[Stay], opened: Callable[[str], Source], where: str = "") -> Measure:
    """Whether they got that; those that share the state of others, which knows what came before, are left out.

    Parameters
    ----------
    name : str
        The measure's.
    stays : iterable of Stay
        With one source each.
    opened : function
        ``opened(stream)`` is a source without end, and without a pace.
    where : str
        More words for what was compared.
    """
    same, rows, count, warm = True, 0, 0, 0
    for stay in stays:
        if stay.begun is not None and stay.begun.warm:
            warm += 1
            continue
        got = _counted(stay)
        same &= got == _alone(stay, opened)
        rows += got.total()
        count += 1
    left = f"; {warm} more share state that knows what came before" if warm else ""
    what = f"{rows:,} records in {count} stays{where}, each against a run alone from its first message on{left}"
    return Measure(name, int(same and rows > 0), "truth", what, 1)


def _alone(stay: Stay, opened: Callable[[str], Source]) -> Records:
    """What a dataflow gets by itself over the messages of a stay."""
    alone = Stay(stay.flow)
    if stay.seen:
        backend = LocalBackend(stay.seen)
        manager = ReuseManager(backend)
        sources = {node.id: _From(opened(node.id), stay.first) for node in stay.flow.kind("source")}
        manager.submit(stay.flow, sources, alone.sink())
        backend.turn()
        manager.close()
    return _counted(alone)


def _counted(stay: Stay) -> Records:
    """Each record of its streams, and how often it is there."""
    return Counter((stream, exact(row)) for stream, batch in stay.got for row in batch.to_pylist())
