"""Somebody looks what queries have done; those that fail are started again, without what has raised."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from riot_ops.core.errors import ConnectorError, exception_text
from riot_ops.reuse.spark.broken import Broken, silenced
from riot_ops.reuse.spark.carriers import Carriers
from riot_ops.reuse.spark.fragment import Fragment, Running
from riot_ops.reuse.spark.recipient import Recipient

__all__ = ["Care", "watch"]

POLL_SECONDS = 0.05

_log = logging.getLogger("riot_ops")


class Care:
    """Looks after the queries of fragments.

    Parameters
    ----------
    fragments : mapping of str to Fragment
    recipients : mapping of str to Recipient
    launch : function
        Starts a fragment's query from its checkpoint.
    tries : int
        How often in a row a query is started again.

    Attributes
    ----------
    news : bool
        Whether there is something of which the fragments are still to be told, such as steps that have been silenced.
    """

    def __init__(
        self,
        fragments: Mapping[str, Fragment],
        recipients: Mapping[str, Recipient],
        launch: Callable[[Fragment], Running],
        tries: int,
    ) -> None:
        self._fragments, self._recipients, self._launch, self._tries = fragments, recipients, launch, tries
        self.news = False

    def start(self, fragment: Fragment) -> None:
        """Have a query go on after a restart; one that cannot is the matter of those whom it concerns."""
        try:
            fragment.query = self._launch(fragment)
        except Exception as problem:  # whatever Spark raises
            self._give_up(fragment, f"{type(problem).__name__}: {exception_text(problem)}")
            users = self._users(fragment)
            _log.error("the query %s of %s cannot go on: %s", fragment.name, users, fragment.failure)

    def end(self, fragment: Fragment, alone: bool = False) -> None:
        """A query that nobody wants goes; what of it cannot be taken away now goes with the next start.

        One that is ``alone`` has not come after all: its topic waits for no reader.
        """
        topics = (self._fragments[name].topic for name in fragment.spec.topics)
        readers = fragment.topic.readers() if alone else ()
        ends: list[Callable[[], None]] = [
            *(partial(fragment.topic.leave, reader) for reader in readers),
            fragment.remove,
            *(partial(topic.leave, fragment.name) for topic in topics),
        ]
        for end in ends:
            try:
                end()
            except Exception as problem:  # whatever Spark or the disk raises
                _log.warning("something is left of the query %s: %s", fragment.name, exception_text(problem))

    def make_way(self, fragments: Iterable[Fragment]) -> None:
        """Stop those, which are held, that have what only one may have: others go on from there."""
        for fragment in fragments:
            if any(source.consumed() for source in fragment.sources.values()):
                fragment.stop()

    def come_back(self, fragments: Iterable[Fragment]) -> None:
        """Nobody goes on from there after all: those that have made way do."""
        for fragment in fragments:
            if fragment.query is None and fragment.failure is None:
                self.start(fragment)

    def revive(self) -> None:
        """Start again what has failed; who has come no further since the last time has fewer tries left."""
        for fragment in self._fragments.values():
            if fragment.query is None or fragment.active or fragment.failure is not None:
                continue
            what = fragment.query.failure() or "it was stopped from outside"
            if not self._broken(fragment) and not self._again(fragment, what):
                continue
            try:
                fragment.query = self._launch(fragment)
            except Exception as problem:  # whatever Spark raises
                self._give_up(fragment, f"{what}; {problem}")
        self.spread()

    def _again(self, fragment: Fragment, what: str) -> bool:
        """Whether a query that has failed may be started once more."""
        head = fragment.topic.head().batch
        fragment.tries = 1 if head > fragment.failed_at else fragment.tries + 1
        fragment.failed_at = head
        users = self._users(fragment)
        if fragment.tries > self._tries:
            if self._broken(fragment, unread=True):
                fragment.tries = 0
                return True
            self._give_up(fragment, what)
            _log.error("the query %s of %s has failed for good: %s", fragment.name, users, what)
            return False
        for one in self._recipients.values():
            one.restarts += fragment.name in one.wanted
        _log.warning("the query %s of %s has failed and is started again: %s", fragment.name, users, what)
        return True

    def _users(self, fragment: Fragment) -> str:
        return ", ".join(sorted(name for name, one in self._recipients.items() if fragment.name in one.wanted))

    def _broken(self, fragment: Fragment, unread: bool = False) -> bool:
        """Whether a query has failed as a step raised, or its source cannot be read, without which it goes on."""
        try:
            found = fragment.raised(unread)
        except ConnectorError as problem:  # then it has failed as any
            _log.warning("what steps of the query %s have raised is not known: %s", fragment.name, problem)
            return False
        what = "cannot be read" if unread else "has raised"
        for step, broken in found.items():
            users = ", ".join(sorted(one.name for one in self._using(fragment, step)))
            _log.warning("the step %s of %s %s, and is left out from now on: %s", step, users, what, broken.why)
        self.news = self.news or bool(found)
        return bool(found)

    def _using(self, fragment: Fragment, step: str) -> list[Recipient]:
        """The dataflows that have a step."""
        wanted = ((one, one.wanted.get(fragment.name)) for one in self._recipients.values())
        return [one for one, found in wanted if found is not None and step in found.labels]

    def spread(self) -> None:
        """Let fragments below, and dataflows, know of steps that have raised."""
        broken = [fragment for fragment in self._fragments.values() if fragment.broken]
        if not broken:
            return
        for fragment in self._fragments.values():
            if lost := self._lost(fragment):
                fragment.breaks(lost)
                self.news = True
        for fragment in broken:
            for step in fragment.broken.keys() & {*fragment.spec.steps}:
                for one in self._using(fragment, step):
                    one.broken.setdefault(step, fragment.broken[step])
                    if one.border is None and one.submission.on_failure == "stop":
                        one.border = self._border(fragment, step, one)

    def _lost(self, fragment: Fragment) -> dict[str, Broken]:
        """What a fragment reads of others of which it has had all that there will ever be."""
        found = {}
        for name, read in fragment.spec.topics.items():
            silent = self._fragments[name].silent
            for stream in silent.keys() & {*read.streams} - fragment.broken.keys():
                head = fragment.topic.head()
                why, roots = silent[stream].why, silent[stream].roots
                if all(head.place.roots.get(root, 0) >= n for root, n in roots.items()):
                    found[stream] = Broken(why, head.batch + 1, head.place.roots)
        return found

    def _border(self, fragment: Fragment, step: str, one: Recipient) -> dict[str, int] | None:
        """By topic, the first batch with nothing of what a dataflow has of a step; None where more may come."""
        steps = [step for other in self._fragments.values() for step in other.steps]
        below = silenced(steps, {step: fragment.broken[step]}).keys()
        border = {}
        for name, wanted in one.wanted.items():
            silent = self._fragments[name].silent
            if not (touched := below & wanted.streams.keys()) <= silent.keys():
                return None
            border[name] = max((silent[stream].batch for stream in touched), default=0)
        return border | {fragment.name: fragment.broken[step].batch}

    def _give_up(self, fragment: Fragment, why: str) -> None:
        """It gives nothing more; those that it reads do not wait for it."""
        fragment.failure = why
        for name in fragment.spec.topics:
            self._fragments[name].topic.leave(fragment.name)

    def failure(self, name: str) -> str | None:
        """Why a fragment gives nothing more, if so: it has failed for good, or one that it reads."""
        if (fragment := self._fragments.get(name)) is None:
            return None  # it was replaced, for whom it concerns
        above = (self.failure(other) for other in fragment.spec.topics)
        return fragment.failure or next((one for one in above if one is not None), None)

    def check(self, names: Iterable[str]) -> None:
        """Raise where one of some fragments has failed for good."""
        self.revive()
        for name in names:
            if (failure := self.failure(name)) is not None:
                raise ConnectorError(f"the query {name} has failed: {failure}")


def watch(
    fragments: Mapping[str, Fragment],
    carriers: Carriers[Any],
    care: Care,
    refresh: Callable[[], object],
    lock: threading.RLock,
    stop: threading.Event,
) -> None:
    """Until it is to stop, tell carriers what is new, and see to queries that have failed and to sinks that hang."""
    seen: dict[str, int] = {}
    turn = 0
    while not stop.wait(POLL_SECONDS):
        turn += 1
        try:
            heads = {name: fragment.topic.stamp() for name, fragment in list(fragments.items())}
            if heads != seen:
                seen = heads
                with carriers.news:
                    carriers.news.notify_all()
            if turn % 10:
                continue
            carriers.look()
            if lock.acquire(blocking=False):
                try:
                    care.revive()
                    if care.news:  # here alone: no action is under way
                        refresh()
                        care.news = False
                finally:
                    lock.release()
        except Exception as error:  # whatever Spark or the disk raises: the next turn tries again
            _log.warning("queries could not be looked after: %s", exception_text(error))
