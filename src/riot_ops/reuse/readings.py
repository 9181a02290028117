"""Sources that are read once, whoever wants their records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.kernels.arrow import int_column
from riot_ops.reuse.identity import alone
from riot_ops.reuse.submission import Submission
from riot_ops.runtime.merging import merged

__all__ = ["Reading", "check_consumed", "opened", "readings"]


class Reading:
    """A source, or several as one log, that is being read.

    Attributes
    ----------
    readers : dict of str to set of str
        By source in it, the running steps that its records go to.
    next : dict of str to int
        By source in it, the number of its next message.
    rows : int
        Records read so far.
    ended : bool
        Whether no record will come any more.
    """

    def __init__(self, name: str, source: Source, members: list[str]) -> None:
        self.name = name
        self.source = source
        self.offset = source.initial()
        self.readers: dict[str, set[str]] = {member: set() for member in members}
        self.next = dict.fromkeys(members, 0)
        self.rows = 0
        self.ended = False

    def steps(self) -> set[str]:
        """The running steps that read it."""
        return set().union(*self.readers.values())

    def read(self, most: int) -> Iterator[dict[str, list[pa.RecordBatch]]]:
        """What there is, up to so many records, by running step; at the end the offset has moved."""
        end = self.source.latest(self.offset, most)
        if end == self.offset:
            self.ended = self.source.finished(end)
            return
        for split in self.source.splits(self.offset, end, 1):
            for inputs in self.source.inputs(self.name, split):
                for member, batches in inputs.items():
                    for batch in batches:
                        self.rows += batch.num_rows
                        if batch.num_rows:
                            self.next[member] = int(np.max(int_column(batch.column("seq")))) + 1
                yield {step: batches for member, batches in inputs.items() for step in self.readers[member]}
        self.offset = end


def readings(submission: Submission) -> dict[str, tuple[str, str, Mapping[str, Source], str]]:
    """For each source node of a dataflow: which reading it needs, which source in that it is, and how that is made.

    Equal names are equal readings; what comes last is what :func:`opened` takes.
    """
    keys = {node: _key(source) for node, source in submission.sources.items()}
    merging = submission.flow.merging
    if merging == "arrival" or len(keys) < 2:
        return {node: (key, key, {key: submission.sources[node]}, "arrival") for node, key in keys.items()}
    name = json.dumps([merging, *keys.values()])
    members = {str(place): source for place, source in enumerate(submission.sources.values())}
    return {node: (name, str(place), members, merging) for place, node in enumerate(keys)}


def opened(name: str, members: Mapping[str, Source], merging: str) -> Reading:
    """A reading from its beginning."""
    if merging == "arrival":
        return Reading(name, members[name], [name])
    [source] = merged(Graph("reading", merging=merging), members).values()
    return Reading(name, source, list(members))


def check_consumed(
    new: Mapping[str, Source],
    known: Iterable[tuple[str, Source]],
    coming: Sequence[Submission],
    running: Iterable[Submission],
) -> None:
    """Raise where new readings would take records from each other, or from one that is known.

    ``coming`` are the dataflows that need the new ones, ``running`` the others.
    """
    held = [(name, source.consumed()) for name, source in known]
    for name, source in new.items():
        things = source.consumed()
        for other, taken in held:
            if both := things & taken:
                mine = _who(coming, name)
                others = [one for one in _who([*running, *coming], other, both) if one not in mine]
                raise ConfigError(
                    f"{min(both)} can be read by one reader alone, but {', '.join(mine)} would read it apart from "
                    f"{', '.join(others) or 'another'}: have both dataflows bring their sources together in the same "
                    "way (merging), give one a subscription of its own, or remove the other first"
                )
        held.append((name, things))


def _who(submissions: Iterable[Submission], name: str, things: Set[str] = frozenset()) -> list[str]:
    """Who needs a reading, or holds what it uses up."""
    return [
        f"the source {node!r} of {submission.name!r}"
        for submission in submissions
        for node, (reading, member, members, _) in readings(submission).items()
        if (taken := members[member].consumed()) and (reading == name or taken & things)
    ]


def _key(source: Any) -> str:
    known = source.description()
    return alone(source) if known is None else json.dumps(known, sort_keys=True)
