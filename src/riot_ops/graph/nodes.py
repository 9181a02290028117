"""Nodes and edges of a dataflow's graph, and how an edge spreads records over instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.operator import Operator
from riot_ops.core.order import next_ordinal, ordinals
from riot_ops.core.schema import PYTHON_TYPES, RAW, arrow_type
from riot_ops.core.sink import Sink
from riot_ops.ingest.step import declared_schema

__all__ = ["FORWARD", "Distribution", "Edge", "Node", "Router", "edge_ordinals", "source_node"]

#: The maximum number of instances of a task: a broadcast copies each record for all of them.
MAX_PARALLELISM = 4096
#: A user's routing function: gets a batch, returns the instance (0 … parallelism-1) of each row.
Router = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True)
class Distribution:
    """How the records of an edge spread over the instances of its target task.

    ==========  =========================================================================
    forward     the task's own key decides (the default)
    shuffle     round robin by message number
    hash        by the hash of ``fields``
    broadcast   every instance receives every record
    one         a single instance receives all
    custom      ``router`` names the instance of each record
    ==========  =========================================================================

    Each instance has its own state, so ``shuffle`` into a keyed task counts each key once per
    instance, as the platforms of the papers do. Edges into one task may differ if all spread
    over the same number of instances: readings by ``shuffle(4)``, models by ``broadcast(4)``.

    Examples
    --------
    >>> import riot_ops as ro
    >>> words = ro.Dataflow("spread").source("words", schema={"word": "string"})
    >>> words.partition_by("word", parallelism=2).distribution == ro.Distribution("hash", ("word",), 2)
    True
    >>> ro.Distribution("broadcast")
    Traceback (most recent call last):
        ...
    riot_ops.core.errors.ConfigError: broadcast needs parallelism, the number of instances
    """

    kind: Literal["forward", "shuffle", "hash", "broadcast", "one", "custom"] = "forward"
    fields: tuple[str, ...] = ()
    parallelism: int | None = None
    router: Router | None = None

    def __post_init__(self) -> None:
        if isinstance(self.fields, str):
            object.__setattr__(self, "fields", (self.fields,))
        if self.kind not in ("forward", "shuffle", "hash", "broadcast", "one", "custom"):
            raise ConfigError(
                f"distribution must be forward, shuffle, hash, broadcast, one or custom, got {self.kind!r}"
            )
        parallelism = self.parallelism
        if parallelism is not None and (type(parallelism) is not int or not 1 <= parallelism <= MAX_PARALLELISM):
            raise ConfigError(f"parallelism must be a whole number from 1 to {MAX_PARALLELISM}, got {parallelism!r}")
        if self.kind == "hash" and not self.fields:
            raise ConfigError("hash needs at least one field")
        if self.kind in ("broadcast", "custom") and self.parallelism is None:
            raise ConfigError(f"{self.kind} needs parallelism, the number of instances")
        if (self.kind == "custom") != (self.router is not None):
            raise ConfigError("a custom distribution (and no other) needs a router function")


#: The task's own key decides.
FORWARD = Distribution()


@dataclass(frozen=True)
class Node:
    """A vertex: a source, a task or a sink, with the object that gets its records unless a run names another."""

    id: str
    kind: Literal["source", "task", "sink"]
    task: Operator | None = None
    schema: pa.Schema | None = field(default=None, hash=False)
    sink: Sink | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Edge:
    """A stream of records from one node to another."""

    source: str
    target: str
    distribution: Distribution = FORWARD


def _declared_type(source: str, key: str, kind: Any) -> pa.DataType:
    """Return the Arrow type that a schema names: a type of Arrow or of Python, or a text."""
    if isinstance(kind, pa.DataType):
        return kind
    if isinstance(kind, str):
        return arrow_type(kind)
    if isinstance(kind, type) and kind in PYTHON_TYPES:
        return PYTHON_TYPES[kind]
    raise ConfigError(
        f"source {source!r}: the type of the field {key!r} must be Arrow's, its name such as 'double', or one of "
        f"{', '.join(known.__name__ for known in PYTHON_TYPES)}, got {value_text(kind)}"
    )


def source_node(name: str, schema: pa.Schema | Mapping[str, Any] | None = None) -> Node:
    """Make a source node with the declared fields, and ``seq`` before them if it is missing."""
    if schema is None:
        fields = RAW
    elif isinstance(schema, pa.Schema):
        fields = schema
    else:
        fields = pa.schema([(key, _declared_type(name, key, kind)) for key, kind in schema.items()])
    if "seq" not in fields.names:
        fields = fields.insert(0, pa.field("seq", pa.int64(), nullable=False))
    fields = declared_schema(fields, f"source {name!r}")
    seq = fields.get_field_index("seq")
    fields = fields.set(seq, fields.field(seq).with_nullable(False))
    return Node(name, "source", schema=fields)


def edge_ordinals(edge: Edge, schema: pa.Schema) -> tuple[str, ...]:
    """Return the ordinals of the records that leave an edge; a broadcast adds one that distinguishes its copies."""
    more = [next_ordinal(schema.names)] if edge.distribution.kind == "broadcast" else []
    return (*ordinals(schema.names), *more)
