"""Dataflows whose records follow from the messages that actions report: where each starts, pauses and resumes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import riot_ops as ro
from riot_ops import tasks as t
from tests.reuse.spark.fake_spark import Gated

__all__ = ["VALUES", "User", "gated"]

N = 400
SCHEMA = {"value": "double"}
#: By source, its records; all values are distinct.
VALUES = {"north": [float(i) for i in range(N)], "south": [1000.0 + i for i in range(N)]}
BOUNDS = [(0, 1e6), (20, 1e6), (0, 1200), (0, 1e9)]


def gated(gate: Path) -> dict[str, Gated]:
    """Return the sources, which give no records until a file exists."""
    return {n: Gated(ro.MemorySource([{"value": v} for v in values]), gate) for n, values in VALUES.items()}


class User:
    """A dataflow of filters, and the records that it should get."""

    def __init__(self, choose: random.Random, name: str) -> None:
        self.name = name
        self.sources = choose.choice([["north"], ["north"], ["south"], ["north", "south"]])
        self.bounds = [choose.choice(BOUNDS) for _ in range(choose.randint(1, 3))]
        self.flow = ro.Dataflow(name)
        streams = [self.flow.source(source, schema=SCHEMA) for source in self.sources]
        stream = streams[0] if len(streams) == 1 else ro.merge(*streams)
        ends = []
        for place, (low, high) in enumerate(self.bounds):
            stream = stream.to(t.RangeFilter(bounds={"value": (low, high)}, by=None), id=f"t{place}")
            ends.append(stream)
        #: The filters whose records it gets: their topics may lag behind each other.
        self.places = [*range(len(ends))] if choose.random() < 0.6 else [len(ends) - 1]
        self.flow.sink("out", *(ends[place] for place in self.places))
        self.paused = False
        #: By source, the messages at which it starts, pauses and resumes, in turn.
        self.borders: dict[str, list[int]] = {source: [] for source in self.sources}

    def switch(self, border: Mapping[str, int]) -> None:
        """Note that it starts or resumes, or else pauses, at these messages."""
        assert set(border) == {*self.sources}
        for source, message in border.items():
            assert message >= max(self.borders[source], default=0), "the border moved back"
            self.borders[source].append(message)

    def _passes(self, place: int, values: Iterable[float]) -> list[float]:
        return sorted(v for v in values if all(low <= v <= high for low, high in self.bounds[: place + 1]))

    def expected(self, place: int) -> list[float]:
        """Return the values that it should have of a filter."""
        seen = (
            v
            for source in self.sources
            for message, v in enumerate(VALUES[source])
            if sum(border <= message for border in self.borders[source]) % 2 == 1
        )
        return self._passes(place, seen)

    def possible(self, place: int) -> set[float]:
        """Return the values that it may have of a filter if its borders are unknown."""
        return {*self._passes(place, (v for source in self.sources for v in VALUES[source]))}

    @staticmethod
    def got(sink: ro.MemorySink | ro.ParquetSink, place: int) -> list[float]:
        """Return the values that a sink has of a filter."""
        table = sink.table(f"t{place}")
        return sorted(table["value"].to_pylist()) if table.num_columns else []

    def check(self, sink: ro.MemorySink | ro.ParquetSink) -> None:
        """Check that a sink has exactly the expected values."""
        for place in self.places:
            assert self.got(sink, place) == self.expected(place), (self.name, place, self.sources, self.borders)

    def check_part(self, sink: ro.MemorySink | ro.ParquetSink, all_of: bool = True) -> None:
        """Check that a sink has no value twice, and no value that is not expected or, with ``all_of=False``, possible."""
        for place in self.places:
            got, whole = self.got(sink, place), {*self.expected(place)} if all_of else self.possible(place)
            assert len(got) == len({*got}) and {*got} <= whole, (self.name, place, self.sources, self.borders)
