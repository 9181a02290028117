"""Which steps of an engine are needed by those that the manager knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

__all__ = ["Needs"]


class Needs:
    """By running step, the steps of the engine that it needs: itself, and routes and marks that may be of several.

    >>> needs = Needs()
    >>> for step in ("a.1", "b.2"):
    ...     needs.add(step, "in.0@1000")
    >>> needs.drop("a.1")
    >>> "in.0@1000" in needs, needs.of("a.1")
    (True, frozenset())
    """

    def __init__(self) -> None:
        self._of: dict[str, set[str]] = {}
        self._count: Counter[str] = Counter()

    def add(self, step: str, need: str) -> None:
        """A running step needs a step of the engine."""
        known = self._of.setdefault(step, set())
        if need not in known:
            known.add(need)
            self._count[need] += 1

    def drop(self, step: str) -> None:
        """A running step has stopped."""
        for need in self._of.pop(step, ()):
            self._count[need] -= 1
            if not self._count[need]:
                del self._count[need]

    def of(self, step: str) -> Set[str]:
        """What a running step needs."""
        return self._of.get(step, frozenset())

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, need: str) -> bool:
        """Whether somebody needs a step of the engine."""
        return need in self._count
