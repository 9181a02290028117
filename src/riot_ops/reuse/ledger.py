"""The ledger of the manager: which steps run, and for which dataflows; without records, queries or files.

A change takes two calls. The first plans an :class:`Addition`, a :class:`Removal` or a :class:`PauseChange` and
changes nothing; the second applies it after the back end has enacted it. The id of a running step never changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from riot_ops.reuse.signature import StepIdentity

__all__ = [
    "Addition",
    "Group",
    "Ledger",
    "PauseChange",
    "Removal",
    "RunningStep",
    "SharingRule",
    "connected_parts",
    "step_number",
]

T = TypeVar("T")

#: Whether a step of a new dataflow may share a running step.
SharingRule = Callable[[StepIdentity, str], bool]


def step_number(step: str) -> int:
    """Return the number in the id of a running step: steps that began later have higher ones.

    >>> step_number("city.12")
    12
    """
    return int(step.rpartition(".")[2])


def connected_parts(ties: Iterable[Iterable[T]]) -> list[set[T]]:
    """Merge all sets that overlap; returns the parts in the order of their first members.

    >>> [sorted(part) for part in connected_parts(["ab", "c", "de", "bd"])]
    [['a', 'b', 'd', 'e'], ['c']]
    """
    part_of: dict[T, set[T]] = {}
    for tie in map(set, ties):
        near = {id(part): part for one in tie if (part := part_of.get(one)) is not None}
        whole = max(near.values(), key=len, default=tie)
        for part in (tie, *near.values()):
            if part is not whole:
                whole |= part
                part_of.update(dict.fromkeys(part, whole))
        if not near:
            part_of.update(dict.fromkeys(tie, whole))
    return [*{id(part): part for part in part_of.values()}.values()]


@dataclass(frozen=True)
class RunningStep:
    """A running step of one or more dataflows; ``inputs`` are the ids of the steps that it reads."""

    id: str
    identity: StepIdentity
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Addition:
    """Steps and streams that a new dataflow adds.

    Attributes
    ----------
    name : str
        The dataflow.
    placed : dict of str to str
        The running step of each node.
    new : tuple of RunningStep
        Steps that begin with the dataflow, each after its inputs.
    boundary : tuple of (str, str)
        Streams from a running step to a new one.
    resumed_steps : frozenset of str
        Shared steps that were paused with all their users, and resume.
    """

    name: str
    placed: Mapping[str, str]
    new: tuple[RunningStep, ...]
    boundary: tuple[tuple[str, str], ...] = ()
    resumed_steps: frozenset[str] = frozenset()

    @property
    def reused(self) -> dict[str, str]:
        """The nodes whose step runs already, with that step."""
        fresh = {step.id for step in self.new}
        return {node: step for node, step in self.placed.items() if step not in fresh}


@dataclass(frozen=True)
class Removal:
    """Steps and streams that the removal of a dataflow ends.

    Attributes
    ----------
    name : str
        The dataflow.
    stopped : tuple of str
        Steps that no other dataflow uses, each after its inputs.
    kept : tuple of str
        Its other steps.
    boundary : tuple of (str, str)
        Streams from a step that stays to a stopped one.
    paused_steps : frozenset of str
        Steps that stay, but whose users are all paused.
    parts : tuple of frozenset of str
        The groups into which the rest of its group falls.
    """

    name: str
    stopped: tuple[str, ...]
    kept: tuple[str, ...] = ()
    boundary: tuple[tuple[str, str], ...] = ()
    paused_steps: frozenset[str] = frozenset()
    parts: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True)
class PauseChange:
    """Pauses or resumes a dataflow; ``steps`` are those that pause or resume with it."""

    name: str
    paused: bool
    steps: frozenset[str]


@dataclass
class Group:
    """Connected running steps, and the dataflows that use them."""

    steps: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)


class Ledger:
    """Which steps run, which dataflows use them, and which steps are connected."""

    def __init__(self) -> None:
        self.steps: dict[str, RunningStep] = {}
        self.users: dict[str, set[str]] = {}
        self.readers: dict[str, set[str]] = {}
        #: Running steps by signature: one each, unless the policy keeps them apart.
        self.index: dict[str, list[str]] = {}
        #: The step of each node of each dataflow.
        self.placed: dict[str, dict[str, str]] = {}
        self.paused: set[str] = set()
        self.groups: dict[int, Group] = {}
        self.group_of: dict[str, int] = {}
        self.version = 0
        self._next = 0

    # -- additions ---------------------------------------------------------------------------------

    def plan_additions(
        self,
        coming: Mapping[str, Mapping[str, StepIdentity]],
        allows: SharingRule = lambda identity, step: True,
        at: Mapping[str, Mapping[str, str]] | None = None,
    ) -> list[Addition]:
        """What each of these dataflows would add, given those before it.

        ``coming`` holds the steps by dataflow and node; ``at`` the running step of each node, where it is known from
        before a restart.
        """
        found = []
        begun: set[str] = set()
        twins: dict[tuple[str, tuple[str, ...]], str] = {}  # the new steps, each of which exists once too
        number = self._next
        for name, identities in coming.items():
            placed: dict[str, str] = {}
            new: dict[str, RunningStep] = {}
            for node, identity in identities.items():
                inputs = tuple(placed[above] for above in identity.inputs)
                twin = at[name][node] if at is not None else self._find_equal(identity, inputs, allows)
                if twin is None:
                    twin = twins.get((identity.signature, inputs)) or f"{identity.label}.{number}"
                placed[node] = twin
                if twin not in self.steps and twin not in begun:
                    number += 1
                    begun.add(twin)
                    new[twin] = RunningStep(twin, identity, inputs)
                    twins[identity.signature, inputs] = twin
            boundary = ((above, step.id) for step in new.values() for above in step.inputs if above not in new)
            asleep = {step for step in placed.values() if step not in begun and self.is_paused(step)}
            resumed = frozenset(asleep if name not in self.paused else ())
            found.append(Addition(name, placed, tuple(new.values()), tuple(boundary), resumed))
        return found

    def _find_equal(self, identity: StepIdentity, inputs: tuple[str, ...], allows: SharingRule) -> str | None:
        for step in self.index.get(identity.signature, ()):
            if self.steps[step].inputs == inputs and allows(identity, step):
                return step
        return None

    def add(self, addition: Addition) -> int:
        """Apply an addition; return the id of the dataflow's group."""
        name = addition.name
        groups = {self.group_of[step] for step in addition.placed.values() if step in self.group_of}
        self.placed[name] = dict(addition.placed)
        self.reserve_ids(step.id for step in addition.new)
        for step in addition.new:
            self.steps[step.id] = step
            self.users[step.id] = set()
            self.readers[step.id] = set()
            self.index.setdefault(step.identity.signature, []).append(step.id)
            for above in step.inputs:
                self.readers[above].add(step.id)
        for placed in addition.placed.values():
            self.users[placed].add(name)
        # the largest group absorbs the others
        joined = sorted(groups, key=lambda g: (-len(self.groups[g].steps), g))
        id = joined[0] if joined else self._new_group()
        group = self.groups[id]
        for other in joined[1:]:
            merged_group = self.groups.pop(other)
            self._assign_group(merged_group.steps, id)
            group.members |= merged_group.members
        self._assign_group((step.id for step in addition.new), id)
        group.members.add(name)
        self.version += 1
        return id

    def reserve_ids(self, steps: Iterable[str]) -> None:
        """Give these ids to no other step."""
        self._next = max([self._next, *(step_number(step) + 1 for step in steps)])

    def _new_group(self) -> int:
        id = max(self.groups, default=-1) + 1
        self.groups[id] = Group()
        return id

    def _assign_group(self, steps: Iterable[str], group: int) -> None:
        for step in steps:
            self.group_of[step] = group
            self.groups[group].steps.add(step)

    # -- removals ----------------------------------------------------------------------------------

    def plan_removal(self, name: str) -> Removal:
        """Plan the removal of a dataflow."""
        steps = dict.fromkeys(self.placed[name].values())
        stopped = tuple(step for step in steps if self.users[step] == {name})
        kept = tuple(step for step in steps if self.users[step] != {name})
        stopped_set = set(stopped)
        group = self.groups[self.group_of[next(iter(steps))]]
        left = frozenset(group.steps - stopped_set)
        # each part contains a source of the dataflow: with one source the rest stays connected
        one = not stopped_set or sum(not self.steps[step].inputs for step in steps) == 1
        return Removal(
            name,
            stopped,
            kept,
            tuple((above, s) for s in stopped for above in self.steps[s].inputs if above not in stopped_set),
            frozenset(s for s in kept if self.users[s] - {name} <= self.paused and not self.is_paused(s)),
            self._parts(left) if left and not one else (left,) if left else (),
        )

    def _parts(self, steps: frozenset[str]) -> tuple[frozenset[str], ...]:
        ties = ({step, *steps.intersection(self.steps[step].inputs)} for step in steps)
        return tuple(sorted(map(frozenset, connected_parts(ties)), key=lambda part: (-len(part), min(part))))

    def remove(self, removal: Removal) -> None:
        """Apply a removal. The rest of a group keeps its id; of several parts the largest does."""
        name = removal.name
        id = self.group_of[next(iter(self.placed[name].values()))]
        for step in set(self.placed.pop(name).values()):
            self.users[step].discard(name)
        for stopped in reversed(removal.stopped):
            running = self.steps.pop(stopped)
            del self.users[stopped], self.readers[stopped], self.group_of[stopped]
            same = self.index[running.identity.signature]
            same.remove(stopped)
            if not same:
                del self.index[running.identity.signature]
            for above in running.inputs:
                self.readers[above].discard(stopped)
        members = self.groups[id].members - {name}
        if not removal.parts:
            del self.groups[id]
        elif len(removal.parts) == 1:
            self.groups[id] = Group(set(removal.parts[0]), members)
        else:
            del self.groups[id]
            for place, part in enumerate(removal.parts):
                own = self._new_group() if place else id
                self.groups[own] = Group()
                self._assign_group(part, own)
            for member in members:
                self.groups[self.group_id(member)].members.add(member)
        self.paused.discard(name)
        self.version += 1

    # -- pauses ------------------------------------------------------------------------------------

    def plan_pause(self, name: str, paused: bool) -> PauseChange:
        """Return the steps that pause or resume with a dataflow."""
        others = self.paused - {name}
        return PauseChange(
            name, paused, frozenset(s for s in self.placed[name].values() if self.users[s] - {name} <= others)
        )

    def apply_pause(self, change: PauseChange) -> None:
        """Apply a pause or its end."""
        (self.paused.add if change.paused else self.paused.discard)(change.name)
        self.version += 1

    def is_paused(self, step: str) -> bool:
        """Whether all users of a step are paused."""
        return bool(self.paused) and self.users[step] <= self.paused

    # -- queries -----------------------------------------------------------------------------------

    def group_id(self, name: str) -> int:
        """Return the id of the group of a dataflow."""
        return self.group_of[next(iter(self.placed[name].values()))]

    def share_counts(self) -> Counter[int]:
        """Return the number of steps used by one dataflow, by two, and so on."""
        return Counter(map(len, self.users.values()))

    def canonical(self) -> Any:
        """Return everything except the ids of steps and groups: independent of the order of submission."""
        steps = sorted(
            (
                s.identity.signature,
                tuple(self.steps[i].identity.signature for i in s.inputs),
                tuple(sorted(self.users[s.id])),
            )
            for s in self.steps.values()
        )
        groups = sorted(tuple(sorted(group.members)) for group in self.groups.values())
        return steps, groups, sorted(self.paused)
