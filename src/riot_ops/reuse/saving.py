"""What sharing saves per second, as a back end's figures tell from one look to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from riot_ops.reuse.shared import Shared

__all__ = ["Saving", "Savings", "per_second"]

#: Looks that follow one another faster are one.
SHORTEST_SECONDS = 1.0


@dataclass(frozen=True)
class Saving:
    """What is saved.

    Attributes
    ----------
    rates : dict of str to float
        By running step, the records per second that it takes.
    messages, records : float
        Messages per second that sources do not read, and records that other steps do not take, once more.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    messages: float = 0.0
    records: float = 0.0

    def __str__(self) -> str:
        return f"{per_second(self.messages)} messages and {per_second(self.records)} records are saved"


class Savings:
    """Tells what has been saved since somebody looked last.

    Parameters
    ----------
    stats : dict
        A back end's; one that tells no ``records`` by step has no rates.
    clock : function, default time.monotonic
        The time in seconds.

    Examples
    --------
    >>> now = iter([0.0, 2.0, 2.5])
    >>> savings = Savings({"records": {}}, lambda: next(now))
    >>> savings.look(Shared(), {"records": {"city.0": 100}})
    Saving(rates={'city.0': 50.0}, messages=0.0, records=0.0)
    >>> savings.look(Shared(), {"records": {"city.0": 900}}).rates  # too soon to tell
    {'city.0': 50.0}
    """

    def __init__(self, stats: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: Mapping[str, int] = stats.get("records", {})
        self._looked = clock()
        self._rates: dict[str, float] = {}

    def look(self, shared: Shared, stats: Mapping[str, Any]) -> Saving | None:
        """What is saved by those who share these steps; None where nobody counts, or it is too soon to tell."""
        records: Mapping[str, int] = stats.get("records", {})
        now = self._clock()
        if (passed := now - self._looked) >= SHORTEST_SECONDS:
            # who has begun anew counts from 0
            self._rates = {s: max(0, n - self._records.get(s, 0)) / passed for s, n in records.items()}
            self._records, self._looked = dict(records), now
        if not self._rates:
            return None
        saved = {"source": 0.0, "task": 0.0, "sink": 0.0}
        read: set[str] = set()  # once, whichever fields of it are wanted: the most by who has been there longest
        for step, rate in sorted(self._rates.items(), key=lambda one: -one[1]):
            if (running := shared.steps.get(step)) is not None and (awake := shared.users[step] - shared.paused):
                piece = running.piece
                saved[piece.kind] += rate * (len(awake) - (piece.reading not in read))
                read |= {piece.reading} - {""}
        return Saving(self._rates, saved["source"], saved["task"])


def per_second(rate: float) -> str:
    """A rate as text.

    >>> per_second(12.345), per_second(12345.6)
    ('12.3/s', '12,346/s')
    """
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:,.1f}/s"
