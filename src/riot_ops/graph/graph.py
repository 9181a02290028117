"""The graph of a dataflow as plain data: nodes, edges, schemas and validation."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Set
from typing import Any

import pyarrow as pa

from riot_ops.core.casting import is_key_type
from riot_ops.core.checks import check_flag
from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.order import is_ordinal, result_fields
from riot_ops.core.order import ordinals as _ordinals
from riot_ops.core.overwriting import checked_output_schema, results_of
from riot_ops.core.schema import ERRORS, ERRORS_STREAM
from riot_ops.graph.nodes import FORWARD, Distribution, Edge, Node, edge_ordinals

__all__ = ["Graph", "is_id"]


#: How the messages of several sources are merged.
MERGING = ("arrival", "number", "sequence")
#: Maximum number of messages of a source that another one follows in sequence.
MAX_MESSAGES_BEFORE = 1 << 44
#: Maximum length of an id: it is the name of a folder, of which file systems allow 255 bytes.
MAX_ID_BYTES = 200


def is_id(name: Any) -> bool:
    """Whether a node may have this id: letters, digits, ``_``, ``-`` and ``.``, since it names files and metrics.

    It begins with a letter or digit of ASCII, and has at most 200 bytes of UTF-8.

    >>> is_id("avg-1"), is_id("a/b"), is_id(""), is_id("_a")
    (True, False, False, False)
    """
    return (
        isinstance(name, str)
        and re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) is not None
        and len(name.encode()) <= MAX_ID_BYTES
    )


class Graph:
    """A DAG of sources, tasks and sinks with named streams, independent of the API and of the runner.

    Parameters
    ----------
    name : str
        Name of the dataflow.
    merging : "arrival", "number" or "sequence", default "arrival"
        How the messages of several sources are merged. "arrival": as they arrive. "number": message 0 of all sources in
        the order of their declaration, then message 1, and so on; a source that has ended is skipped. "sequence": all
        messages of the first source, then those of the second. The results of the latter two do not depend on how the
        streams are cut into batches.
    ordinals : bool, default False
        Whether results have the columns ``ordinal``, ``ordinal_2`` and so on, which order the records made of one
        message. By default they have those that a source declares.
    """

    def __init__(self, name: str, *, merging: str = "arrival", ordinals: bool = False) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a dataflow needs a name, got {name!r}")
        if merging not in MERGING:
            raise ConfigError(
                f"merging must be {', '.join(MERGING)}, got {merging!r}{did_you_mean(str(merging), MERGING)}"
            )
        check_flag(ordinals=ordinals)
        self.name = name
        self.merging = merging
        self.ordinals = ordinals
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []
        self._checked: tuple[list[Node | Edge], dict[str, pa.Schema]] = ([], {})

    def add_node(self, node: Node) -> None:
        """Add a node without edges."""
        if not is_id(node.id):
            raise ConfigError(
                f"id {value_text(node.id)}: only letters, digits, '_', '-' and '.' (it names files and metrics), "
                f"first a letter or digit of ASCII, and at most {MAX_ID_BYTES} bytes"
            )
        if node.id in self.nodes or node.id == ERRORS_STREAM:
            raise ConfigError(
                f"duplicate name {node.id!r} in the dataflow {self.name!r}"
                + (" (the stream of rejected records)" if node.id == ERRORS_STREAM else "")
            )
        self.nodes[node.id] = node

    def free_id(self, name: str) -> str:
        """Return a name as the id of a new node, with a number if another node has it."""
        number = 2
        free = name
        while free in self.nodes or free == ERRORS_STREAM:
            free, number = f"{name}_{number}", number + 1
        return free

    def connect(self, source: str, target: str, distribution: Distribution = FORWARD) -> None:
        """Add an edge between nodes by id."""
        self.edges.append(Edge(source, target, distribution))

    def inputs(self, node: str) -> list[Edge]:
        """Return the edges into a node, in the order of their creation."""
        return [e for e in self.edges if e.target == node]

    def outputs(self, node: str) -> list[Edge]:
        """Return the edges out of a node."""
        return [e for e in self.edges if e.source == node]

    def nodes_of_kind(self, kind: str) -> list[Node]:
        """Return the sources, the tasks or the sinks."""
        return [n for n in self.nodes.values() if n.kind == kind]

    def topological_order(self) -> list[Node]:
        """Return the nodes, each after its inputs; raises on a cycle."""
        into = self.edges_by_target()
        level: dict[str, int] = {}  # length of the longest path to a node
        missing = {id: sum(e.source in self.nodes for e in into[id]) for id in self.nodes}
        onward: dict[str, list[str]] = {id: [] for id in self.nodes}
        for edge in self.edges:
            if edge.source in self.nodes and edge.target in self.nodes:
                onward[edge.source].append(edge.target)
        ready = [id for id in self.nodes if not missing[id]]
        level.update(dict.fromkeys(ready, 0))
        for id in ready:
            for target in onward[id]:
                level[target] = max(level.get(target, 0), level[id] + 1)
                missing[target] -= 1
                if not missing[target]:
                    ready.append(target)
        if len(ready) < len(self.nodes):
            waiting = [id for id in self.nodes if missing[id]]
            raise ConfigError(f"the dataflow {self.name!r} has a cycle through {', '.join(waiting)}")
        return sorted(self.nodes.values(), key=lambda node: level[node.id])

    def edges_by_target(self) -> dict[str, list[Edge]]:
        """Return the edges into each node, in the order of their creation."""
        into: dict[str, list[Edge]] = {id: [] for id in self.nodes}
        for edge in self.edges:
            if edge.target in into:
                into[edge.target].append(edge)
        return into

    def numbering(self) -> dict[str, tuple[int, int]]:
        """Return ``(shift, step)`` by source: its message n has the number ``n * step + shift``.

        Merged by arrival, each source keeps its own numbers until its stream meets another, see
        :mod:`riot_ops.graph.merges`. Otherwise ``step`` is the number of sources whose records may meet in a stream,
        and ``shift`` the place of the source among them, so that their numbers differ; where sources follow in
        sequence, it also keeps their ranges apart.
        """
        if self.merging == "arrival":
            return {node.id: (0, 1) for node in self.nodes_of_kind("source")}
        leads = {id: id for id in self.nodes}  # union-find: to a node of the same component

        def lead(id: str) -> str:
            while leads[id] != id:
                leads[id] = id = leads[leads[id]]
            return id

        for edge in self.edges:
            leads[lead(edge.source)] = lead(edge.target)
        parts: dict[str, list[str]] = {}
        for node in self.nodes_of_kind("source"):
            parts.setdefault(lead(node.id), []).append(node.id)
        apart = MAX_MESSAGES_BEFORE if self.merging == "sequence" else 0
        return {
            id: (place + place * len(part) * apart, len(part))
            for part in parts.values()
            for place, id in enumerate(part)
        }

    def schemas(self) -> dict[str, pa.Schema]:
        """Return the schema of each stream by node id; raises if the dataflow is not valid."""
        parts: list[Node | Edge] = [*self.nodes.values(), *self.edges]  # immutable, each of them
        checked, schemas = self._checked
        if not parts or len(parts) != len(checked) or not all(map(operator.is_, parts, checked)):
            schemas = self._validated_schemas()
            self._checked = parts, schemas
        return dict(schemas)

    def result_schemas(self) -> dict[str, pa.Schema]:
        """Return the schema of each stream as sinks and users get it."""
        kept = self.result_ordinals()
        schemas = self.schemas()
        for id, schema in schemas.items():
            names = result_fields(schema.names, kept)
            schemas[id] = pa.schema([schema.field(name) for name in names], schema.metadata)
        return schemas

    def result_ordinals(self) -> frozenset[str] | None:
        """Return the ordinals that results have; None if they have all."""
        if self.ordinals:
            return None
        return frozenset(
            name
            for node in self.nodes_of_kind("source")
            if node.schema is not None
            for name in _ordinals(node.schema.names)
        )

    def infer_schemas(self, problems: list[str]) -> dict[str, pa.Schema]:
        """Return the schemas that can be inferred, also of an incomplete graph; appends to ``problems``."""
        found: dict[str, pa.Schema] = {ERRORS_STREAM: ERRORS}
        results: dict[str, Set[str]] = {}  # the columns that tasks have written, by node
        into = self.edges_by_target()
        for node in self.topological_order():
            if node.kind == "source":
                assert node.schema is not None
                found[node.id] = node.schema
            elif node.kind == "task":
                inputs = [found[e.source] for e in into[node.id] if e.source in found]
                if not inputs:
                    continue
                schema = inputs[0]
                for other, edge in zip(inputs[1:], into[node.id][1:], strict=False):
                    difference = _difference(schema, other)
                    if difference:
                        problems.append(f"{node.id}: its inputs do not agree: {difference} (from {edge.source!r})")
                for edge in into[node.id]:
                    for name in edge.distribution.fields:
                        if name not in schema.names:
                            problems.append(
                                f"{node.id}: hash field {name!r} is not in its input; fields are "
                                f"{', '.join(schema.names)}{did_you_mean(name, schema.names)}"
                            )
                        elif not is_key_type(dtype := schema.field(name).type):
                            problems.append(f"{node.id}: hash field {name!r} is {dtype}, which cannot be hashed")
                assert node.task is not None
                ordinals = [edge_ordinals(e, found[e.source]) for e in into[node.id] if e.source in found]
                for name in max(ordinals, key=len):  # filled with 0 for inputs that lack it
                    if name not in schema.names:
                        schema = schema.append(pa.field(name, pa.int64()))
                try:
                    before = set[str]().union(*(results.get(e.source, ()) for e in into[node.id]))
                    found[node.id] = out = checked_output_schema(node.task, schema, before)
                    results[node.id] = results_of(node.task, schema, out, before)
                except ConfigError as error:
                    problems.append(f"{node.id}: {error}")
        return found

    def validate(self) -> None:
        """Raise one :class:`ConfigError` that lists all problems; return if there are none."""
        self.schemas()

    def _validated_schemas(self) -> dict[str, pa.Schema]:
        problems: list[str] = []
        schemas: dict[str, pa.Schema] = {}
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in self.nodes:
                    problems.append(
                        f"edge {edge.source} -> {edge.target}: no node {end!r}{did_you_mean(end, self.nodes)}"
                    )
        pairs = Counter((e.source, e.target) for e in self.edges)
        problems += [f"edge {a} -> {b} occurs twice" for a, b in sorted(p for p, n in pairs.items() if n > 1)]
        into, read = self.edges_by_target(), {e.source for e in self.edges}
        for node in self.nodes.values():
            ins, outs = into[node.id], node.id in read
            if node.kind == "source" and ins:
                problems.append(f"{node.id}: a source has no inputs")
            if node.kind == "sink" and outs:
                problems.append(f"{node.id}: a sink has no outputs")
            if node.kind != "source" and not ins:
                problems.append(f"{node.id}: not connected: it has no input")
            if node.kind != "sink" and not outs:
                problems.append(f"{node.id}: not connected: its output goes nowhere; send it to a sink")
            if node.kind == "task" and not _agree([e.distribution for e in ins]):
                problems.append(
                    f"{node.id}: its input edges have different distributions; merge them first, or spread each "
                    "over the same number of instances"
                )
        if not self.nodes_of_kind("source"):
            problems.append("there is no source")
        try:
            schemas = self.infer_schemas(problems)
        except ConfigError as error:
            problems.append(str(error))
        if problems:
            raise ConfigError(f"the dataflow {self.name!r} is not valid:\n  - " + "\n  - ".join(problems))
        return schemas


def _agree(spreads: list[Distribution]) -> bool:
    """Whether the edges into a task have equal distributions, or spread over equally many instances."""
    if len({(d.kind, d.fields, d.parallelism) for d in spreads}) <= 1:
        return True
    named = all(d.kind in ("shuffle", "hash", "broadcast", "custom") and d.parallelism for d in spreads)
    return named and len({d.parallelism for d in spreads}) == 1


def _difference(a: pa.Schema, b: pa.Schema) -> str:
    for name in dict.fromkeys([*a.names, *b.names]):
        if is_ordinal(name):  # which is optional
            continue
        if name not in a.names or name not in b.names:
            return f"only one has the field {name!r}"
        if a.field(name).type != b.field(name).type:
            return f"the field {name!r} is {a.field(name).type} and {b.field(name).type}"
    return ""
