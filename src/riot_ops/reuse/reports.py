"""Reports of the manager: ledger, new and stopped steps, figures and diagrams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from riot_ops.core.errors import escape_control
from riot_ops.core.lookback import Lookback
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Node
from riot_ops.reuse.ledger import Addition, Ledger
from riot_ops.reuse.savings import Savings, per_second

__all__ = [
    "Explanation",
    "Removed",
    "Submitted",
    "explain_addition",
    "format_savings",
    "format_summary",
    "running_graph",
    "sharing_counts",
]


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
    """

    group: int
    first: Mapping[str, int]


@dataclass(frozen=True)
class Removed:
    """The steps that ended with a dataflow, and those that other dataflows keep."""

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
