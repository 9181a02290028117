"""Which dataflows and owners use each step, and how the records of the steps are charged to owners."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from riot_ops.core.errors import escape_control
from riot_ops.reuse.ledger import Ledger

__all__ = ["OwnerUsage", "StepUsage", "Usage", "UsageMeter"]


@dataclass(frozen=True)
class StepUsage:
    """A running step.

    Attributes
    ----------
    step, kind, label : str
        Id of the step; "source", "task" or "sink"; name of its task, or its own name.
    dataflows, owners : tuple of str
        The dataflows that use it, and the owners of these.
    records : int
        Records that it has taken since it began; 0 for sinks, whose ``rows`` are in ``stats()``.

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
    >>> step = manager.usage().steps[1]
    >>> step.label, step.dataflows, step.owners, step.records
    ('kalman_filter', ('a',), ('ana',), 0)
    """

    step: str
    kind: str
    label: str
    dataflows: tuple[str, ...]
    owners: tuple[str, ...]
    records: int


@dataclass(frozen=True)
class OwnerUsage:
    """The charge of an owner: ``records`` taken by steps, and their ``share`` of all records.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops.reuse import LocalBackend, ReuseManager
    >>> flow = ro.Dataflow("smooth")
    >>> values = flow.source("values", schema={"value": "double"})
    >>> _ = flow.sink("out", values.apply(ro.tasks.KalmanFilter(), id="kalman"))
    >>> manager = ReuseManager(LocalBackend())
    >>> _ = manager.submit(flow, [{"value": 1.0}, {"value": 2.0}], ro.MemorySink(), owner="ana")
    >>> manager.backend.run()
    >>> manager.usage().owners["ana"]
    OwnerUsage(records=4.0, share=1.0)
    """

    records: float
    share: float


@dataclass(frozen=True)
class Usage:
    """Use of the running steps.

    Attributes
    ----------
    steps : tuple of StepUsage
        Each step after its inputs.
    owners : dict of str to OwnerUsage
        Also of removed dataflows. A dataflow without an owner is charged to the owner ``""``.

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
    >>> [(step.kind, step.label) for step in manager.usage().steps]
    [('source', 'city'), ('task', 'kalman_filter'), ('task', 'moving_average'), ('sink', 'out')]
    """

    steps: tuple[StepUsage, ...]
    owners: Mapping[str, OwnerUsage]

    def __str__(self) -> str:
        lines = [
            f"{one.step}: {one.records:,} records, {', '.join(map(_named, one.owners))}"
            for one in self.steps
            if one.kind != "sink"
        ]
        lines += [f"{_named(o)}: {one.records:,.0f} records, {one.share:.1%}" for o, one in self.owners.items()]
        return "\n".join(lines)


def _named(owner: str) -> str:
    return escape_control(owner) or "(no owner)"


class UsageMeter:
    """Charges the records of each step in equal parts to the dataflows that use it when the records are taken.

    Parameters
    ----------
    counts : mapping of str to int
        By step, the records taken so far, which are charged to nobody.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._seen = dict(counts)
        self._charged: defaultdict[str, float] = defaultdict(float)

    def settle(
        self, steps: Iterable[str], counts: Mapping[str, int], ledger: Ledger, owners: Mapping[str, str | None]
    ) -> None:
        """Charge the records that steps have taken since they were settled last; call it before their users change."""
        for step in {*steps} & ledger.users.keys():
            taken = counts.get(step, 0) - self._seen.get(step, 0)
            users = ledger.users[step] - ledger.paused or ledger.users[step]
            if taken > 0:
                self._seen[step] = counts[step]
                for name in users:
                    self._charged[owners[name] or ""] += taken / len(users)

    def forget(self, steps: Iterable[str]) -> None:
        """Forget the counts of stopped steps."""
        for step in steps:
            self._seen.pop(step, None)

    def report(self, counts: Mapping[str, int], ledger: Ledger, owners: Mapping[str, str | None]) -> Usage:
        """Return the use of all steps so far."""
        self.settle(ledger.steps, counts, ledger, owners)
        rows = []
        for step, running in ledger.steps.items():
            users = sorted(ledger.users[step])
            whose = tuple(sorted({owners[name] or "" for name in users}))
            identity = running.identity
            rows.append(StepUsage(step, identity.kind, identity.label, tuple(users), whose, counts.get(step, 0)))
        total = sum(self._charged.values())
        charged = {owner: OwnerUsage(n, n / total) for owner, n in sorted(self._charged.items())}
        return Usage(tuple(rows), charged)
