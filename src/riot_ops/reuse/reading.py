"""Sources that are read once, whoever wants their records."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConnectorError, exception_text
from riot_ops.core.source import Offset, Source
from riot_ops.graph.graph import Graph
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.reuse.aside import Aside
from riot_ops.reuse.backend import Coming
from riot_ops.reuse.missing import MissingSource
from riot_ops.reuse.readings import check_consumed, readings
from riot_ops.reuse.submission import Submission
from riot_ops.runtime.merging import merged

__all__ = ["Reading", "Readings", "Wanted", "lacks"]

#: How often in a row a source that cannot be reached is tried again, and after how long; each time twice as long.
TRIES, FIRST_PAUSE_S = 6, 0.1

_log = logging.getLogger("riot_ops")


class Reading:
    """A source, or several as one log, that is being read.

    Parameters
    ----------
    name, members, merging
        As :func:`~riot_ops.reuse.readings.readings` tells them.

    Attributes
    ----------
    offset : dict, optional
        Up to where it has been read; None until it is opened.
    readers : dict of str to set of str
        By source in it, the running steps that its records go to.
    next : dict of str to int
        By source in it, the number of its next message.
    rows : int
        Records read so far.
    ended : bool
        Whether no record will come any more.
    failure : Exception, optional
        Why it is read no more.
    """

    def __init__(self, name: str, members: Mapping[str, Source], merging: str) -> None:
        if merging == "arrival":
            members = {name: members[name]}
        self.name, self._members = name, members
        [source] = merged(Graph("reading", merging=merging), members).values()
        self.source = Aside(source) if source.lingers or not source.replayable else source
        self.offset: Offset | None = None
        self.readers: dict[str, set[str]] = {member: set() for member in members}
        self.next = dict.fromkeys(members, 0)
        self.rows = 0
        self.ended = False
        self.failure: Exception | None = None
        self._tries = 0
        self._again = 0.0
        self._closed = False

    def open(self) -> Offset:
        """Where it stands; at first that is its beginning."""
        if self.offset is None:
            at = self.source.initial()
            offsets = at if len(self._members) > 1 else dict.fromkeys(self._members, at)
            self.next = {member: source.number(offsets[member]) for member, source in self._members.items()}
            self.offset = at
        return self.offset

    def steps(self) -> set[str]:
        """The running steps that read it."""
        return set().union(*self.readers.values())

    def read(self, most: int, whole: bool) -> list[dict[str, list[pa.RecordBatch]]]:
        """What there is, up to so many records, by running step; the offset has moved then.

        A source that cannot be reached is tried again later. One that fails for good gives what came before the fault,
        unless only the ``whole`` will do, as where somebody goes on from the offset.
        """
        if self.ended or self.failure is not None or time.monotonic() < self._again:
            return []
        found: list[tuple[dict[str, list[pa.RecordBatch]], int, dict[str, int]]] = []
        try:
            start = self.open()
            end = self.source.latest(start, most)
            if end == start:
                self.ended = self.source.finished(end)
            else:
                for split in self.source.splits(start, end, 1):
                    found.extend((inputs, *_counted(inputs)) for inputs in self.source.inputs(self.name, split))
            self.offset = end
            self._tries = 0
        except Exception as error:  # a user's code or store, whatever it raises
            self._failed(error)
            if whole or self.failure is None:
                return []
        for _, rows, after in found:
            self.rows += rows
            self.next |= after
        return [{s: batches for m, batches in inputs.items() for s in self.readers[m]} for inputs, _, _ in found]

    def _failed(self, error: Exception) -> None:
        who, why = ", ".join(sorted(self.steps())), exception_text(error)
        if isinstance(error, ConnectorError) and self.source.replayable and self._tries < TRIES:
            self._again = time.monotonic() + FIRST_PAUSE_S * 2**self._tries
            self._tries += 1
            _log.warning("the source of %s cannot be read, and is tried again: %s", who, why)
        else:
            self.failure = error
            _log.warning("the source of %s cannot be read, and has failed for good: %s", who, why)
            self.close()

    def forget(self, offset: Offset) -> None:
        """Let the source go on without what is before; where that fails, the next time does for this one too."""
        try:
            self.source.commit(offset)
        except Exception as error:  # as above
            _log.warning("a source could not be told how far it has been read: %s", error)

    def close(self) -> None:
        """Let go of the source; may be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self.source.close()
        except Exception as error:  # as above
            _log.warning("a source could not be closed: %s", error)


def _counted(inputs: Mapping[str, list[pa.RecordBatch]]) -> tuple[int, dict[str, int]]:
    """The number of records, and by source that has some the number of its next message."""
    rows, after = 0, {}
    for member, batches in inputs.items():
        for batch in batches:
            rows += batch.num_rows
            if batch.num_rows:
                after[member] = int(np.max(int_column(batch.column("seq")))) + 1
    return rows, after


#: By source node of a dataflow, the key of the reading that it needs, and which source in that it is.
Wanted = dict[str, tuple[str, str]]


class Readings:
    """The readings of a back end.

    Attributes
    ----------
    of : dict of str to Reading
        By key: its name, but where a source that has failed is opened anew.
    """

    def __init__(self) -> None:
        self.of: dict[str, Reading] = {}
        self._at: Wanted = {}  # by running step
        self._wanted: dict[str, Wanted] = {}  # by dataflow

    def begun(
        self, coming: Sequence[Coming], running: Iterable[Submission], kept: Mapping[str, str] | None = None
    ) -> tuple[dict[str, Reading], list[Wanted]]:
        """The readings that dataflows need and that are not there yet, and what each of these needs.

        After a restart it is told by step which reading it had (``kept``): steps with different ones go on from
        different places. What is opened then is opened when it is read.
        """
        fresh: dict[str, Reading] = {}
        at: Wanted = {}
        before: dict[str, list[str]] = {}
        try:
            for addition, submission in sorted(coming, key=lacks):  # who has a source gives it to who lacks it
                for node, (name, member, members, merging) in readings(submission).items():
                    step = addition.placed[node]
                    if step in at or step in self._at:
                        continue
                    had = before.setdefault(name, [])
                    if kept is not None and step in kept and kept[step] not in had:
                        had.append(kept[step])
                    life = had.index(kept[step]) if kept is not None and step in kept else 0
                    while (key := f"{name} #{life}" if life else name) in self.of and self.of[key].failure is not None:
                        life += 1
                    if key not in self.of and key not in fresh:
                        fresh[key] = Reading(name, members, merging)
                    at[step] = key, member
            if kept is None:
                new = {one.name: one.source for one in fresh.values()}
                known = ((one.name, one.source) for one in self.of.values() if one.failure is None)
                check_consumed(new, known, [submission for _, submission in coming], running)
                for one in fresh.values():
                    one.open()
        except BaseException:
            for one in fresh.values():
                one.close()
            raise
        wanted = []
        for addition, submission in coming:
            steps = {node: addition.placed[node] for node in submission.sources}
            wanted.append({node: at[step] if step in at else self._at[step] for node, step in steps.items()})
        return fresh, wanted

    def take(self, dataflow: str, placed: Mapping[str, str], wanted: Wanted) -> dict[str, int]:
        """A dataflow has come; returns by source node the first message that it sees."""
        self._wanted[dataflow] = wanted
        for node, (key, member) in wanted.items():
            self._at[placed[node]] = key, member
            self.of[key].readers[member].add(placed[node])
        return self.next(dataflow)

    def next(self, dataflow: str) -> dict[str, int]:
        """By source node of a dataflow, the next message."""
        return {node: self.of[key].next[member] for node, (key, member) in self._wanted[dataflow].items()}

    def drop(self, dataflow: str, stopped: Collection[str]) -> None:
        """A dataflow has gone, and steps with it."""
        self._wanted.pop(dataflow, None)
        for key in {self._at.pop(step)[0] for step in stopped if step in self._at}:
            for steps in self.of[key].readers.values():
                steps.difference_update(stopped)
            if not self.of[key].steps():
                self.of.pop(key).close()

    def ended(self) -> set[str]:
        """The steps whose source has ended."""
        return set().union(*(reading.steps() for reading in self.of.values() if reading.ended))

    def failed(self) -> set[str]:
        """The steps whose source has failed: after a restart it is read again from where it stood."""
        return set().union(*(reading.steps() for reading in self.of.values() if reading.failure is not None))

    def stood(self, kept: bool) -> list[tuple[Reading, Offset]]:
        """What has been read of each source that nobody reads from somewhere else, or where ``kept`` will again."""
        going = [one for one in self.of.values() if kept or one.failure is None]
        times = Counter(one.name for one in going)
        return [(one, one.offset) for one in going if times[one.name] == 1 and one.offset is not None]

    def forget(self, stood: Sequence[tuple[Reading, Offset]]) -> None:
        """Let sources go on without what is before."""
        there = {id(one) for one in self.of.values()}
        for one, offset in stood:
            if id(one) in there and one.failure is None:
                one.forget(offset)

    def close(self) -> None:
        """Let go of all."""
        while self.of:
            self.of.popitem()[1].close()


def lacks(one: Coming) -> bool:
    """Whether a source of a dataflow could not be bound again: another may have it."""
    return any(isinstance(source, MissingSource) for source in one[1].sources.values())
