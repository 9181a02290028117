"""The manager: submits, pauses and removes dataflows, and runs their common steps once."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from riot_ops.core.errors import ConfigError, RiotError, StateError, did_you_mean, exception_text
from riot_ops.core.interrupts import defer_interrupt
from riot_ops.core.paths import local_path
from riot_ops.dataflow import Dataflow
from riot_ops.graph.diagram import mermaid, svg
from riot_ops.graph.graph import Graph
from riot_ops.reuse.backend import Backend, NullBackend, roll_back
from riot_ops.reuse.errors import UnknownDataflowError
from riot_ops.reuse.ledger import Ledger, Removal
from riot_ops.reuse.log import ActionLog, Journal, compacted_actions, replay
from riot_ops.reuse.reports import (
    Explanation,
    Removed,
    Savings,
    SavingsMeter,
    Submitted,
    explain_addition,
    format_savings,
    format_summary,
    running_graph,
    sharing_counts,
)
from riot_ops.reuse.saved_state import Rebind, dump_state, parse_state, recreate_deployments
from riot_ops.reuse.signature import StepIdentity
from riot_ops.reuse.submission import (
    CheckedRequests,
    Deployment,
    Request,
    Submission,
    check_requests,
    describe_submission,
    without_iterators,
)
from riot_ops.reuse.usage import Usage, UsageMeter
from riot_ops.reuse.warm_up import check_warmable

__all__ = ["POLICIES", "ReuseManager"]

_log = logging.getLogger("riot_ops")

POLICIES = ("always", "stateless", "bounded_warm")


class ReuseManager:
    """Adds, changes and removes dataflows while others run, and runs each distinct step of them once.

    To change a dataflow, submit the changed one under another name, then remove the old one: steps that both have keep
    running with their state.

    Parameters
    ----------
    backend : Backend, default NullBackend()
        Runs the steps.
    policy : "always", "stateless" or "bounded_warm", default "always"
        Which stateful steps a new dataflow shares: all; only those that have seen no record yet; or also those whose
        results depend on a bounded past, such as windows.
    log : path, optional
        File for the actions, of this manager alone. A manager over an existing log resumes its dataflows.
    functions : mapping of str to function, optional
        The functions of dataflows in the log or in a saved state, as for :meth:`riot_ops.Dataflow.from_json`.
    rebind : function, optional
        ``rebind(name, flow)`` returns the sources and sinks of a dataflow that resumes after a restart. If they cannot
        be opened, this dataflow gets nothing, and ``stats()`` says why; the others continue.
    clock : function, default time.monotonic
        Returns the time in seconds, for the savings per second.

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
        self.ledger = Ledger()
        self._recreate_args = functions or {}, rebind, self.backend.reads
        #: The running dataflows, in the order of their submission.
        self._flows: dict[str, Submission] = {}
        self._lock = threading.RLock()
        self.journal = Journal()
        if log is None:
            self._check_unused(())
        else:
            opened = ActionLog(local_path(log, "log"))
            try:
                self._replay(opened)
            except BaseException:
                opened.close()
                raise
            self.journal = Journal(opened)
        self._savings = SavingsMeter(self.backend.stats(), clock)
        self._usage = UsageMeter(self.backend.record_counts())

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
        """Run a dataflow, adding only the steps that do not run yet.

        Parameters
        ----------
        sources, sinks
            As for :meth:`riot_ops.Dataflow.run`. The null back end needs none: a source then is the stream named by its
            node.
        name : str, default the dataflow's
            Unique name of the dataflow, for :meth:`remove` and the other actions.
        owner : str, optional
            The user, for reports.
        fold : bool, default False
            Whether equal steps within the dataflow may become one.
        on_slow : "detach", "drop_oldest" or "block", default "detach"
            What happens when its sinks are slow and their queue is full (:class:`~riot_ops.reuse.Limits`). ``detach``:
            further records wait in files, and the sinks take them at their own pace. ``drop_oldest``: the oldest
            records are dropped and counted. ``block``: the other dataflows wait, unless the sinks take nothing at all.
        on_failure : "detach" or "stop", default "detach"
            What happens when a sink fails, a step raises or a source cannot be read. ``detach``: the branch gets
            nothing more, the other branches continue. ``stop``: all of the dataflow's sinks end.
        flag_warm : bool, default False
            Whether its sinks get, instead of each stream ``NAME``, a stream ``NAME.warm`` with a further field
            ``warm``. It is false until records since ``first`` have filled all windows upstream; a warm record does
            not depend on earlier ones.

        Raises
        ------
        ConfigError
            See :mod:`riot_ops.reuse.errors`; nothing has changed.
        EnactError
            If the back end failed; nothing has changed.
        KeyboardInterrupt
            After Ctrl-C, when the action is done; a second Ctrl-C aborts it.
        """
        options: dict[str, Any] = {"on_slow": on_slow, "on_failure": on_failure, "flag_warm": flag_warm}
        return self.submit_all([Request(flow, sources, sinks, name=name, owner=owner, fold=fold, **options)])[0]

    def submit_all(self, requests: Iterable[Request]) -> list[Submitted]:
        """Run several dataflows as one action, all or none.

        They share steps as if submitted one after the other, and their new steps begin together: on Spark as one query,
        or as several that have nothing in common. Raises as :meth:`submit` does.

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
            asked = self._check(requests)  # sources may take long to open
            if not moves:
                still.enter_context(self.backend.exclusive())
            deployments = self._plan(requests, asked)
            if not deployments:
                return []
            what = self._describe(deployments)
            with defer_interrupt() as check, self.journal.action("submit", what):
                firsts = self.backend.extend(deployments)
                self.journal.mark_enacted(lambda: roll_back(self.backend, deployments))
                found = []
                self._settle(*(step for addition, _ in deployments for step in addition.reused.values()))
                for (addition, submission), first in zip(deployments, firsts, strict=True):
                    answer = explain_addition(addition, self.ledger)
                    group = self.ledger.add(addition)
                    self._flows[submission.name] = submission
                    found.append(Submitted(**vars(answer), group=group, first=first))
        check()
        return found

    def remove(self, name: str) -> Removed:
        """End a dataflow, and the steps that no other dataflow uses.

        Its sinks still get the records that have come for it. The call waits for them, though not for slow sinks; other
        actions may run at the same time.
        """
        with self._lock, defer_interrupt() as check:
            self._check_running(name)
            removal = self.ledger.plan_removal(name)
            self._settle(*removal.stopped, *removal.kept)
            with self.journal.action("remove", name):
                self.backend.reduce(removal)
                self.ledger.remove(removal)
                self._usage.forget(removal.stopped)
                del self._flows[name]
                self.journal.mark_enacted()
        check()
        self.backend.wait_for_sinks(name)
        return Removed(name, removal.stopped, removal.kept)

    def pause(self, name: str) -> dict[str, int]:
        """Pause a dataflow: its sinks, and steps that only paused dataflows use, get nothing until it resumes.

        Returns, by source, the first message that it does not see any more, as the source numbers them; its sinks get
        all messages before that. Empty if it is paused already, or has failed.
        """
        return self._change_pause(name, True)

    def resume(self, name: str) -> dict[str, int]:
        """Resume a paused dataflow; return, by source, the first message that it sees again."""
        return self._change_pause(name, False)

    def _change_pause(self, name: str, paused: bool) -> dict[str, int]:
        with self._lock, defer_interrupt() as check:
            self._check_running(name)
            if (name in self.ledger.paused) == paused:
                return {}
            change = self.ledger.plan_pause(name, paused)
            with self.journal.action("pause" if paused else "resume", name):
                border = self.backend.apply_pause(change)
                self._settle(*self.ledger.placed[name].values())
                self.ledger.apply_pause(change)
                self.journal.mark_enacted()
        check()
        return border

    def defragment(self) -> None:
        """Run each group of connected steps in one fragment."""
        with self._lock, defer_interrupt() as check:
            groups = [frozenset(group.steps) for _, group in sorted(self.ledger.groups.items())]
            with self.journal.action("defragment", None):
                self.backend.defragment(groups)
                self.journal.mark_enacted()
        check()

    def explain(
        self, flow: Dataflow, sources: Any = None, sinks: Any = None, *, fold: bool = False, flag_warm: bool = False
    ) -> Explanation:
        """Report what :meth:`submit` would share, without changing anything."""
        with self._lock:
            name = getattr(flow, "name", None)
            while name in self._flows:
                name += "'"
            asked = [without_iterators(Request(flow, sources, sinks, name=name, fold=fold, flag_warm=flag_warm))]
            [(addition, _)] = self._plan(asked, check_requests(asked, self._flows, self.backend.reads))
            return explain_addition(addition, self.ledger)

    # -- reports -----------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of the running dataflows, in the order of their submission."""
        return list(self._flows)

    def sink_map(self, name: str) -> dict[str, str]:
        """By sink of a dataflow, the running sink step."""
        with self._lock:
            self._check_running(name)
            placed, steps = self.ledger.placed[name], self.ledger.steps
            return {node: step for node, step in placed.items() if steps[step].identity.kind == "sink"}

    def stats(self) -> dict[str, Any]:
        """Report what runs, what would run without sharing, and the figures of the back end.

        ``steps`` run instead of ``steps_alone``, ``sources`` are read instead of ``sources_alone``; ``distinct`` is the
        number of different signatures; ``shares[k]`` is the number of steps that k dataflows use.
        """
        with self._lock:
            return {**sharing_counts(self.ledger, self._owners()), **self.backend.stats()}

    def usage(self) -> Usage:
        """Report which dataflows and owners use each step, and charge the records of the steps to owners.

        The records of a step are charged in equal parts to the dataflows that use it at the time, without paused ones,
        from the creation of this manager on. While records flow, those of the batches around a change of users may be
        charged to the users before it.

        Examples
        --------
        >>> import riot_ops as ro
        >>> from riot_ops.reuse import LocalBackend, ReuseManager
        >>> manager, readings = ReuseManager(LocalBackend()), ro.MemorySource([{"value": 1.0}] * 30)
        >>> def submit(name, owner, *tasks):
        ...     flow = ro.Dataflow(name)
        ...     stream = flow.source("readings", schema={"value": "double"})
        ...     for task in tasks:
        ...         stream = stream.to(task)
        ...     _ = manager.submit(flow.sink("out", stream), readings, ro.MemorySink(), owner=owner)
        >>> submit("raw", "ada")
        >>> submit("smooth", "bob", ro.tasks.KalmanFilter())
        >>> manager.backend.run()
        >>> print(manager.usage())
        readings.0: 30 records, ada, bob
        kalman_filter.2: 30 records, bob
        ada: 15 records, 25.0%
        bob: 45 records, 75.0%
        """
        with self._lock:
            return self._usage.report(self.backend.record_counts(), self.ledger, self._owners())

    def _owners(self) -> dict[str, str | None]:
        return {name: submission.owner for name, submission in self._flows.items()}

    def _settle(self, *steps: str) -> None:
        """Charge the records of steps whose users are about to change; no action fails because of it."""
        if not steps:
            return
        try:
            counts = self.backend.record_counts()
        except RiotError as error:  # a damaged file: the next change, or the next report, charges them
            _log.warning("the records of %s are charged later: %s", ", ".join(steps), error)
        else:
            self._usage.settle(steps, counts, self.ledger, self._owners())

    def savings(self) -> Savings | None:
        """Return the work per second that sharing saves, since the previous report; None while nothing is counted."""
        with self._lock:
            return self._savings.measure(self.ledger, self.stats())

    def explain_sharing(self) -> str:
        """Describe the savings in words, with the rates since the previous report where the back end counts records."""
        with self._lock:
            stats = self.stats()
            return format_savings(stats, self._savings.measure(self.ledger, stats))

    def diagram(self) -> str:
        """Return the running steps, their users and rates, and the savings, as a Mermaid diagram."""
        return mermaid(*self._picture())

    def svg(self, *, figures: bool = True) -> str:
        """Return the same diagram as SVG; without ``figures`` it changes only with the dataflows."""
        graph, notes, caption = self._picture()
        return svg(graph, notes, caption if figures else "")

    def _repr_svg_(self) -> str:
        return self.svg()

    def _picture(self) -> tuple[Graph, dict[str, str], str]:
        with self._lock:
            stats = self.stats()
            saving = self._savings.measure(self.ledger, stats)
            return *running_graph(self.ledger, saving), format_summary(stats, saving)

    def __repr__(self) -> str:
        return f"<ReuseManager: {len(self._flows)} dataflows, {len(self.ledger.steps)} steps>"

    def canonical(self) -> Any:
        """Return everything that runs except the ids of steps: independent of the order of submission."""
        return self.ledger.canonical()

    # -- saved state -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all dataflows with their running steps, as JSON-able data for :meth:`restore`."""
        with self._lock:
            return dump_state(self._flows.values(), self.ledger, self.policy)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume the dataflows of a saved state, all or none; no dataflow of this manager may run yet."""
        with self._lock:
            if self._flows:
                raise ConfigError(f"a state is restored before anything runs, but {len(self._flows)} dataflows do")
            dataflows = parse_state(state, self.policy)
            if not (deployments := recreate_deployments(dataflows, self.ledger, *self._recreate_args, strict=True)):
                return
            empty = copy.deepcopy(self.ledger)
            with defer_interrupt() as check:
                try:
                    with self.journal.action("submit", dataflows):
                        try:
                            self._recover(deployments, [what["name"] for what in dataflows if what["paused"]])
                        except BaseException:
                            roll_back(self.backend, deployments)
                            raise
                        self.journal.mark_enacted(lambda: roll_back(self.backend, deployments))
                except BaseException:
                    self.ledger, self._flows = empty, {}
                    raise
        check()

    def _recover(self, deployments: Sequence[Deployment], paused: Iterable[str]) -> None:
        """Continue dataflows with the steps that they had."""
        with self.backend.recovering():
            held = self.backend.running_steps()
            again = [(replace(one, new=tuple(s for s in one.new if s.id not in held)), of) for one, of in deployments]
            if again:
                self.backend.extend(again)
        for addition, submission in deployments:
            self.ledger.add(addition)
            self._flows[submission.name] = submission
        for name in paused:
            change = self.ledger.plan_pause(name, True)
            self.backend.apply_pause(change)
            self.ledger.apply_pause(change)

    def _replay(self, log: ActionLog) -> None:
        """Replay the log into the ledger and the back end."""
        if not log.actions and (kept := self.backend.retained_dataflows()):
            raise StateError(
                f"the log {log.path} is empty, but the folder of the back end holds {', '.join(sorted(kept))}: "
                "restore the log, or use a new folder"
            )
        try:
            before = replay(log.actions)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(
                f"the log {log.path} has an action that cannot be read ({exception_text(error)}); restore it, or begin "
                "with a new one"
            ) from None
        self._check_unused([*before.steps, *before.begun])
        self.ledger.reserve_ids(before.steps)
        self._recover(recreate_deployments(before.dataflows.values(), self.ledger, *self._recreate_args), before.paused)
        if before.resuming is not None:
            self.backend.apply_pause(self.ledger.plan_pause(before.resuming, False))
        if lost := self.backend.running_steps() - set(self.ledger.steps):
            self.backend.reduce(Removal("", tuple(sorted(lost))))
        if before.outcome is not None:
            log.record_outcome(before.outcome)
        log.compact(compacted_actions(self.state(), before.steps))

    def close(self) -> None:
        """Close the back end and the log; the log stays on disk."""
        with self._lock:
            self.backend.close()
            self.journal.close()

    # -- helpers of actions ------------------------------------------------------------------------

    def _check_running(self, name: str) -> None:
        if name not in self._flows:
            raise UnknownDataflowError(f"no dataflow {name!r} is running{did_you_mean(name, self._flows)}")

    def _check_unused(self, known: Iterable[str]) -> None:
        """Raise if the back end runs steps of another manager, whose ids could be those of its own."""
        others = self.backend.running_steps()
        if others and others.isdisjoint(known):
            raise ConfigError(
                f"the back end runs {len(others)} steps of another manager, such as {min(others)}: continue with that, "
                "or use a back end of its own"
            )

    def _check(self, requests: Sequence[Request]) -> CheckedRequests:
        """Check requests; a request that is refused for any reason takes no record of an iterator."""
        looked = [without_iterators(one) for one in requests]
        found = check_requests(looked, self._flows, self.backend.reads)
        if all(one is given for one, given in zip(looked, requests, strict=True)):
            return found
        self._describe(self._plan(looked, found))
        return check_requests(requests, self._flows, self.backend.reads)

    def _describe(self, deployments: Sequence[Deployment]) -> list[dict[str, Any]] | None:
        """Describe dataflows for the log, if there is one."""
        if self.journal.log is None:
            return None
        return [describe_submission(submission, addition.placed) for addition, submission in deployments]

    def _plan(self, requests: Sequence[Request], found: CheckedRequests) -> list[Deployment]:
        """Plan the additions, and check what depends on the running steps."""
        additions = self.ledger.plan_additions(
            {name: identities for name, (_, identities) in found.items()}, self._may_share
        )
        new = {step.id for one in additions for step in one.new}
        for request, one in zip(requests, additions, strict=True):
            if request.flag_warm:
                check_warmable(request.flow, one.reused, lambda step: step in new or self.backend.is_fresh(step))
        deployments = [(one, submission) for one, (submission, _) in zip(additions, found.values(), strict=True)]
        self.backend.check_sinks(deployments)
        return deployments

    def _may_share(self, identity: StepIdentity, step: str) -> bool:
        if self.backend.has_failed(step):
            return False
        shared = (
            self.policy == "always" or not identity.stateful or (self.policy == "bounded_warm" and identity.bounded)
        )
        return shared or self.backend.is_fresh(step)
