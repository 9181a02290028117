"""What the manager answers: what is shared, what began, what ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from riot_ops.core.errors import printable
from riot_ops.core.lookback import Lookback
from riot_ops.reuse.saving import Saving
from riot_ops.reuse.shared import Addition, Shared

__all__ = ["Explanation", "Removed", "Submitted", "counted", "explained", "in_short", "in_words"]


@dataclass(frozen=True)
class Explanation:
    """What a submission shares.

    Attributes
    ----------
    reused : dict of str to str
        By node, the running step that does its work already.
    new : dict of str to str
        By node, the step that begins with it.
    with_whom : dict of str to list of str
        By node that is reused, the dataflows that use it.
    boundary : tuple of (str, str)
        Streams from steps that ran to new ones.
    warm : list of str
        Nodes with a history that are reused: their results rest on what came before.
    """

    name: str
    reused: Mapping[str, str]
    new: Mapping[str, str]
    with_whom: Mapping[str, list[str]]
    boundary: tuple[tuple[str, str], ...]
    warm: list[str]

    def __str__(self) -> str:
        lines = [f"{printable(self.name)}: {len(self.reused)} of {len(self.reused) + len(self.new)} steps run already"]
        for node, step in self.reused.items():
            lines.append(f"  {node}: {step}, with {', '.join(map(printable, self.with_whom[node]))}")
        lines += [f"  {node}: new" for node in self.new]
        return "\n".join(lines)


@dataclass(frozen=True)
class Submitted(Explanation):
    """What a submission has led to.

    Attributes
    ----------
    group : int
        The running steps that it belongs to.
    first : dict of str to int
        By source, the first message that it sees, as the source numbers them.
    """

    group: int
    first: Mapping[str, int]


@dataclass(frozen=True)
class Removed:
    """What has ended with a dataflow, and what goes on for others."""

    name: str
    stopped: tuple[str, ...]
    kept: tuple[str, ...]


def explained(addition: Addition, shared: Shared) -> Explanation:
    """What an addition would share, where it is not applied yet."""
    reused = addition.reused
    users = {node: sorted(shared.users[step]) for node, step in reused.items()}
    warm = [node for node, step in reused.items() if shared.steps[step].piece.lookback != Lookback()]
    new = {node: step for node, step in addition.placed.items() if node not in reused}
    return Explanation(addition.name, reused, new, users, addition.boundary, warm)


def counted(shared: Shared, owners: Mapping[str, str | None]) -> dict[str, Any]:
    """The figures of the books, see :meth:`riot_ops.reuse.ReuseManager.stats`."""
    placed = [shared.steps[s] for steps in shared.placed.values() for s in steps.values()]
    return {
        "dataflows": {
            name: {
                "owner": owner,
                "steps": len(shared.placed[name]),
                "group": shared.home(name),
                "paused": name in shared.paused,
            }
            for name, owner in owners.items()
        },
        "steps": len(shared.steps),
        "steps_alone": len(placed),
        "distinct": len(shared.index),
        "sources": len({s.piece.reading for s in shared.steps.values() if s.piece.kind == "source"}),
        "sources_alone": sum(s.piece.kind == "source" for s in placed),
        "groups": len(shared.groups),
        "shares": dict(sorted(shared.shares().items())),
        "version": shared.version,
    }


def in_words(stats: Mapping[str, Any], saving: Saving | None = None) -> str:
    """What is saved, as the manager's figures tell."""
    lines = [in_short(stats)]
    lines += [f"  {n} steps are used by {k}" for k, n in stats["shares"].items() if k > 1]
    if spared := stats.get("spared"):
        lines.append(f"  {spared:,} records were worked on for others already")
    if saving is not None:
        lines.append(f"  {saving}")
    return "\n".join(lines)


def in_short(stats: Mapping[str, Any], saving: Saving | None = None) -> str:
    """The same in a line."""
    first = (
        f"{len(stats['dataflows'])} dataflows: {stats['steps']} steps run in place of {stats['steps_alone']}, "
        f"{stats['sources']} sources are read in place of {stats['sources_alone']}"
    )
    return first if saving is None else f"{first}; {saving}"
