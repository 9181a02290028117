"""The state of a manager as data, checked completely before any dataflow resumes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.dataflow import Dataflow
from riot_ops.reuse.ledger import Ledger
from riot_ops.reuse.placeholders import Rebind, recreate_submission
from riot_ops.reuse.signature import StepIdentity
from riot_ops.reuse.submission import OPTIONS, Deployment, ReadMode, Submission, describe_submission

__all__ = ["dump_state", "parse_state", "recreate_deployments"]

FORMAT = "riot_ops.reuse/1"

#: The fields of a dataflow in a state, and their types.
FIELDS = {"name": str, "flow": dict, "placed": dict, "paused": bool} | dict.fromkeys(OPTIONS, str)


def dump_state(dataflows: Iterable[Submission], ledger: Ledger, policy: str) -> dict[str, Any]:
    """Dump the dataflows of a manager as JSON-able data."""
    found = [
        {**describe_submission(one, ledger.placed[one.name]), "paused": one.name in ledger.paused} for one in dataflows
    ]
    return {"format": FORMAT, "policy": policy, "dataflows": found}


def parse_state(state: Mapping[str, Any], policy: str) -> list[dict[str, Any]]:
    """Check a state for a manager of that policy; return its dataflows.

    >>> parse_state({"format": FORMAT, "policy": "always", "dataflows": [{"name": 1}]}, "always")
    Traceback (most recent call last):
    ...
    riot_ops.core.errors.ConfigError: the state's dataflows[0].name must be a text, got 1 (int)
    """
    if state.get("format") != FORMAT:
        raise ConfigError(
            f"not a state of a reuse manager: format must be {FORMAT!r}, got {value_text(state.get('format'))}"
        )
    if state.get("policy") != policy:
        raise ConfigError(f"the state is of policy {state.get('policy')!r}, this manager has {policy!r}")
    found = state.get("dataflows")
    if not isinstance(found, list):
        raise ConfigError(f"the state's dataflows must be a list, got {value_text(found)}")
    type_names = {str: "a text", dict: "an object", bool: "true or false"}
    for place, what in enumerate(found):
        if not isinstance(what, dict):
            raise ConfigError(f"the state's dataflows[{place}] must be an object, got {value_text(what)}")
        for field, dtype in FIELDS.items():
            given = what.get(field)
            if not isinstance(given, dtype) and (field, given) != ("owner", None):
                raise ConfigError(
                    f"the state's dataflows[{place}].{field} must be {type_names[dtype]}, got {value_text(given)}"
                )
    [(name, times)] = Counter(what["name"] for what in found).most_common(1) or [("", 0)]
    if times > 1:
        raise ConfigError(f"the state has {times} dataflows {name!r}; names must differ")
    return found


def recreate_deployments(
    dataflows: Iterable[Mapping[str, Any]],
    ledger: Ledger,
    functions: Mapping[str, Callable[..., Any]],
    rebind: Rebind | None,
    reads: ReadMode,
    strict: bool = False,
) -> list[Deployment]:
    """Create dataflows again with the steps that they had, for a ledger that does not hold them yet.

    A dataflow whose tasks, sources or sinks cannot be created gets nothing; with ``strict`` the error is raised.
    """
    submissions: dict[str, Submission] = {}
    steps: dict[str, Mapping[str, StepIdentity]] = {}
    at = {}
    for what in dataflows:
        name, options = what["name"], {option: what[option] for option in OPTIONS}
        submissions[name], steps[name] = recreate_submission(what, functions, rebind, reads, strict, options)
        at[name] = what["placed"]
        _check_placed(name, submissions[name].flow, at[name])
    # a placeholder comes last, so that a shared step is created by a dataflow that can create it
    order = sorted(steps, key=lambda name: submissions[name].descriptor is not None)
    return [(one, submissions[one.name]) for one in ledger.plan_additions({name: steps[name] for name in order}, at=at)]


def _check_placed(name: str, flow: Dataflow, placed: Mapping[str, Any]) -> None:
    """Raise unless ``placed`` names a step for each node of a dataflow, and for no other."""
    if placed.keys() != flow.nodes.keys():
        nodes = ", ".join(sorted(placed.keys() ^ flow.nodes.keys()))
        raise ConfigError(f"the dataflow {name!r}: placed must name a step for each of its nodes, not so for {nodes}")
    for node, step in placed.items():
        if not isinstance(step, str) or not re.fullmatch(r".+\.[0-9]+", step):
            raise ConfigError(f"the dataflow {name!r}: the step of {node} must be NAME.NUMBER, got {value_text(step)}")
