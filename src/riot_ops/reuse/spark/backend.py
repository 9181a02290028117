"""The back end that runs shared dataflows as queries, which start and end independently."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConnectorError
from riot_ops.core.folder_lock import FolderLock
from riot_ops.core.parameters import Duration
from riot_ops.core.paths import local_path, make_folder
from riot_ops.reuse.backend import independent_parts
from riot_ops.reuse.ledger import PauseChange, Removal
from riot_ops.reuse.spark.compaction import (
    compaction_clusters,
    compaction_groups,
    export_point,
    have_completed,
    hold_all,
    merge_source_readers,
    merged_fragment,
    seed_state,
)
from riot_ops.reuse.spark.control_sync import ControlSync
from riot_ops.reuse.spark.dispatcher import Dispatcher
from riot_ops.reuse.spark.dispatcher_pool import DispatcherPool
from riot_ops.reuse.spark.fragment import (
    Fragment,
    QueryOptions,
    RunningQuery,
    remove_other_readers,
    retained_batches,
    with_upstream,
)
from riot_ops.reuse.spark.planner import (
    Placement,
    add_source_steps,
    check_sources,
    first_messages,
    join_running,
    place,
    source_reader,
)
from riot_ops.reuse.spark.recovery import RecoveredState
from riot_ops.reuse.spark.subscriber import Progress, Subscriber, active_subscriptions
from riot_ops.reuse.spark.supervisor import Supervisor, watch
from riot_ops.reuse.submission import Deployment, ReadMode, check_sink_folders

__all__ = ["FragmentsBackend"]


POLL_SECONDS = 0.05
#: How long to wait for lagging sinks during a compaction.
LAG_SECONDS = 0.5
_log = logging.getLogger("riot_ops")


class FragmentsBackend:
    """Runs shared dataflows as fragments, each as a query that ``launch`` starts; see :class:`SparkBackend`.

    Attributes
    ----------
    fragments : dict of str to Fragment
        In the order of their start: each reads topics of earlier ones only.
    subscribers : dict of str to Subscriber
        The dataflows by name.
    dispatchers : DispatcherPool
    supervisor : Supervisor
    lock : RLock
        Held by each action and by each round of supervision.
    watch : Thread
        Supervises queries and sinks.
    folder_lock : FolderLock
        Keeps other back ends out of the folder.
    """

    reads: ReadMode = "again"

    def __init__(
        self,
        launch: Callable[..., RunningQuery],
        folder: str | Path,
        options: QueryOptions,
        fuse: Literal["exact", "coarse"],
        max_lag_bytes: int,
        patience_s: float,
        tries: int,
        max_queries: int | None = None,
        join: bool = True,
    ) -> None:
        self.folder = local_path(folder, "folder").absolute()
        self.patience_s, self.max_queries, self.join = patience_s, max_queries, join
        self.options, self.fuse = options, fuse
        make_folder(self.folder / "fragments")
        make_folder(self.folder / "dataflows")
        self.folder_lock = FolderLock([self.folder])
        self.fragments: dict[str, Fragment] = {}
        self.subscribers: dict[str, Subscriber] = {}
        self.dispatchers = DispatcherPool(max_lag_bytes, patience_s)
        start = functools.partial(launch, options=options)
        self.supervisor = Supervisor(self.fragments, self.subscribers, start, tries)
        self._control_sync = ControlSync(self.fragments, self.subscribers, self.supervisor, patience_s)
        #: By step that the manager knows, the fragment that runs it; None for sinks.
        self._owners: dict[str, str | None] = {}
        try:
            #: State found in the folder, until it is resumed or discarded.
            self._recovered = RecoveredState(self.folder / "fragments", self.folder / "dataflows")
        except BaseException:
            self.folder_lock.release()
            raise
        #: The dataflows to resume, while the manager submits them again.
        self._recovering: list[Deployment] | None = None
        self._number = self._recovered.max_number
        self._interruptions_s: list[float] = []
        self._skipped_groups: set[frozenset[str]] = set()  # groups of steps whose compaction has failed
        self.lock = threading.RLock()
        self._stop = threading.Event()
        watched = self.fragments, self.dispatchers, self.supervisor, self._control_sync.refresh, self.lock, self._stop
        self.watch = threading.Thread(target=watch, args=watched, daemon=True, name="riot_ops-reuse-watch")
        self.watch.start()

    # -- actions -----------------------------------------------------------------------------------

    def extend(self, deployments: Sequence[Deployment]) -> list[dict[str, int]]:
        with self.lock:
            if self._recovering is not None:
                self._recovering += deployments
                return [dict.fromkeys(submission.sources, 0) for _, submission in deployments]
            self._recovered.discard()
            return self._extend(deployments)

    def _extend(self, deployments: Sequence[Deployment], restored: bool = False) -> list[dict[str, int]]:
        """Add new dataflows, or ``restored`` ones from before a restart whose state is lost."""
        placements: list[Placement] = []
        extended: dict[str, Fragment] = {}
        sound = {name: one for name, one in self.fragments.items() if self.supervisor.failure(name) is None}
        for part in independent_parts(deployments, self._owners.get, lambda source: source_reader(source, sound)):
            self._number += 1
            folder = self.folder / "fragments" / f"f{self._number}"
            with_sources = add_source_steps(part, {name: extended.get(name, one) for name, one in sound.items()})
            extended |= with_sources
            owners = self._owners | {step: name for name, one in with_sources.items() for step in one.spec.nodes}
            new = place(part, folder, owners, {**self.fragments, **extended}, opens=not restored)
            joined = join_running(new, {**self.fragments, **extended}) if self.join else None
            if joined is not None:
                new, extended[joined[1].name] = joined
            elif new.fragment is not None:
                new.fragment.plan_stages(self.fuse, self.options.partitions)
            placements.append(new)
        fresh = [new.fragment for new in placements if new.fragment is not None]
        if not restored:
            check_sources(deployments, fresh, self.fragments.values(), self.subscribers.values())
        before = {name: self.fragments[name] for name in extended}
        for fragment in extended.values():
            fragment.publish_layout()
        self.fragments |= extended
        try:
            first = self._launch_placements(deployments, placements, extended, restored)
        except BaseException:
            for name, fragment in extended.items():
                self.fragments[name] = before[name].undo_extension(fragment)
            for fragment in fresh:
                self.supervisor.remove(fragment)
            self._control_sync.try_refresh()
            raise
        self._compact_if_needed()
        return first

    def _compact_if_needed(self) -> None:
        """Merge queries if there are more than ``max_queries``, or shrink an oversized query."""
        wanted = [one.subscriptions.keys() & self.fragments for one in self.subscribers.values()]
        failed = {name for name in self.fragments if self.supervisor.failure(name) is not None}
        group = frozenset[str]()
        try:
            groups = compaction_groups(self.fragments, wanted, failed, self._owners, self.max_queries)
            for group in {*groups} - self._skipped_groups:
                self.defragment([group])
        except KeyboardInterrupt:  # a second Ctrl-C: the action itself has succeeded, so it is raised after it
            signal.raise_signal(signal.SIGINT)
        except Exception as error:
            if not isinstance(error, ConnectorError):  # which may not recur
                self._skipped_groups.add(group)
            _log.warning("the %d running queries could not be compacted: %s", len(self.fragments), error)

    def _launch_placements(
        self,
        deployments: Sequence[Deployment],
        placements: Sequence[Placement],
        extended: Mapping[str, Fragment],
        restored: bool,
    ) -> list[dict[str, int]]:
        """Start new fragments and subscribers, each placement at aligned batches of all topics that it reads."""
        subscribers: list[Subscriber] = []
        groups: list[tuple[list[Subscriber], dict[str, int]]] = []
        dispatchers: list[Dispatcher] = []
        firsts: dict[str, dict[str, int]] = {}
        above = [with_upstream(new.upstream, self.fragments) for new in placements]
        with retained_batches({*chain(*above)}, self.fragments) as since, ExitStack() as undo:
            undo.callback(self.dispatchers.release, subscribers, dispatchers)
            before = {name: self.fragments[name].controls.newest() for name in since}
            versions = self._control_sync.refresh(placements)
            # streams that were not forwarded before have to pass through these fragments first
            changed = {name for name, version in before.items() if versions[name] != version}
            for new, names in zip(placements, above, strict=True):
                readable = {name: since[name] for name in names & (new.upstream | changed)}
                starts = self._control_sync.await_start(versions, readable)
                if new.fragment is not None:
                    for name in new.fragment.spec.topics:
                        self.fragments[name].topic.join(new.fragment.name, starts[name][0])
                    new.fragment.start_at(starts)
                    new.fragment.save()
                groups.append(([], {name: batch for name, (batch, _) in starts.items()}))
                for addition, submission in (one for one in deployments if one[1].name in new.subscriptions):
                    progress = Progress(dict(addition.placed))
                    one = Subscriber(submission, new.subscriptions[submission.name], progress, restored)
                    subscribers.append(one)
                    groups[-1][0].append(one)
                    fragments = self.fragments.values()
                    firsts[submission.name] = first_messages(addition.placed, submission, starts.values(), fragments)
            fresh = {new.fragment.name: new.fragment for new in placements if new.fragment is not None}
            for fragment in fresh.values():
                fragment.query = self.supervisor.launch(fragment)
            for group, at in groups:
                known = {**self.fragments, **fresh}
                dispatchers += self.dispatchers.assign(self.folder / "dataflows", group, known, at)
            for fragment in extended.values():
                fragment.save()
            undo.pop_all()
        for new in placements:
            self._owners |= new.owners
        self.fragments |= fresh
        self.subscribers |= {one.name: one for one in subscribers}
        for dispatcher in dispatchers:
            dispatcher.start()
        return [firsts[submission.name] for _, submission in deployments]

    def reduce(self, removal: Removal) -> None:
        with self.lock:
            if (removed := self.subscribers.pop(removal.name, None)) is not None:
                self.dispatchers.drain(removed)
            self._owners = {step: name for step, name in self._owners.items() if step not in removal.stopped}
            for fragment in reversed(list(self.fragments.values())):
                read = any(fragment.name in one.spec.topics for one in self.fragments.values())
                if not read and not self._owners.keys() & fragment.spec.nodes:
                    self.supervisor.remove(self.fragments.pop(fragment.name))
            self._control_sync.try_refresh()
            self._compact_if_needed()

    def wait_for_sinks(self, name: str) -> None:
        self.dispatchers.await_drained(name)

    def apply_pause(self, change: PauseChange) -> dict[str, int]:
        with self.lock:
            one = self.subscribers[change.name]
            # it is in this state already, as after a restart; or it gets no records any more
            if one.paused == change.paused or one.closed or any(map(self.supervisor.failure, one.subscriptions)):
                return {}
            own = {*one.subscriptions}
            names = own if change.paused else with_upstream(own, self.fragments)
            retained = retained_batches(names, self.fragments)
            with self.dispatchers.holding_new_batches(one, retained) as since:
                with ExitStack() as undo:
                    undo.callback(self._control_sync.try_refresh)
                    undo.callback(setattr, one, "paused", one.paused)
                    versions = dict.fromkeys(names, 0)
                    # fragments that read others may lag: they forward everything up to aligned batches, and then pause
                    if not (change.paused and any(self.fragments[name].spec.topics for name in names)):
                        one.paused = change.paused
                        versions = self._control_sync.refresh()
                    starts = self._control_sync.await_start(versions, since)
                    one.paused = change.paused
                    undo.pop_all()
                with self.dispatchers.locked(one.name) as dispatcher:
                    dispatcher.switch_pause(one, {name: starts[name][0] for name in one.subscriptions})
                self._control_sync.try_refresh()
            return first_messages(one.progress.placed, one.submission, starts.values(), self.fragments.values())

    def defragment(self, groups: Iterable[frozenset[str]]) -> None:
        with self.lock:
            running = {step for step, name in self._owners.items() if name is not None}
            wanted = merge_source_readers((group & running for group in groups if group & running), self.fragments)
            for cluster, old in compaction_clusters(wanted, self.fragments):
                self._replace(cluster, old)

    def _replace(self, groups: list[frozenset[str]], old: list[Fragment]) -> None:
        """Replace fragments by one for each group of steps."""
        names = {one.name for one in old}
        affected = [one for one in self.subscribers.values() if names & one.subscriptions.keys()]
        by_dataflow = self.dispatchers.by_dataflow
        fresh: list[Fragment] = []
        blocking = [one.name for one in affected if one.submission.on_slow == "block"]
        late = self.dispatchers.still_draining(names, LAG_SECONDS)
        late = late or self.dispatchers.await_delivery(blocking, LAG_SECONDS)
        if late:
            raise ConnectorError(f"the sinks of {', '.join(late)} do not keep up, and others wait for them")
        wanted = {stream for _, found in active_subscriptions(affected) for stream in found.streams}
        try:
            for group in groups:
                self._number += 1
                name = f"f{self._number}"
                fresh.append(merged_fragment(name, self.folder / "fragments" / name, group, old))
                fresh[-1].plan_stages(self.fuse, self.options.partitions)
                fresh[-1].forward(wanted & group)
                fresh[-1].query = self.supervisor.launch(fresh[-1])  # it waits for its start point
            with contextlib.suppress(ConnectorError):  # the interruption is longer if a query is not up in time
                self._control_sync.wait_for(lambda: have_completed(fresh, 1), names, lambda: "it is not up")
            began = time.monotonic()
            hold_all(old, began + self.patience_s, lambda: self.supervisor.check(names))
            shared = (one.name for one in affected if not by_dataflow[one.name].dedicated)
            self.dispatchers.await_delivery(shared, LAG_SECONDS)
            for one in fresh:
                one.spec.together = [other.name for other in fresh]
                seed_state(one, old)
            replacements, joined = self.dispatchers.join_replacements(affected, fresh)
            for one in fresh:
                one.save()
            self.supervisor.stop_exclusive(old)
            for one, group in zip(fresh, groups, strict=True):
                one.forward(wanted & group)  # without the streams that have since been disabled
                one.set_start(*export_point(one, old))
        except BaseException:
            for one in fresh:
                self.supervisor.remove(one, with_readers=True)
            self.supervisor.restart_stopped(old)
            self._control_sync.try_refresh()
            raise
        # from here on the new fragments count, even if a step fails
        for one in fresh:
            self._owners |= dict.fromkeys(one.spec.nodes, one.name)
            self.fragments[one.name] = one
        self.dispatchers.reassign(replacements, joined)
        for replaced in reversed(old):
            self.supervisor.remove(self.fragments.pop(replaced.name))
        self._control_sync.try_refresh()
        with contextlib.suppress(ConnectorError):
            started = [one.name for one in fresh]
            self._control_sync.wait_for(lambda: have_completed(fresh, 2), started, lambda: "it takes long")
        self._interruptions_s.append(time.monotonic() - began)

    # -- after a restart ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def recovering(self) -> Iterator[None]:
        with self.lock:
            self._recovering = []
            try:
                yield
                deployments, self._recovering = self._recovering, None
                self._recover(deployments)
            finally:
                self._recovering = None

    def _recover(self, deployments: list[Deployment]) -> None:
        """Resume the fragments and dispatchers of these dataflows, and discard all others."""
        self.fragments.update(self._recovered.resume_fragments(deployments))
        used = {step for addition, _ in deployments for step in addition.placed.values()}
        for name, fragment in self.fragments.items():
            self._owners |= dict.fromkeys(used & {*fragment.spec.nodes}, name)
        lost: list[Deployment] = []
        found: dict[Path, tuple[list[Subscriber], dict[str, int]]] = {}
        # new topics start at batch 0, after the batches left in the topics that they replace
        replacements = {name: 0 for name, fragment in self.fragments.items() if fragment.spec.replaces}
        for addition, submission in deployments:
            saved = self._recovered.progress_of(submission.name)
            new = place([(addition, submission)], self.folder, self._owners, self.fragments, opens=False)
            subscriptions = new.subscriptions[submission.name]
            known = replacements if saved is None else {**replacements, **saved[1].at}
            if saved is None or new.fragment is not None or not subscriptions.keys() <= known.keys():
                lost.append((addition, submission))
                continue
            path, progress = saved
            self._owners |= dict.fromkeys(s for s in addition.placed.values() if s not in self._owners)
            one = Subscriber(submission, subscriptions, progress.dataflows[submission.name], True, True)
            if replaced_by := subscriptions.keys() - progress.at.keys():
                one.reassign(replaced_by.pop(), [name for name in progress.at if name in self._recovered.retired])
            one.drop_replaced({*one.progress.before} - self._recovered.retired.keys())
            self.subscribers[submission.name] = one
            found.setdefault(path, ([], {**replacements, **progress.at}))[0].append(one)
        topics = self._recovered.retired | {name: fragment.topic for name, fragment in self.fragments.items()}
        for path, (subscribers, at) in found.items():
            self.dispatchers.resume(path, subscribers, topics, at)
            self._recovered.mark_resumed(path)
        dispatchers = self.dispatchers.all()
        readers = {dispatcher.cursor.reader for dispatcher in dispatchers}
        self._recovered.discard(remove_other_readers(readers, self.fragments))
        self._control_sync.try_refresh()
        for fragment in self.fragments.values():
            self.supervisor.start(fragment)
        self.supervisor.propagate_failures()  # before dispatchers deliver batches that a failed dataflow must not get
        for dispatcher in dispatchers:
            dispatcher.start()
        if lost:
            self._extend(lost, restored=True)

    # -- inspection --------------------------------------------------------------------------------

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def is_fresh(self, step: str) -> bool:
        return step not in self._owners  # a running step may take a record at any moment

    def has_failed(self, step: str) -> bool:
        name = self._owners.get(step)
        if name is None:
            return False
        return self.supervisor.failure(name) is not None or step in self.fragments[name].disabled_streams

    def running_steps(self) -> set[str]:
        if self._recovering is not None:
            return self._recovered.steps()
        return set(self._owners)

    def retained_dataflows(self) -> Set[str]:
        return self._recovered.dataflows

    def check_sinks(self, deployments: Sequence[Deployment]) -> None:
        check_sink_folders(deployments, self.folder)

    def record_counts(self) -> dict[str, int]:
        with self.lock:
            heads = [fragment.topic.head() for fragment in self.fragments.values()]
            return {step: n for head in heads for step, n in head.taken.items()}

    def stats(self) -> dict[str, Any]:
        """Return the statistics of queries, steps and sinks.

        Beside ``fragments`` and ``idle`` these are: ``queries`` that run, ``readings`` of sources, and the ``records``
        that each step took. By dataflow: the ``rows`` that its sinks got; why it has ``failed``; by stream, how many
        records were ``dropped``: some sink did not get them; after a failure, all that are produced later;
        ``slow``, the bytes that its sinks have not got yet; and in ``restarts``, how often a failed query with steps of
        it was restarted. ``unread_bytes`` are the bytes in the topic of each query that some reader has not read, and
        ``interrupted_s`` the seconds for which each defragmentation interrupted queries.
        """
        with self.lock:
            failed = {}
            for name, one in self.subscribers.items():
                causes = [*one.causes(), *filter(None, map(self.supervisor.failure, one.subscriptions))]
                if causes:
                    failed[name] = "; ".join(dict.fromkeys(causes))
            fragments, subscribers = self.fragments.values(), self.subscribers.items()
            pending = self.dispatchers.pending_bytes()
            return {
                "fragments": len(fragments),
                "idle": sum(step not in self._owners for fragment in fragments for step in fragment.spec.nodes),
                "queries": sum(fragment.active for fragment in fragments),
                "readings": sum(len(fragment.spec.sources) for fragment in fragments),
                "records": self.record_counts(),
                "rows": {name: one.writer.rows for name, one in subscribers},
                "dropped": {name: lost for name, one in subscribers if (lost := one.lost_records())},
                "slow": {name: pending[name] for name, _ in subscribers if pending.get(name)},
                "unread_bytes": {fragment.name: fragment.topic.unread_bytes() for fragment in fragments},
                "restarts": {name: one.restarts for name, one in subscribers if one.restarts},
                "failed": failed,
                "interrupted_s": [round(seconds, 3) for seconds in self._interruptions_s],
            }

    def micro_batches(self) -> dict[str, int]:
        """Return the number of micro-batches that each query has completed."""
        return {name: fragment.topic.head().batch + 1 for name, fragment in self.fragments.items()}

    # -- end ---------------------------------------------------------------------------------------

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until all sources have ended, or are paused, and all records are delivered; False after a timeout."""
        until = None if timeout is None else time.monotonic() + duration_seconds("timeout", timeout)
        while True:
            with self.lock:
                self.supervisor.check(self.fragments)
                if all(f.ended for f in self.fragments.values()) and not self.dispatchers.lags():
                    return True
            if until is not None and time.monotonic() > until:
                return False
            time.sleep(POLL_SECONDS)

    def stop_watch(self) -> None:
        """Stop the supervision of queries and sinks."""
        self._stop.set()
        self.watch.join()

    def close(self) -> None:
        """Stop all queries; another back end over the folder can resume them."""
        self.stop_watch()
        with self.lock, ExitStack() as ending:  # run all callbacks, even if one fails
            ending.callback(self.folder_lock.release)
            for end in (self.dispatchers.close, *(f.stop for f in self.fragments.values())):
                ending.callback(end)
