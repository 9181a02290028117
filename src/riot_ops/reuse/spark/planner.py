"""Placement of new dataflows: which steps run in a new fragment, and which streams of which topics their sinks need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from riot_ops.core.errors import StateError
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.source import Source
from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, Step
from riot_ops.ingest.renumber import Renumber
from riot_ops.ingest.step import IngestStep
from riot_ops.ingest.watermarks import WatermarkGenerator
from riot_ops.reuse.shared_source import SharedSource, check_exclusive, has_placeholder, required_sources
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.spec import FragmentSpec, TopicInput, input_streams
from riot_ops.reuse.spark.subscriber import Subscriber, Subscription
from riot_ops.reuse.submission import Deployment, Submission, lower_placed
from riot_ops.reuse.topic import UpstreamProgress

__all__ = [
    "Placement",
    "add_source_steps",
    "check_sources",
    "first_messages",
    "join_running",
    "place",
    "rebound_source",
    "source_reader",
]


@dataclass
class Placement:
    """The placement of new dataflows, before it takes effect.

    Attributes
    ----------
    fragment : Fragment or None
        Their new steps.
    owners : dict of str to (str or None)
        By new step that the manager knows, the fragment that runs it; None for sinks.
    subscriptions : dict of str to dict of str to Subscription
        By dataflow, and by fragment, what its sinks want of that fragment's topic.
    """

    fragment: Fragment | None
    owners: dict[str, str | None]
    subscriptions: dict[str, dict[str, Subscription]]

    @property
    def upstream(self) -> set[str]:
        """The other fragments whose topics the new fragment and the sinks read."""
        own = self.fragment
        named = {name for subscriptions in self.subscriptions.values() for name in subscriptions}
        return named if own is None else {*named, *own.spec.topics} - {own.name}


def place(
    deployments: Sequence[Deployment],
    folder: Path,
    owners: Mapping[str, str | None],
    fragments: Mapping[str, Fragment],
    opens: bool = True,
) -> Placement:
    """Place dataflows.

    Parameters
    ----------
    deployments : sequence of Deployment
    folder : path
        The folder of a new fragment.
    owners : mapping of str to (str or None)
        By running step, its fragment.
    fragments : mapping of str to Fragment
    opens : bool, default True
        Whether to open new sources here. Otherwise the query is the first to fail on an unopenable source.
    """
    name = folder.name
    held: dict[str, str] = {}
    own: dict[str, Step] = {}
    sources: dict[str, dict[str, list[str]]] = {}
    opened: dict[str, Source] = {}
    subscriptions: dict[str, dict[str, Subscription]] = {}
    placed: dict[str, str | None] = {}
    for addition, submission in deployments:
        named = subscriptions.setdefault(submission.name, {})
        for step, node, label in lower_placed(submission.flow, addition.placed):
            owner = name if step.id in own else _owner(step, addition.placed[node], owners, fragments)
            if owner is None:
                own[step.id] = step
            held[step.id] = owner or name
            if isinstance(step.operator, IngestStep):
                held[step.id + HEARTBEAT_SUFFIX] = held[step.id]
            found = named.setdefault(held[step.id], Subscription({}, {})).labels.setdefault(step.id, [])
            if label not in found:
                found.append(label)
        for stream in submission.routes:
            if stream != ERRORS_STREAM:
                running = addition.placed[stream]
                named[held[running]].streams.setdefault(running, []).append(stream)
        new = {step.id for step in addition.new}
        placed |= {id: held.get(id) for id in addition.placed.values() if id in new}
        for node, (source, member, members, merging) in required_sources(submission).items():
            if (step_id := addition.placed[node]) in own:
                if source not in sources:
                    one = SharedSource(source, members, merging)
                    if opens:
                        one.open()  # if this raises, nothing has changed yet
                    opened[source] = one.source
                    sources[source] = {each: [] for each in members}
                if step_id not in sources[source][member]:
                    sources[source][member].append(step_id)
    if not own:
        return Placement(None, placed, subscriptions)
    known = {step for addition, _ in deployments for step in addition.placed.values()}
    spec = FragmentSpec(name, list(own), [s for s in own if s in known], sources, {}, {})
    fragment = Fragment(folder, spec, list(own.values()), opened)
    for stream in sorted(fragment.external_inputs({*own})):
        spec.topics.setdefault(held[stream], TopicInput([])).streams.append(stream)
    for step in own.values():
        above = {step.id} if isinstance(step.operator, IngestStep) else set[str]()
        for stream in input_streams(step):
            producer = stream.removesuffix(HEARTBEAT_SUFFIX)
            origins = spec.origins if producer in own else fragments[held[stream]].spec.origins
            above.update(origins[producer])
        spec.origins[step.id] = sorted(above)
    return Placement(fragment, placed, subscriptions)


def source_reader(source: str, fragments: Mapping[str, Fragment]) -> str | None:
    """Return the fragment that reads a shared source already."""
    return next((name for name, one in fragments.items() if one.reads_source(source)), None)


def add_source_steps(deployments: Sequence[Deployment], fragments: Mapping[str, Fragment]) -> dict[str, Fragment]:
    """Extend the fragments that read a source already by new steps on that source, so that it is read once.

    Returns the extended copies by name.
    """
    extended: dict[str, Fragment] = {}
    for addition, submission in deployments:
        fresh = {step.id for step in addition.new}
        steps = {step.id: step for step, _, _ in lower_placed(submission.flow, addition.placed)}
        for node, (source, member, _, _) in required_sources(submission).items():
            id, name = addition.placed[node], source_reader(source, fragments)
            if id in fresh and name is not None:
                fragment = extended.get(name, fragments[name])
                spec = FragmentSpec(name, [id], [id], {source: {member: [id]}}, {}, {id: [id]})
                found = fragment.extended_by(Fragment(fragment.folder, spec, [steps[id]], {}))
                if found is not None:
                    extended[name] = found
    return extended


def check_sources(
    deployments: Sequence[Deployment],
    fresh: Iterable[Fragment],
    known: Iterable[Fragment],
    running: Iterable[Subscriber],
) -> None:
    """Raise if new dataflows would read a source that allows only one reader beside its present reader."""
    new = {name: source for fragment in fresh for name, source in fragment.sources.items()}
    held = (found for fragment in known for found in fragment.sources.items())
    check_exclusive(new, held, [submission for _, submission in deployments], (one.submission for one in running))


def join_running(new: Placement, fragments: Mapping[str, Fragment]) -> tuple[Placement, Fragment] | None:
    """Move new steps into a running fragment that has a stage for them.

    Returns the changed placement and the extended fragment; None if no running fragment fits.
    """
    if new.fragment is None:
        return None
    own = new.fragment.name
    for name, fragment in fragments.items():
        if fragment.failure is None and (extended := fragment.extended_by(new.fragment)) is not None:
            subscriptions = {}
            for dataflow, named in new.subscriptions.items():
                subscriptions[dataflow] = {one: found for one, found in named.items() if one != own}
                for found in (named.get(own), named.get(name)):
                    if found is not None:
                        known = subscriptions[dataflow].setdefault(name, Subscription({}, {}))
                        merged = Subscription(known.streams | found.streams, known.labels | found.labels)
                        subscriptions[dataflow][name] = merged
            owners = {step: name if owner == own else owner for step, owner in new.owners.items()}
            return Placement(None, owners, subscriptions), extended
    return None


def _owner(step: Step, node: str, owners: Mapping[str, str | None], fragments: Mapping[str, Fragment]) -> str | None:
    """Return the fragment that runs a step; None if it must run beside its node.

    An auxiliary step that the manager does not know runs in the fragment of its node or, for watermarks, of its input.
    Numbers for a merge come from any fragment that has them, after a restart from the one that its node's fragment
    reads.
    """
    if step.id in owners:
        return owners[step.id]
    near = [owners.get(node)]
    if isinstance(step.operator, WatermarkGenerator):
        near.insert(0, owners.get(step.inputs[0]))
    elif isinstance(step.operator, Renumber):
        sound = (name for name, one in fragments.items() if one.failure is None and step.id not in one.disabled_streams)
        near += sound if near == [None] else [name for one in near if one for name in fragments[one].spec.topics]
    known = (one for one in near if one is not None and one in fragments)
    return next((one for one in known if step.id in fragments[one].spec.origins), None)


def first_messages(
    placed: Mapping[str, str],
    submission: Submission,
    starts: Iterable[tuple[int, UpstreamProgress]],
    fragments: Iterable[Fragment],
) -> dict[str, int]:
    """Return, by source of a dataflow that starts at these batches of topics, the first message that it sees."""
    seen = [progress.next for _, progress in starts]
    read = [{*steps} for one in fragments for members in one.spec.sources.values() for steps in members.values()]
    found = {}
    for node in submission.flow.nodes_of_kind("source"):
        alike = {placed[node.id]}.union(*(steps for steps in read if placed[node.id] in steps))
        found[node.id] = max((one.get(step, 0) for one in seen for step in alike), default=0)
    return found


def rebound_source(members: Mapping[str, list[str]], deployments: Sequence[Deployment]) -> Source:
    """Return the source that these steps read, as bound again after a restart."""
    wanted = {step for steps in members.values() for step in steps}
    for addition, submission in sorted(deployments, key=has_placeholder):
        for node, (source, _, bound, merging) in required_sources(submission).items():
            if addition.placed[node] in wanted:
                found: Source = SharedSource(source, bound, merging).source
                return found
    raise StateError(f"no dataflow has bound the source of {', '.join(sorted(wanted))} again")
