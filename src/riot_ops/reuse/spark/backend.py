"""Shared dataflows on Spark: queries that come and go beside each other."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from riot_ops.core.errors import ConnectorError
from riot_ops.core.paths import local_path, make_folder
from riot_ops.reuse.backend import Coming, apart
from riot_ops.reuse.shared import Removal, Rest
from riot_ops.reuse.spark.bringing import bring, expected, give_up, go_on, switch
from riot_ops.reuse.spark.care import Care, watch
from riot_ops.reuse.spark.carrier import Carrier
from riot_ops.reuse.spark.carriers import Carriers
from riot_ops.reuse.spark.defragment import clusters, have_done, held, joined, one_reader, seed, stood, untidy
from riot_ops.reuse.spark.figures import figures
from riot_ops.reuse.spark.fragment import Fragment, Options, Running
from riot_ops.reuse.spark.left import Left
from riot_ops.reuse.spark.making import Made, brought, check_sources, first_messages, joining, made, reader_of
from riot_ops.reuse.spark.meeting import only, untrimmed, upstream
from riot_ops.reuse.spark.recipient import Progress, Recipient, asked
from riot_ops.reuse.spark.telling import Telling
from riot_ops.reuse.submission import Reads
from riot_ops.runtime.claim import Claim

__all__ = ["FragmentsBackend"]

POLL_SECONDS = 0.05
#: For how long sinks are waited for while queries rest.
LATE_SECONDS = 0.5
_log = logging.getLogger("riot_ops")


class FragmentsBackend:
    """Runs shared dataflows as fragments, each as a query that ``launch`` starts; see :class:`SparkBackend`."""

    reads: Reads = "again"

    def __init__(
        self,
        launch: Callable[..., Running],
        folder: str | Path,
        options: Options,
        fuse: Literal["exact", "coarse"],
        behind_bytes: int,
        patience_s: float,
        tries: int,
        max_queries: int | None = None,
        join: bool = True,
    ) -> None:
        self.folder = local_path(folder, "folder").absolute()
        self.patience_s, self.max_queries, self.join = patience_s, max_queries, join
        self._options, self._fuse = options, fuse
        self._launch: Callable[[Fragment], Running] = functools.partial(launch, options=options)
        make_folder(self.folder / "fragments")
        make_folder(self.folder / "dataflows")
        self._claim = Claim([self.folder])
        #: In the order in which they came: each reads topics of earlier ones alone.
        self._fragments: dict[str, Fragment] = {}
        self._recipients: dict[str, Recipient] = {}
        self._carriers = Carriers[Carrier](behind_bytes, patience_s)
        self._care = Care(self._fragments, self._recipients, self._launch, tries)
        self._telling = Telling(self._fragments, self._recipients, self._care, patience_s)
        #: By step that the manager knows, the fragment that has it; of sinks none.
        self._where: dict[str, str | None] = {}
        try:
            #: What was there before, until it is taken up or goes.
            self._left = Left(self.folder / "fragments", self.folder / "dataflows")
        except BaseException:
            self._claim.release()
            raise
        self._again: list[Coming] | None = None
        self._number = self._left.number
        self._interrupted: list[float] = []  # seconds
        self._left_alone: set[frozenset[str]] = set()  # steps that could not become one query
        self._lock = threading.RLock()
        self._stop = threading.Event()
        watched = self._fragments, self._carriers, self._care, self._telling.refresh, self._lock, self._stop
        self._watch = threading.Thread(target=watch, args=watched, daemon=True, name="riot_ops-reuse-watch")
        self._watch.start()

    # -- actions -----------------------------------------------------------------------------------

    def extend(self, coming: Sequence[Coming]) -> list[dict[str, int]]:
        with self._lock:
            if self._again is not None:
                self._again += coming
                return [dict.fromkeys(submission.sources, 0) for _, submission in coming]
            self._left.forget()
            return self._extend(coming)

    def _extend(self, coming: Sequence[Coming], again: bool = False) -> list[dict[str, int]]:
        """Have newcomers, or such as came before a restart, of which nothing was kept."""
        found: list[Made] = []
        grown: dict[str, Fragment] = {}
        sound = {name: one for name, one in self._fragments.items() if self._care.failure(name) is None}
        for together in apart(coming, self._where.get, lambda reading: reader_of(reading, sound)):
            self._number += 1
            where = self.folder / "fragments" / f"f{self._number}"
            reading = brought(together, {name: grown.get(name, one) for name, one in sound.items()})
            grown |= reading
            known = self._where | {step: name for name, one in reading.items() for step in one.spec.nodes}
            new = made(together, where, known, {**self._fragments, **grown}, opens=not again)
            taken = joining(new, {**self._fragments, **grown}) if self.join else None
            if taken is not None:
                new, grown[taken[1].name] = taken
            elif new.fragment is not None:
                new.fragment.lay_out(self._fuse, self._options.partitions)
            found.append(new)
        fresh = [new.fragment for new in found if new.fragment is not None]
        if not again:
            check_sources(coming, fresh, self._fragments.values(), self._recipients.values())
        before = {name: self._fragments[name] for name in grown}
        for fragment in grown.values():
            fragment.hand_out()
        self._fragments |= grown
        try:
            first = self._launched(coming, found, grown, again)
        except BaseException:
            for name, fragment in grown.items():
                self._fragments[name] = before[name].without(fragment)
            for fragment in fresh:
                self._care.end(fragment)
            self._telling.settle()
            raise
        self._tidy()
        return first

    def _tidy(self) -> None:
        """Have queries become fewer, or smaller, where that is wanted and can be had."""
        wanted = [one.wanted.keys() & self._fragments for one in self._recipients.values()]
        failed = {name for name in self._fragments if self._care.failure(name) is not None}
        group = frozenset[str]()
        try:
            for group in {*untidy(self._fragments, wanted, failed, self._where, self.max_queries)} - self._left_alone:
                self.defragment([group])
        except (Exception, KeyboardInterrupt) as error:  # a second Ctrl-C: dataflows have come or gone all the same
            if not isinstance(error, ConnectorError | KeyboardInterrupt):  # which the next time may not come
                self._left_alone.add(group)
            _log.warning("%d queries run, and could not become fewer or smaller: %s", len(self._fragments), error)

    def _launched(
        self, coming: Sequence[Coming], found: Sequence[Made], grown: Mapping[str, Fragment], again: bool
    ) -> list[dict[str, int]]:
        """Start what is new, each part at one place of all that it reads."""
        recipients: list[Recipient] = []
        begun: list[tuple[list[Recipient], dict[str, int]]] = []
        carriers: list[Carrier] = []
        firsts: dict[str, dict[str, int]] = {}
        above = [upstream(new.above, self._fragments) for new in found]
        with untrimmed({*chain(*above)}, self._fragments) as since, ExitStack() as undo:
            undo.callback(give_up, recipients, carriers, self._carriers)
            before = {name: self._fragments[name].controls.newest() for name in since}
            versions = self._telling.refresh(found)
            # what is forwarded already is there; what others are told to forward has to come down from them
            told = {name for name, version in before.items() if versions[name] != version}
            for new, names in zip(found, above, strict=True):
                begins = self._telling.begins(versions, {name: since[name] for name in names & (new.above | told)})
                if new.fragment is not None:
                    for name in new.fragment.spec.topics:
                        self._fragments[name].topic.join(new.fragment.name, begins[name][0])
                    new.fragment.follow(begins)
                    new.fragment.save()
                begun.append(([], {name: batch for name, (batch, _) in begins.items()}))
                for addition, submission in (one for one in coming if one[1].name in new.wanted):
                    progress = Progress(dict(addition.placed))
                    recipients.append(Recipient(submission, new.wanted[submission.name], progress, again))
                    begun[-1][0].append(recipients[-1])
                    read = self._fragments.values()
                    firsts[submission.name] = first_messages(addition.placed, submission, begins.values(), read)
            fresh = {new.fragment.name: new.fragment for new in found if new.fragment is not None}
            for fragment in fresh.values():
                fragment.query = self._launch(fragment)
            for to, at in begun:
                carriers += bring(self.folder / "dataflows", to, {**self._fragments, **fresh}, at, self._carriers)
            for fragment in grown.values():
                fragment.save()
            undo.pop_all()
        for new in found:
            self._where |= new.where
        self._fragments |= fresh
        self._recipients |= {one.name: one for one in recipients}
        for carrier in carriers:
            carrier.start()
        return [firsts[submission.name] for _, submission in coming]

    def reduce(self, removal: Removal) -> None:
        with self._lock:
            if (gone := self._recipients.pop(removal.name, None)) is not None:
                self._carriers.end(gone)
            self._where = {step: name for step, name in self._where.items() if step not in removal.stopped}
            for fragment in reversed(list(self._fragments.values())):
                read = any(fragment.name in one.spec.topics for one in self._fragments.values())
                if not read and not self._where.keys() & fragment.spec.nodes:
                    self._care.end(self._fragments.pop(fragment.name))
            self._telling.settle()
            self._tidy()

    def settled(self, name: str) -> None:
        self._carriers.settled(name)

    def rest(self, rest: Rest) -> dict[str, int]:
        with self._lock:
            one = self._recipients[rest.name]
            # it does so already, as when it was taken up; or it gets nothing
            if one.paused == rest.paused or one.over or any(map(self._care.failure, one.wanted)):
                return {}
            names = {*one.wanted} if rest.paused else upstream(one.wanted, self._fragments)
            with self._carriers.up_to(one, untrimmed(names, self._fragments)) as since:
                with ExitStack() as undo:
                    undo.callback(self._telling.settle)
                    undo.callback(setattr, one, "paused", one.paused)
                    versions = dict.fromkeys(names, 0)
                    # who reads others may be behind: up to where it comes these forward all, and then rest
                    if not (rest.paused and any(self._fragments[name].spec.topics for name in names)):
                        one.paused = rest.paused
                        versions = self._telling.refresh()
                    begins = self._telling.begins(versions, since)
                    one.paused = rest.paused
                    undo.pop_all()
                with self._carriers.still(one.name) as carrier:
                    carrier.turn_over(one, {name: begins[name][0] for name in one.wanted})
                self._telling.settle()
            return first_messages(one.progress.placed, one.submission, begins.values(), self._fragments.values())

    def defragment(self, groups: Iterable[frozenset[str]]) -> None:
        with self._lock:
            running = {step for step, name in self._where.items() if name is not None}
            wanted = one_reader((group & running for group in groups if group & running), self._fragments)
            for together, old in clusters(wanted, self._fragments):
                self._replaced(together, old)

    def _replaced(self, groups: list[frozenset[str]], old: list[Fragment]) -> None:
        """Have fragments replaced by one for each group of steps."""
        names = {one.name for one in old}
        concerned = [one for one in self._recipients.values() if names & one.wanted.keys()]
        of = self._carriers.of
        fresh: list[Fragment] = []
        blocking = [one.name for one in concerned if one.submission.on_slow == "block"]
        if late := self._carriers.going(names, LATE_SECONDS) or self._carriers.caught_up(blocking, LATE_SECONDS):
            raise ConnectorError(f"the sinks of {', '.join(late)} do not keep up, and others wait for them")
        wanted = {stream for _, found in asked(concerned) for stream in found.streams}
        try:
            for group in groups:
                self._number += 1
                name = f"f{self._number}"
                fresh.append(joined(name, self.folder / "fragments" / name, group, old))
                fresh[-1].lay_out(self._fuse, self._options.partitions)
                fresh[-1].tell(wanted & group)
                fresh[-1].query = self._launch(fresh[-1])  # it waits until it is told where to begin
            with contextlib.suppress(ConnectorError):  # then it takes longer
                self._telling.until(lambda: have_done(fresh, 1), names, lambda: "it is not up")
            begun = time.monotonic()
            held(old, begun + self.patience_s, lambda: self._care.check(names))
            self._carriers.caught_up((one.name for one in concerned if not of[one.name].apart), LATE_SECONDS)
            for one in fresh:
                one.spec.together = [other.name for other in fresh]
                seed(one, old)
            to, joined_by = expected(concerned, fresh, self._carriers)
            for one in fresh:
                one.save()
            self._care.make_way(old)
            for one, group in zip(fresh, groups, strict=True):
                one.tell(wanted & group)  # of which nothing may come any more
                one.begin(*stood(one, old))
        except BaseException:
            for one in fresh:
                self._care.end(one, alone=True)
            self._care.come_back(old)
            self._telling.settle()
            raise
        # from here on the new ones count, whatever happens
        for one in fresh:
            self._where |= dict.fromkeys(one.spec.nodes, one.name)
            self._fragments[one.name] = one
        switch(to, joined_by, self._carriers)
        for gone in reversed(old):
            self._care.end(self._fragments.pop(gone.name))
        self._telling.settle()
        with contextlib.suppress(ConnectorError):
            self._telling.until(lambda: have_done(fresh, 2), [one.name for one in fresh], lambda: "it takes long")
        self._interrupted.append(time.monotonic() - begun)

    # -- after a restart ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def taking_up(self) -> Iterator[None]:
        with self._lock:
            self._again = []
            try:
                yield
                again, self._again = self._again, None
                self._take_up(again)
            finally:
                self._again = None

    def _take_up(self, again: list[Coming]) -> None:
        """Let all go on that was there and is still wanted; what is not goes."""
        self._fragments.update(self._left.fragments(again))
        used = {step for addition, _ in again for step in addition.placed.values()}
        for name, fragment in self._fragments.items():
            self._where |= dict.fromkeys(used & {*fragment.spec.nodes}, name)
        lost: list[Coming] = []
        found: dict[Path, tuple[list[Recipient], dict[str, int]]] = {}
        # what others were replaced by comes behind what is left of them
        replaced = {name: 0 for name, fragment in self._fragments.items() if fragment.spec.replaces}
        for addition, submission in again:
            noted = self._left.carried(submission.name)
            new = made([(addition, submission)], self.folder, self._where, self._fragments, opens=False)
            wanted = new.wanted[submission.name]
            if noted is None or new.fragment is not None or not wanted.keys() <= {**replaced, **noted[1].at}.keys():
                lost.append((addition, submission))
                continue
            self._where |= dict.fromkeys(s for s in addition.placed.values() if s not in self._where)
            one = Recipient(submission, wanted, noted[1].dataflows[submission.name], True, True)
            if replaced_by := wanted.keys() - noted[1].at.keys():
                one.switch(replaced_by.pop(), [name for name in noted[1].at if name in self._left.retired])
            one.let_go({*one.progress.before} - self._left.retired.keys())
            self._recipients[submission.name] = one
            found.setdefault(noted[0], ([], {**replaced, **noted[1].at}))[0].append(one)
        topics = self._left.retired | {name: fragment.topic for name, fragment in self._fragments.items()}
        for file, (to, at) in found.items():
            go_on(file, to, topics, at, self._carriers)
            self._left.taken_up(file)
        carriers = self._carriers.all()
        self._left.forget(only({carrier.mark.reader for carrier in carriers}, self._fragments))
        self._telling.settle()
        for fragment in self._fragments.values():
            self._care.start(fragment)
        self._care.spread()  # before they carry what is not for them any more
        for carrier in carriers:
            carrier.start()
        if lost:
            self._extend(lost, again=True)

    # -- looking -----------------------------------------------------------------------------------

    def between(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def fresh(self, step: str) -> bool:
        return step not in self._where  # what runs may take a record at any moment

    def broken(self, step: str) -> bool:
        name = self._where.get(step)
        return name is not None and (self._care.failure(name) is not None or step in self._fragments[name].silent)

    def running(self) -> set[str]:
        if self._again is not None:
            return self._left.steps()
        return set(self._where)

    def stats(self) -> dict[str, Any]:
        """And ``queries`` that run, ``records`` that each step took, and by dataflow how its sinks do.

        ``rows`` are the records that they got; ``failed`` tells what went wrong; ``dropped`` counts by stream the
        records that some sink did not get, behind a failure as long as they are made; ``slow`` are the bytes that wait
        for sinks, ``unread_bytes`` those that wait in the topic of each query; ``restarts`` counts by dataflow
        how often a query with steps of it has failed and been started again; ``interrupted_s`` are the seconds for
        which each defragmentation kept queries from going on.
        """
        with self._lock:
            found = figures(self._fragments, self._recipients, self._carriers, self._where, self._care.failure)
            return {**found, "interrupted_s": [round(seconds, 3) for seconds in self._interrupted]}

    def micro_batches(self) -> dict[str, int]:
        """How many micro-batches each query has done."""
        return {name: fragment.topic.head().batch + 1 for name, fragment in self._fragments.items()}

    # -- running -----------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all sources have ended, or rest, and all is carried; whether that has come to be."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._care.check(self._fragments)
                if all(f.ended for f in self._fragments.values()) and not self._carriers.behind():
                    return True
            if until is not None and time.monotonic() > until:
                return False
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Stop all queries; what they have done stays in the folder, to go on from."""
        self._stop.set()
        self._watch.join()
        with self._lock, ExitStack() as ending:  # all of it, whatever fails
            ending.callback(self._claim.release)
            for end in (self._carriers.close, *(f.stop for f in self._fragments.values())):
                ending.callback(end)
