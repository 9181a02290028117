"""How far random searches go: ``make test-all`` takes all examples, ``make test`` a fifth, ``make test-fast`` a tenth."""

from __future__ import annotations

import os

__all__ = ["FAST", "depth", "seeds", "stride"]

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
#: Whether the tests run between two edits.
FAST = _PROFILE == "fast"
_WHOLE = _PROFILE not in ("default", "fast")


def depth(examples: int, few: int | None = None) -> int:
    """The number of examples of a test that takes ``examples`` in a search for faults.

    A test whose examples take half a second each states how ``few`` it takes otherwise.
    """
    if _WHOLE:
        return examples
    if FAST:
        return max(min(examples, few or 5, 5), examples // 10)
    return few or max(min(examples, 10), examples // 5)


def stride(step: int) -> int:
    """The step between the cases of an exhaustive test: 1 in a search for faults, else ``step``."""
    return 1 if _WHOLE else step


def seeds(number: int) -> range:
    """Seeds of a test that takes seconds with each: all in a search for faults, half of them in ``make test``."""
    return range(number if _WHOLE else 1 if FAST else (number + 1) // 2)
