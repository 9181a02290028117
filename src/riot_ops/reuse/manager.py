"""The manager: dataflows come, pause and go, and what is equal in them runs once."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.interrupts import held_back
from riot_ops.core.paths import local_path
from riot_ops.dataflow import Dataflow
from riot_ops.reuse.backend import Backend, Coming, NullBackend, take_back
from riot_ops.reuse.identity import Piece
from riot_ops.reuse.log import ActionLog, Journal
from riot_ops.reuse.missing import Rebind
from riot_ops.reuse.past import past, shortened
from riot_ops.reuse.reports import Explanation, Removed, Submitted, explained
from riot_ops.reuse.request import Checked, Request, checked, looked_at
from riot_ops.reuse.saving import Savings
from riot_ops.reuse.shared import Removal, Shared
from riot_ops.reuse.shown import Shown
from riot_ops.reuse.state import as_before, dataflows_of, state_of
from riot_ops.reuse.submission import described
from riot_ops.reuse.warm import check_past

__all__ = ["POLICIES", "ReuseManager"]

POLICIES = ("always", "stateless", "bounded_warm")


class ReuseManager(Shown):
    """Runs dataflows of many users, and each distinct step of them once.

    Parameters
    ----------
    backend : Backend, default NullBackend()
        What runs them.
    policy : "always", "stateless" or "bounded_warm", default "always"
        Whether a newcomer shares steps whose records depend on what came before: always; only those that have seen no
        record yet; or also those whose results reach back only so far, such as windows.
    log : path, optional
        File for the actions. A manager over a log that is there takes up its dataflows again; a log is of one manager.
    functions : mapping of str to function, optional
        The functions of dataflows in the log or in a saved state, as for :meth:`riot_ops.Dataflow.from_json`.
    rebind : function, optional
        ``rebind(name, flow)`` gives sources and sinks of a dataflow that is taken up again. One of which they cannot be
        opened gets nothing, and ``stats()`` says why; the others go on.
    clock : function, default time.monotonic
        The time in seconds, for what is saved per second.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops.reuse import ReuseManager
    >>> def smooth(name, window):
    ...     flow = ro.Dataflow(name)
    ...     kalman = flow.source("city", schema={"value": "double"}).to(ro.tasks.KalmanFilter(), id="kalman")
    ...     return flow.sink("out", kalman.to(ro.tasks.MovingAverage(window=window), id="average"))
    >>> manager = ReuseManager()
    >>> _ = manager.submit(smooth("a", 5))
    >>> print(manager.submit(smooth("b", 10)))
    b: 2 of 4 steps run already
      city: city.0, with a
      kalman: kalman_filter.1, with a
      average: new
      out: new
    >>> manager.remove("a").stopped
    ('moving_average.2', 'out.3')
    """

    def __init__(
        self,
        backend: Backend | None = None,
        policy: Literal["always", "stateless", "bounded_warm"] = "always",
        *,
        log: str | Path | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        rebind: Rebind | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if policy not in POLICIES:
            raise ConfigError(f"policy must be {', '.join(POLICIES)}, got {policy!r}{did_you_mean(policy, POLICIES)}")
        self.backend: Backend = NullBackend() if backend is None else backend
        self.policy = policy
        self._shared = Shared()
        self._again = functions or {}, rebind, self.backend.reads
        self._flows = {}
        self._lock = threading.RLock()
        self._journal = Journal()
        if log is None:
            self._check_free(())
        else:
            opened = ActionLog(local_path(log, "log"))
            try:
                self._replay(opened)
            except BaseException:
                opened.close()
                raise
            self._journal = Journal(opened)
        self._savings = Savings(self.backend.stats(), clock)

    # -- actions -----------------------------------------------------------------------------------

    def submit(
        self,
        flow: Dataflow,
        sources: Any = None,
        sinks: Any = None,
        *,
        name: str | None = None,
        owner: str | None = None,
        fold: bool = False,
        on_slow: Literal["detach", "drop_oldest", "block"] = "detach",
        on_failure: Literal["detach", "stop"] = "detach",
        flag_warm: bool = False,
    ) -> Submitted:
        """Run a dataflow, and of it only what does not run yet.

        Parameters
        ----------
        sources, sinks
            As for :meth:`riot_ops.Dataflow.run`. The null back end needs none: a source then is the stream that its
            node names.
        name : str, default the dataflow's
            By which it is removed; no other that runs may have it.
        owner : str, optional
            Whose it is, for those who look.
        fold : bool, default False
            Whether steps of it that do the same may become one.
        on_slow : "detach", "drop_oldest" or "block", default "detach"
            What happens when its sinks do not keep up, and the queue before them is full
            (:class:`~riot_ops.reuse.Limits`). ``detach``: it goes on in its own time from where it is, and what is
            ahead of it waits in files. ``drop_oldest``: what has waited longest is dropped, and counted. ``block``: the
            others wait for it; but not for sinks that take nothing any more.
        on_failure : "detach" or "stop", default "detach"
            What happens when a sink fails, a step raises or a source cannot be read. ``detach``: that branch gets
            nothing more, its others go on. ``stop``: all of its sinks end.
        flag_warm : bool, default False
            Whether its sinks get, in place of each stream ``NAME``, a stream ``NAME.warm`` with one more field,
            ``warm``: false until all windows above have been filled with what came since ``first``. What is warm rests
            on nothing that came before.

        Raises
        ------
        ConfigError
            See :mod:`riot_ops.reuse.errors`; nothing has changed.
        EnactError
            Where the back end failed; nothing has changed.
        KeyboardInterrupt
            When it is done, for a Ctrl-C since it began; a second one breaks it off.
        """
        choices: dict[str, Any] = {"on_slow": on_slow, "on_failure": on_failure, "flag_warm": flag_warm}
        return self.submit_all([Request(flow, sources, sinks, name=name, owner=owner, fold=fold, **choices)])[0]

    def submit_all(self, requests: Iterable[Request]) -> list[Submitted]:
        """Run several dataflows as one action: all of them come, or none.

        They share what they have in common as if they had come one by one, and what is new with them begins together:
        on Spark as one query, or as many as have nothing in common. It raises as :meth:`submit` does.

        Examples
        --------
        >>> import riot_ops as ro
        >>> from riot_ops.reuse import Request, ReuseManager
        >>> def above(name, limit):
        ...     flow = ro.Dataflow(name)
        ...     task = ro.tasks.RangeFilter(by=None, bounds={"value": (limit, 100)})
        ...     return flow.sink("out", flow.source("city", schema={"value": "double"}).to(task, id="filter"))
        >>> manager = ReuseManager()
        >>> [one.group for one in manager.submit_all(Request(above(f"d{i}", i)) for i in range(3))]
        [0, 0, 0]
        >>> manager.stats()["steps"], manager.stats()["fragments"]
        (7, 1)
        """
        requests = [*requests]
        moves = self.policy == "always" and not any(getattr(one, "flag_warm", False) for one in requests)
        with self._lock, ExitStack() as still:
            asked = self._asked(requests)  # which may take long
            if not moves:
                still.enter_context(self.backend.between())
            coming = self._planned(requests, asked)
            if not coming:
                return []
            what = self._described(coming)
            with held_back() as check, self._journal.acting("submit", what):
                firsts = self.backend.extend(coming)
                self._journal.enacted(lambda: take_back(self.backend, coming))
                found = []
                for (addition, submission), first in zip(coming, firsts, strict=True):
                    answer = explained(addition, self._shared)
                    group = self._shared.add(addition)
                    self._flows[submission.name] = submission
                    found.append(Submitted(**vars(answer), group=group, first=first))
        check()
        return found

    def remove(self, name: str) -> Removed:
        """End a dataflow, and the steps that nobody else uses.

        What has come for it by now its sinks still get; others may act while that is waited for, and nobody waits for
        sinks that take long.
        """
        with self._lock, held_back() as check:
            self._known(name)
            removal = self._shared.removal(name)
            with self._journal.acting("remove", name):
                self.backend.reduce(removal)
                self._shared.remove(removal)
                del self._flows[name]
                self._journal.enacted()
        check()
        self.backend.settled(name)
        return Removed(name, removal.stopped, removal.kept)

    def pause(self, name: str) -> dict[str, int]:
        """Let a dataflow rest: its sinks get nothing, and steps that nobody else uses see nothing, until it resumes.

        Returns by source the first message that it does not see any more, as the source numbers them; all before that
        comes to its sinks. Empty where it rests already, or has failed.
        """
        return self._rest(name, True)

    def resume(self, name: str) -> dict[str, int]:
        """Let a dataflow that rests go on; returns by source the first message that it sees again."""
        return self._rest(name, False)

    def _rest(self, name: str, paused: bool) -> dict[str, int]:
        with self._lock, held_back() as check:
            self._known(name)
            if (name in self._shared.paused) == paused:
                return {}
            rest = self._shared.rest(name, paused)
            with self._journal.acting("pause" if paused else "resume", name):
                border = self.backend.rest(rest)
                self._shared.apply_rest(rest)
                self._journal.enacted()
        check()
        return border

    def defragment(self) -> None:
        """Have each group of steps that hang together run in one fragment."""
        with self._lock, held_back() as check:
            groups = [frozenset(group.steps) for _, group in sorted(self._shared.groups.items())]
            with self._journal.acting("defragment", None):
                self.backend.defragment(groups)
                self._journal.enacted()
        check()

    def explain(
        self, flow: Dataflow, sources: Any = None, sinks: Any = None, *, fold: bool = False, flag_warm: bool = False
    ) -> Explanation:
        """What :meth:`submit` would share; nothing changes."""
        with self._lock:
            name = getattr(flow, "name", None)
            while name in self._flows:
                name += "'"
            asked = [looked_at(Request(flow, sources, sinks, name=name, fold=fold, flag_warm=flag_warm))]
            [(addition, _)] = self._planned(asked, checked(asked, self._flows, self.backend.reads))
            return explained(addition, self._shared)

    # -- as data -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All dataflows with the steps that they have, as JSON-able data, for :meth:`restore`."""
        with self._lock:
            return state_of(self._flows.values(), self._shared, self.policy)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up the dataflows of a state, all or none; of this manager, nothing may run yet."""
        with self._lock:
            if self._flows:
                raise ConfigError(f"a state is restored before anything runs, but {len(self._flows)} dataflows do")
            dataflows = dataflows_of(state, self.policy)
            if not (coming := as_before(dataflows, self._shared, *self._again, whole=True)):
                return
            books = copy.deepcopy(self._shared)  # which are empty
            with held_back() as check:
                try:
                    with self._journal.acting("submit", dataflows):
                        try:
                            self._take_up(coming, [what["name"] for what in dataflows if what["paused"]])
                        except BaseException:
                            take_back(self.backend, coming)
                            raise
                        self._journal.enacted(lambda: take_back(self.backend, coming))
                except BaseException:
                    self._shared, self._flows = books, {}
                    raise
        check()

    def _take_up(self, coming: Sequence[Coming], paused: Iterable[str]) -> None:
        """Have dataflows go on with the steps that they had."""
        with self.backend.taking_up():
            held = self.backend.running()
            again = [(replace(one, new=tuple(s for s in one.new if s.id not in held)), of) for one, of in coming]
            if again:
                self.backend.extend(again)
        for addition, submission in coming:
            self._shared.add(addition)
            self._flows[submission.name] = submission
        for name in paused:
            rest = self._shared.rest(name, True)
            self.backend.rest(rest)
            self._shared.apply_rest(rest)

    def _replay(self, log: ActionLog) -> None:
        """Bring books and back end to where the log ends."""
        before = past(log.actions)
        self._check_free([*before.steps, *before.begun])
        self._shared.taken(before.steps)
        self._take_up(as_before(before.dataflows.values(), self._shared, *self._again), before.paused)
        if before.woken is not None:
            self.backend.rest(self._shared.rest(before.woken, False))
        if lost := self.backend.running() - set(self._shared.steps):
            self.backend.reduce(Removal("", tuple(sorted(lost))))
        if before.outcome is not None:
            log.note(before.outcome)
        log.shorten(shortened(self.state(), before.steps))

    def close(self) -> None:
        """End the back end; the log stays."""
        with self._lock:
            self.backend.close()
            self._journal.close()

    # -- what actions have in common ---------------------------------------------------------------

    def _check_free(self, known: Iterable[str]) -> None:
        """Raise where the back end runs something else: steps with the ids of its own would be taken for these."""
        others = self.backend.running()
        if others and others.isdisjoint(known):
            raise ConfigError(
                f"the back end runs {len(others)} steps of another manager, such as {min(others)}: go on with that, "
                "or use a back end of its own"
            )

    def _asked(self, requests: Sequence[Request]) -> Checked:
        """What is asked for. Before the first record of an iterator is taken, all else that is refused has been."""
        looked = [looked_at(one) for one in requests]
        found = checked(looked, self._flows, self.backend.reads)
        if all(one is given for one, given in zip(looked, requests, strict=True)):
            return found
        self._described(self._planned(looked, found))
        return checked(requests, self._flows, self.backend.reads)

    def _described(self, coming: Sequence[Coming]) -> list[dict[str, Any]] | None:
        """Dataflows as the log keeps them, if there is one."""
        if self._journal.log is None:
            return None
        return [described(submission, addition.placed) for addition, submission in coming]

    def _planned(self, requests: Sequence[Request], found: Checked) -> list[Coming]:
        """All further checks, and what would change."""
        additions = self._shared.additions({name: pieces for name, (_, pieces) in found.items()}, self._allows)
        new = {step.id for one in additions for step in one.new}
        for request, one in zip(requests, additions, strict=True):
            if request.flag_warm:
                check_past(request.flow, one.reused, lambda step: step in new or self.backend.fresh(step))
        return [(one, submission) for one, (submission, _) in zip(additions, found.values(), strict=True)]

    def _allows(self, piece: Piece, step: str) -> bool:
        if self.backend.broken(step):
            return False
        shared = self.policy == "always" or not piece.stateful or (self.policy == "bounded_warm" and piece.bounded)
        return shared or self.backend.fresh(step)
