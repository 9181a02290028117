"""The dispatchers of a back end: dataflows that read the same topics share one."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from riot_ops.core.errors import RiotError
from riot_ops.reuse.spark.dispatcher import DispatchContext, Dispatcher, deferring_save
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.progress import DispatcherProgress
from riot_ops.reuse.spark.subscriber import Subscriber
from riot_ops.reuse.topic import Topic

__all__ = ["DispatcherPool"]

POLL_SECONDS = 0.02

_log = logging.getLogger("riot_ops")


@dataclass(frozen=True)
class DispatcherPool(DispatchContext):
    """The dispatchers of a back end, with the state that they share."""

    def all(self) -> set[Dispatcher]:
        """Return the dispatchers of running dataflows."""
        return {*self.by_dataflow.values()}

    # -- assignment --------------------------------------------------------------------------------

    def assign(
        self,
        folder: Path,
        subscribers: Sequence[Subscriber],
        fragments: Mapping[str, Fragment],
        at: Mapping[str, int],
    ) -> list[Dispatcher]:
        """Assign new subscribers, which start at these batches, to dispatchers; returns those that are new.

        Subscribers share a dispatcher if they have the same ``on_slow`` and a topic in common.
        """
        groups: dict[str, list[Subscriber]] = {}
        for one in subscribers:
            groups.setdefault(one.submission.on_slow, []).append(one)
        fresh = []
        for on_slow, group in groups.items():
            topics = {name: fragments[name].topic for one in group for name in one.subscriptions}
            starts = {name: at.get(name, 0) for name in topics}
            candidates = (one for one in self.all() if one.on_slow == on_slow and topics.keys() & one.cursor.topics)
            if not any(one.add(group, topics, starts) for one in candidates if not one.dedicated):
                fresh.append(self.resume(folder / f"{uuid.uuid4().hex}.json", group, topics, at))
        return fresh

    def resume(
        self, path: Path, subscribers: Sequence[Subscriber], known: Mapping[str, Topic], at: Mapping[str, int]
    ) -> Dispatcher:
        """Make a dispatcher with this progress file, which continues at these batches."""
        topics = {name: known[name] for one in subscribers for name in one.topics}
        positions = {name: at.get(name, 0) for name in topics}
        progress = DispatcherProgress(positions, {one.name: one.progress for one in subscribers})
        return Dispatcher(path, topics, progress, subscribers, self)

    def join_replacements(
        self, subscribers: Iterable[Subscriber], fresh: Sequence[Fragment]
    ) -> tuple[dict[str, tuple[str, Topic]], set[tuple[str, str]]]:
        """Join the topics of new fragments as the readers that :meth:`reassign` will need.

        Returns, by dataflow, the fragment that runs its steps from now on with its topic; and the joined fragments,
        each with the reader.
        """
        owners = {step: one for one in fresh for step in one.spec.nodes}
        replacements, joined = {}, set()
        for one in subscribers:
            owner = next(owners[step] for step in one.progress.placed.values() if step in owners)
            reader = self.by_dataflow[one.name].cursor.reader
            replacements[one.name] = owner.name, owner.topic
            joined.add((owner.name, reader))
            owner.topic.join(reader, 0)
        return replacements, joined

    def reassign(self, replacements: Mapping[str, tuple[str, Topic]], joined: Iterable[tuple[str, str]]) -> None:
        """Switch dataflows to new topics, as returned by :meth:`join_replacements`."""
        left = dict(replacements)
        while left:
            dispatcher = self.by_dataflow[next(iter(left))]
            with dispatcher.lock:  # until it is held, a subscriber may move to a dedicated dispatcher
                own = {name: left.pop(name) for name in [*left] if self.by_dataflow[name] is dispatcher}
                dispatcher.reassign(own)
        topics = dict(replacements.values())
        for fragment, reader in joined:
            if not any(one.cursor.reader == reader and fragment in one.cursor.topics for one in self.all()):
                topics[fragment].leave(reader)

    def release(self, subscribers: Iterable[Subscriber], dispatchers: Iterable[Dispatcher]) -> None:
        """Release subscribers whose submission has failed, and their new dispatchers."""
        for one in subscribers:
            one.writer.halt()
            if (dispatcher := self.by_dataflow.pop(one.name, None)) is not None:
                with deferring_save(dispatcher.name):
                    dispatcher.remove(one)
        for dispatcher in dispatchers:
            with suppress(RiotError, OSError):  # a restart ignores progress of unknown dataflows
                dispatcher.delete()

    # -- pause and removal -------------------------------------------------------------------------

    @contextmanager
    def locked(self, name: str) -> Iterator[Dispatcher]:
        """Hold the lock of a dataflow's dispatcher."""
        while True:
            with (dispatcher := self.by_dataflow[name]).lock:
                if self.by_dataflow[name] is dispatcher:  # else the subscriber was moved while this thread waited
                    yield dispatcher
                    return

    @contextmanager
    def holding_new_batches(
        self, one: Subscriber, since: AbstractContextManager[dict[str, int]]
    ) -> Iterator[dict[str, int]]:
        """Hold back the batches of topics from those on that ``since`` yields; earlier ones are delivered.

        Queries may be waiting for the earlier ones.
        """
        with ExitStack() as undo:
            with self.locked(one.name):
                one.limits = limits = undo.enter_context(since)
            undo.callback(setattr, one, "limits", {})
            yield limits

    def drain(self, one: Subscriber) -> None:
        """Remove a dataflow; its dispatcher delivers the remaining records and ends the sinks in the background."""
        with self.locked(one.name) as dispatcher:
            try:
                if one in dispatcher.subscribers:
                    dispatcher.drain(one)
                else:  # it got no dedicated dispatcher, and receives nothing any more
                    one.writer.halt()
            except (RiotError, OSError) as error:
                _log.warning("%s was removed, but its sinks did not get all records: %s", one.name, error)
                if one in dispatcher.subscribers:
                    dispatcher.subscribers.remove(one)
                    one.fail(error)
            del self.by_dataflow[one.name]

    def await_drained(self, name: str) -> None:
        """Wait for the sinks of a removed dataflow, at most ``patience_s``."""
        until = time.monotonic() + self.patience_s
        for dispatcher in [one for one in [*self.draining] if one.name == name]:
            dispatcher.drained.wait(max(0.0, until - time.monotonic()))

    def still_draining(self, topics: Set[str], seconds: float) -> list[str]:
        """Return the removed dataflows whose sinks queries wait for, of these topics, each after some seconds."""
        found = (one for one in {*self.draining} if one.on_slow == "block" and topics & one.cursor.topics.keys())
        return [one.name for one in found if not one.drained.wait(seconds)]

    # -- all dispatchers ---------------------------------------------------------------------------

    def close(self) -> None:
        """Close all dispatchers, also those created while a slow sink is being moved to its own."""
        errors: list[RiotError] = []
        closed: set[Dispatcher] = set()
        while fresh := (self.all() | self.draining) - closed:
            for dispatcher in fresh - self.draining:
                dispatcher.stop()
            for dispatcher in fresh:
                try:
                    dispatcher.close()
                except RiotError as error:  # still close the others
                    errors.append(error)
            closed |= fresh
        if errors:
            raise errors[0]

    def check_stalled(self) -> None:
        """Abandon sinks that hang while others wait for them."""
        for dispatcher in self.all() | {*self.draining}:
            dispatcher.check_stalled()

    def await_delivery(self, names: Iterable[str], seconds: float) -> list[str]:
        """Wait until dataflows have all available records; returns those that lag after some seconds."""
        until = time.monotonic() + seconds
        late = [*names]
        while late := [name for name in late if self.by_dataflow[name].lags()]:
            if time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
        return late

    def pending_bytes(self) -> dict[str, int]:
        """Return the bytes by dataflow that are not delivered yet."""
        return {name: n for one in self.all() for name, n in one.pending_bytes().items()}

    def lags(self) -> bool:
        """Return whether any dispatcher has batches to deliver, or sinks to end."""
        return any(one.lags() for one in self.all())
