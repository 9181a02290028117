"""Sources that a back end reads once for all dataflows."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError, ConnectorError, exception_text
from riot_ops.core.source import Offset, Source, WrappedSource
from riot_ops.graph.graph import Graph
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.reuse.saved_state import PlaceholderSource
from riot_ops.reuse.signature import describe_source
from riot_ops.reuse.submission import Deployment, Submission
from riot_ops.runtime.merged_source import merge_sources

__all__ = [
    "BackgroundSource",
    "SharedSource",
    "SourceBindings",
    "SourcePool",
    "check_exclusive",
    "has_placeholder",
    "required_sources",
]

#: A poll that takes longer than this continues in the background.
GRACE_SECONDS = 0.05


class BackgroundSource(WrappedSource):
    """A source whose :meth:`latest` may block for as long as a broker does, or until records come.

    A thread polls the source; until it is done, the source has nothing new.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._latest: Offset | None = None
        self._error: BaseException | None = None
        self._polling = self._closed = False
        self._quick = True  # whether the last poll was
        self._wake: Callable[[], None] | None = None  # for the end of the poll that is under way

    def __reduce__(self) -> tuple[Callable[[Source], Source], tuple[Source]]:
        """Pickle the wrapped source: a query on Spark polls it alone."""
        return _unwrapped, (self.source,)

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        if self._thread is None:
            self._polling = True
            self._thread = threading.Thread(
                target=self._poll, args=(start, limit), daemon=True, name="riot_ops-reuse-source"
            )
            self._thread.start()
            # a source that was slow once makes the others wait no more
            self._thread.join(GRACE_SECONDS if self._quick else 0.0)
        if self._thread.is_alive():
            return start
        self._thread = None
        if (error := self._error) is not None:
            self._error = None
            raise error
        assert self._latest is not None
        return self._latest

    def _poll(self, start: Offset, limit: int | None) -> None:
        begun = time.monotonic()
        try:
            self._latest = self.source.latest(start, limit)
        except BaseException as error:  # raised by the next call of latest
            self._error = error
        self._quick = time.monotonic() - begun < GRACE_SECONDS
        with self._lock:
            self._polling, closed = False, self._closed
            wake, self._wake = self._wake, None
        if closed:
            self.source.close()
        if wake is not None:
            wake()

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        with self._lock:
            if self._polling:
                self._wake = wake
                return math.inf
        return 0.0 if self._thread is not None else self.source.wait_time(offset, wake)

    def finished(self, offset: Offset) -> bool:
        return self._thread is None and self.source.finished(offset)

    def close(self) -> None:
        """Close the source, now or when the poll that is under way ends."""
        with self._lock:
            self._closed, polling = True, self._polling
        if not polling:
            self.source.close()


def _unwrapped(source: Source) -> Source:
    return source


#: Retries of an unreachable source, and the pause before the first one; each further pause is twice as long.
TRIES, FIRST_PAUSE_S = 6, 0.1

_log = logging.getLogger("riot_ops")


class SharedSource:
    """A source, or several read as one log, that a back end reads once.

    Parameters
    ----------
    name, members, merging
        As :func:`required_sources` returns them.

    Attributes
    ----------
    offset : dict, optional
        End of the records read so far; None until the source is opened.
    readers : dict of str to set of str
        By member, the running steps that get its records.
    next : dict of str to int
        By member, the number of its next message.
    rows : int
        Records read so far.
    ended : bool
        Whether no more records will come.
    failure : Exception, optional
        Why the source is not read any more.
    """

    def __init__(self, name: str, members: Mapping[str, Source], merging: str) -> None:
        if merging == "arrival":
            members = {name: members[name]}
        self.name, self._members = name, members
        [source] = merge_sources(Graph("reading", merging=merging), members).values()
        self.source = BackgroundSource(source) if source.latest_blocks or not source.replayable else source
        self.offset: Offset | None = None
        self.readers: dict[str, set[str]] = {member: set() for member in members}
        self.next = dict.fromkeys(members, 0)
        self.rows = 0
        self.ended = False
        self.failure: Exception | None = None
        self._tries = 0
        self._retry_at = 0.0
        self._closed = False

    def open(self) -> Offset:
        """Open the source if it is not open; return its offset, at first that of its first record."""
        if self.offset is None:
            at = self.source.initial()
            offsets = at if len(self._members) > 1 else dict.fromkeys(self._members, at)
            self.next = {member: source.seq_at(offsets[member]) for member, source in self._members.items()}
            self.offset = at
        return self.offset

    def steps(self) -> set[str]:
        """Return the ids of the running steps that read it."""
        return set().union(*self.readers.values())

    def read(self, limit: int, all_or_nothing: bool) -> list[dict[str, list[pa.RecordBatch]]]:
        """Read up to ``limit`` records, by running step, and advance the offset.

        An unreachable source is tried again later. A source that fails for good gives the records before the fault;
        with ``all_or_nothing`` it gives none, so that a restart can continue from the offset.
        """
        if self.ended or self.failure is not None or time.monotonic() < self._retry_at:
            return []
        found: list[tuple[dict[str, list[pa.RecordBatch]], int, dict[str, int]]] = []
        try:
            start = self.open()
            end = self.source.latest(start, limit)
            if end == start:
                self.ended = self.source.finished(end)
            else:
                for split in self.source.splits(start, end, 1):
                    found.extend((inputs, *_count_rows(inputs)) for inputs in self.source.read_inputs(self.name, split))
            self.offset = end
            self._tries = 0
        except Exception as error:  # a user's code or store may raise anything
            self._handle_failure(error)
            if all_or_nothing or self.failure is None:
                return []
        for _, rows, after in found:
            self.rows += rows
            self.next |= after
        return [{s: batches for m, batches in inputs.items() for s in self.readers[m]} for inputs, _, _ in found]

    def wait_time(self, wake: Callable[[], None]) -> float | None:
        """Like :meth:`Source.wait_time`, for this source's offset."""
        if self.ended or self.failure is not None:
            return math.inf
        if (left := self._retry_at - time.monotonic()) > 0:
            return left
        return None if self.offset is None else self.source.wait_time(self.offset, wake)

    def _handle_failure(self, error: Exception) -> None:
        steps, why = ", ".join(sorted(self.steps())), exception_text(error)
        if isinstance(error, ConnectorError) and self.source.replayable and self._tries < TRIES:
            self._retry_at = time.monotonic() + FIRST_PAUSE_S * 2**self._tries
            self._tries += 1
            _log.warning("the source of %s cannot be read, and is tried again: %s", steps, why)
        else:
            self.failure = error
            _log.warning("the source of %s cannot be read, and has failed for good: %s", steps, why)
            self.close()

    def commit(self, offset: Offset) -> None:
        """Let the source discard records up to an offset; after an error, the next commit does so."""
        try:
            self.source.commit(offset)
        except Exception as error:  # as above
            _log.warning("the offset of a source could not be committed: %s", error)

    def close(self) -> None:
        """Close the source; may be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self.source.close()
        except Exception as error:  # as above
            _log.warning("a source could not be closed: %s", error)


def _count_rows(inputs: Mapping[str, list[pa.RecordBatch]]) -> tuple[int, dict[str, int]]:
    """Return the number of records and, by member that has some, the number of its next message."""
    rows, after = 0, {}
    for member, batches in inputs.items():
        for batch in batches:
            rows += batch.num_rows
            if batch.num_rows:
                after[member] = int(np.max(int_column(batch.column("seq")))) + 1
    return rows, after


#: By source node of a dataflow or by running step: the key of its shared source in the pool, and the member in that.
SourceBindings = dict[str, tuple[str, str]]


class SourcePool:
    """The shared sources of a back end.

    Attributes
    ----------
    open_sources : dict of str to SharedSource
        By key: the name and, for one opened again after a failure, a number.
    bindings : dict of str to (str, str)
        By running step, the key of its shared source and the member in that.
    """

    def __init__(self) -> None:
        self.open_sources: dict[str, SharedSource] = {}
        self.bindings: SourceBindings = {}
        self._by_dataflow: dict[str, SourceBindings] = {}

    def open(
        self,
        deployments: Sequence[Deployment],
        running: Iterable[Submission],
        source_names: Mapping[str, str] | None = None,
    ) -> tuple[dict[str, SharedSource], list[SourceBindings]]:
        """Open the shared sources that new dataflows need; return these by key, and the bindings of each dataflow.

        After a restart, ``source_names`` says which shared source each step read; different ones continue from
        different offsets. Such a source is opened by its first read.
        """
        fresh: dict[str, SharedSource] = {}
        at: SourceBindings = {}
        before: dict[str, list[str]] = {}
        try:
            # a dataflow whose source could be bound gives it to one whose source could not
            for addition, submission in sorted(deployments, key=has_placeholder):
                for node, (name, member, members, merging) in required_sources(submission).items():
                    step = addition.placed[node]
                    if step in at or step in self.bindings:
                        continue
                    had = before.setdefault(name, [])
                    kept = None if source_names is None else source_names.get(step)
                    if kept is not None and kept not in had:
                        had.append(kept)
                    number = had.index(kept) if kept is not None else 0
                    while self._has_failed(key := f"{name} #{number}" if number else name):
                        number += 1
                    if key not in self.open_sources and key not in fresh:
                        fresh[key] = SharedSource(name, members, merging)
                    at[step] = key, member
            if source_names is None:
                new = {one.name: one.source for one in fresh.values()}
                known = ((one.name, one.source) for one in self.open_sources.values() if one.failure is None)
                check_exclusive(new, known, [submission for _, submission in deployments], running)
                for one in fresh.values():
                    one.open()
        except BaseException:
            for one in fresh.values():
                one.close()
            raise
        bindings = []
        for addition, submission in deployments:
            steps = {node: addition.placed[node] for node in submission.sources}
            bindings.append({node: at[step] if step in at else self.bindings[step] for node, step in steps.items()})
        return fresh, bindings

    def _has_failed(self, key: str) -> bool:
        return key in self.open_sources and self.open_sources[key].failure is not None

    def attach(self, dataflow: str, placed: Mapping[str, str], bindings: SourceBindings) -> dict[str, int]:
        """Attach a new dataflow's source steps; return, by source node, the first message that it sees."""
        self._by_dataflow[dataflow] = bindings
        for node, (key, member) in bindings.items():
            self.bindings[placed[node]] = key, member
            self.open_sources[key].readers[member].add(placed[node])
        return self.next_messages(dataflow)

    def next_messages(self, dataflow: str) -> dict[str, int]:
        """By source node of a dataflow, the number of the next message."""
        bindings = self._by_dataflow[dataflow]
        return {node: self.open_sources[key].next[member] for node, (key, member) in bindings.items()}

    def detach(self, dataflow: str, stopped: Collection[str]) -> None:
        """Detach a removed dataflow and its stopped steps; close the sources that no step reads any more."""
        self._by_dataflow.pop(dataflow, None)
        for key in {self.bindings.pop(step)[0] for step in stopped if step in self.bindings}:
            for steps in self.open_sources[key].readers.values():
                steps.difference_update(stopped)
            if not self.open_sources[key].steps():
                self.open_sources.pop(key).close()

    def ended_steps(self) -> set[str]:
        """Return the steps whose source has ended."""
        return set().union(*(one.steps() for one in self.open_sources.values() if one.ended))

    def failed_steps(self) -> set[str]:
        """Return the steps whose source has failed: after a restart it is read again from its offset."""
        return set().union(*(one.steps() for one in self.open_sources.values() if one.failure is not None))

    def committable(self, checkpointed: bool) -> list[tuple[SharedSource, Offset]]:
        """Return the offset of each source that is open once; of a failed one only if a checkpoint lets it continue."""
        going = [one for one in self.open_sources.values() if checkpointed or one.failure is None]
        times = Counter(one.name for one in going)
        return [(one, one.offset) for one in going if times[one.name] == 1 and one.offset is not None]

    def commit(self, offsets: Sequence[tuple[SharedSource, Offset]]) -> None:
        """Let sources that are still open discard records up to these offsets."""
        open_now = {id(one) for one in self.open_sources.values()}
        for one, offset in offsets:
            if id(one) in open_now and one.failure is None:
                one.commit(offset)

    def close(self) -> None:
        """Close all sources."""
        while self.open_sources:
            self.open_sources.popitem()[1].close()


def has_placeholder(deployment: Deployment) -> bool:
    """Whether a source of a dataflow could not be bound again after a restart."""
    return any(isinstance(source, PlaceholderSource) for source in deployment[1].sources.values())


def required_sources(submission: Submission) -> dict[str, tuple[str, str, Mapping[str, Source], str]]:
    """By source node of a dataflow: name of the shared source, member in that, all members, and how they are merged.

    Equal names mean the same shared source.
    """
    keys = {node: _key(source) for node, source in submission.sources.items()}
    merging = submission.flow.merging
    if merging == "arrival" or len(keys) < 2:
        return {node: (key, key, {key: submission.sources[node]}, "arrival") for node, key in keys.items()}
    name = json.dumps([merging, *keys.values()])
    members = {str(place): source for place, source in enumerate(submission.sources.values())}
    return {node: (name, str(place), members, merging) for place, node in enumerate(keys)}


def check_exclusive(
    new: Mapping[str, Source],
    known: Iterable[tuple[str, Source]],
    coming: Sequence[Submission],
    running: Iterable[Submission],
) -> None:
    """Raise if new shared sources would take records from each other or from a known one.

    ``coming`` are the dataflows that need the new sources, ``running`` the others.
    """
    held = [(name, source.consumed_resources()) for name, source in known]
    for name, source in new.items():
        resources = source.consumed_resources()
        for other, taken in held:
            if both := resources & taken:
                mine = _users(coming, name)
                others = [one for one in _users([*running, *coming], other, both) if one not in mine]
                raise ConfigError(
                    f"{min(both)} can be read by one reader alone, but {', '.join(mine)} would read it apart from "
                    f"{', '.join(others) or 'another'}: have both dataflows merge their sources in the same way "
                    "(merging), give one a subscription of its own, or remove the other first"
                )
        held.append((name, resources))


def _users(submissions: Iterable[Submission], name: str, resources: Set[str] = frozenset()) -> list[str]:
    """Return the sources of dataflows that need a shared source, or that consume these resources."""
    return [
        f"the source {node!r} of {submission.name!r}"
        for submission in submissions
        for node, (key, member, members, _) in required_sources(submission).items()
        if (taken := members[member].consumed_resources()) and (key == name or taken & resources)
    ]


def _key(source: Any) -> str:
    return json.dumps(describe_source(source), sort_keys=True)
