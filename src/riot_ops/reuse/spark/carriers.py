"""Who carries to which dataflows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from riot_ops.core.errors import RiotError
from riot_ops.reuse.spark.bookmark import Bookmark
from riot_ops.reuse.spark.recipient import Recipient

__all__ = ["Carriers", "noted_later"]

POLL_SECONDS = 0.02

_log = logging.getLogger("riot_ops")


@contextmanager
def noted_later(name: str) -> Iterator[None]:
    """What a carrier cannot note now is noted with its next turn: queries do so already."""
    try:
        yield
    except RiotError as error:
        _log.warning("how far the sinks of %s are is noted later: %s", name, error)


class Carrying(Protocol):
    """What carries, as far as others have to do with it."""

    name: str
    lock: threading.RLock
    ended: threading.Event
    recipients: list[Recipient]
    on_slow: str
    mark: Bookmark

    def end(self, one: Recipient) -> None:
        """A dataflow has gone: who carries what there still is for it is noted as leaving."""

    def look(self) -> None:
        """See to sinks that hang."""

    def behind(self) -> bool:
        """Whether something waits to be carried."""

    def waiting(self) -> dict[str, int]:
        """By dataflow, the bytes that wait to be carried."""

    def stop(self) -> None:
        """Carry nothing more, as soon as that may be."""

    def close(self) -> None:
        """Let go; another may go on."""


C = TypeVar("C", bound=Carrying)


@dataclass(frozen=True)
class Carriers(Generic[C]):
    """By dataflow, who carries to it; what tells them that there is something, and how far sinks may be behind."""

    behind_bytes: int
    patience_s: float
    news: threading.Condition = field(default_factory=threading.Condition)
    of: dict[str, C] = field(default_factory=dict)
    #: Those that carry what there still was for dataflows that have gone.
    leaving: set[C] = field(default_factory=set)

    def all(self) -> set[C]:
        """Each of them once."""
        return {*self.of.values()}

    @contextmanager
    def still(self, name: str) -> Iterator[C]:
        """Nothing is carried to a dataflow meanwhile."""
        while True:
            with (carrier := self.of[name]).lock:
                if self.of[name] is carrier:  # meanwhile it may have got one of its own
                    yield carrier
                    return

    @contextmanager
    def up_to(self, one: Recipient, since: AbstractContextManager[dict[str, int]]) -> Iterator[dict[str, int]]:
        """Of topics nothing is carried to a dataflow meanwhile that comes from now on, which ``since`` tells.

        What is there already is: queries may wait for that.
        """
        with ExitStack() as undo:
            with self.still(one.name):
                one.limit = since_then = undo.enter_context(since)
            undo.callback(setattr, one, "limit", {})
            yield since_then

    def end(self, one: Recipient) -> None:
        """A dataflow has gone: what is there is carried, and its sinks end, in their own time."""
        with self.still(one.name) as carrier:
            try:
                if one in carrier.recipients:
                    carrier.end(one)
                else:  # it could not get a carrier of its own, and gets nothing any more
                    one.delivery.halt()
            except (RiotError, OSError) as error:
                _log.warning("%s was removed, but not all is in order: %s", one.name, error)
                if one in carrier.recipients:  # nobody carries to it any more
                    carrier.recipients.remove(one)
                    one.fail(error)
            del self.of[one.name]

    def settled(self, name: str) -> None:
        """Wait for those that carry to a dataflow that has gone, but not for ever."""
        until = time.monotonic() + self.patience_s
        for carrier in [one for one in [*self.leaving] if one.name == name]:
            carrier.ended.wait(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Let go of all, also of those that come to be meanwhile, as a sink takes long just now."""
        errors: list[RiotError] = []
        closed: set[C] = set()
        while fresh := (self.all() | self.leaving) - closed:
            for carrier in fresh - self.leaving:
                carrier.stop()
            for carrier in fresh:
                try:
                    carrier.close()
                except RiotError as error:  # the others are let go of too
                    errors.append(error)
            closed |= fresh
        if errors:
            raise errors[0]

    def look(self) -> None:
        """See to sinks that hang."""
        for carrier in self.all() | {*self.leaving}:
            carrier.look()

    def going(self, topics: Set[str], seconds: float) -> list[str]:
        """Dataflows that have gone, for whose sinks queries with one of these topics wait, and for longer than so."""
        found = (one for one in {*self.leaving} if one.on_slow == "block" and topics & one.mark.topics.keys())
        return [one.name for one in found if not one.ended.wait(seconds)]

    def caught_up(self, names: Iterable[str], seconds: float) -> list[str]:
        """Wait until some dataflows have what is there, but not for ever; returns those that have not."""
        until = time.monotonic() + seconds
        late = [*names]
        while late := [name for name in late if self.of[name].behind()]:
            if time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
        return late

    def waiting(self) -> dict[str, int]:
        """By dataflow, the bytes that wait to be carried."""
        return {name: n for one in self.all() for name, n in one.waiting().items()}

    def behind(self) -> bool:
        """Whether something waits to be carried."""
        return any(one.behind() for one in self.all())
