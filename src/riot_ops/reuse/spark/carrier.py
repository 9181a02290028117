"""What brings dataflows their records: reads the topics that they share, and hands on to the sinks of each."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.spark.bookmark import Bookmark
from riot_ops.reuse.spark.control import read_json, write_json
from riot_ops.reuse.spark.dealing import bounded, bytes_of, dealt
from riot_ops.reuse.spark.recipient import Pass, Progress, Recipient, Taken
from riot_ops.reuse.spark.source import APART
from riot_ops.reuse.topic import Marker, Topic

__all__ = ["Carried", "Carrier", "Carriers"]

IDLE_SECONDS = 0.5
#: About so many bytes go to the sinks in one epoch.
EPOCH_BYTES = 32 << 20
#: For how long one dataflow may hold up the others of its carrier, once: then it has a carrier of its own.
GRACE_SECONDS = 0.5


class Carried(msgspec.Struct):
    """How far a carrier is: the next batch of each topic, and what it carries to."""

    at: dict[str, int]
    dataflows: dict[str, Progress]


@dataclass(frozen=True)
class Carriers:
    """By dataflow, who carries to it; what tells them that there is something, and how far sinks may be behind."""

    behind_bytes: int
    patience_s: float
    news: threading.Condition = field(default_factory=threading.Condition)
    of: dict[str, Carrier] = field(default_factory=dict)

    def all(self) -> set[Carrier]:
        """Each of them once."""
        return {*self.of.values()}

    @contextmanager
    def still(self, name: str) -> Iterator[Carrier]:
        """Nothing is carried to a dataflow meanwhile."""
        while True:
            with (carrier := self.of[name]).lock:
                if self.of[name] is carrier:  # meanwhile it may have got one of its own
                    yield carrier
                    return

    def waiting(self) -> dict[str, int]:
        """By dataflow, the bytes that wait to be carried."""
        return {name: n for one in self.all() for name, n in one.waiting().items()}

    def behind(self) -> bool:
        """Whether something waits to be carried."""
        return any(one.behind() for one in self.all())


class Carrier:
    """Carries records of topics to the sinks of dataflows: one thread, and one reader of each topic, for all of them.

    What each takes of a turn is an epoch of its sinks, which is committed; then it is noted how far that was. An epoch
    that was not noted comes again, and sinks that replace what they have of it have it once.

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
        among: Carriers,
        thread: threading.Thread | None = None,
    ) -> None:
        self.file, self.recipients = file, list(recipients)
        self.on_slow = self.recipients[0].submission.on_slow
        self.mark = Bookmark(("" if self.on_slow == "block" else APART) + file.stem, topics, state.at)
        self._noted = state
        self._among = among
        self.apart = thread is not None
        self._begun = time.monotonic() if self.apart else None
        self._stop = threading.Event()
        self.lock = threading.RLock()
        write_json(file, state)
        for one in self.recipients:
            among.of[one.name] = self
        self._name = f"riot_ops-to-{self.recipients[0].name}"
        self._thread = thread or threading.Thread(target=self._run, daemon=True, name=self._name)

    @staticmethod
    def noted(file: Path) -> Carried:
        """What is noted in a file."""
        return read_json(file, Carried)

    # -- carrying ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to carry."""
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.turn():
                with self._among.news:
                    self._among.news.wait(IDLE_SECONDS)
            if not self.recipients:  # each has a carrier of its own
                self.forget()
                return

    def turn(self) -> bool:
        """Carry what there is, up to a bound; whether there was anything."""
        with self.lock:
            if self.over:
                return False
            self._begun = time.monotonic()
            try:
                if [one for one in self.recipients if one.ends(self.mark.at)]:
                    self._note()
                return not self.over and self._turn()
            except RiotError as error:
                self._fail(error)
                return False
            finally:
                self._begun = None
                if self.over:
                    self.leave()  # nobody waits for it

    @property
    def over(self) -> bool:
        """Whether no sink takes anything any more."""
        return all(one.over for one in self.recipients)

    def _turn(self) -> bool:
        found = self._next()
        if not found:
            return False
        given = self._records(found, self.recipients)
        end = {name: found[name][-1][0] + 1 if name in found else at for name, at in self.mark.at.items()}
        self._hand_out([(one, given[one.name]) for one in self.recipients if given[one.name]], self.mark.at, end)
        self._done(end, any(given.values()))
        return True

    def _done(self, end: Mapping[str, int], taken: bool = True) -> None:
        """Let the topics go on without what has been carried."""
        self.mark.read(end)
        if taken:
            self._note()
        if not all(one.given_up for one in self.recipients):
            self.mark.release()

    def _note(self) -> None:
        self._noted = Carried(dict(self.mark.at), {one.name: one.progress for one in self.recipients})
        write_json(self.file, self._noted)

    def _fail(self, error: RiotError) -> None:
        for one in self.recipients:
            one.fail(error)

    # -- what there is -----------------------------------------------------------------------------

    def _next(self) -> dict[str, list[tuple[int, Marker]]]:
        """The batches of a turn."""
        found: dict[str, list[tuple[int, Marker]]] = {}
        size = 0
        for name in self.mark.topics:
            wanted = self._streams(name)
            most = None if self.on_slow == "block" else self._among.behind_bytes
            for number, marker in bounded(name, self.mark.waiting(name), self.recipients, wanted, most):
                if size and size + marker.size > EPOCH_BYTES:
                    break
                size += bytes_of(marker, wanted)
                found.setdefault(name, []).append((number, marker))
        return found

    def _streams(self, name: str) -> set[str]:
        """What somebody wants of a topic."""
        return {ERRORS_STREAM}.union(*(one.wanted[name].streams for one in self.recipients if name in one.wanted))

    def _records(
        self, found: Mapping[str, list[tuple[int, Marker]]], recipients: Sequence[Recipient]
    ) -> dict[str, Taken]:
        """The records of some batches, by dataflow and by its own names."""
        given: dict[str, Taken] = {one.name: [] for one in recipients}
        for name, markers in found.items():
            for one, own, batch in dealt(name, self.mark.topics[name], markers, recipients):
                given[one.name].append((own, batch))
        return given

    def waiting(self) -> dict[str, int]:
        """By dataflow, the bytes that wait to be carried."""
        found: dict[str, int] = {}
        for name, topic in self.mark.topics.items():
            markers = topic.there(self.mark.at[name]) if not self.over else []
            for one in self.recipients:
                if name in one.wanted and not one.over:
                    wanted = {*one.wanted[name].streams, ERRORS_STREAM}
                    found[one.name] = found.get(one.name, 0) + sum(bytes_of(marker, wanted) for marker in markers)
        return found

    def behind(self) -> bool:
        """Whether something waits to be carried."""
        return not self.over and (self.mark.behind() or any(one.ending for one in self.recipients))

    # -- sinks that take long ----------------------------------------------------------------------

    def _hand_out(
        self, given: Sequence[tuple[Recipient, Taken]], begin: Mapping[str, int], end: Mapping[str, int]
    ) -> None:
        """Let each take what it is given; who takes too long has a carrier of its own from now on."""
        if len(self.recipients) == 1:
            for one, records in given:
                one.take(records)
            return
        while given:
            hands = Pass(given, self._name)
            if hands.through(GRACE_SECONDS, lambda one, thread: self._parted(one, thread, begin, end)):
                return
            given = list(hands.left)

    def _parted(
        self, one: Recipient, thread: threading.Thread, begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Callable[[], None]:
        """Leave a recipient to itself, with the thread that it keeps; returns what that does when it is free."""
        self.recipients.remove(one)
        at = {name: begin[name] for name in one.wanted}
        state = Carried(at, {one.name: self._noted.dataflows[one.name]})
        topics = {name: self.mark.topics[name] for name in one.wanted}
        file = self.file.with_name(f"{uuid.uuid4().hex}.json")
        try:
            own = Carrier(file, topics, state, [one], self._among, thread)
        except RiotError as error:
            one.given_up = True
            one.delivery.failures.append(error)
            return lambda: None
        return lambda: own._free(end)

    def _free(self, end: Mapping[str, int]) -> None:
        """Go on with the thread that was kept, behind what kept it."""
        with self.lock:
            self._begun = None
            if not self.over:
                try:
                    self._done(end)
                except RiotError as error:
                    self._fail(error)
            if self.over:
                self.leave()
        self._run()

    def look(self) -> None:
        """Whoever takes nothing for too long is not waited for any more."""
        begun = self._begun
        late = begun is not None and time.monotonic() - begun > self._among.patience_s
        if late and self.on_slow == "block" and len(self.recipients) == 1 and not self.over:
            [one] = self.recipients
            one.given_up = True
            why = f"its sinks took nothing for {self._among.patience_s:g} s, while others waited for them"
            one.delivery.failures.append(ConnectorError(why))
            self.leave()

    # -- dataflows come, pause, and go -------------------------------------------------------------

    def take_in(self, recipients: Sequence[Recipient], topics: Mapping[str, Topic], at: Mapping[str, int]) -> None:
        """Carry to newcomers too, from these batches on; what the others have had of them already they get now."""
        with self.lock:
            for one in recipients:
                one.begin_with({name: at[name] for name in one.wanted})
            for name, topic in topics.items():
                self.mark.add(name, topic, at[name])
            self.recipients += recipients
            self._among.of.update(dict.fromkeys((one.name for one in recipients), self))
            self._note()
            had = {
                name: [(n, topic.marker(n)) for n in topic.batches(at[name]) if n < self.mark.at[name]]
                for name, topic in topics.items()
            }
            given = self._records(had, recipients)
            self._hand_out([(one, given[one.name]) for one in recipients if given[one.name]], at, self.mark.at)
            self._note()

    def drop(self, one: Recipient) -> None:
        """A newcomer has not come after all."""
        with self.lock:
            if one in self.recipients:
                self.recipients.remove(one)
                self._fit()

    def switch(self, to: Mapping[str, tuple[str, Topic]]) -> None:
        """What these dataflows want comes from new topics from now on; the ones before have been carried."""
        with self.lock:
            for one in self.recipients:
                if one.name in to:
                    name, topic = to[one.name]
                    one.switch(name)
                    self.mark.add(name, topic, 0, held=not self.over)
            self._fit()

    def _fit(self) -> None:
        """Have the topics that somebody wants, and note that."""
        wanted = {name for one in self.recipients for name in one.wanted}
        gone = self.mark.keep(wanted.__contains__)
        self._note()
        for topic in gone:
            topic.leave(self.mark.reader)

    def turn_over(self, one: Recipient, border: Mapping[str, int]) -> None:
        """Nothing is for a dataflow, or all is again, from these batches of its topics on."""
        with self.lock:
            one.turn_over(border, self.mark.at)
            self._note()

    def end(self, one: Recipient) -> None:
        """A dataflow has gone: what is there is carried, and its sinks end, if they take anything."""
        if self.recipients == [one]:
            if self.halt():
                while self.turn():
                    pass
                one.delivery.close()
            self.forget()
            return
        until = {name: topic.head().batch for name, topic in self.mark.topics.items()}
        while not self.mark.up_to(until) and self.turn():
            pass
        with self.lock:  # meanwhile it may have got a carrier of its own
            here = self._among.of[one.name] is self
            if here:
                self.recipients.remove(one)
                self._fit()
        if here:
            one.delivery.close()
        else:
            self._among.of[one.name].end(one)

    def halt(self) -> bool:
        """Carry nothing more for now; False where a sink keeps its thread."""
        self._stop.set()
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
        """Let go; it can go on later from where it was."""
        if self.halt():
            for one in self.recipients:
                one.delivery.halt()

    def forget(self) -> None:
        """Leave nothing behind."""
        self.file.unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Want nothing of the topics."""
        self.mark.leave()
