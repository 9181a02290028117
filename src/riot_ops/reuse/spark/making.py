"""What dataflows that come need: which steps run in a fragment of their own, and what they want of which topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from riot_ops.core.errors import StateError
from riot_ops.core.source import Source
from riot_ops.graph.lowering import BEATS, Step
from riot_ops.graph.marks import Marks
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.ingest.step import Intake
from riot_ops.reuse.backend import Coming
from riot_ops.reuse.placing import placed_steps
from riot_ops.reuse.reading import Reading, lacks
from riot_ops.reuse.readings import check_consumed, readings
from riot_ops.reuse.spark.control import reads
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.recipient import Recipient, Wanted
from riot_ops.reuse.spark.spec import FragmentSpec, Reads
from riot_ops.reuse.submission import Submission
from riot_ops.reuse.topic import Place

__all__ = ["Made", "brought", "check_sources", "first_messages", "joining", "made", "reader_of", "source_of"]


@dataclass
class Made:
    """What is new with dataflows, and not there yet.

    Attributes
    ----------
    fragment : Fragment or None
        Their new steps.
    where : dict of str to (str or None)
        By step that the manager knows and that is new, the fragment that has it; of sinks none.
    wanted : dict of str to dict of str to Wanted
        By dataflow, and by fragment, what its sinks want of that.
    """

    fragment: Fragment | None
    where: dict[str, str | None]
    wanted: dict[str, dict[str, Wanted]]

    @property
    def above(self) -> set[str]:
        """The other fragments of which they want something."""
        own = self.fragment
        named = {name for wanted in self.wanted.values() for name in wanted}
        return named if own is None else {*named, *own.spec.topics} - {own.name}


def made(
    coming: Sequence[Coming],
    folder: Path,
    where: Mapping[str, str | None],
    fragments: Mapping[str, Fragment],
    opens: bool = True,
) -> Made:
    """What dataflows need, where these steps are in these fragments; a new one is to have this folder.

    That a source cannot be opened is found out here, or without ``opens`` by the query.
    """
    name = folder.name
    held: dict[str, str] = {}
    own: dict[str, Step] = {}
    sources: dict[str, dict[str, list[str]]] = {}
    begun: dict[str, Source] = {}
    wanted: dict[str, dict[str, Wanted]] = {}
    placed: dict[str, str | None] = {}
    for addition, submission in coming:
        named = wanted.setdefault(submission.name, {})
        for step, node, label in placed_steps(submission.flow, addition.placed):
            holder = name if step.id in own else _holder(step, addition.placed[node], where, fragments)
            if holder is None:
                own[step.id] = step
            held[step.id] = holder or name
            if isinstance(step.operator, Intake):
                held[step.id + BEATS] = held[step.id]
            found = named.setdefault(held[step.id], Wanted({}, {})).labels.setdefault(step.id, [])
            if label not in found:
                found.append(label)
        for stream in submission.routes:
            if stream != ERRORS_STREAM:
                running = addition.placed[stream]
                named[held[running]].streams.setdefault(running, []).append(stream)
        new = {step.id for step in addition.new}
        placed |= {id: held.get(id) for id in addition.placed.values() if id in new}
        for node, (reading, member, members, merging) in readings(submission).items():
            if (step_id := addition.placed[node]) in own:
                if reading not in sources:
                    one = Reading(reading, members, merging)
                    if opens:
                        one.open()  # where it cannot be, nothing has changed yet
                    begun[reading] = one.source
                    sources[reading] = {each: [] for each in members}
                if step_id not in sources[reading][member]:
                    sources[reading][member].append(step_id)
    if not own:
        return Made(None, placed, wanted)
    known = {step for addition, _ in coming for step in addition.placed.values()}
    spec = FragmentSpec(name, list(own), [s for s in own if s in known], sources, {}, {})
    fragment = Fragment(folder, spec, list(own.values()), begun)
    for stream in sorted(fragment.outside({*own})):
        spec.topics.setdefault(held[stream], Reads([])).streams.append(stream)
    for step in own.values():
        above = {step.id} if isinstance(step.operator, Intake) else set[str]()
        for stream in reads(step):
            place = stream.removesuffix(BEATS)
            above.update(spec.origins[place] if place in own else fragments[held[stream]].spec.origins[place])
        spec.origins[step.id] = sorted(above)
    return Made(fragment, placed, wanted)


def reader_of(reading: str, fragments: Mapping[str, Fragment]) -> str | None:
    """The fragment that reads a source already."""
    return next((name for name, one in fragments.items() if one.reads(reading)), None)


def brought(coming: Sequence[Coming], fragments: Mapping[str, Fragment]) -> dict[str, Fragment]:
    """Fragments as they are with the new source steps of what they read already, so that nothing is read twice."""
    grown: dict[str, Fragment] = {}
    for addition, submission in coming:
        fresh = {step.id for step in addition.new}
        steps = {step.id: step for step, _, _ in placed_steps(submission.flow, addition.placed)}
        for node, (reading, member, _, _) in readings(submission).items():
            id, name = addition.placed[node], reader_of(reading, fragments)
            if id in fresh and name is not None:
                fragment = grown.get(name, fragments[name])
                spec = FragmentSpec(name, [id], [id], {reading: {member: [id]}}, {}, {id: [id]})
                taken = fragment.taking_in(Fragment(fragment.folder, spec, [steps[id]], {}))
                if taken is not None:
                    grown[name] = taken
    return grown


def check_sources(
    coming: Sequence[Coming], fresh: Iterable[Fragment], known: Iterable[Fragment], running: Iterable[Recipient]
) -> None:
    """Raise where what comes would read apart from others what only one may."""
    new = {name: source for fragment in fresh for name, source in fragment.sources.items()}
    held = (found for fragment in known for found in fragment.sources.items())
    check_consumed(new, held, [submission for _, submission in coming], (one.submission for one in running))


def joining(new: Made, fragments: Mapping[str, Fragment]) -> tuple[Made, Fragment] | None:
    """The same where its steps join a fragment that runs, and that one as it is then; None where none can take them."""
    if new.fragment is None:
        return None
    own = new.fragment.name
    for name, fragment in fragments.items():
        if fragment.failure is None and (grown := fragment.taking_in(new.fragment)) is not None:
            wanted = {}
            for dataflow, asked in new.wanted.items():
                wanted[dataflow] = {one: found for one, found in asked.items() if one != own}
                for found in (asked.get(own), asked.get(name)):
                    if found is not None:
                        there = wanted[dataflow].setdefault(name, Wanted({}, {}))
                        wanted[dataflow][name] = Wanted(there.streams | found.streams, there.labels | found.labels)
            where = {step: name if holder == own else holder for step, holder in new.where.items()}
            return Made(None, where, wanted), grown
    return None


def _holder(step: Step, node: str, where: Mapping[str, str | None], fragments: Mapping[str, Fragment]) -> str | None:
    """The fragment that has a step; what only helps one that the manager knows may be beside that, or above it."""
    if step.id in where:
        return where[step.id]
    beside = [where.get(step.inputs[0]), where.get(node)] if isinstance(step.operator, Marks) else [where.get(node)]
    return next((one for one in beside if one is not None and step.id in fragments[one].spec.origins), None)


def first_messages(
    placed: Mapping[str, str],
    submission: Submission,
    begins: Iterable[tuple[int, Place]],
    fragments: Iterable[Fragment],
) -> dict[str, int]:
    """By source of a dataflow, the first message that it sees, where it begins at these places of topics."""
    seen = [place.next for _, place in begins]
    read = [{*steps} for one in fragments for members in one.spec.sources.values() for steps in members.values()]
    found = {}
    for node in submission.flow.kind("source"):
        alike = {placed[node.id]}.union(*(steps for steps in read if placed[node.id] in steps))
        found[node.id] = max((one.get(step, 0) for one in seen for step in alike), default=0)
    return found


def source_of(members: Mapping[str, list[str]], again: Sequence[Coming]) -> Source:
    """What a reading of these steps reads, as it was given again."""
    wanted = {step for steps in members.values() for step in steps}
    for addition, submission in sorted(again, key=lacks):
        for node, (reading, _, given, merging) in readings(submission).items():
            if addition.placed[node] in wanted:
                found: Source = Reading(reading, given, merging).source
                return found
    raise StateError(f"nobody gave the source of {', '.join(sorted(wanted))} again")
