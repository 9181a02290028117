"""What enacts the changes of the manager; and the back end that only keeps books."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from riot_ops.reuse.readings import readings
from riot_ops.reuse.shared import Addition, Removal, Rest
from riot_ops.reuse.submission import Reads, Submission

__all__ = ["Backend", "Coming", "NullBackend", "apart", "take_back"]

#: A dataflow that comes: what it adds to what runs, and what it is.
Coming = tuple[Addition, Submission]


class Backend(Protocol):
    """Runs steps. Each call is enacted whole, or raises and leaves all as it was.

    A back end may run the steps of a group in several *fragments*, such as queries on Spark, which hand streams to each
    other: then :meth:`extend` launches the new steps as one more, and lets the running steps at the boundary forward
    their streams to it; :meth:`reduce` ends forwarding, and lets steps rest that it cannot take out.
    """

    #: Whether it needs sources and sinks, and reads records once or some again.
    reads: Reads

    def extend(self, coming: Sequence[Coming]) -> list[dict[str, int]]:
        """Run new steps and feed the newcomers' sinks; returns by source the first message that each sees.

        What one of them adds another may read, if it comes behind it.
        """

    def reduce(self, removal: Removal) -> None:
        """End a dataflow's sinks, and the steps that only it used."""

    def settled(self, name: str) -> None:
        """Wait for the sinks of a dataflow that has gone, but not for ever; others may act meanwhile."""

    def rest(self, rest: Rest) -> dict[str, int]:
        """Let a dataflow's sinks, and the steps that it alone kept awake, rest or go on.

        Returns by source the first message that it does not see any more, or sees again, where that is known.
        """

    def defragment(self, groups: Iterable[frozenset[str]]) -> None:
        """Run each of these groups of steps in one fragment, without those that rest in it for good."""

    def between(self) -> AbstractContextManager[None]:
        """While what is fresh stays so, where records move meanwhile."""

    def fresh(self, step: str) -> bool:
        """Whether a step has seen no record yet."""

    def broken(self, step: str) -> bool:
        """Whether a step, or its source, has failed and gives nothing more: whoever comes gets one of its own."""

    def running(self) -> set[str]:
        """The steps that run."""

    def stats(self) -> dict[str, Any]:
        """``fragments``, and ``idle``: steps that nobody wants but that cannot be taken out; and what else it knows."""

    def taking_up(self) -> AbstractContextManager[None]:
        """Around the additions of dataflows that ran before a restart, with the steps that they had.

        What a back end keeps of those goes on; at the end of this, what nobody has taken up goes. A source or sink that
        cannot be opened again fails as one does that was there: it is the matter of its dataflow alone.
        """

    def close(self) -> None:
        """End everything."""


def apart(
    coming: Sequence[Coming], fragment: Callable[[str], Any], reader: Callable[[str], Any] = lambda reading: None
) -> list[list[Coming]]:
    """Dataflows that come at once, in parts that have nothing in common: no step, no fragment of what runs, no reading.

    ``fragment`` tells which has a step, ``reader`` which does a reading.
    """
    found: list[tuple[set[Any], list[Coming]]] = []
    for one in coming:
        keys = {step if (of := fragment(step)) is None else ("", of) for step in one[0].placed.values()}
        needed = {reading for reading, *_ in readings(one[1]).values()}
        keys |= {("reading", reading) if (of := reader(reading)) is None else ("", of) for reading in needed}
        near = [part for part in found if not keys.isdisjoint(part[0])]
        if not near:
            found.append((keys, [one]))
            continue
        first, *others = near
        first[0].update(keys, *(part[0] for part in others))
        first[1].extend([*(other for part in others for other in part[1]), one])
        found = [part for part in found if not any(part is other for other in others)]
    return [part for _, part in found]


def take_back(backend: Backend, coming: Sequence[Coming]) -> None:
    """Have a back end forget dataflows that it has, each behind those that come after it; all of them or none."""
    gone: list[Coming] = []
    try:
        for one in reversed(coming):
            addition, _ = one
            steps, kept = tuple(step.id for step in addition.new), tuple(addition.reused.values())
            backend.reduce(Removal(addition.name, steps, kept, addition.boundary, addition.woken))
            gone.append(one)
    except Exception:
        if gone:
            backend.extend(gone[::-1])
        raise


class NullBackend:
    """Runs nothing, but keeps books of the fragments that queries would be: to see what sharing saves.

    As it opens no source and no sink, nothing fails in it.
    """

    reads: Reads = ""

    def __init__(self) -> None:
        #: The steps that were launched together; those that are idle among them.
        self.fragments: list[set[str]] = []
        self.idle: set[str] = set()

    def extend(self, coming: Sequence[Coming]) -> list[dict[str, int]]:
        places = {step: place for place, steps in enumerate(self.fragments) for step in steps} if coming[1:] else {}
        for together in apart(coming, places.get):
            new = {step.id for addition, _ in together for step in addition.new}
            self.fragments += [new] if new else []
        return [{node.id: 0 for node in submission.flow.kind("source")} for _, submission in coming]

    def reduce(self, removal: Removal) -> None:
        self.idle.update(removal.stopped)
        self.fragments = [steps for steps in self.fragments if not steps <= self.idle]
        self.idle &= set().union(*self.fragments)

    def settled(self, name: str) -> None:
        pass

    def rest(self, rest: Rest) -> dict[str, int]:
        return {}

    def defragment(self, groups: Iterable[frozenset[str]]) -> None:
        wanted = [set(steps) for steps in groups]
        touched = set().union(*wanted)
        self.fragments = [f for f in self.fragments if not f & touched] + wanted
        self.idle &= set().union(*self.fragments)

    def between(self) -> AbstractContextManager[None]:
        return nullcontext()

    def fresh(self, step: str) -> bool:
        return False

    def broken(self, step: str) -> bool:
        return False

    def running(self) -> set[str]:
        return set().union(*self.fragments) - self.idle

    def stats(self) -> dict[str, Any]:
        return {"fragments": len(self.fragments), "idle": len(self.idle)}

    def taking_up(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        self.fragments, self.idle = [], set()
