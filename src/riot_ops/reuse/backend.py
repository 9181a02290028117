"""What enacts the changes of the manager, and a back end that only counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from riot_ops.reuse.ledger import PauseChange, Removal, connected_parts
from riot_ops.reuse.shared_source import required_sources
from riot_ops.reuse.submission import Deployment, ReadMode

__all__ = ["Backend", "NullBackend", "independent_parts", "roll_back"]


class Backend(Protocol):
    """Runs steps. Each call is enacted as a whole, or raises and changes nothing.

    A back end may run the steps of a group in several *fragments*, such as queries on Spark, which pass streams to each
    other. :meth:`extend` then launches the new steps as a further fragment, and running steps at the boundary forward
    their streams to it. :meth:`reduce` ends the forwarding, and leaves steps idle that it cannot remove.

    Examples
    --------
    >>> from riot_ops.reuse import LocalBackend, ReuseManager
    >>> ReuseManager(LocalBackend()).backend.stats()["rows"]
    {}
    """

    #: Whether the back end needs sources and sinks, and whether it may read a record more than once.
    reads: ReadMode

    def extend(self, deployments: Sequence[Deployment]) -> list[dict[str, int]]:
        """Run the new steps and feed the new sinks; return, by source, the first message that each dataflow sees.

        A dataflow may read steps of those before it in the list.
        """

    def reduce(self, removal: Removal) -> None:
        """End a dataflow's sinks and the steps that only this dataflow used."""

    def wait_for_sinks(self, name: str) -> None:
        """Wait, within limits, for the sinks of a removed dataflow; other actions may run at the same time."""

    def apply_pause(self, change: PauseChange) -> dict[str, int]:
        """Pause or resume a dataflow's sinks and the steps that only they kept active.

        Returns, by source, the first message that the dataflow does not see any more, or sees again, where known.
        """

    def defragment(self, groups: Iterable[frozenset[str]]) -> None:
        """Run each of these groups of steps in one fragment, without the steps that are idle for good."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold records back while the context is open, so that a fresh step stays fresh."""
        return nullcontext()

    def is_fresh(self, step: str) -> bool:
        """Whether a step has seen no record yet."""
        return False

    def has_failed(self, step: str) -> bool:
        """Whether a step or its source has failed: a new dataflow gets a step of its own instead."""
        return False

    def running_steps(self) -> set[str]:
        """Return the ids of the running steps."""

    def retained_dataflows(self) -> Set[str]:
        """Return the names of the dataflows from before a restart that wait to be resumed."""
        return frozenset()

    def check_sinks(self, deployments: Sequence[Deployment]) -> None:
        """Raise if a sink of new dataflows would write into the folder of the back end itself."""

    def record_counts(self) -> Mapping[str, int]:
        """Return, by running step, the records that it has taken; empty if the back end counts none."""
        return {}

    def stats(self) -> dict[str, Any]:
        """Report ``fragments``, ``idle`` (steps that are not used but cannot be removed), and further figures."""

    def recovering(self) -> AbstractContextManager[None]:
        """Surround the :meth:`extend` of dataflows that ran before a restart, with the steps that they had.

        The back end resumes their saved state, and at the end drops the state that no dataflow has claimed. A source or
        sink that cannot be opened again counts as failed, for its dataflow alone.
        """
        return nullcontext()

    def close(self) -> None:
        """End everything."""


def independent_parts(
    deployments: Sequence[Deployment],
    fragment: Callable[[str], Any],
    reader: Callable[[str], Any] = lambda reading: None,
) -> list[list[Deployment]]:
    """Split new dataflows into parts that share no step, no fragment of running steps and no source.

    ``fragment`` returns the fragment of a running step, ``reader`` the one that reads a shared source; None if none.
    """
    ties = []
    for place, (addition, submission) in enumerate(deployments):
        keys: set[Any] = {step if (of := fragment(step)) is None else ("", of) for step in addition.placed.values()}
        needed = {reading for reading, *_ in required_sources(submission).values()}
        keys |= {("reading", reading) if (of := reader(reading)) is None else ("", of) for reading in needed}
        ties.append(keys | {place})
    return [[one for place, one in enumerate(deployments) if place in part] for part in connected_parts(ties)]


def roll_back(backend: Backend, deployments: Sequence[Deployment]) -> None:
    """Remove dataflows from a back end, last first; all or none."""
    removed: list[Deployment] = []
    try:
        for one in reversed(deployments):
            addition, _ = one
            steps, kept = tuple(step.id for step in addition.new), tuple(addition.reused.values())
            backend.reduce(Removal(addition.name, steps, kept, addition.boundary, addition.resumed_steps))
            removed.append(one)
    except Exception:
        if removed:
            backend.extend(removed[::-1])
        raise


class NullBackend(Backend):
    """Runs nothing, but counts the fragments that queries would be: shows what sharing saves.

    It opens no source and no sink, so nothing fails in it.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops.reuse import NullBackend, ReuseManager
    >>> def smooth(name, window):
    ...     flow = ro.Dataflow(name)
    ...     kalman = flow.source("city", schema={"value": "double"}).apply(ro.tasks.KalmanFilter(), id="kalman")
    ...     return flow.sink("out", kalman.apply(ro.tasks.MovingAverage(window=window), id="average"))
    >>> manager = ReuseManager(NullBackend())
    >>> first = manager.submit(smooth("a", 5), owner="ana")
    >>> _ = manager.submit(smooth("b", 10))
    >>> manager.backend.stats()
    {'fragments': 2, 'idle': 0}
    """

    reads: ReadMode = ""

    def __init__(self) -> None:
        #: Steps launched together, including those that are idle by now.
        self.fragments: list[set[str]] = []
        self.idle: set[str] = set()

    def extend(self, deployments: Sequence[Deployment]) -> list[dict[str, int]]:
        places = (
            {step: place for place, steps in enumerate(self.fragments) for step in steps} if deployments[1:] else {}
        )
        for together in independent_parts(deployments, places.get):
            new = {step.id for addition, _ in together for step in addition.new}
            self.fragments += [new] if new else []
        return [{node.id: 0 for node in submission.flow.nodes_of_kind("source")} for _, submission in deployments]

    def reduce(self, removal: Removal) -> None:
        self.idle.update(removal.stopped)
        self.fragments = [steps for steps in self.fragments if not steps <= self.idle]
        self.idle &= set().union(*self.fragments)

    def wait_for_sinks(self, name: str) -> None:
        pass

    def check_sinks(self, deployments: Sequence[Deployment]) -> None:
        pass

    def apply_pause(self, change: PauseChange) -> dict[str, int]:
        return {}

    def defragment(self, groups: Iterable[frozenset[str]]) -> None:
        wanted = [set(steps) for steps in groups]
        touched = set().union(*wanted)
        self.fragments = [f for f in self.fragments if not f & touched] + wanted
        self.idle &= set().union(*self.fragments)

    def running_steps(self) -> set[str]:
        return set().union(*self.fragments) - self.idle

    def stats(self) -> dict[str, Any]:
        return {"fragments": len(self.fragments), "idle": len(self.idle)}

    def close(self) -> None:
        self.fragments, self.idle = [], set()
