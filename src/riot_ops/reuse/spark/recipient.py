"""What a dataflow wants of topics, and how far its sinks have got."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from riot_ops.core.errors import ConnectorError
from riot_ops.reuse.delivery import Delivery
from riot_ops.reuse.errors import told
from riot_ops.reuse.spark.bookmark import Bookmark
from riot_ops.reuse.spark.broken import Broken
from riot_ops.reuse.spark.control import write_json
from riot_ops.reuse.submission import Submission

__all__ = ["Carried", "Noted", "Pass", "Pause", "Progress", "Recipient", "Taken", "Wanted", "asked"]

_log = logging.getLogger("riot_ops")

#: Streams by the dataflow's own names, with records of them.
Taken = list[tuple[str, pa.RecordBatch]]


class Wanted(msgspec.Struct):
    """What a dataflow wants of a topic: its own names for streams, and for steps that reject records."""

    streams: dict[str, list[str]]
    labels: dict[str, list[str]]


class Pause(msgspec.Struct, frozen=True):
    """By topic the first batch that is not for a dataflow, and the first that is again."""

    begin: dict[str, int]
    end: dict[str, int] | None = None


class Progress(msgspec.Struct, frozen=True):
    """The steps of a dataflow, the number of its sinks' next epoch, and what is not for it.

    ``before`` are topics that others have replaced, one behind the other, of which its sinks have not taken all yet;
    ``gaps`` tells of each sink that lacks records why, ``dropped`` by stream how many some sink did not get.
    """

    placed: dict[str, str]
    epoch: int = 0
    pauses: list[Pause] = []
    before: list[str] = []
    gaps: dict[str, str] = {}
    dropped: dict[str, int] = {}

    @property
    def paused(self) -> bool:
        """Whether it rests."""
        return bool(self.pauses) and self.pauses[-1].end is None


class Carried(msgspec.Struct):
    """How far a carrier is: the next batch of each topic, and what it carries to."""

    at: dict[str, int]
    dataflows: dict[str, Progress]


class Recipient:
    """A dataflow that records are brought to.

    Parameters
    ----------
    submission : Submission
    wanted : mapping of str to Wanted
        By fragment, what it wants of its topic.
    progress : Progress
    again : bool, default False
        Whether it came before a restart: sinks that cannot begin then are its own matter.
    kept : bool, default False
        Whether its sinks go on with the epoch that is told.

    Attributes
    ----------
    given_up : bool
        Whether nobody waits for its sinks any more, which take nothing.
    broken : dict of str to Broken
        Steps of it that have raised.
    border : dict of str to int or None
        By topic, the first batch that is not for it, as its sinks end before that.
    limit : mapping of str to int
        By topic, the first batch that is not brought yet, as it is not known whether it is for it.
    restarts : int
        How often a query with steps of it has been started again, as it had failed.
    """

    def __init__(
        self,
        submission: Submission,
        wanted: Mapping[str, Wanted],
        progress: Progress,
        again: bool = False,
        kept: bool = False,
    ) -> None:
        self.submission, self.wanted, self.progress = submission, dict(wanted), progress
        self.paused = progress.paused
        self.given_up = False
        self.restarts = 0
        self._kept = self._due = False
        self.broken: dict[str, Broken] = {}
        self.border: dict[str, int] | None = None
        self.limit: Mapping[str, int] = {}
        self.dropped = Counter(progress.dropped)
        epoch = progress.epoch if kept else None
        self.delivery = Delivery(submission, epoch, durable=True, again=again, gaps=progress.gaps)

    @property
    def name(self) -> str:
        return self.submission.name

    @property
    def over(self) -> bool:
        """Whether no sink of it takes anything any more."""
        return self.delivery.over or self.given_up

    def take(self, records: Taken) -> None:
        """Have its sinks keep these records: an epoch of theirs, which is at an end when it is :meth:`counted`.

        Where all has come that is for them (:meth:`ends`), they end.
        """
        if self._due:
            self.delivery.end()
        if self.over or not records:
            return
        try:
            for stream, batch in records:
                self.delivery.write(stream, batch)
            self.delivery.commit()
            self._kept = True
        except Exception as error:  # a user's store, whatever it raises
            self.fail(error)

    def counted(self) -> None:
        """The epoch that its sinks have kept, if they have, is noted with what it was made of."""
        if self._kept:
            self._kept = False
            self.progress = msgspec.structs.replace(self.progress, epoch=self.progress.epoch + 1)

    def missed(self) -> dict[str, int]:
        """By stream, the records that some sink did not get; a sink may count meanwhile."""
        return dict(Counter(dict(self.dropped)) + Counter(dict(self.delivery.lost)))

    def stands(self) -> Progress:
        """How far it is, with what its sinks lack by now."""
        gaps = self.delivery.lacking(all_of_them=self.over and bool(self.dropped))
        return msgspec.structs.replace(self.progress, gaps=gaps, dropped=self.missed())

    def fail(self, error: Exception) -> None:
        """It gets nothing more."""
        self.delivery.failures.append(error)
        self.delivery.halt()

    def give_up(self, why: str) -> None:
        """Nobody waits for its sinks any more."""
        self.given_up = True
        self.delivery.failures.append(ConnectorError(why))

    @property
    def failures(self) -> list[str]:
        """What went wrong."""
        return [*map(told, self.delivery.failures)] + [one.why for one in self.broken.values()]

    @property
    def ending(self) -> bool:
        """Whether its sinks end as soon as they have what came before a step of it raised."""
        return self.border is not None and not self.over

    def ends(self, at: Mapping[str, int]) -> bool:
        """Whether its sinks are to end now: topics have been carried up to where that is so."""
        if self.border is None or self.over or any(at.get(name, batch) < batch for name, batch in self.border.items()):
            return False
        self._due = True
        return True

    def takes(self, topic: str, batch: int) -> bool:
        """Whether a batch is for it."""
        if self.border is not None and batch >= self.border.get(topic, batch + 1):
            return False
        return not any(
            one.begin.get(topic, batch + 1) <= batch and (one.end is None or batch < one.end.get(topic, batch + 1))
            for one in self.progress.pauses
        )

    def begin_with(self, since: Mapping[str, int]) -> None:
        """Of these topics, batches are for it from these on."""
        self.progress = msgspec.structs.replace(self.progress, pauses=[Pause(dict.fromkeys(since, 0), {**since})])

    def end(self, at: Mapping[str, int]) -> None:
        """From these batches on nothing is for it any more."""
        self.progress = msgspec.structs.replace(self.progress, pauses=[*self.progress.pauses, Pause({**at})])

    def turn_over(self, border: Mapping[str, int], at: Mapping[str, int]) -> None:
        """It rests, or goes on, from these batches of the topics on; they have been carried up to ``at``."""
        known = [p for p in self.progress.pauses if p.end is None or any(at.get(t, n) < n for t, n in p.end.items())]
        change = Pause({**border}) if self.paused else Pause(known.pop().begin, {**border})
        self.progress = msgspec.structs.replace(self.progress, pauses=[*known, change])

    @property
    def topics(self) -> dict[str, Wanted]:
        """What it wants of topics, of those that others have replaced too."""
        return {**dict.fromkeys(self.progress.before, self._whole()), **self.wanted}

    def _whole(self) -> Wanted:
        whole = Wanted({}, {})
        for one in self.wanted.values():
            whole.streams.update(one.streams)
            whole.labels.update(one.labels)
        return whole

    def switch(self, name: str, before: Iterable[str]) -> None:
        """All that it wants comes from one new topic, behind what there is in the ones before."""
        before = [*dict.fromkeys([*self.progress.before, *before])]
        self.wanted = {name: self._whole()}
        pauses = self.progress.pauses
        if self.paused:
            pauses = [*pauses[:-1], Pause({**pauses[-1].begin, name: 0})]
        self.progress = msgspec.structs.replace(self.progress, pauses=pauses, before=before)

    def let_go(self, read: Collection[str]) -> bool:
        """Want nothing more of topics that others have replaced and that it has read; whether there were any."""
        before = [name for name in self.progress.before if name not in read]
        if before == self.progress.before:
            return False
        pauses = [one for one in self.progress.pauses if one.begin.keys() & {*before, *self.wanted}]
        self.progress = msgspec.structs.replace(self.progress, pauses=pauses, before=before)
        return True


def asked(recipients: Iterable[Recipient]) -> Iterator[tuple[str, Wanted]]:
    """What is wanted now, and of which fragments."""
    for one in recipients:
        if not one.paused and not one.over:
            yield from one.wanted.items()


class Noted:
    """The file in which it is noted how far a carrier is.

    Attributes
    ----------
    owed : bool
        Whether that could not be noted, or the topics not be told: it is, before anything else is carried.
    """

    def __init__(self, file: Path, state: Carried) -> None:
        self.file = file
        self.owed = self._gone = False
        self._lock = threading.Lock()
        write_json(file, state)
        self._state = state

    def write(self, at: Mapping[str, int], recipients: Iterable[Recipient]) -> None:
        """It is there now, and these with it; whatever their sinks lack is noted as well."""
        with self._lock:
            state = Carried(dict(at), {one.name: one.stands() for one in recipients})
            if state != self._state and not self._gone:
                write_json(self.file, state)
                self._state = state

    def settle(self, mark: Bookmark, recipients: Sequence[Recipient], changed: bool = True) -> bool:
        """Note what has changed, and then let the topics go on; False where there is no room for that now.

        What is damaged raises.
        """
        told, self.owed = self.owed, True
        try:
            if changed or told:
                self.write(mark.at, recipients)
            mark.release()
        except ConnectorError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            if not told:
                names = ", ".join(one.name for one in recipients)
                _log.warning("the sinks of %s get nothing more until it can be noted what they have: %s", names, error)
            return False
        self.owed = False
        return True

    def beside(self) -> Path:
        """A file for another carrier."""
        return self.file.with_name(f"{uuid.uuid4().hex}.json")

    def forget(self) -> None:
        """Have it no more: who has gone goes on nowhere."""
        with self._lock:
            self._gone = True
            self.file.unlink(missing_ok=True)


class Pass:
    """Brings records to one recipient after the other, in a thread that whoever takes too long keeps for itself."""

    def __init__(self, given: Sequence[tuple[Recipient, Taken]], name: str) -> None:
        self.left = deque(given)
        self.thread = threading.Thread(target=self._run, daemon=True, name=name)
        self._changed = threading.Condition()
        self._at: tuple[Recipient, float] | None = None
        self._after: Callable[[], None] | None = None
        self._over = False

    def _run(self) -> None:
        while True:
            with self._changed:
                self._at = None
                if self._after is not None:
                    break
                if not self.left:
                    self._over = True
                    self._changed.notify_all()
                    return
                one, records = self.left.popleft()
                self._at = one, time.monotonic()
            one.take(records)
        self._after()

    def through(self, grace_s: float, parted: Callable[[Recipient, threading.Thread], Callable[[], None]]) -> bool:
        """Wait until all have theirs: True; or until one takes longer than the grace.

        That one is ``parted`` with the thread, which does what this returns when it is free.
        """
        self.thread.start()
        with self._changed:
            while not self._over:
                since = time.monotonic() if self._at is None else self._at[1]
                if (left := since + grace_s - time.monotonic()) > 0:
                    self._changed.wait(left)
                elif self._at is not None:
                    self._after = parted(self._at[0], self.thread)
                    return False
            return True
