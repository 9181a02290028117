"""Restarts of a changed dataflow: which steps keep their state, which start empty, and what is refused.

``docs/adr/0026-a-changed-dataflow-continues.md`` has the rules.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import msgspec

from riot_ops.core.errors import ConfigError, RiotError, StateError, excerpt
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source, WrappedSource
from riot_ops.graph.graph import Graph
from riot_ops.graph.lowering import Step, lower
from riot_ops.runtime.fingerprint import StepContract
from riot_ops.runtime.merged_source import MergedSource
from riot_ops.runtime.snapshot import restamp, stable_repr, state_identity
from riot_ops.runtime.state_table import live_keys

__all__ = [
    "HINT",
    "AddedSinks",
    "Restart",
    "RestartReport",
    "check_position",
    "check_restart",
    "compare",
    "kept_state",
    "outlook",
    "plan_restart",
    "source_kind",
    "step_contracts",
]

#: How a run continues from a checkpoint of a dataflow that differs.
Restart = Literal["same", "compatible"]
#: Names the option where a difference is refused.
HINT = 'restart="compatible" keeps the state of the steps that did not change'

_log = logging.getLogger("riot_ops")


@dataclass(frozen=True)
class RestartReport:
    """What a restart has kept of a checkpoint; as text, a line each.

    Attributes
    ----------
    kept : tuple of str
        Steps that continue with their state.
    empty : dict of str to str
        Steps that start without state, and why.
    dropped : tuple of str
        Steps of the checkpoint whose state is no longer used.
    added_sources, removed_sources, added_sinks, removed_sinks : tuple of str
        Ends that only the new, or only the old dataflow has. An added source begins with its first record.
    options : dict of str to str
        Changed options of the runner, such as the number of partitions.
    lost : dict of str to int
        Number of keys in the state that is no longer used, by step: of those dropped, and of those that start empty.

    Examples
    --------
    >>> print(RestartReport(("average",), {"maximum": "it is new"}, ("minimum",), lost={"minimum": 7}))
    keeps the state of 'average'
    starts 'maximum' empty: it is new
    drops the state of 'minimum' (7 keys)
    """

    kept: tuple[str, ...] = ()
    empty: dict[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    added_sources: tuple[str, ...] = ()
    removed_sources: tuple[str, ...] = ()
    added_sinks: tuple[str, ...] = ()
    removed_sinks: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        def keys(step: str) -> str:
            return f"{self.lost[step]} key{'s' * (self.lost[step] != 1)}"

        lines = [f"keeps the state of {', '.join(map(repr, self.kept))}"] if self.kept else []
        lines += [
            f"starts {step!r} empty: {why}" + (f" (drops its state of {keys(step)})" if step in self.lost else "")
            for step, why in self.empty.items()
        ]
        lines += [
            f"drops the state of {step!r}" + (f" ({keys(step)})" if step in self.lost else "") for step in self.dropped
        ]
        for words, names in (
            ("begins to read the source {!r}, with its first record", self.added_sources),
            ("no longer reads the source {!r}", self.removed_sources),
            ("begins to write to the sink {!r}", self.added_sinks),
            ("no longer writes to the sink {!r}", self.removed_sinks),
        ):
            lines += [words.format(name) for name in names]
        lines += [f"changes {name}: {what}" for name, what in self.options.items()]
        return "\n".join(lines)

    def with_lost(self, states: Mapping[str, Sequence[Sequence[bytes]]]) -> RestartReport:
        """Return the report with the number of keys that are lost; ``states`` has the snapshots of each part."""
        unused = [step for step in (*self.dropped, *self.empty) if step in states]
        lost = {step: sum(live_keys(part, f" of step {step!r}") for part in states[step]) for step in unused}
        return replace(self, lost=lost)

    def announce(self, flow: str, where: str) -> None:
        """Log what a restart does, before it does anything; as a warning if state is lost."""
        level = logging.WARNING if any(self.lost.values()) else logging.INFO
        _log.log(level, "the dataflow %r continues from %s: %s", flow, where, self)


def outlook(plan: Callable[[], RestartReport]) -> str:
    """Return what ``restart="compatible"`` would do, for an error message.

    >>> print(outlook(lambda: RestartReport(kept=("average",), dropped=("minimum",))))
    ; or restart="compatible" keeps the state of 'average'; drops the state of 'minimum'
    """
    try:
        report = str(plan())
    except RiotError as error:
        return f'; restart="compatible" would be refused as well: {error}'
    return "; or " + (f'restart="compatible" {"; ".join(report.splitlines())}' if report else HINT)


def check_restart(restart: str, checkpoint: Any) -> None:
    """Raise :class:`ConfigError` unless the option is known and has a checkpoint to continue."""
    if restart not in get_args(Restart):
        raise ConfigError(f"restart must be 'same' or 'compatible', got {restart!r}")
    if restart == "compatible" and checkpoint is None:
        raise ConfigError('restart="compatible" continues from a checkpoint: give checkpoint= as well')


def step_contracts(flow: Graph) -> dict[str, StepContract]:
    """Return what identifies the state of each step with state.

    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"device": "string", "value": "double"})
    >>> end = flow.sink("out", readings.to(ro.tasks.KalmanFilter(by="device"), id="smooth"))
    >>> found = step_contracts(flow)["smooth"]
    >>> found.key, found.input["value"]
    (['device'], 'double')
    """
    schemas = flow.schemas()
    found = {}
    for step in lower(flow):
        if isinstance(step.operator, KeyedOperator):
            fields = {f.name: str(f.type) for edge in flow.inputs(step.id) for f in schemas[edge.source]}
            found[step.id] = _contract(flow, step, step.operator, fields)
    plain = json.loads(msgspec.json.encode(found))  # with the types that a stored one has
    return {name: msgspec.convert(one, StepContract) for name, one in plain.items()}


def _contract(flow: Graph, step: Step, task: KeyedOperator, fields: dict[str, str]) -> StepContract:
    clock = step.clock
    time = {} if clock is None else {"lateness": clock.lag, "ahead": clock.max_ahead, "from_first": clock.from_first}
    spread = []
    if step.routed:
        spread = [
            [d.kind, list(d.fields), d.parallelism, None if d.router is None else stable_repr(d.router)]
            for d in (edge.distribution for edge in flow.inputs(step.id))
        ]
    return StepContract(state_identity(task, "full"), list(step.key), dict(sorted(fields.items())), time, spread)


def compare(
    then: Mapping[str, StepContract], now: Mapping[str, StepContract], flow: Graph, where: str
) -> tuple[tuple[str, ...], dict[str, str], tuple[str, ...]]:
    """Return the steps that keep their state, those that start empty with the reasons, and the dropped ones.

    Raises
    ------
    StateError
        If state would be misread.
    """
    kept, empty = [], {}
    for id, wanted in now.items():
        if id not in then:
            empty[id] = "it is new"
            continue
        task = flow.nodes[id].task
        assert task is not None
        reason = _difference(then[id], wanted, task.state_free_parameters, f"{where}: the state of step {id!r}")
        if reason:
            empty[id] = reason
        else:
            kept.append(id)
    return tuple(kept), empty, tuple(id for id in then if id not in now)


def plan_restart(
    flow: Graph,
    old: Mapping[str, Any],
    then: Mapping[str, StepContract],
    now: Mapping[str, StepContract],
    kinds: Mapping[str, str],
    sources: Mapping[str, Any],
    positions: Mapping[str, Any],
    where: str,
) -> RestartReport:
    """Return what a changed dataflow keeps of a checkpoint.

    Parameters
    ----------
    flow : Graph
        The dataflow of now.
    old : mapping
        Fingerprint of the checkpoint's dataflow.
    then, now : mapping of str to StepContract
        Of the steps with state, of the checkpoint and of ``flow``.
    kinds : mapping of str to str
        Kind of each source of the checkpoint.
    sources : mapping of str to source
        Those of now.
    positions : mapping of str to offset
        Of the sources in the checkpoint.
    where : str
        Names the checkpoint, for error messages.

    Raises
    ------
    StateError
        If state or a position would be misread.
    """
    if not kinds:
        raise StateError(
            f"{where} is of an earlier version, which did not note what identifies state: continue it once with the "
            "dataflow that wrote it, and change the dataflow then"
        )
    merging = old.get("merging", {}).get("of sources", "arrival")
    if merging != flow.merging or (merging != "arrival" and [*kinds] != [*sources]):
        raise StateError(
            f"{where}: its sources {', '.join(kinds)} were merged by {merging}, and now {', '.join(sources)} are by "
            f"{flow.merging}: the positions would not fit; use a new checkpoint"
        )
    for name, source in sources.items():
        if name in kinds:
            check_position(name, source, kinds[name], positions.get(name), where)
    kept, empty, dropped = compare(then, now, flow, where)
    sinks = {str(ast.literal_eval(part.removeprefix("sink "))) for part in old if part.startswith("sink ")}
    own = [node.id for node in flow.nodes_of_kind("sink")]
    return RestartReport(
        kept,
        empty,
        dropped,
        tuple(name for name in sources if name not in kinds),
        tuple(name for name in kinds if name not in sources),
        tuple(name for name in own if name not in sinks),
        tuple(sorted(sinks - {*own})),
    )


def _difference(then: StepContract, now: StepContract, free: Iterable[str], where: str) -> str:
    """Return why a step starts empty, nothing if it keeps its state; raise if that would be misread."""

    def refuse(what: str, old: Any, new: Any) -> StateError:
        return StateError(
            f"{where} was written by {what} {old!r}, and is now of {what} {new!r}: it would be misread; give the step "
            "another id, with which it starts empty"
        )

    for part in ("task", "version", "format"):
        if then.identity[part] != now.identity[part]:
            raise refuse(part, then.identity[part], now.identity[part])
    old, new = then.identity["parameters"], now.identity["parameters"]
    changed = [
        f"{name} was {excerpt(repr(old.get(name)))} and is {excerpt(repr(new.get(name)))}"
        for name in sorted({*old, *new} - {*free, "by"})
        if json.dumps(old.get(name)) != json.dumps(new.get(name))
    ]
    if then.spread != now.spread:
        changed.append("records are spread over instances in another way")
    elif then.key != now.key:
        raise refuse("key", then.key, now.key)
    if changed:
        return "; ".join(changed)
    if then.identity["fields"] != now.identity["fields"]:
        raise refuse("layout", then.identity["fields"], now.identity["fields"])
    if then.input != now.input:
        names = sorted(name for name, _ in then.input.items() ^ now.input.items())
        return f"its input changed: {', '.join(dict.fromkeys(names))}"
    return "" if then.time == now.time else "the lateness of its input changed"


@dataclass(frozen=True)
class AddedSinks:
    """The sinks of a changed dataflow: those that it adds begin, the others go on.

    Parameters
    ----------
    sinks : mapping of str to Sink
        By the name that the run gives.
    nodes : mapping of str to set of str
        The sink nodes that share each.
    overwrite : bool
        Whether an added sink may replace what an earlier run has written there.
    """

    sinks: Mapping[str, Sink]
    nodes: Mapping[str, set[str]]
    overwrite: bool

    def begin(self, report: RestartReport, run: str, batch: int) -> None:
        """Begin the added sinks, and remove what the others hold from a batch on."""
        for name, sink in self.sinks.items():
            sink.identify(run)
            if self.nodes[name] <= {*report.added_sinks}:
                sink.begin(self.overwrite)
            else:
                sink.recover(batch)


def kept_state(data: bytes, contract: StepContract, where: str) -> bytes:
    """Return a snapshot of a kept step, as written by the task of now."""
    return restamp(data, contract.identity, where)


def source_kind(source: Any) -> str:
    """Return the class of a source, by which a position is read; that of a DataFrame is Spark's.

    >>> import riot_ops as ro
    >>> source_kind(ro.MemorySource([{"value": 1.0}]))
    'MemorySource'
    """
    if isinstance(source, MergedSource):
        return "+".join(source_kind(one) for one in source.members.values())
    while isinstance(source, WrappedSource):
        source = source.source
    return type(source).__name__ if isinstance(source, Source) else "DataFrame"


def check_position(name: str, source: Any, then: str, position: Any, where: str) -> None:
    """Raise :class:`StateError` unless a source can continue from the position of an earlier one of kind ``then``."""
    now = source_kind(source)
    if then != now:
        raise StateError(
            f"{where}: the source {name!r} was a {then} and is a {now}, which cannot continue from its position; give "
            "the new source another name, with which it begins with its first record"
        )
    if isinstance(source, Source) and position is not None:
        try:
            source.count(source.initial(), position)
        except Exception as error:  # of any source
            raise StateError(
                f"{where}: the source {name!r} cannot continue from its position: {type(error).__name__}: "
                f"{excerpt(str(error))}"
            ) from error
