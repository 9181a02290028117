"""Somebody looks what queries have done; those that fail are started again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from riot_ops.core.errors import ConnectorError
from riot_ops.reuse.spark.carriers import Carriers
from riot_ops.reuse.spark.fragment import Fragment, Running

__all__ = ["Care", "watch"]

POLL_SECONDS = 0.05

_log = logging.getLogger("riot_ops")


class Care:
    """Looks after the queries of fragments.

    Parameters
    ----------
    fragments : mapping of str to Fragment
    launch : function
        Starts a fragment's query from its checkpoint.
    users : function
        The dataflows that a fragment concerns.
    tries : int
        How often in a row a query is started again.
    """

    def __init__(
        self,
        fragments: Mapping[str, Fragment],
        launch: Callable[[Fragment], Running],
        users: Callable[[str], Iterable[str]],
        tries: int,
    ) -> None:
        self._fragments, self._launch, self._users, self._tries = fragments, launch, users, tries

    def revive(self) -> None:
        """Start again what has failed; who has come no further since the last time has fewer tries left."""
        for fragment in self._fragments.values():
            if fragment.query is None or fragment.active or fragment.failure is not None:
                continue
            what = fragment.query.failure() or "it was stopped from outside"
            head = fragment.topic.head().batch
            fragment.tries = 1 if head > fragment.failed_at else fragment.tries + 1
            fragment.failed_at = head
            users = ", ".join(sorted(self._users(fragment.name)))
            if fragment.tries > self._tries:
                self._give_up(fragment, what)
                _log.error("the query %s of %s has failed for good: %s", fragment.name, users, what)
                continue
            _log.warning("the query %s of %s has failed and is started again: %s", fragment.name, users, what)
            try:
                fragment.query = self._launch(fragment)
            except Exception as problem:  # whatever Spark raises
                self._give_up(fragment, f"{what}; {problem}")

    def _give_up(self, fragment: Fragment, why: str) -> None:
        """It gives nothing more; those that it reads do not wait for it."""
        fragment.failure = why
        for name in fragment.spec.topics:
            self._fragments[name].topic.leave(fragment.name)

    def failure(self, name: str) -> str | None:
        """Why a fragment gives nothing more, if so: it has failed for good, or one that it reads."""
        fragment = self._fragments[name]
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
    lock: threading.RLock,
    stop: threading.Event,
) -> None:
    """Until it is to stop, tell carriers what is new, and see to queries that have failed and to sinks that hang."""
    seen: dict[str, int] = {}
    turn = 0
    while not stop.wait(POLL_SECONDS):
        turn += 1
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
            finally:
                lock.release()
