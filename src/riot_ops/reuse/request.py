"""What somebody wants to run, and whether it may be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

from riot_ops.core.errors import ConfigError, short
from riot_ops.dataflow import Dataflow
from riot_ops.reuse.checks import check_graph, check_twins
from riot_ops.reuse.errors import DuplicateNameError
from riot_ops.reuse.identity import Piece
from riot_ops.reuse.submission import CHOICES, Reads, Submission, submitted, untouched
from riot_ops.reuse.warm import flagged

__all__ = ["Checked", "Request", "checked", "looked_at"]


@dataclass(frozen=True)
class Request:
    """A dataflow that somebody wants to run, for :meth:`riot_ops.reuse.ReuseManager.submit_all`.

    Parameters
    ----------
    flow, sources, sinks, name, owner, fold, on_slow, on_failure, flag_warm
        As for :meth:`riot_ops.reuse.ReuseManager.submit`.
    """

    flow: Dataflow
    sources: Any = None
    sinks: Any = None
    _: KW_ONLY
    name: str | None = None
    owner: str | None = None
    fold: bool = False
    on_slow: Literal["detach", "drop_oldest", "block"] = "detach"
    on_failure: Literal["detach", "stop"] = "detach"
    flag_warm: bool = False


#: By name, what is asked for and its steps.
Checked = dict[str, tuple[Submission, Mapping[str, Piece]]]


def looked_at(request: Request) -> Request:
    """The same where one only looks, and takes nothing of an iterator."""
    sources = untouched(request.flow, request.sources) if isinstance(request, Request) else None
    return request if sources is None or sources is request.sources else replace(request, sources=sources)


def checked(requests: Iterable[Request], running: Collection[str], reads: Reads) -> Checked:
    """By name, what is asked for and its steps; raises what is wrong with it, where dataflows of these names run."""
    found: Checked = {}
    for one in requests:
        if not isinstance(one, Request):
            raise ConfigError(f"expected a Request, got {type(one).__name__}")
        flow = one.flow
        if not isinstance(flow, Dataflow):
            raise ConfigError(f"expected a Dataflow, got {type(flow).__name__}")
        name = flow.name if one.name is None else one.name
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a dataflow needs a name, got {name!r}")
        if name in running:
            raise DuplicateNameError(f"a dataflow {name!r} is running; remove it first, or give this one another name")
        if name in found:
            raise DuplicateNameError(f"two of the dataflows are named {name!r}; give one of them another name")
        if one.owner is not None and not isinstance(one.owner, str):
            raise ConfigError(f"owner must be a text, got {short(one.owner)}")
        check_graph(flow)
        if one.flag_warm:
            flow = flagged(flow, name)
        choices = {choice: getattr(one, choice) for choice in CHOICES}
        submission, pieces = submitted(name, flow, one.sources, one.sinks, reads, **choices)
        check_twins(flow, pieces, one.fold)
        found[name] = submission, pieces
    return found
