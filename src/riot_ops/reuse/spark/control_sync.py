"""Synchronization of the controls of queries with what dataflows want."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.reuse.spark.alignment import start_batches
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.planner import Placement
from riot_ops.reuse.spark.subscriber import Subscriber, active_subscriptions
from riot_ops.reuse.spark.supervisor import Supervisor
from riot_ops.reuse.topic import UpstreamProgress

__all__ = ["ControlSync"]

POLL_SECONDS = 0.025
T = TypeVar("T")
_log = logging.getLogger("riot_ops")


class ControlSync:
    """Derives the controls of fragments from the subscriptions of dataflows and of other fragments alone.

    Parameters
    ----------
    fragments : mapping of str to Fragment
        Each reads topics of earlier ones only.
    subscribers : mapping of str to Subscriber
    supervisor : Supervisor
        Restarts queries that fail while others wait for them.
    patience_s : float, seconds
        How long to wait for queries.
    """

    def __init__(
        self,
        fragments: Mapping[str, Fragment],
        subscribers: Mapping[str, Subscriber],
        supervisor: Supervisor,
        patience_s: float,
    ) -> None:
        self._fragments, self._subscribers, self._supervisor = fragments, subscribers, supervisor
        self._patience_s = patience_s

    def refresh(self, placements: Iterable[Placement] = ()) -> dict[str, int]:
        """Write the controls of all fragments, those of new placements included; returns the versions."""
        wanted: dict[str, set[str]] = {name: set() for name in self._fragments}
        for name, found in active_subscriptions(self._subscribers.values()):
            wanted[name].update(found.streams)
        fragments = dict(self._fragments)
        for new in placements:
            for name, found in (one for each in new.subscriptions.values() for one in each.items()):
                wanted.setdefault(name, set()).update(found.streams)
            if new.fragment is not None:
                fragments[new.fragment.name] = new.fragment
        versions = {}
        for name, fragment in reversed(fragments.items()):
            versions[name], external = fragment.forward(wanted[name])
            for other, read in fragment.spec.topics.items():
                wanted[other] |= external & {*read.streams}
        return versions

    def try_refresh(self) -> None:
        """Refresh now or, if that fails, as soon as possible; until then, unwanted steps may go on running."""
        try:
            self.refresh()
        except RiotError as error:
            self._supervisor.refresh_due = True
            _log.warning("the controls of queries could not be written yet: %s", error)

    def await_start(
        self, versions: Mapping[str, int], since: Mapping[str, int]
    ) -> dict[str, tuple[int, UpstreamProgress]]:
        """Wait until fragments apply these versions; returns the aligned batches from which they do."""
        topics = {name: self._fragments[name].topic for name in since}
        for name in since:
            self._fragments[name].controls.expedite(versions[name])
        why = f"the running queries did not apply the change within {self._patience_s:g} s"
        return self.wait_for(lambda: start_batches(topics, since, versions), since, lambda: why)

    def wait_for(self, condition: Callable[[], T | None], names: Iterable[str], why: Callable[[], str]) -> T:
        """Wait until a condition on these queries returns a value.

        Raises
        ------
        ConnectorError
            With ``why`` if it takes too long, or if one of the queries has failed for good.
        """
        until = time.monotonic() + self._patience_s
        while (found := condition()) is None:
            self._supervisor.check(names)
            if time.monotonic() > until:
                raise ConnectorError(why())
            time.sleep(POLL_SECONDS)
        return found
