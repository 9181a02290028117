"""What a log of actions tells whoever takes up where it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Past", "past", "shortened"]


#: What a shortened log begins with.
TAKEN = "taken"
#: Actions that are brought to their end: where the back end has done them sinks may have ended, or messages passed.
FINISHED = ("remove", "pause", "resume")


@dataclass
class Past:
    """What there was.

    Attributes
    ----------
    dataflows : dict of str to dict
        Those that run, in the order in which they came, as they were described.
    steps : list of str
        All ids that steps have ever got.
    paused : list of str
        The dataflows that rest.
    woken : str, optional
        One that was about to go on, and may rest still.
    outcome : str, optional
        What has become of the action that was under way, if one was.
    begun : list of str
        The steps of dataflows that were about to come, and have not.
    """

    dataflows: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    woken: str | None = None
    outcome: str | None = None
    begun: list[str] = field(default_factory=list)


def shortened(state: Mapping[str, Any], steps: Sequence[str]) -> list[tuple[str, Any]]:
    """The fewest actions that lead to a state, and know of the newest of some steps, whose ids nobody may get again."""
    newest = sorted(steps, key=lambda step: int(step.rpartition(".")[2]))[-1:]
    return [(TAKEN, newest), ("submit", state["dataflows"])]


def past(actions: Sequence[Mapping[str, Any]]) -> Past:
    """What actions have led to.

    Of one that was under way when the process ended nobody was told how it ended: a removal, a pause or its end takes
    place; a dataflow that was about to come does not, unless the back end had it, or it is what a log was shortened to.

    Examples
    --------
    >>> came = {"do": "submit", "what": [{"name": "ada", "placed": {"in": "in.0"}}], "state": "committed"}
    >>> past([came, {"do": "remove", "what": "ada", "state": "intent"}]).dataflows
    {}
    >>> past([came, {"do": "pause", "what": "ada", "state": "intent"}]).paused
    ['ada']
    """
    found = Past()
    for place, action in enumerate(actions):
        do, what, state = action["do"], action["what"], action["state"]
        under_way = place == len(actions) - 1 and state in ("intent", "enacted")
        finished = do in FINISHED or (place > 0 and actions[place - 1]["do"] == TAKEN)
        done = state in ("enacted", "committed") or (under_way and finished)
        if under_way:
            found.outcome = "committed" if done else "reverted"
        if not done:
            if do == "submit":
                found.begun += [step for one in what for step in one["placed"].values()]
            continue
        if do == "submit":
            found.dataflows.update({one["name"]: one for one in what})
            found.steps += [step for one in what for step in one["placed"].values()]
            found.paused += [one["name"] for one in what if one.get("paused")]  # of a state that was restored
        elif do == TAKEN:  # by steps that are gone
            found.steps += what
        elif do == "pause":
            found.paused.append(what)
        elif do in ("remove", "resume"):
            found.paused = [name for name in found.paused if name != what]
            if do == "remove":
                del found.dataflows[what]
            elif under_way:
                found.woken = what
    return found
