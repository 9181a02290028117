"""A dataflow as it is submitted: with what is bound to its sources and sinks, and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from riot_ops.core.errors import ConfigError
from riot_ops.core.secret import Secret
from riot_ops.core.sink import MemorySink, Sink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.stream_source import StreamSource
from riot_ops.reuse.errors import DescriptorError
from riot_ops.reuse.identity import Piece, pieces
from riot_ops.runtime.binding import bind_sinks, bind_sources

__all__ = ["CHOICES", "Reads", "Submission", "described", "submitted", "untouched"]

#: What becomes of a dataflow whose sinks do not keep up; of one in which something fails.
ON_SLOW = ("detach", "drop_oldest", "block")
ON_FAILURE = ("detach", "stop")
#: What else is told of a dataflow.
CHOICES = ("owner", "on_slow", "on_failure")
#: What a back end reads of sources: nothing; each record once; or some again, after a failure or restart.
Reads = Literal["", "once", "again"]


@dataclass(frozen=True)
class Submission:
    """A dataflow with its sources and sinks.

    Attributes
    ----------
    flow : dataflow
        As it was submitted; its nodes have their own ids.
    sources : dict of str to Source
        By source node; empty where the back end reads nothing.
    sinks : dict of str to Sink
        By sink; those that share one appear once.
    routes : dict of str to list of str
        By stream of the dataflow (``errors`` among them), the sinks in which it ends.
    owner, on_slow, on_failure : str
        See :meth:`riot_ops.reuse.ReuseManager.submit`.
    descriptor : dict, optional
        What it was before a restart, where it cannot be made again and ``flow`` stands for it.
    """

    name: str
    flow: Dataflow
    sources: Mapping[str, Any] = field(default_factory=dict)
    sinks: Mapping[str, Sink] = field(default_factory=dict)
    routes: Mapping[str, list[str]] = field(default_factory=dict)
    owner: str | None = None
    on_slow: str = "detach"
    on_failure: str = "detach"
    descriptor: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, known in (("on_slow", ON_SLOW), ("on_failure", ON_FAILURE)):
            if (given := getattr(self, name)) not in known:
                raise ConfigError(f"{name} must be {' or '.join(map(repr, known))}, got {given!r}")


def submitted(
    name: str,
    flow: Dataflow,
    sources: Any,
    sinks: Any,
    reads: Reads,
    **choices: Any,
) -> tuple[Submission, dict[str, Piece]]:
    """A dataflow with what is passed to it, and its steps as others may share them."""
    bound = bind_sources(flow, sources) if sources is not None or reads else {}
    if reads == "again":
        _check_replayable(bound)
    targets, routes = bind_sinks(flow, sinks, None) if sinks is not None or reads else ({}, {})
    kinds: Mapping[str, Sink] | None = sinks if isinstance(sinks, Mapping) else None
    if kinds is None and routes:
        kinds = dict.fromkeys((n.id for n in flow.kind("sink")), sinks if sinks is not None else MemorySink())
    kept = Dataflow(flow.name, merging=flow.merging)  # whatever becomes of the user's own
    kept.nodes, kept.edges = dict(flow.nodes), list(flow.edges)
    return Submission(name, kept, bound, targets, routes, **choices), pieces(kept, bound, kinds)


def untouched(flow: Dataflow, sources: Any) -> Any:
    """What is bound to sources where one only looks: of an iterator, which is like no other, nothing is taken."""
    nodes = flow.kind("source") if isinstance(flow, Dataflow) else []
    given = sources if isinstance(sources, Mapping) else dict.fromkeys((node.id for node in nodes[:1]), sources)
    empty = {
        node.id: StreamSource(lambda _: iter(()), node.schema, replayable=False)
        for node in nodes
        if isinstance(given.get(node.id), Iterator) and node.schema is not None
    }
    return {**given, **empty} if empty else sources


def _check_replayable(sources: Mapping[str, Source]) -> None:
    for node, source in sources.items():
        if not source.replayable:
            raise ConfigError(
                f"the source {node!r} is an iterator, which can be read once, but this back end reads records again "
                "after a failure or restart; pass a list, a table or a path"
            )


def described(submission: Submission, placed: Mapping[str, str]) -> dict[str, Any]:
    """A dataflow with the steps that it has, as data."""
    name, flow = submission.name, submission.flow
    for node in flow.nodes.values():
        values = vars(node.task).items() if node.task is not None else ()
        if lost := [field for field, value in values if isinstance(value, Secret) and value.variable is None]:
            raise DescriptorError(
                f"the dataflow {name!r} cannot be kept as data: {node.id}: {lost[0]} is a secret, which is never "
                "written; give Secret.env('NAME')"
            )
    try:
        steps = {"flow": submission.descriptor or flow.to_dict(), "placed": dict(placed)}
    except ConfigError as error:
        raise DescriptorError(f"the dataflow {name!r} cannot be kept as data: {error}") from None
    return {"name": name, **{choice: getattr(submission, choice) for choice in CHOICES}, **steps}
