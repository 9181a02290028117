"""What brings dataflows their records: reads the topics that they share, and hands on to the sinks of each."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from riot_ops.core.errors import RiotError
from riot_ops.reuse.spark.bookmark import Bookmark
from riot_ops.reuse.spark.carriers import Carriers, noted_later
from riot_ops.reuse.spark.dealing import due, gathered, skip, waiting
from riot_ops.reuse.spark.recipient import Carried, Noted, Pass, Recipient, Taken
from riot_ops.reuse.spark.source import APART
from riot_ops.reuse.topic import Marker, Topic

__all__ = ["Carrier"]

IDLE_SECONDS = 0.5
POLL_SECONDS = 0.02
#: For how long one dataflow may hold up the others of its carrier, once: then it has a carrier of its own.
GRACE_SECONDS = 0.5

_log = logging.getLogger("riot_ops")


class Carrier:
    """Carries records of topics to the sinks of dataflows: one thread, and one reader of each topic, for all of them.

    What each takes of a turn is an epoch of its sinks, which is committed; then it is noted how far that was. An epoch
    that was not noted comes again, and sinks that replace what they have of it have it once. Whoever acts needs its
    lock: one that is ``apart`` has it only between two writes, any other for a grace at most, once for each sink.

    Parameters
    ----------
    file : path
        Where it is noted.
    topics : mapping of str to Topic
        By fragment.
    state : Carried
    recipients : sequence of Recipient
        Those that it carries to; with the same ``on_slow``.
    among : Carriers
        Where it is noted who carries to whom.
    thread : Thread, optional
        The one that carries; by default it has one of its own.
    """

    def __init__(
        self,
        file: Path,
        topics: Mapping[str, Topic],
        state: Carried,
        recipients: Sequence[Recipient],
        among: Carriers[Carrier],
        thread: threading.Thread | None = None,
    ) -> None:
        self.recipients = list(recipients)
        self.on_slow = self.recipients[0].submission.on_slow
        self._noted = Noted(file, state)
        try:
            self.mark = Bookmark(("" if self.on_slow == "block" else APART) + file.stem, topics, state.at)
        except BaseException:
            self._noted.forget()
            raise
        self._among = among
        self.apart = thread is not None
        #: Since when a sink that is alone with its thread has taken nothing.
        self._begun = time.monotonic() if self.apart else None
        self._stop = threading.Event()
        #: Where a dataflow has gone, up to which batches of its topics it still gets all; and whether it has.
        self.until: dict[str, int] | None = None
        self.ended = threading.Event()
        #: Where that ends which a sink that is alone has in hand.
        self._ahead: Mapping[str, int] = {}
        self._counting = threading.Lock()
        self._known = 0  # failures, when it has gone
        self.lock = threading.RLock()
        for one in self.recipients:
            among.of[one.name] = self
        self.name = self.recipients[0].name
        self._thread = thread or self._new_thread()

    # -- carrying ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to carry."""
        self._thread.start()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, daemon=True, name=f"riot_ops-to-{self.name}")

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.until is not None and (self.over or self.mark.up_to(self.until)):
                self._finish()
                return
            if not self.turn():
                with self._among.news:
                    self._among.news.wait(IDLE_SECONDS if self.until is None else POLL_SECONDS)
            with self.lock:
                if not self.recipients:  # each has a carrier of its own
                    self.forget()
                    return

    def turn(self) -> bool:
        """Carry what there is, up to a bound; whether there was anything."""
        try:
            with self.lock:
                if self.over:
                    self._skip()
                    return False
                if self._noted.owed and not self._settle():
                    return False  # what is not noted comes again: of what comes behind it a sink might have a part
                ending = [one for one in self.recipients if one.ends(self.mark.at)]
                found = {} if ending else self._next()
                if not found and not ending:
                    return False
                given = gathered(self.mark.topics, found, self.recipients)
                end = {name: found[name][-1][0] + 1 if name in found else at for name, at in self.mark.at.items()}
                if not self.apart:
                    takes = [one for one in self.recipients if given[one.name] or one in ending]
                    self._hand_out([(one, given[one.name]) for one in takes], end)
                    self._done(end, bool(takes))
                    return True
                [one] = self.recipients
                self._ahead, self._begun = end, time.monotonic()
            one.take(given[one.name])
            self._go_on(end, bool(given[one.name] or ending))
            return True
        except RiotError as error:
            if self.over:
                self.mark.leave()  # what cannot be counted
            else:
                self._fail(error)
            return False
        finally:
            self._begun = None

    def _skip(self) -> None:
        """Count what there is for who takes nothing any more, so that nobody waits for it; needs no lock."""
        with self._counting:
            skip(self.mark, self.recipients)
            self._settle()

    @property
    def over(self) -> bool:
        """Whether no sink takes anything any more."""
        return all(one.over for one in self.recipients)

    def _done(self, end: Mapping[str, int], taken: bool = True) -> None:
        """Let the topics go on without what has been carried."""
        self.mark.read(end)
        for one in self.recipients:
            one.counted()
        self._settle(taken)

    def _settle(self, changed: bool = True) -> bool:
        return self._noted.settle(self.mark, self.recipients, changed)

    def _fail(self, error: RiotError) -> None:
        for one in self.recipients:
            one.fail(error)

    # -- what there is -----------------------------------------------------------------------------

    def _next(self) -> dict[str, list[tuple[int, Marker]]]:
        """The batches of a turn."""
        self._let_go()
        return due(self.mark, self.recipients, None if self.on_slow == "block" else self._among.behind_bytes)

    def _let_go(self) -> None:
        """Want nothing more of topics that others have replaced, and that have been read."""
        read = {name for one in self.recipients for name in one.progress.before if not self.mark.unread(name)}
        if any([one.let_go(one.progress.before if one.over else read) for one in self.recipients]):
            self._fit()

    def waiting(self) -> dict[str, int]:
        """By dataflow, the bytes that wait to be carried."""
        return {} if self.over else waiting(self.mark, self.recipients)

    def behind(self) -> bool:
        """Whether something waits to be carried."""
        return not self.over and (self.mark.behind() or any(one.ending for one in self.recipients))

    # -- sinks that take long ----------------------------------------------------------------------

    def _hand_out(
        self,
        given: Sequence[tuple[Recipient, Taken]],
        end: Mapping[str, int],
        begin: Mapping[str, int] | None = None,
    ) -> None:
        """Let each take what it is given; who takes too long has a carrier of its own from now on."""
        since = self.mark.at if begin is None else begin
        while given:
            hands = Pass(given, f"riot_ops-to-{self.name}")
            if hands.through(GRACE_SECONDS, lambda one, thread: self._parted(one, thread, since, end)):
                return
            given = list(hands.left)

    def _parted(
        self, one: Recipient, thread: threading.Thread, begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Callable[[], None]:
        """Leave a recipient to itself, with the thread that it keeps; returns what that does when it is free."""
        try:
            own = self._own(one, begin, thread)
        except RiotError as error:
            one.give_up(str(error))
            return lambda: None
        finally:
            self.recipients.remove(one)
        own._ahead = {name: end[name] for name in own.mark.at}  # noqa: SLF001
        if self._stop.is_set():
            own.stop()
        return lambda: own.free(end)

    def _own(self, one: Recipient, begin: Mapping[str, int], thread: threading.Thread | None = None) -> Carrier:
        """A carrier for one alone, which goes on from there."""
        state = Carried({name: begin[name] for name in one.topics}, {one.name: one.stands()})
        topics = {name: self.mark.topics[name] for name in one.topics}
        return Carrier(self._noted.beside(), topics, state, [one], self._among, thread)

    def free(self, end: Mapping[str, int]) -> None:
        """Go on with the thread that was kept, behind what kept it."""
        try:
            self._go_on(end)
        except RiotError as error:
            self._fail(error)
        self._run()

    def _go_on(self, end: Mapping[str, int], taken: bool = True) -> None:
        """Behind what the sink that is alone has taken, or not, if nobody has waited for it."""
        with self.lock:
            self._begun = None
            if self.over:
                self.mark.read(end)  # what it did not get of it is counted
            else:
                self._done(end, taken)

    def look(self) -> None:
        """Whoever takes nothing for too long is not waited for any more; needs no lock, as who acts may wait for it."""
        begun = self._begun
        late = begun is not None and time.monotonic() - begun > self._among.patience_s
        if not late or self._stop.is_set() or not (self.on_slow == "block" or self.until is not None):
            return
        if not self.over:
            self._lost(f"took nothing for {self._among.patience_s:g} s")
            for one in self.recipients:
                one.give_up(f"its sinks took nothing for {self._among.patience_s:g} s, while others waited for them")
            self.mark.read(self._ahead)  # what it has in hand it may still take
        try:
            if self.until is None:
                self._skip()
            else:
                self.mark.leave()
                self.ended.set()
        except RiotError:
            self.mark.leave()

    # -- dataflows come, pause, and go -------------------------------------------------------------

    def take_in(self, recipients: Sequence[Recipient], topics: Mapping[str, Topic], at: Mapping[str, int]) -> bool:
        """Carry to newcomers too, from these batches on; what the others have had of them already they get now.

        False where it carries to nobody any more.
        """
        with self.lock:
            if self.over:
                return False
            for one in recipients:
                one.begin_with({name: at[name] for name in one.wanted})
            for name, topic in topics.items():
                self.mark.add(name, topic, at[name])
            self.recipients += recipients
            self._among.of.update(dict.fromkeys((one.name for one in recipients), self))
            self._noted.write(self.mark.at, self.recipients)
            had = {
                name: [(n, marker) for n, marker in topic.left(at[name]) if n < self.mark.at[name]]
                for name, topic in topics.items()
            }
            given = gathered(topics, had, recipients)
            self._hand_out([(one, given[one.name]) for one in recipients if given[one.name]], self.mark.at, at)
            self._done(self.mark.at)
            return True

    def drop(self, one: Recipient) -> None:
        """A newcomer has not come after all."""
        with self.lock:
            if one in self.recipients:
                self.recipients.remove(one)
                self._fit()

    def switch(self, to: Mapping[str, tuple[str, Topic]]) -> None:
        """What these dataflows want comes from new topics, behind what they have not taken yet of the ones before."""
        with self.lock:
            for one in self.recipients:
                if one.name in to:
                    name, topic = to[one.name]
                    one.switch(name, one.wanted)
                    self.mark.add(name, topic, 0)
            with noted_later(self.name):
                if self.over:
                    self._skip()
                self._let_go()
                self._settle()

    def _fit(self) -> None:
        """Have the topics that somebody wants, and note that."""
        wanted = {name for one in self.recipients for name in one.topics}
        gone = self.mark.keep(wanted.__contains__)
        try:
            self._settle()
        finally:
            for topic in gone:
                topic.leave(self.mark.reader)

    def turn_over(self, one: Recipient, border: Mapping[str, int]) -> None:
        """Nothing is for a dataflow, or all is again, from these batches of its topics on."""
        with self.lock:
            one.turn_over(border, self.mark.at)
            with noted_later(self.name):
                self._settle()

    def end(self, one: Recipient) -> None:
        """A dataflow has gone: one that carries to it alone brings it what is there, and ends its sinks then."""
        if self.recipients != [one]:
            own = self._own(one, self.mark.at)
            self.recipients.remove(one)
            with own.lock:
                own.end(one)
            self._fit()
            return
        until = {name: topic.head().batch for name, topic in self.mark.topics.items()}
        one.end({name: batch + 1 for name, batch in until.items()})
        self._known = len(one.delivery.failures)
        self._noted.forget()
        self.until, self.apart, self.name = until, True, one.name
        self._among.leaving.add(self)
        if not self._thread.is_alive():
            self._thread = self._new_thread()
            self.start()
        with self._among.news:
            self._among.news.notify_all()

    def _finish(self) -> None:
        """All is carried to a dataflow that has gone."""
        self._begun = time.monotonic()
        try:
            for one in self.recipients:
                (one.delivery.halt if one.given_up else one.delivery.close)()
                for error in one.delivery.failures[self._known :] if not one.given_up else ():
                    self._lost(f"failed: {error}")
            self.forget()
        finally:
            self._begun = None
            self._among.leaving.discard(self)
            self.ended.set()

    def _lost(self, why: str) -> None:
        """Say what nobody will ask for any more."""
        if self.until is not None:
            waits = sum(self.waiting().values())
            _log.warning("the sinks of %s, which was removed, %s; %d bytes still waited", self.name, why, waits)

    def stop(self) -> None:
        """Carry nothing more for now."""
        self._stop.set()

    def halt(self) -> bool:
        """The same, and wait for it; False where a sink keeps its thread."""
        self.stop()
        with self._among.news:
            self._among.news.notify_all()
        if self._thread.is_alive():
            self._thread.join(0 if all(one.given_up for one in self.recipients) else self._among.patience_s)
        if self._thread.is_alive():
            for one in self.recipients:
                one.given_up = True
            return False
        return True

    def close(self) -> None:
        """Let go; it can go on later from where it was. What has gone gets what there is for it, if it takes it."""
        if self.until is not None and not self.ended.wait(self._among.patience_s):
            self._lost("did not take all before the end")
        if self.halt():
            for one in self.recipients:
                one.delivery.halt()

    def forget(self) -> None:
        """Leave nothing behind."""
        self._noted.forget()
        self.mark.leave()
