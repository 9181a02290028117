"""Comparison of a dataflow's records, from its submission to its removal, with a run alone over the same messages."""

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

__all__ = ["Lifetime", "Lifetimes", "outputs_equal"]

Records = Counter[tuple[str, object]]


@dataclass
class Lifetime:
    """The time from the submission of a dataflow to its removal.

    Attributes
    ----------
    flow : Dataflow
    submitted : Submitted or None
        The manager's report; None if the dataflow runs separately.
    messages : int or None
        Number of messages of its source in this time; None if unknown: then up to the last one with a result.
    times : list of float
        Times at which its sink received records.
    received : list of (str, RecordBatch)
        The received records.
    """

    flow: Dataflow
    submitted: Submitted | None = None
    messages: int | None = None
    times: list[float] = field(default_factory=list)
    received: list[tuple[str, pa.RecordBatch]] = field(default_factory=list)

    def sink(self) -> CallbackSink:
        """Create a sink that records what it receives."""
        return CallbackSink(self._take)

    def _take(self, stream: str, batch: pa.RecordBatch) -> None:
        self.times.append(time.monotonic())
        self.received.append((stream, batch))

    @property
    def first(self) -> int:
        """Number of the first message that it processed."""
        return 0 if self.submitted is None else max(self.submitted.first.values(), default=0)

    @property
    def message_count(self) -> int:
        """Number of messages that it processed."""
        if self.messages is not None:
            return self.messages
        numbers = (n for _, batch in self.received for n in int_column(batch.column("seq")).tolist())
        return max(numbers, default=self.first - 1) + 1 - self.first


class Lifetimes(list[Lifetime]):
    """All lifetimes of a trace."""

    def longest_silence_ms(self, during: Sequence[tuple[float, float]]) -> float:
        """Return by how many ms the longest silence of a sink around some spans exceeds the longest at other times.

        The time between two lifetimes of a dataflow does not count.
        """
        gaps = [gap for lifetime in self for gap in itertools.pairwise(lifetime.times)]
        near = [b - a for a, b in gaps if any(a < end and begin < b for begin, end in during)]
        usual = [b - a for a, b in gaps if not any(a < end and begin < b for begin, end in during)]
        return 1e3 * max(0.0, max(near, default=0.0) - max(usual, default=0.0))


class _SourceFrom(WrappedSource):
    """Source without its first messages."""

    def __init__(self, source: Source, first: int) -> None:
        super().__init__(source)
        self.first = first

    def initial(self) -> Offset:
        start = self.source.initial()
        return self.source.latest(start, self.first) if self.first else start


def outputs_equal(
    name: str, lifetimes: Iterable[Lifetime], open_source: Callable[[str], Source], where: str = ""
) -> Measure:
    """Compare the records of lifetimes with runs alone.

    Dataflows that share state with earlier ones are left out, since that state depends on earlier messages.

    Parameters
    ----------
    name : str
        Name of the measure.
    lifetimes : iterable of Lifetime
        Lifetimes of dataflows with one source each.
    open_source : function
        ``open_source(stream)`` returns an unbounded source without a pace.
    where : str
        Text to append to the description.
    """
    same, rows, count, warm = True, 0, 0, 0
    for lifetime in lifetimes:
        if lifetime.submitted is not None and lifetime.submitted.warm:
            warm += 1
            continue
        got = _count_records(lifetime)
        same &= got == _run_alone(lifetime, open_source)
        rows += got.total()
        count += 1
    left = f"; {warm} more share state with earlier messages" if warm else ""
    what = f"{rows:,} records in {count} lifetimes{where}, each against a run alone from its first message on{left}"
    return Measure(name, int(same and rows > 0), "truth", what, 1)


def _run_alone(lifetime: Lifetime, open_source: Callable[[str], Source]) -> Records:
    """Run a dataflow alone over the messages of a lifetime and count its records."""
    alone = Lifetime(lifetime.flow)
    if lifetime.message_count:
        backend = LocalBackend(lifetime.message_count)
        manager = ReuseManager(backend)
        sources = {
            node.id: _SourceFrom(open_source(node.id), lifetime.first) for node in lifetime.flow.nodes_of_kind("source")
        }
        manager.submit(lifetime.flow, sources, alone.sink())
        backend.turn()
        manager.close()
    return _count_records(alone)


def _count_records(lifetime: Lifetime) -> Records:
    """Count the equal records of each stream."""
    return Counter((stream, exact(row)) for stream, batch in lifetime.received for row in batch.to_pylist())
