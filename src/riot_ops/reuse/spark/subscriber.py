"""Dataflows as subscribers of topics: what each wants of them, and the progress of its sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa

from riot_ops.core.errors import ConnectorError
from riot_ops.reuse.errors import describe_error
from riot_ops.reuse.sink_writer import SinkWriter
from riot_ops.reuse.spark.failures import StepFailure
from riot_ops.reuse.submission import Submission

__all__ = ["Pause", "Progress", "Records", "Subscriber", "Subscription", "active_subscriptions"]

#: Batches of records, each with the dataflow's own name of its stream.
Records = list[tuple[str, pa.RecordBatch]]


class Subscription(msgspec.Struct):
    """Streams of a topic that a dataflow needs: its own names by stream, and by rejecting step."""

    streams: dict[str, list[str]]
    labels: dict[str, list[str]]


class Pause(msgspec.Struct, frozen=True):
    """The batches, by topic, that a dataflow does not get: from ``begin`` on, before ``end``."""

    begin: dict[str, int]
    end: dict[str, int] | None = None


class Progress(msgspec.Struct, frozen=True):
    """The progress of a dataflow's sinks.

    Attributes
    ----------
    placed : dict of str to str
        By node of the dataflow, the running step.
    epoch : int
        The number of the sinks' next epoch.
    pauses : list of Pause
    before : list of str
        Replaced topics that its sinks have not read to the end, in order.
    gaps : dict of str to str
        By sink that lacks records, the reason.
    dropped : dict of str to int
        By stream, how many records some sink did not get.
    run : str
        Identity of the dataflow's run for its sinks.
    """

    placed: dict[str, str]
    epoch: int = 0
    pauses: list[Pause] = []
    before: list[str] = []
    gaps: dict[str, str] = {}
    dropped: dict[str, int] = {}
    run: str = ""

    @property
    def paused(self) -> bool:
        """Whether the dataflow is paused."""
        return bool(self.pauses) and self.pauses[-1].end is None


class Subscriber:
    """A dataflow that receives records of topics.

    Parameters
    ----------
    submission : Submission
    subscriptions : mapping of str to Subscription
        By fragment, the subscription to that fragment's topic.
    progress : Progress
    restored : bool, default False
        Whether it ran before a restart: a sink that cannot begin then fails alone.
    resumes_epoch : bool, default False
        Whether its sinks continue with the epoch of ``progress``.

    Attributes
    ----------
    writer : SinkWriter
        Writes to its sinks.
    abandoned : bool
        Whether its sinks hang, and no thread waits for them any more.
    failures : dict of str to StepFailure
        Its steps that have failed.
    stop_at : dict of str to int or None
        By topic, the first batch that it does not get, as its sinks end before it.
    limits : mapping of str to int
        By topic, the first batch that is not dispatched yet, as a pause is being decided.
    restarts : int
        How often a query with steps of it has failed and was restarted.
    """

    def __init__(
        self,
        submission: Submission,
        subscriptions: Mapping[str, Subscription],
        progress: Progress,
        restored: bool = False,
        resumes_epoch: bool = False,
    ) -> None:
        self.submission, self.subscriptions, self.progress = submission, dict(subscriptions), progress
        self.paused = progress.paused
        self.abandoned = False
        self.restarts = 0
        self._uncounted_epoch = self._end_due = False
        self.failures: dict[str, StepFailure] = {}
        self.stop_at: dict[str, int] | None = None
        self.limits: Mapping[str, int] = {}
        self.dropped = Counter(progress.dropped)
        epoch = progress.epoch if resumes_epoch else None
        gaps, placed = progress.gaps, progress.placed
        self.writer = SinkWriter(
            submission, epoch, durable=True, restarted=restored, gaps=gaps, placed=placed, run=progress.run
        )
        self.progress = msgspec.structs.replace(progress, run=self.writer.run)

    @property
    def name(self) -> str:
        return self.submission.name

    @property
    def closed(self) -> bool:
        """Whether none of its sinks takes records any more."""
        return self.writer.finished or self.abandoned

    def deliver(self, records: Records) -> None:
        """Write records to its sinks as an epoch, which is complete after :meth:`count_epoch`.

        The sinks end if all records for them have been delivered (:meth:`reaches_end`).
        """
        if self._end_due:
            self.writer.end()
        if self.closed or not records:
            return
        try:
            for stream, batch in records:
                self.writer.write(stream, batch)
            self.writer.commit()
            self._uncounted_epoch = True
        except Exception as error:  # a user's store may raise anything
            self.fail(error)

    def count_epoch(self) -> None:
        """Add the epoch that its sinks have committed, if any, to its progress."""
        if self._uncounted_epoch:
            self._uncounted_epoch = False
            self.progress = msgspec.structs.replace(self.progress, epoch=self.progress.epoch + 1)

    def lost_records(self) -> dict[str, int]:
        """Return, by stream, how many records some sink did not get; another thread may be counting."""
        return dict(Counter(dict(self.dropped)) + Counter(dict(self.writer.lost)))

    def snapshot(self) -> Progress:
        """Return its progress with what its sinks lack by now."""
        gaps = self.writer.incomplete_sinks(include_all=self.closed and bool(self.dropped))
        return msgspec.structs.replace(self.progress, gaps=gaps, dropped=self.lost_records())

    def fail(self, error: Exception) -> None:
        """End its sinks without a commit because of an error."""
        self.writer.failures.append(error)
        self.writer.halt()

    def abandon(self, why: str) -> None:
        """Stop waiting for its sinks, which hang."""
        self.abandoned = True
        self.writer.failures.append(ConnectorError(why))

    def causes(self) -> list[str]:
        """Return why its sinks and steps have failed."""
        return [*map(describe_error, self.writer.failures)] + [one.why for one in self.failures.values()]

    @property
    def ending(self) -> bool:
        """Whether its sinks end once they have the records from before a step failed."""
        return self.stop_at is not None and not self.closed

    def reaches_end(self, at: Mapping[str, int]) -> bool:
        """Return whether its sinks are to end now that topics have been read up to ``at``."""
        if self.stop_at is None or self.closed:
            return False
        if any(at.get(name, batch) < batch for name, batch in self.stop_at.items()):
            return False
        self._end_due = True
        return True

    def accepts(self, topic: str, batch: int) -> bool:
        """Return whether it gets a batch."""
        if self.stop_at is not None and batch >= self.stop_at.get(topic, batch + 1):
            return False
        return not any(
            one.begin.get(topic, batch + 1) <= batch and (one.end is None or batch < one.end.get(topic, batch + 1))
            for one in self.progress.pauses
        )

    def start_at(self, since: Mapping[str, int]) -> None:
        """Accept only batches from these on, of these topics."""
        self.progress = msgspec.structs.replace(self.progress, pauses=[Pause(dict.fromkeys(since, 0), {**since})])

    def end_at(self, at: Mapping[str, int]) -> None:
        """Accept no batches from these on."""
        self.progress = msgspec.structs.replace(self.progress, pauses=[*self.progress.pauses, Pause({**at})])

    def switch_pause(self, border: Mapping[str, int], at: Mapping[str, int]) -> None:
        """Pause, or resume, at these batches; the topics have been read up to ``at``."""
        known = [p for p in self.progress.pauses if p.end is None or any(at.get(t, n) < n for t, n in p.end.items())]
        change = Pause({**border}) if self.paused else Pause(known.pop().begin, {**border})
        self.progress = msgspec.structs.replace(self.progress, pauses=[*known, change])

    @property
    def topics(self) -> dict[str, Subscription]:
        """The subscription to each topic, replaced ones included."""
        return {**dict.fromkeys(self.progress.before, self._merged_subscription()), **self.subscriptions}

    def _merged_subscription(self) -> Subscription:
        merged = Subscription({}, {})
        for one in self.subscriptions.values():
            merged.streams.update(one.streams)
            merged.labels.update(one.labels)
        return merged

    def reassign(self, name: str, before: Iterable[str]) -> None:
        """Subscribe to one new topic instead, after the batches left in the topics ``before``."""
        before = [*dict.fromkeys([*self.progress.before, *before])]
        self.subscriptions = {name: self._merged_subscription()}
        pauses = self.progress.pauses
        if self.paused:
            pauses = [*pauses[:-1], Pause({**pauses[-1].begin, name: 0})]
        self.progress = msgspec.structs.replace(self.progress, pauses=pauses, before=before)

    def drop_replaced(self, read: Collection[str]) -> bool:
        """Unsubscribe from the replaced topics among those ``read`` to the end; returns whether there were any."""
        before = [name for name in self.progress.before if name not in read]
        if before == self.progress.before:
            return False
        pauses = [one for one in self.progress.pauses if one.begin.keys() & {*before, *self.subscriptions}]
        self.progress = msgspec.structs.replace(self.progress, pauses=pauses, before=before)
        return True


def active_subscriptions(subscribers: Iterable[Subscriber]) -> Iterator[tuple[str, Subscription]]:
    """Yield the subscriptions of dataflows that are neither paused nor closed, each with its fragment."""
    for one in subscribers:
        if not one.paused and not one.closed:
            yield from one.subscriptions.items()
