"""Supervision of the queries of fragments: a query that fails is restarted, without the step that raised."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from riot_ops.core.errors import ConnectorError, exception_text
from riot_ops.reuse.spark.dispatcher_pool import DispatcherPool
from riot_ops.reuse.spark.failures import StepFailure, disabled
from riot_ops.reuse.spark.fragment import Fragment, RunningQuery
from riot_ops.reuse.spark.subscriber import Subscriber

__all__ = ["Supervisor", "watch"]

POLL_SECONDS = 0.05

_log = logging.getLogger("riot_ops")


class Supervisor:
    """Supervises the queries of fragments.

    Parameters
    ----------
    fragments : mapping of str to Fragment
    subscribers : mapping of str to Subscriber
    launch : function
        Starts a fragment's query from its checkpoint.
    tries : int
        How often in a row a query is restarted without progress.

    Attributes
    ----------
    refresh_due : bool
        Whether the controls of fragments must be refreshed, as steps have been disabled.
    """

    def __init__(
        self,
        fragments: Mapping[str, Fragment],
        subscribers: Mapping[str, Subscriber],
        launch: Callable[[Fragment], RunningQuery],
        tries: int,
    ) -> None:
        self._fragments, self._subscribers = fragments, subscribers
        self.launch, self.tries = launch, tries
        self.refresh_due = False

    def start(self, fragment: Fragment) -> None:
        """Start a query after a restart; if that fails, only the dataflows that use it fail."""
        try:
            fragment.query = self.launch(fragment)
        except Exception as problem:  # Spark may raise anything
            self._fail(fragment, f"{type(problem).__name__}: {exception_text(problem)}")
            users = self._users(fragment)
            _log.error("the query %s of %s cannot be restarted: %s", fragment.name, users, fragment.failure)

    def remove(self, fragment: Fragment, with_readers: bool = False) -> None:
        """Remove a query that is not used; the next start removes what cannot be removed now.

        By default its topic stays until its readers have left; ``with_readers`` removes them too.
        """
        topics = (self._fragments[name].topic for name in fragment.spec.topics)
        readers = fragment.topic.readers() if with_readers else ()
        actions: list[Callable[[], None]] = [
            *(partial(fragment.topic.leave, reader) for reader in readers),
            fragment.remove,
            *(partial(topic.leave, fragment.name) for topic in topics),
        ]
        for action in actions:
            try:
                action()
            except Exception as problem:  # Spark or the disk may raise anything
                _log.warning("the query %s was not removed completely: %s", fragment.name, exception_text(problem))

    def stop_exclusive(self, fragments: Iterable[Fragment]) -> None:
        """Stop the queries, of fragments on hold, whose sources allow one consumer: their replacements read these."""
        for fragment in fragments:
            if any(source.consumed_resources() for source in fragment.sources.values()):
                fragment.stop()

    def restart_stopped(self, fragments: Iterable[Fragment]) -> None:
        """Restart the queries that :meth:`stop_exclusive` has stopped, as their replacements have failed."""
        for fragment in fragments:
            if fragment.query is None and fragment.failure is None:
                self.start(fragment)

    def restart_failed(self) -> None:
        """Restart failed queries; a query without progress since its last failure has one try less."""
        for fragment in self._fragments.values():
            if fragment.query is None or fragment.active or fragment.failure is not None:
                continue
            cause = fragment.query.failure() or "it was stopped from outside"
            if not self._disable_failed(fragment) and not self._may_restart(fragment, cause):
                continue
            try:
                fragment.query = self.launch(fragment)
            except Exception as problem:  # Spark may raise anything
                self._fail(fragment, f"{cause}; {problem}")
        self.propagate_failures()

    def _may_restart(self, fragment: Fragment, cause: str) -> bool:
        """Count a try, and return whether a failed query is restarted."""
        head = fragment.topic.head().batch
        fragment.tries = 1 if head > fragment.failed_at else fragment.tries + 1
        fragment.failed_at = head
        users = self._users(fragment)
        if fragment.tries > self.tries:
            if self._disable_failed(fragment, unread=True):
                fragment.tries = 0
                return True
            self._fail(fragment, cause)
            _log.error("the query %s of %s has failed for good: %s", fragment.name, users, cause)
            return False
        for one in self._subscribers.values():
            one.restarts += fragment.name in one.subscriptions
        _log.warning("the query %s of %s has failed and is restarted: %s", fragment.name, users, cause)
        return True

    def _users(self, fragment: Fragment) -> str:
        return ", ".join(sorted(name for name, one in self._subscribers.items() if fragment.name in one.subscriptions))

    def _disable_failed(self, fragment: Fragment, unread: bool = False) -> bool:
        """Disable the steps that have raised, or whose sources cannot be read; returns whether there were any."""
        try:
            found = fragment.disable_failed(unread)
        except ConnectorError as problem:  # then it counts as a failure of the query
            _log.warning("the errors of steps of the query %s cannot be read: %s", fragment.name, problem)
            return False
        verb = "cannot be read" if unread else "has raised"
        for step, failure in found.items():
            users = ", ".join(sorted(one.name for one in self._users_of_step(fragment, step)))
            _log.warning("the step %s of %s %s, and is disabled from now on: %s", step, users, verb, failure.why)
        self.refresh_due = self.refresh_due or bool(found)
        return bool(found)

    def _users_of_step(self, fragment: Fragment, step: str) -> list[Subscriber]:
        subscriptions = ((one, one.subscriptions.get(fragment.name)) for one in self._subscribers.values())
        return [one for one, found in subscriptions if found is not None and step in found.labels]

    def propagate_failures(self) -> None:
        """Pass failures of steps on to downstream fragments and to dataflows."""
        failed = [fragment for fragment in self._fragments.values() if fragment.failures]
        if not failed:
            return
        for fragment in self._fragments.values():
            if inputs := self._exhausted_inputs(fragment):
                fragment.disable(inputs)
                self.refresh_due = True
        for fragment in failed:
            for step in fragment.failures.keys() & {*fragment.spec.steps}:
                for one in self._users_of_step(fragment, step):
                    one.failures.setdefault(step, fragment.failures[step])
                    if one.stop_at is None and one.submission.on_failure == "stop":
                        one.stop_at = self._stop_batches(fragment, step, one)

    def _exhausted_inputs(self, fragment: Fragment) -> dict[str, StepFailure]:
        """Return the streams from other fragments that are disabled there and read to the end here."""
        found = {}
        for name, read in fragment.spec.topics.items():
            disabled_streams = self._fragments[name].disabled_streams
            for stream in disabled_streams.keys() & {*read.streams} - fragment.failures.keys():
                head = fragment.topic.head()
                why, roots = disabled_streams[stream].why, disabled_streams[stream].roots
                if all(head.place.roots.get(root, 0) >= n for root, n in roots.items()):
                    found[stream] = StepFailure(why, head.batch + 1, head.place.roots)
        return found

    def _stop_batches(self, fragment: Fragment, step: str, one: Subscriber) -> dict[str, int] | None:
        """Return, by topic, the first batch without output of a failed step for a dataflow; None if more may follow."""
        steps = [step for other in self._fragments.values() for step in other.steps]
        affected = disabled(steps, {step: fragment.failures[step]}).keys()
        batches = {}
        for name, subscription in one.subscriptions.items():
            disabled_streams = self._fragments[name].disabled_streams
            if not (streams := affected & subscription.streams.keys()) <= disabled_streams.keys():
                return None
            batches[name] = max((disabled_streams[stream].batch for stream in streams), default=0)
        return batches | {fragment.name: fragment.failures[step].batch}

    def _fail(self, fragment: Fragment, why: str) -> None:
        """Mark a fragment as failed for good; the fragments that it reads do not wait for it any more."""
        fragment.failure = why
        for name in fragment.spec.topics:
            self._fragments[name].topic.leave(fragment.name)

    def failure(self, name: str) -> str | None:
        """Return why a fragment or an upstream fragment has failed permanently; None if it runs."""
        if (fragment := self._fragments.get(name)) is None:
            return None  # it was replaced
        above = (self.failure(other) for other in fragment.spec.topics)
        return fragment.failure or next((one for one in above if one is not None), None)

    def check(self, names: Iterable[str]) -> None:
        """Restart failed queries, and raise if one of these fragments has failed for good."""
        self.restart_failed()
        for name in names:
            if (failure := self.failure(name)) is not None:
                raise ConnectorError(f"the query {name} has failed: {failure}")


def watch(
    fragments: Mapping[str, Fragment],
    dispatchers: DispatcherPool,
    supervisor: Supervisor,
    refresh: Callable[[], object],
    lock: threading.RLock,
    stop: threading.Event,
) -> None:
    """Notify dispatchers of new batches, and check for failed queries and stalled sinks, until ``stop`` is set."""
    seen: dict[str, int] = {}
    turn = 0
    while not stop.wait(POLL_SECONDS):
        turn += 1
        try:
            heads = {name: fragment.topic.head_version() for name, fragment in list(fragments.items())}
            if heads != seen:
                seen = heads
                dispatchers.notify()
            if turn % 10:
                continue
            dispatchers.check_stalled()
            if lock.acquire(blocking=False):
                try:
                    supervisor.restart_failed()
                    if supervisor.refresh_due:  # only here, where no action is in progress
                        refresh()
                        supervisor.refresh_due = False
                finally:
                    lock.release()
        except Exception as error:  # Spark or the disk may raise anything; the next turn tries again
            _log.warning("the queries could not be supervised: %s", exception_text(error))
