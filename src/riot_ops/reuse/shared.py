"""What runs, and for whom: the books of the manager, which know nothing of records, queries or files.

The books change in two moves. An :class:`Addition` or a :class:`Removal` is made, which changes nothing; when somebody
has enacted it, it is applied. Ids of running steps never change, so that what others know of them stays true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from riot_ops.reuse.identity import Piece

__all__ = ["Addition", "Allows", "Group", "Removal", "Rest", "Running", "Shared"]

#: Whether a step of a newcomer may share one that runs.
Allows = Callable[[Piece, str], bool]


@dataclass(frozen=True)
class Running:
    """A step that runs, for one dataflow or many; ``inputs`` are the ids of the steps that it reads."""

    id: str
    piece: Piece
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Addition:
    """What a dataflow that comes adds to what runs.

    Attributes
    ----------
    name : str
        The dataflow.
    placed : dict of str to str
        The running step of each of its nodes.
    new : tuple of Running
        Those that begin with it, each after its inputs.
    boundary : tuple of (str, str)
        Streams from a step that runs to one that is new.
    woken : frozenset of str
        Shared steps that rest, as all who used them are paused, and go on.
    """

    name: str
    placed: Mapping[str, str]
    new: tuple[Running, ...]
    boundary: tuple[tuple[str, str], ...] = ()
    woken: frozenset[str] = frozenset()

    @property
    def reused(self) -> dict[str, str]:
        """Its nodes for which a step runs already."""
        fresh = {step.id for step in self.new}
        return {node: step for node, step in self.placed.items() if step not in fresh}


@dataclass(frozen=True)
class Removal:
    """What goes with a dataflow.

    Attributes
    ----------
    name : str
        The dataflow.
    stopped : tuple of str
        Steps that nobody else uses, each after its inputs.
    kept : tuple of str
        The others.
    cut : tuple of (str, str)
        Streams from a step that stays to one that goes.
    rested : frozenset of str
        Steps that stay, but all who use them are paused.
    parts : tuple of frozenset of str
        The groups into which the rest of its group falls.
    """

    name: str
    stopped: tuple[str, ...]
    kept: tuple[str, ...] = ()
    cut: tuple[tuple[str, str], ...] = ()
    rested: frozenset[str] = frozenset()
    parts: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True)
class Rest:
    """A dataflow pauses, or goes on: the steps that rest from now on, or wake."""

    name: str
    paused: bool
    steps: frozenset[str]


@dataclass
class Group:
    """Running steps that hang together, and the dataflows that they are of."""

    steps: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)


class Shared:
    """The books: which steps run, who uses them, and which hang together."""

    def __init__(self) -> None:
        self.steps: dict[str, Running] = {}
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

    # -- dataflows come ----------------------------------------------------------------------------

    def additions(
        self,
        coming: Mapping[str, Mapping[str, Piece]],
        allows: Allows = lambda piece, step: True,
        at: Mapping[str, Mapping[str, str]] | None = None,
    ) -> list[Addition]:
        """What it would take to run these dataflows too, each after those before it.

        By name, the steps of each; where it is known (``at``), they become the steps that they had.
        """
        found = []
        begun: set[str] = set()
        twins: dict[tuple[str, tuple[str, ...]], str] = {}  # what is new stands once as well
        number = self._next
        for name, pieces in coming.items():
            placed: dict[str, str] = {}
            new: dict[str, Running] = {}
            for node, piece in pieces.items():
                inputs = tuple(placed[above] for above in piece.inputs)
                twin = at[name][node] if at is not None else self._twin(piece, inputs, allows)
                if twin is None:
                    twin = twins.get((piece.signature, inputs)) or f"{piece.label}.{number}"
                placed[node] = twin
                if twin not in self.steps and twin not in begun:
                    number += 1
                    begun.add(twin)
                    new[twin] = Running(twin, piece, inputs)
                    twins[piece.signature, inputs] = twin
            boundary = ((above, step.id) for step in new.values() for above in step.inputs if above not in new)
            woken = {step for step in placed.values() if step not in begun and self.rests(step)}
            awake = frozenset(woken if name not in self.paused else ())
            found.append(Addition(name, placed, tuple(new.values()), tuple(boundary), awake))
        return found

    def _twin(self, piece: Piece, inputs: tuple[str, ...], allows: Allows) -> str | None:
        for step in self.index.get(piece.signature, ()):
            if self.steps[step].inputs == inputs and allows(piece, step):
                return step
        return None

    def add(self, addition: Addition) -> int:
        """Apply it; returns the group that the dataflow is in."""
        name = addition.name
        groups = {self.group_of[step] for step in addition.placed.values() if step in self.group_of}
        self.placed[name] = dict(addition.placed)
        self.taken(step.id for step in addition.new)
        for step in addition.new:
            self.steps[step.id] = step
            self.users[step.id] = set()
            self.readers[step.id] = set()
            self.index.setdefault(step.piece.signature, []).append(step.id)
            for above in step.inputs:
                self.readers[above].add(step.id)
        for placed in addition.placed.values():
            self.users[placed].add(name)
        # the largest takes the others in
        joined = sorted(groups, key=lambda g: (-len(self.groups[g].steps), g))
        id = joined[0] if joined else self._fresh_group()
        group = self.groups[id]
        for other in joined[1:]:
            gone = self.groups.pop(other)
            self._belong(gone.steps, id)
            group.members |= gone.members
        self._belong((step.id for step in addition.new), id)
        group.members.add(name)
        self.version += 1
        return id

    def taken(self, steps: Iterable[str]) -> None:
        """These ids have been given to steps: no other gets one of them."""
        self._next = max([self._next, *(int(step.rpartition(".")[2]) + 1 for step in steps)])

    def _fresh_group(self) -> int:
        id = max(self.groups, default=-1) + 1
        self.groups[id] = Group()
        return id

    def _belong(self, steps: Iterable[str], group: int) -> None:
        for step in steps:
            self.group_of[step] = group
            self.groups[group].steps.add(step)

    # -- a dataflow goes ---------------------------------------------------------------------------

    def removal(self, name: str) -> Removal:
        """What would go with a dataflow."""
        steps = dict.fromkeys(self.placed[name].values())
        stopped = tuple(step for step in steps if self.users[step] == {name})
        kept = tuple(step for step in steps if self.users[step] != {name})
        gone = set(stopped)
        group = self.groups[self.group_of[next(iter(steps))]]
        left = frozenset(group.steps - gone)
        # there are no more parts than it has sources: what stays of it hangs on these
        one = not gone or sum(not self.steps[step].inputs for step in steps) == 1
        return Removal(
            name,
            stopped,
            kept,
            tuple((above, s) for s in stopped for above in self.steps[s].inputs if above not in gone),
            frozenset(s for s in kept if self.users[s] - {name} <= self.paused and not self.rests(s)),
            self._parts(left) if left and not one else (left,) if left else (),
        )

    def _parts(self, steps: frozenset[str]) -> tuple[frozenset[str], ...]:
        left = dict.fromkeys(sorted(steps))
        parts = []
        while left:
            waiting = [next(iter(left))]
            part = set(waiting)
            while waiting:
                step = waiting.pop()
                del left[step]
                for other in (*self.steps[step].inputs, *self.readers[step]):
                    if other in steps and other not in part:
                        part.add(other)
                        waiting.append(other)
            parts.append(frozenset(part))
        return tuple(sorted(parts, key=lambda part: (-len(part), min(part))))

    def remove(self, removal: Removal) -> None:
        """Apply it. What is left of a group keeps its number, of several parts the largest."""
        name = removal.name
        id = self.group_of[next(iter(self.placed[name].values()))]
        for step in set(self.placed.pop(name).values()):
            self.users[step].discard(name)
        for stopped in reversed(removal.stopped):
            running = self.steps.pop(stopped)
            del self.users[stopped], self.readers[stopped], self.group_of[stopped]
            same = self.index[running.piece.signature]
            same.remove(stopped)
            if not same:
                del self.index[running.piece.signature]
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
                own = self._fresh_group() if place else id
                self.groups[own] = Group()
                self._belong(part, own)
            for member in members:
                self.groups[self.home(member)].members.add(member)
        self.paused.discard(name)
        self.version += 1

    # -- a dataflow pauses -------------------------------------------------------------------------

    def rest(self, name: str, paused: bool) -> Rest:
        """The steps that rest, or wake, when a dataflow pauses or goes on."""
        others = self.paused - {name}
        return Rest(name, paused, frozenset(s for s in self.placed[name].values() if self.users[s] - {name} <= others))

    def apply_rest(self, rest: Rest) -> None:
        """Apply it."""
        (self.paused.add if rest.paused else self.paused.discard)(rest.name)
        self.version += 1

    def rests(self, step: str) -> bool:
        """Whether all who use a step are paused."""
        return bool(self.paused) and self.users[step] <= self.paused

    # -- looking -----------------------------------------------------------------------------------

    def home(self, name: str) -> int:
        """The group that a dataflow is in."""
        return self.group_of[next(iter(self.placed[name].values()))]

    def shares(self) -> Counter[int]:
        """How many steps are used by one dataflow, by two, and so on."""
        return Counter(map(len, self.users.values()))

    def canonical(self) -> Any:
        """All of it up to names of steps and groups: what depends on the dataflows alone, not on how they came."""
        steps = sorted(
            (s.piece.signature, tuple(self.steps[i].piece.signature for i in s.inputs), tuple(sorted(self.users[s.id])))
            for s in self.steps.values()
        )
        groups = sorted(tuple(sorted(group.members)) for group in self.groups.values())
        return steps, groups, sorted(self.paused)
