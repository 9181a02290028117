"""Reports of the manager: figures, savings per second, explanations and diagrams."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from riot_ops.core.errors import escape_control
from riot_ops.core.lookback import Lookback
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Node
from riot_ops.reuse.ledger import Addition, Ledger

__all__ = [
    "Explanation",
    "Removed",
    "Savings",
    "SavingsMeter",
    "Submitted",
    "explain_addition",
    "format_savings",
    "format_summary",
    "per_second",
    "running_graph",
    "sharing_counts",
]

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


@dataclass(frozen=True)
class Explanation:
    """Which steps a submission shares.

    Attributes
    ----------
    reused : dict of str to str
        By node, the running step that does its work already.
    new : dict of str to str
        By node, the step that begins with the submission.
    with_whom : dict of str to list of str
        By reused node, the dataflows that use its step.
    boundary : tuple of (str, str)
        Streams from running steps to new ones.
    warm : list of str
        Reused nodes with a history: their results depend on earlier records.

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
    >>> planned = manager.explain(smooth("b", 10))
    >>> sorted(planned.reused), sorted(planned.new), planned.with_whom["kalman"]
    (['city', 'kalman'], ['average', 'out'], ['a'])
    """

    name: str
    reused: Mapping[str, str]
    new: Mapping[str, str]
    with_whom: Mapping[str, list[str]]
    boundary: tuple[tuple[str, str], ...]
    warm: list[str]

    def __str__(self) -> str:
        lines = [
            f"{escape_control(self.name)}: {len(self.reused)} of {len(self.reused) + len(self.new)} steps run already"
        ]
        for node, step in self.reused.items():
            lines.append(f"  {node}: {step}, with {', '.join(map(escape_control, self.with_whom[node]))}")
        lines += [f"  {node}: new" for node in self.new]
        return "\n".join(lines)


@dataclass(frozen=True)
class Submitted(Explanation):
    """The outcome of a submission.

    Attributes
    ----------
    group : int
        Id of the dataflow's group of connected steps.
    first : dict of str to int
        By source, the first message that the dataflow sees, as the source numbers them.

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
    >>> second = manager.submit(smooth("b", 10))
    >>> sorted(second.reused), sorted(second.new), second.group == first.group
    (['city', 'kalman'], ['average', 'out'], True)
    """

    group: int
    first: Mapping[str, int]


@dataclass(frozen=True)
class Removed:
    """The steps that ended with a dataflow, and those that other dataflows keep.

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
    >>> removed = manager.remove("a")
    >>> len(removed.stopped), len(removed.kept)
    (2, 2)
    """

    name: str
    stopped: tuple[str, ...]
    kept: tuple[str, ...]


def explain_addition(addition: Addition, ledger: Ledger) -> Explanation:
    """Explain a planned addition, before it is applied."""
    reused = addition.reused
    users = {node: sorted(ledger.users[step]) for node, step in reused.items()}
    warm = [node for node, step in reused.items() if ledger.steps[step].identity.lookback != Lookback()]
    new = {node: step for node, step in addition.placed.items() if node not in reused}
    return Explanation(addition.name, reused, new, users, addition.boundary, warm)


def sharing_counts(ledger: Ledger, owners: Mapping[str, str | None]) -> dict[str, Any]:
    """Count the steps and streams of the ledger; see :meth:`riot_ops.reuse.ReuseManager.stats`."""
    placed = [ledger.steps[s] for steps in ledger.placed.values() for s in steps.values()]
    return {
        "dataflows": {
            name: {
                "owner": owner,
                "steps": len(ledger.placed[name]),
                "group": ledger.group_id(name),
                "paused": name in ledger.paused,
            }
            for name, owner in owners.items()
        },
        "steps": len(ledger.steps),
        "steps_alone": len(placed),
        "distinct": len(ledger.index),
        "sources": len({s.identity.source_key for s in ledger.steps.values() if s.identity.kind == "source"}),
        "sources_alone": sum(s.identity.kind == "source" for s in placed),
        "groups": len(ledger.groups),
        "shares": dict(sorted(ledger.share_counts().items())),
        "version": ledger.version,
    }


def format_savings(stats: Mapping[str, Any], saving: Savings | None = None) -> str:
    """Describe the savings in several lines."""
    lines = [format_summary(stats)]
    lines += [f"  {n} steps are used by {k}" for k, n in stats["shares"].items() if k > 1]
    if spared := stats.get("spared"):
        lines.append(f"  {spared:,} records were processed for other dataflows already")
    if saving is not None:
        lines.append(f"  {saving}")
    return "\n".join(lines)


def format_summary(stats: Mapping[str, Any], saving: Savings | None = None) -> str:
    """Describe the savings in one line."""
    first = (
        f"{len(stats['dataflows'])} dataflows: {stats['steps']} steps run in place of {stats['steps_alone']}, "
        f"{stats['sources']} sources are read in place of {stats['sources_alone']}"
    )
    return first if saving is None else f"{first}; {saving}"


#: Up to this many users are named in a diagram; of more, it gives the number.
MAX_NAMES = 3


def running_graph(ledger: Ledger, saving: Savings | None = None) -> tuple[Graph, dict[str, str]]:
    """Return the running steps as a graph, and a note for each: its users and, where known, its rate."""
    graph = Graph("running")
    for step in ledger.steps.values():
        graph.add_node(Node(step.id, step.identity.kind))
        for above in step.inputs:
            graph.connect(above, step.id)
    notes = {step: _users(ledger.users[step]) for step in ledger.steps}
    rates = {} if saving is None else saving.rates
    return graph, {
        step: f"{note} · {per_second(rates[step])}" if step in rates else note for step, note in notes.items()
    }


def _users(users: set[str]) -> str:
    return ", ".join(map(escape_control, sorted(users))) if len(users) <= MAX_NAMES else f"{len(users)} dataflows"
