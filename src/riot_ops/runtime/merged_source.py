"""Several sources as one, for dataflows that define how the messages of their sources are merged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.source import Offset, Source, Split
from riot_ops.graph.graph import Graph
from riot_ops.kernels.arrays.arrow import int_column

__all__ = ["MergedSource", "merge_sources"]

Inputs = dict[str, list[pa.RecordBatch]]


def merge_sources(flow: Graph, sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sources of a dataflow, merged into one if it defines how."""
    if flow.merging == "arrival" or len(sources) < 2:
        return dict(sources)
    for name, source in sources.items():
        if not isinstance(source, Source):
            raise ConfigError(
                f"source {name!r} is a Spark DataFrame, but the dataflow {flow.name!r} merges its sources by "
                f"{flow.merging}, which needs sources of riot_ops"
            )
    kind = ByNumber if flow.merging == "number" else InSequence
    return {"+".join(sources): kind(sources)}


class MergedSource(Source):
    """Common base: offsets and splits hold those of the members by name."""

    def __init__(self, members: Mapping[str, Source]) -> None:
        self.members = dict(members)
        self.replayable = all(source.replayable for source in members.values())
        self.latest_blocks = any(source.latest_blocks for source in members.values())

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([])  # each member has its own

    def consumed_resources(self) -> frozenset[str]:
        return frozenset[str]().union(*(source.consumed_resources() for source in self.members.values()))

    def initial(self) -> Offset:
        return {name: source.initial() for name, source in self.members.items()}

    def finished(self, offset: Offset) -> bool:
        return all(source.finished(offset[name]) for name, source in self.members.items())

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        parts = [
            [(name, split) for split in source.splits(start[name], end[name], n)]
            for name, source in self.members.items()
            if start[name] != end[name]
        ]
        found: list[Split] = []
        for row in itertools.zip_longest(*parts):
            split: Split = {"parts": dict(part for part in row if part is not None)}
            due = [one["due"] for one in split["parts"].values() if "due" in one]
            if due:
                split["due"] = [min(first for first, _ in due), max(last for _, last in due)]
            found.append(split)
        return found

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError("records of several sources are read by inputs()")

    def waits(self) -> bool:
        return any(source.waits() for source in self.members.values())

    def count(self, start: Offset, end: Offset) -> int | None:
        counts = [source.count(start[name], end[name]) for name, source in self.members.items()]
        return None if None in counts else sum(filter(None, counts))

    def commit(self, end: Offset) -> None:
        for name, source in self.members.items():
            source.commit(end[name])

    def cancel_waits(self) -> None:
        for source in self.members.values():
            source.cancel_waits()

    def close(self) -> None:
        for source in self.members.values():
            source.close()


class InSequence(MergedSource):
    """One source after the other: a range never holds records of two."""

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        for name, source in self.members.items():
            end = source.latest(start[name], limit)
            if end != start[name] or not source.finished(end):
                return {**start, name: end}
        return start

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        for name, source in self.members.items():
            if not source.finished(offset[name]):
                return source.wait_time(offset[name], wake)
        return 0.0

    def read_inputs(self, name: str, split: Split) -> Iterator[Inputs]:
        for member, part in split["parts"].items():
            yield from self.members[member].read_inputs(member, part)


class ByNumber(MergedSource):
    """Message n of all sources, then message n + 1; a source that has ended is skipped.

    Sources number their messages from 0. A range holds equally many messages of all sources that have not ended, and a
    batch holds messages of the same numbers.
    """

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        share = None if limit is None else max(1, limit // len(self.members))
        ends = {name: source.latest(start[name], share) for name, source in self.members.items()}
        counts = {}
        for name, source in self.members.items():
            if (count := source.count(start[name], ends[name])) is None:
                raise ConfigError(
                    f"sources are merged by number, but source {name!r} ({type(source).__name__}) cannot count its "
                    "records"
                )
            counts[name] = count
            if count:  # without the heartbeats that follow, which precede the next message of all sources
                ends[name] = source.latest(start[name], count)
        self._hold_heartbeats(start, ends, counts)
        # a source that has ended may have fewer
        common = min((n for name, n in counts.items() if not self.members[name].finished(ends[name])), default=None)
        for name, source in self.members.items():
            if common is not None and counts[name] > common:
                ends[name] = source.latest(start[name], common) if common else start[name]
        return ends

    def _hold_heartbeats(self, start: Offset, ends: dict[str, Offset], counts: Mapping[str, int]) -> None:
        """Hold heartbeats back until the sources before theirs can have no more before the same message.

        Otherwise these would count in the order in which they arrive. While no source has a message, those of the first
        one move time.
        """
        held = False
        for name, source in self.members.items():
            if counts[name]:
                continue
            if held:
                ends[name] = start[name]
            held = held or not source.finished(ends[name])

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        # a range needs a message of each source
        times = [s.wait_time(offset[n], wake) for n, s in self.members.items() if not s.finished(offset[n])]
        known = [seconds for seconds in times if seconds is not None]
        return max(known, default=0.0) if len(known) == len(times) else None

    def read_inputs(self, name: str, split: Split) -> Iterator[Inputs]:
        reading = {member: self.members[member].read(part) for member, part in split["parts"].items()}
        held: dict[str, pa.RecordBatch] = {}
        while reading or held:
            for member in [m for m in reading if m not in held]:
                for batch in reading[member]:
                    if batch.num_rows:
                        held[member] = batch
                        break
                    yield {member: [batch]}  # a heartbeat
                else:
                    del reading[member]
            if not held:
                break
            numbers = {member: int_column(batch.column("seq")) for member, batch in held.items()}
            until = min((int(numbers[m][-1]) for m in reading), default=None)
            inputs: Inputs = {}
            for member in list(held):
                batch = held.pop(member)
                rows = batch.num_rows if until is None else int(np.searchsorted(numbers[member], until, side="right"))
                if rows:
                    inputs[member] = [batch.slice(0, rows)]
                if rows < batch.num_rows:
                    held[member] = batch.slice(rows)
            yield inputs
