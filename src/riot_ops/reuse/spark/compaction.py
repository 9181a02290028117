"""Compaction: several fragments are held at the same point, and a new one resumes with their state."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from pathlib import Path

from riot_ops.core.errors import ConnectorError
from riot_ops.core.source import Source
from riot_ops.graph.lowering import Step
from riot_ops.graph.plan import Plan
from riot_ops.reuse.ledger import connected_parts
from riot_ops.reuse.spark.failures import StepFailure
from riot_ops.reuse.spark.files import read_json
from riot_ops.reuse.spark.fragment import Fragment, with_upstream
from riot_ops.reuse.spark.source import EXPORT, OFFSET, StartPoint
from riot_ops.reuse.spark.spec import FragmentSpec, required_steps
from riot_ops.reuse.spark.stage import SEED, bucket_file, read_states, write_states
from riot_ops.reuse.topic import UpstreamProgress
from riot_ops.runtime.repartition import repartition_state

__all__ = [
    "compaction_clusters",
    "compaction_groups",
    "export_point",
    "have_completed",
    "hold_all",
    "merge_source_readers",
    "merged_fragment",
    "seed_state",
]

POLL_SECONDS = 0.02


def compaction_groups(
    fragments: Mapping[str, Fragment],
    wanted: Iterable[Set[str]],
    failed: Set[str],
    known: Container[str],
    max_queries: int | None,
) -> list[frozenset[str]]:
    """Select connected fragments to merge so that at most ``max_queries`` are left, and return their steps in use.

    The largest groups come first. If there are not too many fragments, select those in which a shuffle, or half of the
    stages, is not needed any more, as Spark still runs it.

    Parameters
    ----------
    fragments : mapping of str to Fragment
    wanted : iterable of set of str
        For each dataflow, the fragments that it reads; they belong together.
    failed : set of str
        Fragments that must not be merged, nor those connected to them.
    known : container of str
        The steps in use.
    max_queries : int or None
        None selects nothing.
    """
    if max_queries is None:
        return []
    # fragments that read each other, or that one dataflow reads
    parts = connected_parts([*({name, *one.spec.topics} for name, one in fragments.items()), *wanted])
    parts = [part for part in parts if not part & failed]
    left, chosen = len(fragments), list[set[str]]()
    for names in sorted(parts, key=len, reverse=True):
        if left > max_queries and len(names) > 1:  # merging one alone interrupts it, and saves no query
            chosen.append(names)
            left -= len(names) - 1
    chosen = chosen or [names for names in parts if any(_is_oversized(fragments[name], known) for name in names)]
    return [frozenset(step for n in names for step in fragments[n].spec.nodes if step in known) for names in chosen]


def _is_oversized(fragment: Fragment, known: Container[str]) -> bool:
    """Return whether a shuffle, or half of the stages, is not needed for any step in use."""
    shuffles = fragment.stages_needed({step for step in fragment.spec.nodes if step in known})
    stages, needed = sum(map(len, shuffles)), sum(map(sum, shuffles))
    return not fragment.ended and stages > 0 and (2 * needed <= stages or not all(map(any, shuffles)))


def merge_source_readers(groups: Iterable[frozenset[str]], fragments: Mapping[str, Fragment]) -> list[frozenset[str]]:
    """Merge the groups of steps that take records of the same shared source."""
    found = [*groups]
    for members in (members for one in fragments.values() for members in one.spec.sources.values()):
        readers = set[str]().union(*members.values())
        if near := [group for group in found if group & readers]:
            found = [*(group for group in found if group not in near), frozenset[str]().union(*near)]
    return found


def compaction_clusters(
    groups: Iterable[frozenset[str]], fragments: Mapping[str, Fragment]
) -> list[tuple[list[frozenset[str]], list[Fragment]]]:
    """Cluster groups of steps that run in the same fragments, and return each cluster with these fragments.

    A cluster whose groups are exactly the steps of one fragment each is left out.
    """
    found: list[tuple[list[frozenset[str]], set[str]]] = []
    for group in groups:
        own = with_upstream((n for n, fragment in fragments.items() if group & {*fragment.spec.nodes}), fragments)
        near = [one for one in found if one[1] & own]
        merged = ([group, *(g for one in near for g in one[0])], own.union(*(one[1] for one in near)))
        found = [one for one in found if one not in near] + [merged]
    result = []
    for cluster, names in found:
        old = [fragment for name, fragment in fragments.items() if name in names]
        if len(old) != len(cluster) or any(not set().union(*cluster) >= {*one.spec.nodes} for one in old):
            result.append((cluster, old))
    return result


def hold_all(fragments: Sequence[Fragment], until: float, check: Callable[[], None]) -> None:
    """Hold fragments at the same point: each once it has processed all of those that it reads.

    Raises
    ------
    ConnectorError
        If they are not held when the monotonic clock reaches ``until``.
    """
    versions: dict[str, int] = {}
    waiting = {fragment.name: fragment for fragment in fragments}
    held: dict[str, UpstreamProgress] = {}
    while waiting:
        for name, fragment in list(waiting.items()):
            head = fragment.topic.head()
            if name in versions:
                if head.control >= versions[name]:
                    held[name] = head.place
                    del waiting[name]
            elif fragment.spec.topics.keys() <= held.keys() and all(
                held[above].roots.items() <= head.place.roots.items() for above in fragment.spec.topics
            ):
                versions[name] = fragment.hold()
        check()
        if time.monotonic() > until:
            raise ConnectorError(f"the queries {', '.join(waiting)} did not stop in time")
        time.sleep(POLL_SECONDS)


def have_completed(fragments: Iterable[Fragment], n: int) -> bool | None:
    """Return True if each fragment has completed ``n`` micro-batches, else None."""
    return all(one.topic.head().batch + 1 >= n for one in fragments) or None


def merged_fragment(name: str, folder: Path, group: frozenset[str], old: Sequence[Fragment]) -> Fragment:
    """Define a fragment with a group of steps of several fragments."""
    known: dict[str, Step] = {}
    for one in old:
        known = {**{step.id: step for step in one.steps}, **known}
    order = list(dict.fromkeys(step.id for one in old for step in one.steps))
    needed = required_steps([known[id] for id in order], {*group})
    ids = [id for id in order if id in needed]
    specs: dict[str, dict[str, list[str]]] = {}
    sources: dict[str, Source] = {}
    names = _source_names(old)
    for one in old:
        for source, members in one.spec.sources.items():
            kept = {member: [s for s in found if s in needed] for member, found in members.items()}
            if any(kept.values()):
                new_name = names[one.name, source]
                specs[new_name], sources[new_name] = kept, one.sources[source]
    origins = {id: above for one in old for id, above in one.spec.origins.items() if id in needed}
    spec = FragmentSpec(name, ids, [id for id in ids if id in group], specs, {}, origins)
    spec.replaces = [one.name for one in old]
    return Fragment(folder, spec, [known[id] for id in ids], sources)


def _source_names(fragments: Iterable[Fragment]) -> dict[tuple[str, str], str]:
    """Return unique names by fragment and shared source: after a failure two fragments may read the same source."""
    found: dict[tuple[str, str], str] = {}
    for one in fragments:
        for source in one.spec.sources:
            found[one.name, source] = f"{one.name} {source}" if source in found.values() else source
    return found


def export_point(fragment: Fragment, old: Sequence[Fragment]) -> tuple[StartPoint, UpstreamProgress, dict[str, int]]:
    """Return where a new fragment resumes: the start point, progress and record counts of old fragments on hold."""
    start, progress, taken = StartPoint(), UpstreamProgress(), dict[str, int]()
    names = _source_names(old)
    for one in old:
        exported = read_json(one.folder / EXPORT / OFFSET, StartPoint)
        for source in one.spec.sources:
            name = names[one.name, source]
            if name in fragment.spec.sources:
                start.at[name] = exported.at[source]
                start.ended += [name] if source in exported.ended else []
        head = one.topic.head()
        progress.next |= head.place.next
        progress.ended = sorted({*progress.ended, *head.place.ended})
        taken |= {step: n for step, n in head.taken.items() if step in fragment.spec.origins}
    return start, progress, taken


def seed_state(fragment: Fragment, old: Sequence[Fragment]) -> None:
    """Copy the state that old fragments have exported into a new, planned one; failed steps stay disabled."""
    failures = {step: found.why for one in old for step, found in one.failures.items() if step in fragment.spec.steps}
    if failures:
        fragment.disable({step: StepFailure(why) for step, why in failures.items()})
    plan = fragment.plan()
    labels = fragment.bucket_labels(plan)
    seeds: dict[str, dict[str, bytes]] = {}
    exported = [(one, one.plan()) for one in old]
    for stage in plan.stages[1:]:
        for step in stage.steps:
            if not step.keyed:
                continue
            n = len(labels[stage.index])
            one, before, index = next(
                (one, p, s.index)
                for one, p in exported
                for s in p.stages[1:]
                for found in s.steps
                if found.id == step.id
            )
            parts = _exported_state(one, before, index, step.id)
            same = before.stages[index].partition == stage.partition and len(parts) == n
            for place, data in enumerate(parts if same else repartition_state(step, parts, stage.partition, n)):
                seeds.setdefault(bucket_file(stage.index, place), {})[step.id] = data
    for name, states in seeds.items():
        write_states(fragment.folder / SEED / name, states)


def _exported_state(fragment: Fragment, plan: Plan, stage: int, step: str) -> list[bytes]:
    """Return the exported state of a step by bucket."""
    places = range(len(fragment.bucket_labels(plan)[stage]))
    return [read_states(fragment.folder / EXPORT / bucket_file(stage, place))[step] for place in places]
