"""Submitted dataflows: requests and their checks, bound sources and sinks, and the engine steps they run as."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from riot_ops.core.errors import ConfigError, did_you_mean, excerpt, value_text
from riot_ops.core.secret import literal_secrets
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.graph.graph import Graph
from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, WATERMARK_SUFFIX, Route, Step, lower
from riot_ops.graph.merges import Merges
from riot_ops.ingest.renumber import Renumber
from riot_ops.ingest.stream_source import StreamSource
from riot_ops.ingest.watermarks import WatermarkGenerator
from riot_ops.reuse.errors import (
    BoundaryError,
    CycleError,
    DanglingStreamError,
    DescriptorError,
    DisconnectedError,
    DuplicateNameError,
    DuplicateStreamError,
    EmptyDataflowError,
    NotDeduplicatedError,
)
from riot_ops.reuse.ledger import Addition, connected_parts, step_number
from riot_ops.reuse.signature import StepIdentity, identify_steps
from riot_ops.reuse.warm_up import add_warm_flags
from riot_ops.runtime.binding import bind_sinks, bind_sources, sinks_by_node

__all__ = [
    "OPTIONS",
    "CheckedRequests",
    "Deployment",
    "ReadMode",
    "Request",
    "StepReferences",
    "Submission",
    "build_submission",
    "check_duplicates",
    "check_graph",
    "check_requests",
    "check_sink_folders",
    "describe_submission",
    "lower_placed",
    "own_numbers",
    "replace_iterators",
    "without_iterators",
]

#: What happens when a dataflow's sinks are slow, and when something of it fails.
ON_SLOW = ("detach", "drop_oldest", "block")
ON_FAILURE = ("detach", "stop")
#: Further fields of a submission that are kept as data.
OPTIONS = ("owner", "on_slow", "on_failure")
#: How a back end reads sources: not at all; each record once; or some records again after a failure or restart.
ReadMode = Literal["", "once", "again"]


@dataclass(frozen=True)
class Submission:
    """A dataflow with its sources and sinks.

    Attributes
    ----------
    flow : dataflow
        A copy of the submitted one, with its own node ids.
    sources : dict of str to Source
        By source node; empty if the back end reads nothing.
    sinks : dict of str to Sink
        By sink node; a sink bound to several nodes appears once.
    routes : dict of str to list of str
        By stream of the dataflow, ``errors`` included, the sinks that get it.
    owner, on_slow, on_failure : str
        See :meth:`riot_ops.reuse.ReuseManager.submit`.
    descriptor : dict, optional
        The dataflow from before a restart, if ``flow`` is a placeholder for it.
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


#: A dataflow to run: its addition to the ledger, and its submission.
Deployment = tuple[Addition, Submission]


def build_submission(
    name: str,
    flow: Dataflow,
    sources: Any,
    sinks: Any,
    reads: ReadMode,
    **options: Any,
) -> tuple[Submission, dict[str, StepIdentity]]:
    """Bind sources and sinks to a dataflow; return the submission and the identities of its steps."""
    bound = bind_sources(flow, sources) if sources is not None or reads else {}
    if reads == "again":
        _check_replayable(bound)
    by_node = sinks_by_node(flow, sinks, None) if sinks is not None or reads else None
    targets, routes = ({}, {}) if by_node is None else bind_sinks(flow, by_node, None)
    kept = Dataflow(flow.name, merging=flow.merging, ordinals=flow.ordinals)  # the caller may change its own
    kept.nodes, kept.edges = dict(flow.nodes), list(flow.edges)
    return Submission(name, kept, bound, targets, routes, **options), identify_steps(kept, bound, by_node)


def replace_iterators(flow: Dataflow, sources: Any) -> Any:
    """Replace iterators among the bound sources by empty ones, which are equal to nothing else either."""
    nodes = flow.nodes_of_kind("source") if isinstance(flow, Dataflow) else []
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


def describe_submission(submission: Submission, placed: Mapping[str, str]) -> dict[str, Any]:
    """Describe a dataflow and its running steps as data."""
    name, flow = submission.name, submission.flow
    for node in flow.nodes.values():
        if node.task is not None and (lost := literal_secrets(node.task)):
            raise DescriptorError(
                f"the dataflow {name!r} cannot be stored: {node.id}: {lost[0]} is a secret, which is never "
                "written; give Secret.env('NAME')"
            )
    try:
        steps = {"flow": submission.descriptor or flow.to_dict(), "placed": dict(placed)}
    except ConfigError as error:
        raise DescriptorError(f"the dataflow {name!r} cannot be stored: {error}") from None
    return {"name": name, **{option: getattr(submission, option) for option in OPTIONS}, **steps}


@dataclass(frozen=True)
class Request:
    """A dataflow to submit, for :meth:`riot_ops.reuse.ReuseManager.submit_all`.

    Parameters
    ----------
    flow, sources, sinks, name, owner, fold, on_slow, on_failure, flag_warm
        As for :meth:`riot_ops.reuse.ReuseManager.submit`.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops.reuse import NullBackend, Request, ReuseManager
    >>> def smooth(name, window):
    ...     flow = ro.Dataflow(name)
    ...     kalman = flow.source("city", schema={"value": "double"}).apply(ro.tasks.KalmanFilter(), id="kalman")
    ...     return flow.sink("out", kalman.apply(ro.tasks.MovingAverage(window=window), id="average"))
    >>> manager = ReuseManager(NullBackend())
    >>> done = manager.submit_all([Request(smooth("a", 5), owner="ana"), Request(smooth("b", 10))])
    >>> [one.name for one in done]
    ['a', 'b']
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


#: By name, each request's submission and the identities of its steps.
CheckedRequests = dict[str, tuple[Submission, Mapping[str, StepIdentity]]]


def without_iterators(request: Request) -> Request:
    """Replace the iterators of a request, so that a check takes no record of them."""
    sources = replace_iterators(request.flow, request.sources) if isinstance(request, Request) else None
    return request if sources is None or sources is request.sources else replace(request, sources=sources)


def check_requests(requests: Iterable[Request], running: Collection[str], reads: ReadMode) -> CheckedRequests:
    """Build the submissions of valid requests, by name; ``running`` are the names in use."""
    found: CheckedRequests = {}
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
            raise ConfigError(f"owner must be a text, got {value_text(one.owner)}")
        check_graph(flow)
        if one.flag_warm:
            flow = add_warm_flags(flow, name)
        options = {option: getattr(one, option) for option in OPTIONS}
        submission, identities = build_submission(name, flow, one.sources, one.sinks, reads, **options)
        check_duplicates(flow, identities, one.fold)
        found[name] = submission, identities
    return found


def check_graph(flow: Graph) -> None:
    """Raise if the graph of a dataflow is malformed, or if its schemas do not fit."""
    where = f"the dataflow {flow.name!r}"
    if not flow.nodes:
        raise EmptyDataflowError(f"{where} has no steps")
    for edge in flow.edges:
        for end in (edge.source, edge.target):
            if end not in flow.nodes:
                raise DanglingStreamError(
                    f"{where}: edge {edge.source} -> {edge.target}: no node {end!r}{did_you_mean(end, flow.nodes)}"
                )
    for (source, target), times in Counter((e.source, e.target) for e in flow.edges).items():
        if times > 1:
            raise DuplicateStreamError(f"{where}: edge {source} -> {target} occurs twice")
    if cycle := _cycle(flow):
        raise CycleError(f"{where} has a cycle: {' -> '.join(cycle)}")
    read, fed = {e.source for e in flow.edges}, {e.target for e in flow.edges}
    wrong = [f"{n.id}: a source has no inputs" for n in flow.nodes_of_kind("source") if n.id in fed]
    wrong += [f"{n.id}: a sink has no outputs" for n in flow.nodes_of_kind("sink") if n.id in read]
    wrong += [f"{n.id}: it has no input" for n in flow.nodes.values() if n.kind != "source" and n.id not in fed]
    wrong += [f"{n.id}: its output is not read" for n in flow.nodes.values() if n.kind != "sink" and n.id not in read]
    if wrong:
        raise BoundaryError(f"{where} must begin with sources and end in sinks: {'; '.join(wrong)}")
    parts = connected_parts([*([id] for id in flow.nodes), *((e.source, e.target) for e in flow.edges)])
    if len(parts) > 1:
        raise DisconnectedError(
            f"{where} has {len(parts)} unconnected parts; submit each by itself: "
            + "; ".join(excerpt(", ".join(id for id in flow.nodes if id in part), 60) for part in parts)
        )
    flow.validate()


def _cycle(flow: Graph) -> list[str]:
    """Return the nodes of one cycle, the first one also at the end; empty if there is none."""
    missing = Counter(e.target for e in flow.edges)
    onward: dict[str, list[str]] = {}
    for edge in flow.edges:
        onward.setdefault(edge.source, []).append(edge.target)
    ready = [id for id in flow.nodes if not missing[id]]
    for id in ready:
        for target in onward.get(id, ()):
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    left = set(flow.nodes) - set(ready)
    if not left:
        return []
    above = {e.target: e.source for e in flow.edges if e.source in left and e.target in left}
    path = [min(left)]
    while path[-1] not in path[:-1]:  # each of the nodes left reads another one of them
        path.append(above[path[-1]])
    return path[path.index(path[-1]) :][::-1]


def check_duplicates(flow: Graph, identities: Mapping[str, StepIdentity], fold: bool) -> None:
    """Raise if steps of one dataflow do the same work; with ``fold``, only if one step could not replace both."""
    same: dict[str, list[str]] = {}
    for node, identity in identities.items():
        same.setdefault(identity.signature, []).append(node)
    twins = [nodes for nodes in same.values() if len(nodes) > 1]
    if not twins:
        return
    if not fold:
        pairs = ", ".join(" = ".join(nodes) for nodes in twins)
        raise NotDeduplicatedError(
            f"the dataflow {flow.name!r} has steps that do the same work: {pairs}; leave out all but one of each, or "
            "submit it with fold=True"
        )
    readers: dict[str, set[str]] = {}
    for edge in flow.edges:
        readers.setdefault(edge.source, set()).add(edge.target)
    for nodes in twins:
        for one, other in itertools.combinations(nodes, 2):
            if both := readers.get(one, set()) & readers.get(other, set()):
                raise NotDeduplicatedError(
                    f"the dataflow {flow.name!r}: {one} and {other} do the same work, and {min(both)} reads both: one "
                    "step in their place would halve its input"
                )


def check_sink_folders(deployments: Iterable[Deployment], folder: Path) -> None:
    """Raise if a sink of new dataflows would write into a back end's own folder."""
    for _, submission in deployments:
        for name, sink in submission.sinks.items():
            for place in map(Path, sink.folders()):
                if place.resolve().is_relative_to(folder.resolve()):
                    raise ConfigError(
                        f"the sink {name!r} of {submission.name!r} would write to {place}, which is in the folder of "
                        f"the back end ({folder}): name another folder"
                    )


def lower_placed(flow: Dataflow, placed: Mapping[str, str]) -> list[tuple[Step, str, str]]:
    """Lower a dataflow under the ids of its running steps.

    Returns each step with the node that needs it and the dataflow's name for it. A stream may have watermarks of
    several resolutions; the step ids include the resolution. All dataflows that merge sources number their messages
    alike, see :func:`own_numbers`.
    """
    steps = lower(flow, _source_ranks(flow, placed))
    ids = dict(placed)
    ids |= {node.id + HEARTBEAT_SUFFIX: placed[node.id] + HEARTBEAT_SUFFIX for node in flow.nodes_of_kind("source")}
    for step in steps:
        marks = step.operator
        if isinstance(marks, WatermarkGenerator):
            place = placed[step.id.removesuffix(WATERMARK_SUFFIX)]
            ids[step.id] = f"{place}@{marks.resolution}!{marks.cell}x{marks.votes_per_run}{WATERMARK_SUFFIX}"
        elif isinstance(marks, Renumber):
            (stream,) = step.inputs
            ids[step.id] = ids[stream] + step.id.removeprefix(stream)
        elif isinstance(marks, Route):
            source, _, target = step.id.partition("->")
            ids[step.id] = f"{placed[source]}->{placed[target]}"
    needed: dict[str, set[str]] = {}
    for step in reversed(steps):
        nodes = {step.id} if step.id in flow.nodes else needed.get(step.id, set())
        for stream in (*step.inputs, *(step.clock.streams if step.clock is not None else ())):
            needed.setdefault(stream, set()).update(nodes)
    rank = {node: place for place, node in enumerate(flow.nodes)}
    found: list[tuple[Step, str, str]] = []
    for step in steps:
        own = replace(step, id=ids[step.id], inputs=_distinct(ids[stream] for stream in step.inputs), label="")
        if step.clock is not None:
            own = replace(own, clock=replace(step.clock, streams=_distinct(ids[s] for s in step.clock.streams)))
        readers = [step.id] if step.id in flow.nodes else sorted(needed[step.id], key=rank.__getitem__)
        found += [(own, node, step.name) for node in readers]
    return found


def own_numbers(flow: Dataflow, placed: Mapping[str, str]) -> dict[str, Renumber]:
    """Return, by stream of a dataflow, the step that gives its messages the numbers that they have in a run alone.

    In shared merges sources are in the order in which they began to run, and in a dataflow in the order of their
    declaration. Streams for which both are the same are left out.
    """
    if len(flow.nodes_of_kind("source")) == 1 or flow.merging != "arrival":
        return {}
    ranks = _source_ranks(flow, placed)
    declared = [*dict.fromkeys(ranks.values())]
    found = {}
    for node, sources in Merges(flow, ranks).sources.items():
        own = sorted(sources, key=declared.index)
        if own != [*sources]:
            found[node] = Renumber(tuple(map(own.index, sources)), len(sources))
    return found


def _source_ranks(flow: Dataflow, placed: Mapping[str, str]) -> dict[str, int]:
    return {node.id: step_number(placed[node.id]) for node in flow.nodes_of_kind("source")}


def _distinct(streams: Iterable[str]) -> tuple[str, ...]:
    """Streams without repetitions, as of sources that run as one step."""
    return tuple(dict.fromkeys(streams))


class StepReferences:
    """Counts references: which engine steps each running step needs.

    That is the step itself, and routes and watermarks that several running steps may need.

    >>> references = StepReferences()
    >>> for step in ("a.1", "b.2"):
    ...     references.add(step, "in.0@1000")
    >>> references.drop("a.1")
    >>> "in.0@1000" in references, references.of("a.1")
    (True, frozenset())
    """

    def __init__(self) -> None:
        self._of: dict[str, set[str]] = {}
        self._count: Counter[str] = Counter()

    def add(self, step: str, need: str) -> None:
        """Note that a running step needs an engine step."""
        known = self._of.setdefault(step, set())
        if need not in known:
            known.add(need)
            self._count[need] += 1

    def drop(self, step: str) -> None:
        """Drop the references of a stopped step."""
        for need in self._of.pop(step, ()):
            self._count[need] -= 1
            if not self._count[need]:
                del self._count[need]

    def of(self, step: str) -> Set[str]:
        """Return the engine steps that a running step needs."""
        return self._of.get(step, frozenset())

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, need: str) -> bool:
        """Whether a running step needs this engine step."""
        return need in self._count
