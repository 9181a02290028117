"""Several fragments become one: they stop at one place, and a new one goes on from there with their state."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from pathlib import Path

from riot_ops.core.errors import ConnectorError
from riot_ops.core.source import Source
from riot_ops.graph.lowering import Step
from riot_ops.graph.plan import Plan
from riot_ops.reuse.spark.broken import Broken
from riot_ops.reuse.spark.control import awake, read_json
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.meeting import upstream
from riot_ops.reuse.spark.source import EXPORT, OFFSET, Begin
from riot_ops.reuse.spark.spec import FragmentSpec
from riot_ops.reuse.spark.stage import SEED, bucket_file, read_states, write_states
from riot_ops.reuse.topic import Place
from riot_ops.runtime.repartition import repartitioned

__all__ = ["clusters", "have_done", "held", "joined", "one_reader", "seed", "stood", "untidy"]

POLL_SECONDS = 0.02


def untidy(
    fragments: Mapping[str, Fragment],
    wanted: Iterable[Set[str]],
    failed: Set[str],
    known: Container[str],
    most: int | None,
) -> list[frozenset[str]]:
    """The steps that somebody wants of fragments that should become one, where there is a number of them to keep.

    ``wanted`` are the fragments that each dataflow wants: what hangs together becomes one, or stays as it is, as with
    one that has ``failed``. Those are chosen that leave no more fragments than that, the largest first; where there are
    no more, those in which a shuffle, or half of the stages, is for nobody: Spark runs it still.
    """
    if most is None:
        return []
    parts = [part for part in _parts(fragments, wanted) if not part & failed]
    left, chosen = len(fragments), list[set[str]]()
    for names in sorted(parts, key=len, reverse=True):
        if left > most and len(names) > 1:  # one alone costs a silence, and runs no query less
            chosen.append(names)
            left -= len(names) - 1
    chosen = chosen or [names for names in parts if any(_outgrown(fragments[name], known) for name in names)]
    return [frozenset(step for n in names for step in fragments[n].spec.nodes if step in known) for names in chosen]


def _parts(fragments: Mapping[str, Fragment], wanted: Iterable[Set[str]]) -> list[set[str]]:
    """Fragments that read each other, or that one dataflow wants."""
    found: list[set[str]] = []
    for tie in (*({name, *one.spec.topics} for name, one in fragments.items()), *map(set, wanted)):
        near = [part for part in found if part & tie]
        found = [part for part in found if not part & tie] + [tie.union(*near)] * bool(tie)
    return found


def _outgrown(fragment: Fragment, known: Container[str]) -> bool:
    """Whether a shuffle, or half of the stages, is for what nobody wants."""
    shuffles = fragment.stages_for({step for step in fragment.spec.nodes if step in known})
    stages, needed = sum(map(len, shuffles)), sum(map(sum, shuffles))
    return not fragment.ended and stages > 0 and (2 * needed <= stages or not all(map(any, shuffles)))


def one_reader(groups: Iterable[frozenset[str]], fragments: Mapping[str, Fragment]) -> list[frozenset[str]]:
    """Groups of steps, of which those are one that take records of the same reading."""
    found = [*groups]
    for members in (members for one in fragments.values() for members in one.spec.sources.values()):
        readers = set[str]().union(*members.values())
        if near := [group for group in found if group & readers]:
            found = [*(group for group in found if group not in near), frozenset[str]().union(*near)]
    return found


def clusters(
    groups: Iterable[frozenset[str]], fragments: Mapping[str, Fragment]
) -> list[tuple[list[frozenset[str]], list[Fragment]]]:
    """Groups of steps that lie in the same fragments, with these; without those of which each is one fragment's all."""
    found: list[tuple[list[frozenset[str]], set[str]]] = []
    for group in groups:
        own = upstream((n for n, fragment in fragments.items() if group & {*fragment.spec.nodes}), fragments)
        near = [one for one in found if one[1] & own]
        merged = ([group, *(g for one in near for g in one[0])], own.union(*(one[1] for one in near)))
        found = [one for one in found if one not in near] + [merged]
    result = []
    for together, names in found:
        old = [fragment for name, fragment in fragments.items() if name in names]
        if len(old) != len(together) or any(not set().union(*together) >= {*one.spec.nodes} for one in old):
            result.append((together, old))
    return result


def held(fragments: Sequence[Fragment], until: float, check: Callable[[], None]) -> None:
    """Have fragments stop at one place: each as soon as it has all of those that it reads."""
    versions: dict[str, int] = {}
    waiting = {fragment.name: fragment for fragment in fragments}
    still: dict[str, Place] = {}
    while waiting:
        for name, fragment in list(waiting.items()):
            head = fragment.topic.head()
            if name in versions:
                if head.control >= versions[name]:
                    still[name] = head.place
                    del waiting[name]
            elif fragment.spec.topics.keys() <= still.keys() and all(
                still[above].roots.items() <= head.place.roots.items() for above in fragment.spec.topics
            ):
                versions[name] = fragment.hold()
        check()
        if time.monotonic() > until:
            raise ConnectorError(f"the queries {', '.join(waiting)} did not come to rest")
        time.sleep(POLL_SECONDS)


def have_done(fragments: Iterable[Fragment], n: int) -> bool | None:
    """Whether each has done so many micro-batches, or None."""
    return all(one.topic.head().batch + 1 >= n for one in fragments) or None


def joined(name: str, folder: Path, group: frozenset[str], old: Sequence[Fragment]) -> Fragment:
    """The steps of a group, of several fragments, as one that is not there yet."""
    known: dict[str, Step] = {}
    for one in old:
        known = {**{step.id: step for step in one.steps}, **known}
    order = list(dict.fromkeys(step.id for one in old for step in one.steps))
    needed = awake([known[id] for id in order], {*group})
    ids = [id for id in order if id in needed]
    sources: dict[str, dict[str, list[str]]] = {}
    given: dict[str, Source] = {}
    labels = _labels(old)
    for one in old:
        for reading, members in one.spec.sources.items():
            kept = {member: [s for s in found if s in needed] for member, found in members.items()}
            if any(kept.values()):
                label = labels[one.name, reading]
                sources[label], given[label] = kept, one.sources[reading]
    origins = {id: above for one in old for id, above in one.spec.origins.items() if id in needed}
    spec = FragmentSpec(name, ids, [id for id in ids if id in group], sources, {}, origins)
    spec.replaces = [one.name for one in old]
    return Fragment(folder, spec, [known[id] for id in ids], given)


def _labels(fragments: Iterable[Fragment]) -> dict[tuple[str, str], str]:
    """By fragment and reading, the name of that among those of others: after a failure two may read the same."""
    found: dict[tuple[str, str], str] = {}
    for one in fragments:
        for reading in one.spec.sources:
            found[one.name, reading] = f"{one.name} {reading}" if reading in found.values() else reading
    return found


def stood(fragment: Fragment, old: Sequence[Fragment]) -> tuple[Begin, Place, dict[str, int]]:
    """Where the old fragments, which are held, stand: what a new one begins with."""
    begin, place, taken = Begin(), Place(), dict[str, int]()
    labels = _labels(old)
    for one in old:
        left = read_json(one.folder / EXPORT / OFFSET, Begin)
        for reading in one.spec.sources:
            label = labels[one.name, reading]
            if label in fragment.spec.sources:
                begin.at[label] = left.at[reading]
                begin.ended += [label] if reading in left.ended else []
        head = one.topic.head()
        place.next |= head.place.next
        place.ended = sorted({*place.ended, *head.place.ended})
        taken |= {step: n for step, n in head.taken.items() if step in fragment.spec.origins}
    return begin, place, taken


def seed(fragment: Fragment, old: Sequence[Fragment]) -> None:
    """Give a new fragment, which is laid out, the state that the old ones have left; what has raised stays broken."""
    broken = {step: found.why for one in old for step, found in one.broken.items() if step in fragment.spec.steps}
    if broken:
        fragment.breaks({step: Broken(why) for step, why in broken.items()})
    plan = fragment.plan()
    labels = fragment.labels(plan)
    seeds: dict[str, dict[str, bytes]] = {}
    left = [(one, one.plan()) for one in old]
    for stage in plan.stages[1:]:
        for step in stage.steps:
            if not step.keyed:
                continue
            n = len(labels[stage.index])
            one, before, index = next(
                (one, p, s.index) for one, p in left for s in p.stages[1:] for found in s.steps if found.id == step.id
            )
            parts = _left(one, before, index, step.id)
            same = before.stages[index].partition == stage.partition and len(parts) == n
            for place, data in enumerate(parts if same else repartitioned(step, parts, stage.partition, n)):
                seeds.setdefault(bucket_file(stage.index, place), {})[step.id] = data
    for name, states in seeds.items():
        write_states(fragment.folder / SEED / name, states)


def _left(fragment: Fragment, plan: Plan, stage: int, step: str) -> list[bytes]:
    """The state of a step that a fragment has left, by bucket."""
    places = range(len(fragment.labels(plan)[stage]))
    return [read_states(fragment.folder / EXPORT / bucket_file(stage, place))[step] for place in places]
