"""Pictures of what runs: each step with those who use it, and what it does."""

from __future__ import annotations

from riot_ops.core.errors import printable
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Node
from riot_ops.reuse.saving import Saving, per_second
from riot_ops.reuse.shared import Shared

__all__ = ["running_graph"]

#: So many users are named; of more, the number.
NAMED = 3


def running_graph(shared: Shared, saving: Saving | None = None) -> tuple[Graph, dict[str, str]]:
    """The running steps as a graph, and who uses each; where it is known also how many records it takes."""
    graph = Graph("running")
    for step in shared.steps.values():
        graph.place(Node(step.id, step.piece.kind))
        for above in step.inputs:
            graph.connect(above, step.id)
    notes = {step: _users(shared.users[step]) for step in shared.steps}
    rates = {} if saving is None else saving.rates
    return graph, {
        step: f"{note} · {per_second(rates[step])}" if step in rates else note for step, note in notes.items()
    }


def _users(users: set[str]) -> str:
    return ", ".join(map(printable, sorted(users))) if len(users) <= NAMED else f"{len(users)} dataflows"
