"""Queries are told what is wanted of them, and it is waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.reuse.spark.care import Care
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.making import Made
from riot_ops.reuse.spark.meeting import meeting
from riot_ops.reuse.spark.recipient import Recipient, asked
from riot_ops.reuse.topic import Place

__all__ = ["Telling"]

POLL_SECONDS = 0.025
T = TypeVar("T")
_log = logging.getLogger("riot_ops")


class Telling:
    """What the fragments are told follows from what dataflows and other fragments want of them, and from nothing else.

    Parameters
    ----------
    fragments : mapping of str to Fragment
        Each reads topics of earlier ones alone.
    recipients : mapping of str to Recipient
    care : Care
        Starts again what has failed meanwhile.
    patience_s : float, seconds
        How long something is waited for.
    """

    def __init__(
        self,
        fragments: Mapping[str, Fragment],
        recipients: Mapping[str, Recipient],
        care: Care,
        patience_s: float,
    ) -> None:
        self._fragments, self._recipients, self._care = fragments, recipients, care
        self._patience_s = patience_s

    def refresh(self, fresh: Iterable[Made] = ()) -> dict[str, int]:
        """Tell fragments what is wanted of them now; returns the versions in which that stands."""
        wanted: dict[str, set[str]] = {name: set() for name in self._fragments}
        for name, found in asked(self._recipients.values()):
            wanted[name].update(found.streams)
        fragments = dict(self._fragments)
        for new in fresh:
            for name, found in (one for each in new.wanted.values() for one in each.items()):
                wanted.setdefault(name, set()).update(found.streams)
            if new.fragment is not None:
                fragments[new.fragment.name] = new.fragment
        versions = {}
        for name, fragment in reversed(fragments.items()):
            versions[name], outside = fragment.tell(wanted[name])
            for other, read in fragment.spec.topics.items():
                wanted[other] |= outside & {*read.streams}
        return versions

    def settle(self) -> None:
        """Tell them now, or where that cannot be as soon as it can: what rests is not wanted, and may run on."""
        try:
            self.refresh()
        except RiotError as error:
            self._care.news = True
            _log.warning("queries could not be told yet what is wanted of them: %s", error)

    def begins(self, versions: Mapping[str, int], since: Mapping[str, int]) -> dict[str, tuple[int, Place]]:
        """Wait until fragments do what they were told: from which batches on, at one place of all of them."""
        topics = {name: self._fragments[name].topic for name in since}
        for name in since:
            self._fragments[name].controls.hurry(versions[name])
        why = f"the running queries did not take it up within {self._patience_s:g} s"
        return self.until(lambda: meeting(topics, since, versions), since, lambda: why)

    def until(self, what: Callable[[], T | None], names: Iterable[str], why: Callable[[], str]) -> T:
        """Wait for something that these queries do.

        Raises
        ------
        ConnectorError
            Where it takes too long, or one of them has failed for good.
        """
        until = time.monotonic() + self._patience_s
        while (found := what()) is None:
            self._care.check(names)
            if time.monotonic() > until:
                raise ConnectorError(why())
            time.sleep(POLL_SECONDS)
        return found
