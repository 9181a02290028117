"""What sharing saves per second, from a back end's counts at successive measurements."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from riot_ops.reuse.ledger import Ledger

__all__ = ["Savings", "SavingsMeter", "per_second"]

#: Measurements in quicker succession give the same rates.
MIN_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Savings:
    """The work that sharing saves.

    Attributes
    ----------
    rates : dict of str to float
        By running step, the records per second that it takes.
    messages, records : float
        Messages per second that are not read again, and records per second that are not processed again.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    messages: float = 0.0
    records: float = 0.0

    def __str__(self) -> str:
        return f"{per_second(self.messages)} messages and {per_second(self.records)} records are saved"


class SavingsMeter:
    """Measures the savings since the previous measurement.

    Parameters
    ----------
    stats : dict
        Figures of a back end; without ``records`` by step there are no rates.
    clock : function, default time.monotonic
        Returns the time in seconds.

    Examples
    --------
    >>> now = iter([0.0, 2.0, 2.5])
    >>> meter = SavingsMeter({"records": {}}, lambda: next(now))
    >>> meter.measure(Ledger(), {"records": {"city.0": 100}})
    Savings(rates={'city.0': 50.0}, messages=0.0, records=0.0)
    >>> meter.measure(Ledger(), {"records": {"city.0": 900}}).rates  # too soon for new rates
    {'city.0': 50.0}
    """

    def __init__(self, stats: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: Mapping[str, int] = stats.get("records", {})
        self._measured = clock()
        self._rates: dict[str, float] = {}

    def measure(self, ledger: Ledger, stats: Mapping[str, Any]) -> Savings | None:
        """Return the savings by the steps of a ledger; None if the back end counts no records, or none yet."""
        records: Mapping[str, int] = stats.get("records", {})
        now = self._clock()
        if (passed := now - self._measured) >= MIN_INTERVAL_S:
            # a step that began again counts from 0
            self._rates = {s: max(0, n - self._records.get(s, 0)) / passed for s, n in records.items()}
            self._records, self._measured = dict(records), now
        if not self._rates:
            return None
        saved = {"source": 0.0, "task": 0.0, "sink": 0.0}
        read: set[str] = set()  # a source counts once, however many selections of its fields are read
        for step, rate in sorted(self._rates.items(), key=lambda one: -one[1]):
            if (running := ledger.steps.get(step)) is not None and (awake := ledger.users[step] - ledger.paused):
                identity = running.identity
                saved[identity.kind] += rate * (len(awake) - (identity.source_key not in read))
                read |= {identity.source_key} - {""}
        return Savings(self._rates, saved["source"], saved["task"])


def per_second(rate: float) -> str:
    """Return a rate as text.

    >>> per_second(12.345), per_second(12345.6)
    ('12.3/s', '12,346/s')
    """
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:,.1f}/s"
