"""Dataflows that ran before, as data: what is wrong with them is told before any is taken up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from riot_ops.core.errors import ConfigError, short
from riot_ops.dataflow import Dataflow
from riot_ops.reuse.backend import Coming
from riot_ops.reuse.identity import Piece
from riot_ops.reuse.missing import Rebind, made_again
from riot_ops.reuse.shared import Shared
from riot_ops.reuse.submission import CHOICES, Reads, Submission, described

__all__ = ["as_before", "dataflows_of", "state_of"]

FORMAT = "riot_ops.reuse/1"

#: What a dataflow of a state tells, and of which type it is.
FIELDS = {"name": str, "flow": dict, "placed": dict, "paused": bool} | dict.fromkeys(CHOICES, str)


def state_of(dataflows: Iterable[Submission], shared: Shared, policy: str) -> dict[str, Any]:
    """The state of a manager of that policy, as JSON-able data."""
    found = [{**described(one, shared.placed[one.name]), "paused": one.name in shared.paused} for one in dataflows]
    return {"format": FORMAT, "policy": policy, "dataflows": found}


def dataflows_of(state: Mapping[str, Any], policy: str) -> list[dict[str, Any]]:
    """The dataflows of a state, for a manager of that policy.

    >>> dataflows_of({"format": FORMAT, "policy": "always", "dataflows": [{"name": 1}]}, "always")
    Traceback (most recent call last):
    ...
    riot_ops.core.errors.ConfigError: the state's dataflows[0].name must be a text, got 1 (int)
    """
    if state.get("format") != FORMAT:
        raise ConfigError(
            f"not a state of a reuse manager: format must be {FORMAT!r}, got {short(state.get('format'))}"
        )
    if state.get("policy") != policy:
        raise ConfigError(f"the state is of policy {state.get('policy')!r}, this manager has {policy!r}")
    found = state.get("dataflows")
    if not isinstance(found, list):
        raise ConfigError(f"the state's dataflows must be a list, got {short(found)}")
    kinds = {str: "a text", dict: "an object", bool: "true or false"}
    for place, what in enumerate(found):
        if not isinstance(what, dict):
            raise ConfigError(f"the state's dataflows[{place}] must be an object, got {short(what)}")
        for field, kind in FIELDS.items():
            given = what.get(field)
            if not isinstance(given, kind) and (field, given) != ("owner", None):
                raise ConfigError(f"the state's dataflows[{place}].{field} must be {kinds[kind]}, got {short(given)}")
    [(name, times)] = Counter(what["name"] for what in found).most_common(1) or [("", 0)]
    if times > 1:
        raise ConfigError(f"the state has {times} dataflows {name!r}; names must differ")
    return found


def as_before(
    dataflows: Iterable[Mapping[str, Any]],
    shared: Shared,
    functions: Mapping[str, Callable[..., Any]],
    rebind: Rebind | None,
    reads: Reads,
    whole: bool = False,
) -> list[Coming]:
    """Dataflows with the steps that they had, for books in which they are not yet.

    One whose tasks, sources and sinks are not to be had gets nothing, or, where the ``whole`` is asked for, what that
    raises.
    """
    submissions: dict[str, Submission] = {}
    steps: dict[str, Mapping[str, Piece]] = {}
    at = {}
    for what in dataflows:
        name, choices = what["name"], {choice: what[choice] for choice in CHOICES}
        submissions[name], steps[name] = made_again(what, functions, rebind, reads, whole, choices)
        at[name] = what["placed"]
        _check_placed(name, submissions[name].flow, at[name])
    # a step that another can make is that one's
    order = sorted(steps, key=lambda name: submissions[name].descriptor is not None)
    return [(one, submissions[one.name]) for one in shared.additions({name: steps[name] for name in order}, at=at)]


def _check_placed(name: str, flow: Dataflow, placed: Mapping[str, Any]) -> None:
    """Raise where it is not told, for just the nodes of a dataflow, which step each of them had."""
    if placed.keys() != flow.nodes.keys():
        nodes = ", ".join(sorted(placed.keys() ^ flow.nodes.keys()))
        raise ConfigError(f"the dataflow {name!r}: placed must name a step for each of its nodes, not so for {nodes}")
    for node, step in placed.items():
        if not isinstance(step, str) or not re.fullmatch(r".+\.[0-9]+", step):
            raise ConfigError(f"the dataflow {name!r}: the step of {node} must be NAME.NUMBER, got {short(step)}")
