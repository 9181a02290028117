"""How far a random search goes."""

from __future__ import annotations

import os

__all__ = ["depth", "seeds"]

_WHOLE = os.environ.get("HYPOTHESIS_PROFILE", "default") != "default"


def depth(examples: int) -> int:
    """How many examples a test takes: all in a search for faults, in between a third of them, but 20 where it has so many."""
    return examples if _WHOLE else max(min(examples, 20), examples // 3)


def seeds(number: int) -> range:
    """Seeds of a test that runs for seconds with each: all in a search for faults, in between half of them."""
    return range(number if _WHOLE else (number + 1) // 2)
