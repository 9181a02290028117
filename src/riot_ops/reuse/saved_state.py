"""The state of a manager as data, and its dataflows recreated from it, with placeholders for what cannot be opened."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from riot_ops.core.errors import ConfigError, StateError, exception_text, value_text
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.sink import Sink, Writer
from riot_ops.core.source import Offset, Source, Split
from riot_ops.dataflow import Dataflow
from riot_ops.graph.descriptor import load
from riot_ops.graph.lowering import Step
from riot_ops.graph.nodes import source_node
from riot_ops.reuse.errors import FailedBeforeError, describe_error
from riot_ops.reuse.ledger import Ledger
from riot_ops.reuse.signature import StepIdentity
from riot_ops.reuse.submission import OPTIONS, Deployment, ReadMode, Submission, build_submission, describe_submission
from riot_ops.task import StatelessTask

__all__ = [
    "PlaceholderSource",
    "PlaceholderTask",
    "Rebind",
    "dump_state",
    "parse_state",
    "placeholder_reasons",
    "recreate_deployments",
    "recreate_submission",
]

#: Returns the sources and sinks of a dataflow that resumes, as passed to ``submit``.
Rebind = Callable[[str, Dataflow], tuple[Any, Any]]

_log = logging.getLogger("riot_ops")


class PlaceholderSource(Source):
    """A source that cannot be opened again: raises the reason when it is read."""

    def __init__(self, schema: pa.Schema, why: str) -> None:
        self._schema, self._why = schema, why

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def _raise(self) -> NoReturn:
        raise StateError(self._why)

    def initial(self) -> Offset:
        self._raise()

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        self._raise()

    def finished(self, offset: Offset) -> bool:
        return False

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        self._raise()

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        self._raise()

    def waits(self) -> bool:
        return True


class PlaceholderSink(Sink):
    """A sink that cannot be opened again: raises the reason before a write; its earlier output stays."""

    def __init__(self, why: str) -> None:
        self._why = why

    def writer(self, batch_id: int, partition: int) -> Writer:
        raise StateError(self._why)


@dataclass(frozen=True, kw_only=True)
class PlaceholderTask(StatelessTask):
    """A task that cannot be created again: raises the reason when it runs."""

    why: str

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> NoReturn:
        raise FailedBeforeError(self.why)


def placeholder_reasons(steps: Iterable[Step]) -> dict[str, str]:
    """By placeholder step, why it cannot be created again."""
    return {step.id: step.operator.why for step in steps if isinstance(step.operator, PlaceholderTask)}


def recreate_submission(
    what: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
    rebind: Rebind | None,
    reads: ReadMode,
    strict: bool,
    options: Mapping[str, Any],
) -> tuple[Submission, dict[str, StepIdentity]]:
    """Build the submission of a dataflow that ran before a restart.

    If its sources and sinks cannot be opened, or a task cannot be created because its table or model is missing, the
    dataflow gets placeholders; with ``strict`` the error is raised.
    """
    name = what["name"]
    try:
        flow = Dataflow.from_dict(what["flow"], functions)
    except Exception as error:  # whatever a user's task raises concerns its dataflow alone
        if strict:
            raise
        why = f"a task cannot be created again: {describe_error(error)}"
        stand_in = _without_tasks(load(what["flow"], functions, Dataflow, lambda task: PlaceholderTask(why=why)))
        _log.warning("the dataflow %r resumes, but gets nothing: %s", name, why)
        sources, sinks = _placeholders(stand_in, why) if reads else (None, None)
        return build_submission(name, stand_in, sources, sinks, reads, **options, descriptor=what["flow"])
    if rebind is None:
        return build_submission(name, flow, None, None, reads, **options)
    try:
        return build_submission(name, flow, *rebind(name, flow), reads, **options)
    except Exception as error:  # as for a task
        if strict:
            raise
        _log.warning("the dataflow %r resumes, but gets nothing: %s", name, exception_text(error))
        why = f"its sources and sinks cannot be opened again: {describe_error(error)}"
        return build_submission(name, flow, *_placeholders(flow, why), reads, **options)


def _without_tasks(flow: Dataflow) -> Dataflow:
    """Return a dataflow with the same nodes and edges, but without fields."""
    stand_in = Dataflow(flow.name)
    for node in flow.nodes.values():
        stand_in.add_node(source_node(node.id) if node.kind == "source" else node)
    for edge in flow.edges:
        stand_in.connect(edge.source, edge.target)
    return stand_in


def _placeholders(flow: Dataflow, why: str) -> tuple[dict[str, Source], dict[str, Sink]]:
    sources: dict[str, Source] = {}
    for node in flow.nodes_of_kind("source"):
        assert node.schema is not None
        sources[node.id] = PlaceholderSource(node.schema, why)
    sink = PlaceholderSink(why)
    return sources, dict.fromkeys((node.id for node in flow.nodes_of_kind("sink")), sink)


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
