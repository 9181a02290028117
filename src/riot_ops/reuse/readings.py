"""Which sources are one, whoever reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from riot_ops.core.errors import ConfigError
from riot_ops.core.source import Source
from riot_ops.reuse.identity import told
from riot_ops.reuse.submission import Submission

__all__ = ["check_consumed", "readings"]


def readings(submission: Submission) -> dict[str, tuple[str, str, Mapping[str, Source], str]]:
    """For each source node of a dataflow: which reading it needs, which source in that it is, and how that is made.

    Equal names are equal readings; what comes last is what a :class:`~riot_ops.reuse.reading.Reading` takes.
    """
    keys = {node: _key(source) for node, source in submission.sources.items()}
    merging = submission.flow.merging
    if merging == "arrival" or len(keys) < 2:
        return {node: (key, key, {key: submission.sources[node]}, "arrival") for node, key in keys.items()}
    name = json.dumps([merging, *keys.values()])
    members = {str(place): source for place, source in enumerate(submission.sources.values())}
    return {node: (name, str(place), members, merging) for place, node in enumerate(keys)}


def check_consumed(
    new: Mapping[str, Source],
    known: Iterable[tuple[str, Source]],
    coming: Sequence[Submission],
    running: Iterable[Submission],
) -> None:
    """Raise where new readings would take records from each other, or from one that is known.

    ``coming`` are the dataflows that need the new ones, ``running`` the others.
    """
    held = [(name, source.consumed()) for name, source in known]
    for name, source in new.items():
        things = source.consumed()
        for other, taken in held:
            if both := things & taken:
                mine = _who(coming, name)
                others = [one for one in _who([*running, *coming], other, both) if one not in mine]
                raise ConfigError(
                    f"{min(both)} can be read by one reader alone, but {', '.join(mine)} would read it apart from "
                    f"{', '.join(others) or 'another'}: have both dataflows bring their sources together in the same "
                    "way (merging), give one a subscription of its own, or remove the other first"
                )
        held.append((name, things))


def _who(submissions: Iterable[Submission], name: str, things: Set[str] = frozenset()) -> list[str]:
    """Who needs a reading, or holds what it uses up."""
    return [
        f"the source {node!r} of {submission.name!r}"
        for submission in submissions
        for node, (reading, member, members, _) in readings(submission).items()
        if (taken := members[member].consumed()) and (reading == name or taken & things)
    ]


def _key(source: Any) -> str:
    return json.dumps(told(source), sort_keys=True)
