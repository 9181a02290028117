"""How far a random search goes."""

from __future__ import annotations

import os

__all__ = ["depth"]

_WHOLE = os.environ.get("HYPOTHESIS_PROFILE", "default") != "default"


def depth(examples: int) -> int:
    """How many examples a test takes: all in a search for faults, in between a third of them, but 20 where it has so many."""
    return examples if _WHOLE else max(min(examples, 20), examples // 3)
