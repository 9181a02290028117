"""How far a random search goes."""

from __future__ import annotations

import os

__all__ = ["depth", "seeds"]

_WHOLE = os.environ.get("HYPOTHESIS_PROFILE", "default") != "default"


def depth(examples: int, few: int | None = None) -> int:
    """How many examples a test takes: all in a search for faults, in between a third of them, but 10 where it has so many.

    A test whose examples take half a second each says how ``few`` it takes in between.
    """
    return examples if _WHOLE else few or max(min(examples, 10), examples // 3)


def seeds(number: int) -> range:
    """Seeds of a test that runs for seconds with each: all in a search for faults, in between half of them."""
    return range(number if _WHOLE else (number + 1) // 2)
